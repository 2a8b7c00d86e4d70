"""``report``: one page about the results for a corpus and a model, and the plots of a card."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np

from greenadapt import __version__
from greenadapt.checkpoints.layout import (
    HISTORY,
    PREDICTIONS,
    SCORES,
    SEEDS,
    TASK_FILE,
    is_multitask,
    read_described,
)
from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.corpus.opening import source_input
from greenadapt.corpus.prepared import read_vocabulary
from greenadapt.errors import GreenadaptError, MissingError, require
from greenadapt.progress import Silent
from greenadapt.report.page.blocks import Example, Missing, Page, Plot, Section, html
from greenadapt.report.page.charts import Drawing, write_plots
from greenadapt.report.page.sections import (
    AddedData,
    CorpusData,
    MapData,
    PieceCounts,
    Plane,
    RowsData,
    StageData,
    TaskGroup,
    TunedModel,
    corpus_section,
    cost_section,
    described,
    pieces_section,
    pipeline_section,
    prediction_text,
    pretrain_section,
    space_section,
    tasks_section,
    words_section,
)
from greenadapt.report.tables import MAP, TASK_NAMES
from greenadapt.stages.expand import N_COUNTED
from greenadapt.stages.finetune.compare import statistics_of
from greenadapt.stages.finetune.train import read_scores
from greenadapt.stages.machine import paper_costs
from greenadapt.stages.session import ALIGN, CORPUS, EXPAND, FINETUNE, PRETRAIN, W2V, Session
from greenadapt.stages.status import with_sources
from greenadapt.storage.arrays import Array, FloatArray
from greenadapt.storage.files import Json, read_own_lines, short
from greenadapt.storage.outputs import check_file, open_file
from greenadapt.storage.results import MANIFEST, Result, found_at, read_manifest, refuse_overlap, result_behind
from greenadapt.tasks.base import load_task
from greenadapt.tasks.metrics import contexts_of, interval, paired, resampled
from greenadapt.tokenization.added_words import WORDS_FILE
from greenadapt.tokenization.dual_tokenizer import DualTokenizer
from greenadapt.vectors.neighbours import nearest, on_plane, unit_rows
from greenadapt.vectors.quality import has_counts
from greenadapt.vectors.rows import mean_of_pieces
from greenadapt.vectors.word_vectors import VOCABULARY

_FEWEST = 20
"""The smallest number of words in a map."""
_N_NORMS = 4000
_N_MAP = 200
_N_NAMED = 60
"""The number of words in the map that get a label if there is room."""
_N_QUERIES = 200
_N_ADDED = 5000
_N_NEAR = 6
_N_WORST = 15


@dataclass(frozen=True)
class Adapted:
    """An adapted model; each part is read once, and only samples of the rows."""

    result: Result
    name: str

    @cached_property
    def tokenizer(self) -> DualTokenizer:
        """Both tokenizations."""
        return DualTokenizer.load(self.result.folder)

    @cached_property
    def words(self) -> list[str]:
        """The word of each new row."""
        return self.tokenizer.added.all_surfaces()

    @cached_property
    def counts(self) -> Array | None:
        """How often the word of each new row occurs, int64 (n,); ``None`` without the vectors or their counts."""
        vocabulary = self._vocabulary()
        if vocabulary is None:
            return None
        words, counts = read_vocabulary(vocabulary)
        if not has_counts(counts):
            return None
        by_word = dict(zip(words, counts.tolist(), strict=True))
        return np.fromiter(map(by_word.get, self.words, repeat(0)), np.int64, len(self.words))

    def _vocabulary(self) -> Path | None:
        """``vocabulary.tsv`` of the vectors that the rows were made from."""
        aligned = found_at(self.result.manifest.inputs["alignment"], self.result.path)
        if (aligned / VOCABULARY).is_file():  # imported vectors
            return aligned / VOCABULARY
        if not (aligned / MANIFEST).is_file():
            return None
        trained = result_behind(read_manifest(aligned).inputs["vectors"], aligned)
        return trained / VOCABULARY if trained is not None and read_manifest(trained).stage == W2V else None

    @cached_property
    def order(self) -> Array:
        """A new row of each word, frequent words first, int64 (n_words,)."""
        by_count = np.arange(len(self.words)) if self.counts is None else np.argsort(-self.counts, kind="stable")
        if len(set(self.words)) == len(self.words):
            return by_count
        first: dict[str, int] = {}  # with byte-level BPE a word has up to two equal rows
        for row in by_count.tolist():
            first.setdefault(self.words[row], row)
        return np.array(list(first.values()), np.int64)

    @cached_property
    def embedding(self) -> Array:
        """The model's rows, (n_rows, dim), memory-mapped."""
        return Checkpoint.open(self.result.folder, generative=True).embedding()

    @cached_property
    def n_pieces(self) -> Array:
        """The number of base pieces of the word of each new row, int (n,)."""
        return np.diff(self.tokenizer.added.pieces.stored.offsets)

    @cached_property
    def base_ids(self) -> Array:
        """The rows of the base vocabulary without its special tokens, int64 (n_base,)."""
        vocabulary = self.tokenizer.base.get_vocab(with_added_tokens=False)
        special = {row for row, token in self.tokenizer.base.get_added_tokens_decoder().items() if token.special}
        return np.array(sorted(set(vocabulary.values()) - special), np.int64)

    def added_data(self) -> AddedData:
        """See ``AddedData``."""
        cut = self.order[np.argsort(-self.n_pieces[self.order[:_N_ADDED]], kind="stable")[:_N_WORST]]
        worst = [
            (self.words[i], "" if self.counts is None else f"{self.counts[i]:,}", self._spelled(i))
            for i in cut.tolist()
        ]
        words = [self.words[i] for i in self.order.tolist()]
        counts = None if self.counts is None else self.counts[self.order]
        return AddedData(self.name, words, self.n_pieces[self.order], counts, worst)

    def piece_counts(self, words: list[str], counts: Array) -> PieceCounts:
        """The pieces of the first ``N_COUNTED`` ``words``, which are sorted by frequency, and have these ``counts``."""
        words, weights = words[:N_COUNTED], counts[:N_COUNTED]
        by_view = [
            np.bincount(n_pieces, weights=weights).astype(np.int64)
            for n_pieces in self.tokenizer.pieces_of_words(words)
        ]
        share = float(weights.sum() / max(int(counts.sum()), 1))
        return PieceCounts(self.name, len(words), share, *by_view)

    def rows_data(self) -> RowsData:
        """See ``RowsData``."""
        first, n = self.tokenizer.added.first_id, len(self.words)
        sampled = np.unique(np.linspace(0, n - 1, min(n, _N_NORMS)).astype(int)) + first
        base = self.base_ids[:: max(1, len(self.base_ids) // _N_NORMS)]
        frequent = self.order[:_N_ADDED]
        return RowsData(
            self.name,
            np.linalg.norm(self._rows(base), axis=1),
            np.linalg.norm(self._rows(sampled), axis=1),
            len(self.base_ids),
            n,
            self._plane() if len(self.order) >= _FEWEST else None,
            self._neighbour_rows(frequent),
            (len(self.base_ids), len(frequent)),
            f"Those of any other word: greenadapt neighbours WORD --model {short(str(self.result.path))}",
        )

    def _rows(self, ids: Array) -> FloatArray:
        return np.asarray(self.embedding[ids], np.float32)

    def _as_pieces(self, entries: Array) -> FloatArray:
        """The mean of the rows of each word's pieces, (n, dim): how the base model sees the words of ``entries``."""
        return mean_of_pieces([self._piece_ids(entry) for entry in entries.tolist()], self.embedding)

    def _piece_ids(self, entry: int) -> list[int]:
        stored = self.tokenizer.added.pieces.stored
        begin, end = stored.offsets[entry : entry + 2]
        return stored.values[begin:end].tolist()

    def _spelled(self, entry: int) -> str:
        return " ".join(self._label(row) for row in self._piece_ids(entry))

    def _label(self, row: int) -> str:
        return self.tokenizer.base.id_to_token(row) or f"[{row}]"

    def _plane(self) -> Plane:
        entries = self.order[:_N_MAP]
        ids = self.base_ids[:: max(1, len(self.base_ids) // _N_MAP)]
        base, after = unit_rows(self._rows(ids)), unit_rows(self._rows(entries + self.tokenizer.added.first_id))
        points_2d, before, share = on_plane(np.concatenate([base, after]), unit_rows(self._as_pieces(entries)))
        at_base, after = points_2d[: len(ids)], points_2d[len(ids) :]
        points = []
        for panel, coordinates in (("before: mean of the base pieces", before), ("after: the new rows", after)):
            for kind, labels, xy in (
                ("wordpieces", [self._label(row) for row in ids.tolist()], at_base),
                ("added words", [self.words[i] for i in entries.tolist()], coordinates),
            ):
                for i, (label, (x, y)) in enumerate(zip(labels, xy.tolist(), strict=True)):
                    named = kind == "added words" and i < _N_NAMED
                    points.append({"label": label, "x": x, "y": y, "what": kind, "panel": panel, "named": named})
        table = [
            [self.words[entry], self._spelled(entry), *(f"{value:.3f}" for value in (*a, *b))]
            for entry, a, b in zip(entries.tolist(), before.tolist(), after.tolist(), strict=True)
        ]
        return Plane(points, share, table)

    def _neighbour_rows(self, frequent: Array) -> list[tuple[str, list[str], list[str], list[str]]]:
        """Words with their neighbours: pieces near their pieces, pieces near their new row, words near that row."""
        entries = frequent[:_N_QUERIES]
        new_rows = self._rows(entries + self.tokenizer.added.first_id)
        queries = np.concatenate([self._as_pieces(entries), new_rows])
        special = np.setdiff1d(np.arange(self.base_ids[-1] + 1), self.base_ids)
        hidden = np.broadcast_to(special, (len(queries), len(special)))
        pieces = _named(queries, self.embedding[: self.base_ids[-1] + 1], self._label, hidden)
        among = self._rows(frequent + self.tokenizer.added.first_id)
        added = _named(new_rows, among, lambda i: self.words[frequent[i]], np.arange(len(new_rows))[:, None])
        words = [self.words[i] for i in entries.tolist()]
        return list(zip(words, pieces[: len(entries)], pieces[len(entries) :], added, strict=True))


def _named(queries: Array, rows: Array, label: Callable[[int], str], exclude: Array) -> list[list[str]]:
    """The labels and cosines of each query's neighbours among ``rows`` without ``exclude``; see ``nearest``."""
    indices, cosines = nearest(queries, rows, min(_N_NEAR, len(rows)), exclude)
    return [
        [f"{label(i)} {cosine:.2f}" for i, cosine in zip(row, cosine_row, strict=True) if i >= 0]
        for row, cosine_row in zip(indices.tolist(), cosines.tolist(), strict=True)
    ]


_ADAPT = "greenadapt adapt --corpus TEXT --model MODEL"
_COMPARE = "greenadapt report FOLDER FOLDER-BASE"
_ORDER = {CORPUS: 0, W2V: 1, ALIGN: 2, EXPAND: 3}


def report(
    session: Session,
    folders: Sequence[Path],
    chosen: tuple[str | None, str | None] = (None, None),
    out: Path | None = None,
    plots: tuple[Path | None, Path | None] = (None, None),
) -> Json:
    """Write the page about the results in ``folders`` and those they were made from, or about the ``chosen`` corpus and
    model.

    Returns the path and the ``bytes`` of the ``page``, the anchors of its ``sections``, the commands that would make
    the ``missing`` ones, and the paths of the ``plots``. The argument ``plots`` names the folders for the plots, as PNG
    and as SVG, which are created. Raises ``MissingError`` if there are no results, or the packages that draw are not
    installed.
    """
    require("report", "vl_convert", by="report")
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
    return {
        "page": str(target),
        "bytes": target.stat().st_size,
        "sections": [section.name for section in page.sections],
        "missing": [command for entry in page.missing for command in entry.commands],
        "plots": [str(path) for path in write_plots(page.plots(), *plots)],
    }


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
    """The name of each result on the page, by folder: the stage and, if it differs, the folder's name."""
    names: dict[Path, str] = {}
    for result in results:
        stage, folder_name = result.manifest.stage, result.path.name
        name = folder_name if folder_name.split("@")[0] == stage else f"{stage} {folder_name}"
        is_taken = name in names.values()
        names[result.folder] = f"{name} ({result.path.parent.name})" if is_taken else name
    return names


class _Report:
    """The sections about results, and the commands that would make the missing sections."""

    def __init__(self, results: list[Result], names: Mapping[Path, str] | None = None) -> None:
        self.results = results
        self.names = {**_names(results), **(names or {})}
        self.adapted = [Adapted(result, self.names[result.folder]) for result in self._of(EXPAND)]
        self.missing: list[Missing] = []
        self._read_vocabulary = cache(read_vocabulary)  # two sections have a corpus's words

    def _of(self, stage: str) -> list[Result]:
        return [result for result in self.results if result.manifest.stage == stage]

    def _miss(self, title: str, *commands: str) -> None:
        self.missing.append(Missing(title, [*commands]))

    def page(self, drawing: Drawing) -> Page:
        """The whole page; plots are drawn as soon as their section is complete."""
        sections = [drawing.begin(section) for section in self.sections()]
        facts = next((result.manifest.facts for result in self.results if "title" in result.manifest.facts), {})
        model = short(str(facts.get("model", {}).get("source", ""))) or self.names[self.results[-1].folder]
        title = f"{Path(model).name}, adapted to {facts['title']}" if self.adapted else f"Report on {model}"
        about = f"What greenadapt made, what it cost and what it gained: {len(self.results)} results."
        return Page(title, about, sections, self.missing)

    def sections(self) -> Iterator[Section]:
        """Each section as soon as it is computed: what was gained, the rows, then the text and the costs."""
        stages = []
        for result in self.results:
            manifest, name = result.manifest, self.names[result.folder]
            stages.append(StageData(name, manifest.stage, manifest.facts.get("command"), manifest.cost))
        yield from self._pieces()
        yield from self._tasks()
        yield from self._words()
        yield from self._space()
        yield from self._pretrained()
        yield from self._corpora()
        yield pipeline_section(stages)
        yield cost_section(stages, paper_costs())

    def _pieces(self) -> list[Section]:
        pieces = []
        for result in self._of(CORPUS):
            words, counts = self._read_vocabulary(result.folder / VOCABULARY)
            pieces += [
                model.piece_counts(words, counts)
                for model in self.adapted
                if model.result.manifest.facts.get("corpus") == result.manifest.facts.get("corpus")
            ]
        if not self._of(CORPUS):
            self._miss("Corpus", _ADAPT)
        if not self.adapted:
            self._miss(
                "Added words and rows", _ADAPT, "greenadapt report FOLDER  # of a model that was made with --out"
            )
        return [pieces_section(pieces)] if pieces else []

    def _corpora(self) -> list[Section]:
        corpora = []
        for result in self._of(CORPUS):
            words, counts = self._read_vocabulary(result.folder / VOCABULARY)
            about = result.manifest.facts.get("title", ""), result.manifest.facts.get("licence", "unknown")
            corpora.append(CorpusData(*about, result.manifest.counts, words[:1000], counts))
        return [corpus_section(corpora)] if corpora else []

    def _words(self) -> list[Section]:
        return [words_section([model.added_data() for model in self.adapted])] if self.adapted else []

    def _space(self) -> list[Section]:
        maps = []
        for result in self._of(ALIGN):
            heldout, method = result.manifest.facts["heldout"], result.manifest.config["method"]
            name = "the map" if len(self._of(ALIGN)) == 1 else self.names[result.folder]
            maps.append(MapData(name, method, heldout["figures"] or {}, heldout.get("note", "")))
        for model in self.adapted:
            prefix = "" if len(self.adapted) == 1 else f"{model.name}, "
            row_facts = model.result.manifest.facts["rows"]
            for recipe, figures in row_facts["heldout"].items():
                if recipe == MAP and self._of(ALIGN):  # its figures are there already
                    continue
                name = f"{prefix}--rows {recipe}{' (the new rows)' if recipe == row_facts['recipe'] else ''}"
                maps.append(MapData(name, recipe, figures))
        rows = [model.rows_data() for model in self.adapted]
        return [space_section(maps, rows)] if maps or rows else []

    def _tasks(self) -> list[Section]:
        results = self._of(FINETUNE)
        if not results:
            train = "greenadapt finetune --task TASK --train FILE --test FILE --compare BASE --out FOLDER"
            self._miss("Task scores", train, _COMPARE)
            return []
        groups = task_groups(results, self.names)
        if not any(group.base for group in groups):
            self._miss("The base model against the adapted one", "greenadapt finetune … --compare BASE", _COMPARE)
        if not any(model.history and "dev" in model.history[0] for group in groups for model in group.models):
            self._miss("Scores over epochs", "greenadapt finetune … --dev FILE")
        return [tasks_section(groups)]

    def _pretrained(self) -> list[Section]:
        results = self._of(PRETRAIN)
        if not results:
            return []
        from greenadapt.stages.pretrain import read_losses

        models = [
            (self.names[result.folder], read_losses(result.folder), read_history(result.folder)) for result in results
        ]
        return [pretrain_section(models)]


_N_EXAMPLES = 5


def task_groups(results: Sequence[Result], names: dict[Path, str]) -> list[TaskGroup]:
    """The fine-tuned models, those with the same task and test set together."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        test = result.manifest.inputs.get("test", {}).get("sha256")
        is_alone = is_multitask(result.folder) or test is None
        key = str(result.folder) if is_alone else f"{result.manifest.facts.get('task')} {test}"
        groups.setdefault(key, []).append(result)
    return [_group(group, names, number) for number, group in enumerate(groups.values(), 1)]


def read_history(folder: Path) -> list[Json]:
    """The epochs of a model's training, of each seed."""
    files = [folder / HISTORY, *sorted((folder / SEEDS).glob(f"*/{HISTORY}"))]
    return [row for file in files if file.is_file() for row in read_own_lines(file)]


def _group(results: list[Result], names: dict[Path, str], number: int) -> TaskGroup:
    # The base model, with which the others are compared, comes first.
    results = sorted(results, key=lambda result: (result.folder / WORDS_FILE).is_file())
    models = [
        TunedModel(names[model.folder], read_scores(model.folder), read_history(model.folder)) for model in results
    ]
    first = results[0]
    if is_multitask(first.folder):
        return TaskGroup(f"Several tasks: {models[0].name}", str(number), models)
    test = first.manifest.inputs.get("test")
    title = TASK_NAMES[first.manifest.facts["task"]]
    if test is None:
        notes = ["There was no test set (finetune --test)."]
        return TaskGroup(f"{title}, not tested", str(number), models, notes=notes)
    source = str(test.get("path") or test.get("source"))
    title += f" on {Path(source).name}"
    try:
        examples = _examples(first, test, source)
    except GreenadaptError as error:
        note = f"Intervals and examples need the test set: {error}"
        return TaskGroup(title, str(number), models, notes=[note])
    is_base = len(results) > 1 and not (first.folder / WORDS_FILE).is_file()
    return _compared(title, number, results, models, examples, is_base=is_base)


def _examples(result: Result, test: Json, source: str) -> list[Any]:
    """The test set; raises ``GreenadaptError`` if it is missing or has changed."""
    if "path" not in test:
        raise GreenadaptError(f"{source} is no file, and a report reads no network")
    if source_input(source)["sha256"] != test["sha256"]:
        raise GreenadaptError(f"{source} changed since")
    return list(load_task(read_described(result.folder / TASK_FILE)).read(source, Silent()))


def _compared(
    title: str, number: int, results: list[Result], models: list[TunedModel], examples: list[Any], *, is_base: bool
) -> TaskGroup:
    """The models with intervals; with ``is_base`` all others are compared with the first."""
    compared, notes = [], []
    base: tuple[Result, Array] | None = None
    contexts = contexts_of(examples)
    for result, model in zip(results, models, strict=True):
        task = load_task(read_described(result.folder / TASK_FILE))
        seeds = tuple(int(seed_scores["seed"]) for seed_scores in model.scores["seeds"])
        statistics = statistics_of(task, examples, result, seeds)
        drawn, _ = resampled(statistics, contexts)
        bounds = interval(drawn, task.main_score)
        fields: dict[str, Any] = {"low": bounds.low, "high": bounds.high}
        if base is not None and base[1].shape == statistics.shape:
            difference = paired(drawn, resampled(base[1], contexts)[0], task.main_score)
            fields["difference"] = (difference.difference, difference.low, difference.high)
            fields |= _changed(task, examples, (result, statistics), base, names=(model.name, models[0].name))
        elif base is not None:
            notes.append(f"{model.name} has other seeds or labels than {models[0].name}: they are not compared.")
        elif is_base:
            base = result, statistics
        compared.append(TunedModel(model.name, model.scores, model.history, **fields))
    return TaskGroup(title, str(number), compared, models[0].name if is_base else None, notes)


def _changed(
    task: Any,
    examples: list[Any],
    ours: tuple[Result, Array],
    base: tuple[Result, Array],
    names: tuple[str, str],
) -> dict[str, list[Example]]:
    """The examples whose predictions change the main score most compared with the base model's, for the first seed."""
    (our_result, our_statistics), (base_result, base_statistics) = ours, base
    total = base_statistics[0].sum(axis=0)
    gains = task.main_score(total + our_statistics[0] - base_statistics[0]) - task.main_score(total)
    predicted = []
    for result in (our_result, base_result):
        seed = read_described(result.folder / SCORES)["seeds"][0]["seed"]
        predicted.append([*read_own_lines(result.folder / SEEDS / str(seed) / PREDICTIONS)])

    def example(row: int) -> Example:
        text, right = described(examples[row])
        texts = [prediction_text(predictions[row], examples[row]) for predictions in predicted]
        return Example(text, [("label", right), (names[1], texts[1]), (names[0], texts[0])])

    order = np.argsort(gains, kind="stable")
    worse = [example(row) for row in order[:_N_EXAMPLES].tolist() if gains[row] < 0]
    better = [example(row) for row in order[::-1][:_N_EXAMPLES].tolist() if gains[row] > 0]
    return {"better": better, "worse": worse}


FOLDER = "plots"
"""The folder of a card's plots."""
_MAIN = {
    EXPAND: ("pieces-", "precision-by-count", "map-", "words-by-pieces-"),
    FINETUNE: ("scores-", "dev-", "parts-"),
}
"""The beginnings of the names of the main plots, by stage."""


def card_plots(result: Result, name: str) -> dict[str, Plot]:
    """The main plots of an adapted or fine-tuned model, by file; they call the model ``name``.

    Raises ``GreenadaptError`` for results that cannot be read.
    """
    stage = result.manifest.stage
    if stage not in _MAIN:
        return {}
    results = with_sources([result.folder], Silent()) if stage == EXPAND else [result]
    sections = _Report(results, {result.folder: name}).sections()
    plots = [plot for section in sections for plot in section.plots()]
    return {f"{FOLDER}/{plot.name}.png": plot for plot in plots if plot.name.startswith(_MAIN[stage])}
