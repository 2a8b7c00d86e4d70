"""One page about a workspace's results for a corpus and a model, or about given results."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from greenadapt import __version__
from greenadapt.corpus.prepared import read_vocabulary
from greenadapt.errors import MissingError
from greenadapt.report.map_quality import MAP
from greenadapt.report.page.blocks import Missing, Page, Section
from greenadapt.report.page.drawing import Drawing, html, require_library, write_plots
from greenadapt.report.page.sections import (
    CorpusData,
    MapData,
    StageData,
    corpus_section,
    cost_section,
    pipeline_section,
    pretrain_section,
    space_section,
    tasks_section,
    words_section,
)
from greenadapt.stages.cost import paper_costs
from greenadapt.stages.lineage import with_sources
from greenadapt.stages.report.adapted import Adapted
from greenadapt.stages.session import ALIGN, CORPUS, EXPAND, FINETUNE, PRETRAIN, W2V, Session
from greenadapt.storage.files import Json, short
from greenadapt.storage.outputs import check_file, open_file
from greenadapt.storage.results import Result, refuse_overlap
from greenadapt.vectors.word_vectors import VOCABULARY

_ADAPT = "greenadapt adapt --corpus TEXT --model MODEL"
_GIVEN = "greenadapt report FOLDER  # of a model that was made with --out"
_ORDER = {CORPUS: 0, W2V: 1, ALIGN: 2, EXPAND: 3}


@dataclass(frozen=True)
class Written:
    """What ``report`` wrote."""

    page: Path
    sections: list[str]
    """The anchors of its sections."""
    missing: list[str]
    """The commands that would make the others."""
    plots: list[Path]

    def as_dict(self) -> Json:
        """The same as JSON values, with the bytes of the page."""
        return {
            "page": str(self.page),
            "bytes": self.page.stat().st_size,
            "sections": self.sections,
            "missing": self.missing,
            "plots": [str(path) for path in self.plots],
        }


def report(
    session: Session,
    folders: Sequence[Path],
    chosen: tuple[str | None, str | None] = (None, None),
    out: Path | None = None,
    plots: tuple[Path | None, Path | None] = (None, None),
) -> Written:
    """Write the page of ``folders`` and all they were made from, or of the ``chosen`` corpus and model.

    ``plots`` are folders for its plots as PNG and as SVG, which are made if they are not there. Raises
    ``MissingError`` if there are no results, or the packages that draw are not installed.
    """
    require_library()
    with Drawing() as drawing:
        results = with_sources(folders, session.progress) if folders else _in_workspace(session, *chosen)
        target = out or Path(f"report-{_file_name(results)}.html")
        read = {name: folder for folder, name in _names(results).items()}
        check_file(target, read)
        for folder in filter(None, plots):
            refuse_overlap(folder, read, is_replaced=False)
            folder.mkdir(parents=True, exist_ok=True)
        page = _Report(results).page(drawing)
        text = html(page, __version__, drawing.picture)
    with open_file(target, "w") as file:
        file.write(text)
    written = write_plots(page.plots(), *plots)
    sections = [section.name for section in page.sections]
    return Written(target, sections, [command for one in page.missing for command in one.commands], written)


def _in_workspace(session: Session, corpus: str | None, model: str | None) -> list[Result]:
    name, chosen = session.names(corpus, model)
    results = session.workspace.results(name, chosen)
    if not results:
        raise MissingError(
            f"no results for {name} and {chosen} in {session.workspace.root}", "run greenadapt adapt first"
        )
    return sorted(results, key=lambda result: _ORDER.get(result.manifest.stage, 9))


def _file_name(results: Sequence[Result]) -> str:
    """The corpus and the model, or the folder of the last result."""
    last = results[-1]
    return "-".join(last.path.parts[-3:-1]) if last.path != last.folder and last.path.is_symlink() else last.path.name


def _names(results: Sequence[Result]) -> dict[Path, str]:
    """What the page calls each result, by its folder: the stage, and the folder's name if that says more."""
    names: dict[Path, str] = {}
    for result in results:
        stage, own = result.manifest.stage, result.path.name
        name = own if own.split("@")[0] == stage else f"{stage} {own}"
        is_taken = name in names.values()
        names[result.folder] = f"{name} ({result.path.parent.name})" if is_taken else name
    return names


def sections(results: list[Result], names: Mapping[Path, str]) -> list[Section]:
    """The sections for which there are ``results``; ``names`` are those of some of them, by folder."""
    return list(_Report(results, names).sections())


class _Report:
    """The sections for which there are results, and what would make the others."""

    def __init__(self, results: list[Result], names: Mapping[Path, str] | None = None) -> None:
        self.results = results
        self.names = _names(results) | dict(names or {})
        self.adapted = [Adapted(one, self.names[one.folder]) for one in self._of(EXPAND)]
        self.missing: list[Missing] = []

    def _of(self, stage: str) -> list[Result]:
        return [result for result in self.results if result.manifest.stage == stage]

    def page(self, drawing: Drawing) -> Page:
        """The whole page, whose plots are drawn as soon as a section is complete."""
        sections = [drawing.begin(section) for section in self.sections()]
        facts = next((one.manifest.facts for one in self.results if "title" in one.manifest.facts), {})
        model = short(str(facts.get("model", {}).get("source", ""))) or self.names[self.results[-1].folder]
        title = f"{Path(model).name}, adapted to {facts['title']}" if self.adapted else f"Report on {model}"
        about = f"What greenadapt made, what it cost and what it gained: {len(self.results)} results."
        return Page(title, about, sections, self.missing)

    def sections(self) -> Iterator[Section]:
        """Each section as soon as it is computed."""
        stages = [self._stage(result) for result in self.results]
        yield pipeline_section(stages)
        yield from self._corpora()
        yield from self._space()
        yield from self._tasks()
        yield from self._pretrained()
        yield cost_section(stages, paper_costs())

    def _stage(self, result: Result) -> StageData:
        manifest = result.manifest
        return StageData(self.names[result.folder], manifest.stage, manifest.facts.get("command"), manifest.whole_cost)

    def _corpora(self) -> list[Section]:
        corpora = []
        for result in self._of(CORPUS):
            words, counts = read_vocabulary(result.folder / VOCABULARY)
            facts = result.manifest.facts
            own = [one for one in self.adapted if one.result.manifest.facts.get("corpus") == facts.get("corpus")]
            pieces = [one.piece_counts(words, counts) for one in own]
            about = facts.get("title", ""), facts.get("licence", "unknown")
            corpora.append(CorpusData(*about, result.manifest.counts, words[:100], counts, pieces))
        if not corpora:
            self.missing.append(Missing("Corpus", [_ADAPT]))
        return [corpus_section(corpora)] if corpora else []

    def _space(self) -> list[Section]:
        maps = []
        for result in self._of(ALIGN):
            heldout = result.manifest.facts["heldout"]
            config, overlap = result.manifest.config, result.manifest.counts["overlap"]
            name = "the map" if len(self._of(ALIGN)) == 1 else self.names[result.folder]
            maps.append(MapData(name, config["method"], overlap, heldout["figures"], heldout.get("note", "")))
        for one in self.adapted:
            manifest = one.result.manifest
            prefix = "" if len(self.adapted) == 1 else f"{one.name}, "
            made = manifest.facts["rows"]
            for recipe, figures in made["heldout"].items():
                if recipe == MAP and self._of(ALIGN):  # whose figures these are
                    continue
                name = f"{prefix}--rows {recipe}{' (the new rows)' if recipe == made['recipe'] else ''}"
                maps.append(MapData(name, recipe, manifest.counts["overlap"], figures))
        rows = [one.rows_data(self._neighbours(one)) for one in self.adapted]
        sections = [space_section(maps, rows)] if maps or rows else []
        if self.adapted:
            sections.append(words_section([one.added_data() for one in self.adapted]))
        else:
            self.missing.append(Missing("Added words and rows", [_ADAPT, _GIVEN]))
        return sections

    @staticmethod
    def _neighbours(one: Adapted) -> str:
        aligned = one.result.manifest.inputs["alignment"].get("path", "FOLDER")
        return f"Those of any other word: greenadapt neighbours WORD --alignment {short(aligned)}"

    def _tasks(self) -> list[Section]:
        results = self._of(FINETUNE)
        if not results:
            self.missing.append(
                Missing(
                    "Task scores",
                    [
                        "greenadapt finetune --task TASK --train FILE --test FILE --compare BASE --out FOLDER",
                        "greenadapt report FOLDER FOLDER-BASE",
                    ],
                )
            )
            return []
        from greenadapt.stages.report.tuned import task_groups  # the tasks load scipy

        groups = task_groups(results, self.names)
        if not any(group.base for group in groups):
            self.missing.append(
                Missing(
                    "The base model against the adapted one",
                    ["greenadapt finetune … --compare BASE", "greenadapt report FOLDER FOLDER-BASE"],
                )
            )
        if not any(model.history and "dev" in model.history[0] for group in groups for model in group.models):
            self.missing.append(Missing("Scores over epochs", ["greenadapt finetune … --dev FILE"]))
        return [tasks_section(groups)]

    def _pretrained(self) -> list[Section]:
        results = self._of(PRETRAIN)
        if not results:
            return []
        from greenadapt.stages.pretrain import read_losses
        from greenadapt.stages.report.tuned import read_history

        models = [(self.names[one.folder], read_losses(one), read_history(one.folder)) for one in results]
        return [pretrain_section(models)]
