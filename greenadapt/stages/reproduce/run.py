"""The experiments of the three papers, run by run, and their tables."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from greenadapt.errors import GreenadaptError, LockedError, UsageError, as_percent, counted, require_torch
from greenadapt.stages.finetune.on_cluster import train_on_cluster
from greenadapt.stages.finetune.train import Finetuning
from greenadapt.stages.reproduce.bench import Bench, Run
from greenadapt.stages.reproduce.estimate import plan_steps
from greenadapt.stages.reproduce.experiments import EXPERIMENTS, Experiment
from greenadapt.stages.reproduce.recipe import Recipe, read_recipe
from greenadapt.stages.reproduce.sets import Sets
from greenadapt.stages.reproduce.table import Cell, Found, Line, as_json, covered, lines_of, markdown
from greenadapt.stages.session import Session
from greenadapt.storage.files import Json, replace_json, short
from greenadapt.storage.locks import lock
from greenadapt.storage.outputs import replacing
from greenadapt.storage.records import Records

TABLE = "table"
"""The name of the table's files, which end in .md and .json."""


@dataclass(frozen=True)
class ReproduceRequest:
    """Which experiment, and what the user has for it."""

    recipe: str
    """A name, or a TOML file."""
    only: tuple[str, ...] = ()
    """Data sets; empty: all."""
    methods: tuple[str, ...] = ()
    """The same of methods."""
    seeds: int | None = None
    data: Mapping[str, Path] = field(default_factory=dict)
    """Folders of data sets by name; by "" one that has a folder for each."""
    models: Mapping[str, str] = field(default_factory=dict)
    """By role; by "" that of the first role."""
    corpora: Mapping[str, str] = field(default_factory=dict)
    """The same."""


@dataclass(frozen=True)
class Reproduction:
    """What is known of an experiment so far."""

    recipe: Recipe
    folder: Path
    lines: Sequence[Line]
    share: tuple[float, int] | None
    """See ``covered``."""
    used: Mapping[str, str]
    """Models and corpora by role."""

    @property
    def remarks(self) -> list[str]:
        """What is said below the tables."""
        said = [f"Run with {used_settings(self.recipe, self.used)}."]
        if self.share is not None:
            share, n = self.share
            lead = f"Of the reference's lead over the base model {as_percent(share, 0)} is covered"
            covered = f"{lead} (mean, {counted(n, 'set')})."
            said.append(f"{covered} {self.recipe.gap}".rstrip())
        return said

    def as_dict(self) -> Json:
        """Ready for JSON."""
        found = as_json(self.recipe, self.lines, self.share)
        return {**found, "used": {role: short(name) for role, name in self.used.items()}, "folder": str(self.folder)}

    def write(self) -> None:
        """Write the table as Markdown and JSON, each whole or not at all."""
        with replacing(self.folder / f"{TABLE}.md") as part:
            part.write_text(markdown(self.recipe, self.lines, self.remarks), "utf-8")
        replace_json(self.folder / f"{TABLE}.json", self.as_dict())


def reproduce(session: Session, request: ReproduceRequest) -> Reproduction:
    """Do the runs of an experiment that are missing, as far as data and models are there, and fill its tables.

    All methods run under one seed before the next one. What cannot be run is a cell that says why. Of a fine-tuned
    model only its scores are kept. A dry run notes what there is to do.
    """
    recipe = read_recipe(request.recipe)
    sets = _chosen("--only", request.only, list(recipe.sets))
    known = list(dict.fromkeys(row.method for table in recipe.tables for row in table.rows))
    methods = _chosen("--method", request.methods, known)
    n_seeds = request.seeds or recipe.seeds
    if recipe.kind == "qa" and n_seeds > 1 and request.seeds is not None:
        raise UsageError(f"--seeds {n_seeds}, but {recipe.name} trains no model", "leave it out")
    root = session.workspace.reproduced(recipe.name)
    runs = runs_of(recipe, methods, sets, n_seeds)
    if session.plan is None:
        require_torch("reproducing an experiment")
        root.mkdir(parents=True, exist_ok=True)
    with _locked(session, root):
        bench = _bench(session, recipe, request, root)
        if session.plan is not None:
            plan_steps(bench, runs)
        filling = _Filling(bench, methods, sets, n_seeds)
        if session.plan is None:
            filling.fill(runs)
        return filling.so_far()


def runs_of(recipe: Recipe, methods: Sequence[str], sets: Sequence[str], n_seeds: int) -> list[Run]:
    """Every run once, all methods and sets under one seed before the next one; without training there is one seed."""
    cells = [
        (column.set, row.method, column.variant)
        for table in recipe.tables
        for _, column, row in table.cells()
        if column.set in sets and row.method in methods and not row.why
    ]
    seeds = range(1 if recipe.kind == "qa" else n_seeds)
    return [Run(*cell, seed) for seed in seeds for cell in dict.fromkeys(cells)]


def _bench(session: Session, recipe: Recipe, request: ReproduceRequest, root: Path) -> Bench:
    for option, folder in request.data.items():
        if not (folder.is_dir() or (option and folder.is_file())):
            raise UsageError(f"--data names {folder}, which is no folder", "check the path")
    unknown = [name for name in request.data if name and name not in recipe.sets]
    if unknown:
        raise UsageError(
            f"--data names {', '.join(unknown)}, which {recipe.name} has not", f"the sets are {', '.join(recipe.sets)}"
        )
    models = _by_role(recipe, "models", request.models)
    corpora = _by_role(recipe, "corpora", request.corpora)
    sets = Sets(root.parent, request.data, session.download, session.progress)
    return Bench(session, recipe, sets, Records(root / "records.jsonl"), root, models, corpora)


def _by_role(recipe: Recipe, table: str, given: Mapping[str, str]) -> dict[str, str]:
    """What the user gave for each role; that without a role is for the recipe's first."""
    roles = list(recipe.table(table))
    option = "--model" if table == "models" else "--corpus"
    if given and not roles:
        raise UsageError(f"{recipe.name} has no {table}", f"leave out {option}")
    known = [*roles, "domain"] if recipe.kind == "memory" and table == "models" else roles
    for role in given:
        if role and role not in known:
            raise UsageError(f"{option} names {role}, which {recipe.name} has not", f"it has {', '.join(known)}")
    if "" in given and roles[0] in given:
        raise UsageError(f"{option} names {given['']} and {given[roles[0]]} for {roles[0]}", "give one of them")
    return {role or roles[0]: value for role, value in given.items()}


def _chosen(option: str, given: Sequence[str], known: Sequence[str]) -> list[str]:
    if unknown := [name for name in given if name not in known]:
        raise UsageError(f"{option} names {', '.join(unknown)}", f"choose among {', '.join(known)}")
    return [name for name in known if name in given] if given else list(known)


@contextmanager
def _locked(session: Session, root: Path) -> Iterator[None]:
    if session.plan is not None:
        yield
        return
    with lock(root / ".lock", root, session.command):
        yield


def used_settings(recipe: Recipe, used: Mapping[str, str]) -> str:
    """Models, corpora and settings in words, so that nobody takes a table of other ones for the paper's."""
    tables = {name: recipe.table(name) for name in ("task", "training", "sampling", "w2v")}
    settings = {f"{name} {key}": json.dumps(value) for name, table in tables.items() for key, value in table.items()}
    roles = {role: short(name) if name else "nothing" for role, name in used.items()}
    return ", ".join(f"{name} = {value}" for name, value in {**roles, **settings}.items())


class _Filling:
    """Fills the cells of the tables."""

    def __init__(self, bench: Bench, methods: Sequence[str], sets: Sequence[str], n_seeds: int) -> None:
        self._bench, self._methods, self._sets, self._n_seeds = bench, methods, sets, n_seeds
        self._experiment: Experiment = EXPERIMENTS[bench.recipe.kind](bench)
        self._records: dict[Cell, list[Json]] = {}
        self._reasons: dict[Cell, str] = {}
        self._given_up: set[Cell] = set()
        self._failed: set[Run] = set()

    def fill(self, runs: Sequence[Run]) -> None:
        """Do all ``runs`` that can be done, with --cluster side by side; the table is written after each."""
        if self._bench.session.cluster is not None:
            self._train_first(runs)
        for run in runs:
            if run in self._failed or run.cell in self._given_up:
                continue
            with self._reasoned(run):
                self._records.setdefault(run.cell, []).append(self._experiment.record(run))
            self.so_far().write()
        self.so_far().write()

    def so_far(self) -> Reproduction:
        """What is known now."""
        recipe = self._bench.recipe
        n_seeds = 1 if recipe.kind == "qa" else self._n_seeds
        found = Found(self._records, self._reasons, n_seeds)
        lines = lines_of(recipe, found, self._methods, self._sets)
        share = covered(recipe, found) if recipe.kind == "ner" else None
        bench = self._bench
        used = {**recipe.table("models"), **bench.models, **recipe.table("corpora"), **bench.corpora}
        return Reproduction(recipe, bench.root, lines, share, used)

    @contextmanager
    def _reasoned(self, run: Run) -> Iterator[None]:
        """Keep why a run cannot be done; under other seeds it could not either."""
        try:
            yield
        except LockedError:
            raise
        except GreenadaptError as error:
            self._given_up.add(run.cell)
            self._keep_reason(run, str(error))

    def _keep_reason(self, run: Run, why: str) -> None:
        if why not in self._reasons.values():
            self._bench.session.progress.warn(f"{run.set}, {run.method}: {why}")
        self._reasons[run.cell] = why

    def _train_first(self, runs: Sequence[Run]) -> None:
        """Fine-tune all that is missing on the cluster, side by side."""
        wanted: dict[Path, tuple[Run, Finetuning]] = {}
        for run in runs:
            if run.cell in self._given_up:
                continue
            with self._reasoned(run):
                for one in self._experiment.finetunings(run):
                    if one is not None:
                        wanted.setdefault(one.place.path, (run, one))
        session = replace(self._bench.session, out=None)
        chosen = [*wanted.values()]
        failures = train_on_cluster(session, [one for _, one in chosen], [run.name for run, _ in chosen])
        for number in failures.runs:
            run = chosen[number][0]
            self._failed.add(run)
            self._keep_reason(run, f"failed on the cluster: {failures.first}")
