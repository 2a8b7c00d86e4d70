"""The command line of the scripts: what is there for an experiment, its runs, and the tables that they fill."""

import argparse
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks.records import Records
from benchmarks.trainings import add_cluster_options, train_first
from experiments.bench import Experiment, Run
from experiments.recipe import FOLDER, Recipe, Sets, read_recipe
from experiments.table import Tables
from greenadapt.cli.output.console import make_progress, print_lines
from greenadapt.config import NumberOfSeeds, SessionOptions
from greenadapt.errors import UsageError, require_torch
from greenadapt.fields import check_value, parse_bytes
from greenadapt.stages.session import Session
from greenadapt.store.files import expand_home
from greenadapt.store.locks import lock

_OF_SESSION = ("workspace", "download", "workers", "max_memory", "cluster", "gpus_each")


def parser_of(description: str | None) -> argparse.ArgumentParser:
    """A parser whose help shows a script's docstring as it is."""
    return argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)


def parse(parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> argparse.Namespace:
    """Add the options that all scripts have, and read them."""
    add = parser.add_argument
    add("--only", metavar="SET", action="append", default=[], help="only this data set; repeatable")
    add("--method", action="append", default=[], help="only this method, as the recipe calls it; repeatable")
    add("--seeds", type=int, help="number of models of each cell; the paper's by default")
    add("--data", metavar="[SET=]FOLDER", action="append", help="a data set, or a folder of them; repeatable")
    add("--model", metavar="ROLE=MODEL", action="append", help="another model than the recipe's; repeatable")
    add("--corpus", metavar="ROLE=CORPUS", action="append", help="another corpus; repeatable")
    add("--recipe", metavar="FILE", type=Path, help="a recipe of your own, which may extend that of the experiment")
    add("--out", type=Path, default=Path("build/experiments"), help="folder of records and tables [%(default)s]")
    add("--workspace", type=Path, help="folder of corpora and word vectors; greenadapt's own by default")
    add("--download", action="store_true", help="download data sets and corpora if needed")
    add("--workers", type=int, help="processes or threads; one per core by default")
    add("--max-memory", type=parse_bytes, default=SessionOptions.max_memory, help="such as 500M or 8G [4G]")
    add("--json", action="store_true", help="print JSON")
    add_cluster_options(parser)
    return parser.parse_args(arguments)


def reproduce(kind: type[Experiment], name: str, options: argparse.Namespace) -> None:
    """Do the runs that are missing, all methods under one seed before the next seed, and print the tables.

    The cell of a run that lacks its data or model says so.
    """
    check_value("--seeds", options.seeds, NumberOfSeeds | None)
    recipe = read_recipe(options.recipe or FOLDER / f"{name}.toml")
    sets = _chosen("--only", options.only, list(recipe.sets))
    names = dict.fromkeys(row.method for table in recipe.tables for row in table.rows)
    methods = _chosen("--method", options.method, list(names))
    n_seeds = options.seeds or recipe.seeds
    experiment, runs = _experiment(kind, recipe, options), runs_of(recipe, methods, sets, n_seeds)
    require_torch("reproducing an experiment")
    experiment.root.mkdir(parents=True, exist_ok=True)
    tables = Tables(experiment, methods, sets, n_seeds)
    with lock(experiment.root / ".lock", experiment.root):
        attempts = [
            partial(experiment.attempt, run, training) for run in runs for training in experiment.trainings(run)
        ]
        train_first(experiment.session, options, attempts)
        for run in runs:
            if run.cell not in experiment.reasons and (record := experiment.attempt(run, run)) is not None:
                experiment.done.setdefault(run.cell, []).append(record)
            (experiment.root / "table.md").write_text(tables.page(), "utf-8")
    print_lines([json.dumps(tables.as_dict())] if options.json else tables.page().splitlines())


def runs_of(recipe: Recipe, methods: Sequence[str], sets: Sequence[str], n_seeds: int) -> list[Run]:
    """Every run once, all methods and sets under one seed before the next one."""
    cells = [(column, row) for _, _, column, row in recipe.cells(methods, sets) if not row.why]
    names = dict.fromkeys((column.set, row.method, column.variant) for column, row in cells)
    return [Run(*cell, seed) for seed in range(n_seeds) for cell in names]


def _experiment(kind: type[Experiment], recipe: Recipe, options: argparse.Namespace) -> Experiment:
    data = {name: expand_home(folder) for name, folder in _named("--data", options.data, ["", *recipe.sets]).items()}
    for name, folder in data.items():
        if not (folder.is_dir() or (name and folder.is_file())):
            raise UsageError(f"--data names {folder}, which is no folder", "check the path")
    session = Session.of(SessionOptions(**{name: getattr(options, name) for name in _OF_SESSION}), make_progress())
    root = options.out.absolute() / recipe.name
    sets = Sets(root.parent, data, session.download, session.progress)
    models = {**recipe.models, **_named("--model", options.model, [*recipe.models])}
    corpora = {**recipe.corpora, **_named("--corpus", options.corpus, [*recipe.corpora])}
    return kind(recipe, session, sets, Records(root / "records.jsonl"), root, models, corpora)


def _named(option: str, texts: Sequence[str] | None, names: Sequence[str]) -> dict[str, str]:
    """``NAME=VALUE`` by name; a value without a name, which may be a path with a =, by "" if ``names`` has it."""
    values: dict[str, str] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or "/" in name:
            name, value = "", text
        if name not in names:
            hint = f"it has {', '.join(filter(None, names)) or 'none'}"
            raise UsageError(f"{option} {text} is for no role or data set of the recipe", hint)
        if name in values:
            raise UsageError(f"{option} names {values[name]} and {value} for {name or 'all'}", "give one of them")
        values[name] = value
    return values


def _chosen(option: str, selected: Sequence[str], allowed: Sequence[str]) -> list[str]:
    if unknown := [name for name in selected if name not in allowed]:
        raise UsageError(f"{option} names {', '.join(unknown)}", f"choose among {', '.join(allowed)}")
    return [name for name in allowed if name in selected or not selected]
