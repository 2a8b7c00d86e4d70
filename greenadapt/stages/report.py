"""``report``: one page about the results for a corpus and a model."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from greenadapt.checkpoints.layout import SCORES, TASK_FILE, is_multitask, read_described
from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.corpus.opening import source_input
from greenadapt.errors import GreenadaptError, MissingError, as_percent, require
from greenadapt.progress import Silent
from greenadapt.report.page import (
    Chart,
    Section,
    StageData,
    TaskGroup,
    TunedModel,
    chart_by_count,
    chart_map,
    compare_models,
    cost_section,
    html,
)
from greenadapt.report.tables import MAP, TASK_NAMES, Table, loss_tables
from greenadapt.stages.expand import N_COUNTED
from greenadapt.stages.finetune.compare import statistics_of
from greenadapt.stages.session import ALIGN, EXPAND, FINETUNE, PRETRAIN, Session
from greenadapt.stages.status import with_ancestors
from greenadapt.store.arrays import Array
from greenadapt.store.files import Json
from greenadapt.store.outputs import check_file, open_file
from greenadapt.store.results import Result
from greenadapt.store.workspace import is_key_of
from greenadapt.tasks.base import load_task
from greenadapt.tasks.metrics import groups_of, interval, paired_bootstrap, resample
from greenadapt.tokenization.added_words import WORDS_FILE
from greenadapt.tokenization.dual_tokenizer import DualTokenizer
from greenadapt.vectors.neighbours import project, unit_rows
from greenadapt.vectors.rows import mean_of_pieces
from greenadapt.version import __version__

_FEWEST = 20
"""The smallest number of words in a map."""
_N_MAP = 200
_N_NAMED = 8
"""The number of words in the map that get a label."""


def map_words(result: Result) -> Chart | None:
    """The first added words, which are the most frequent ones, among wordpieces: as the base model sees them, by the
    mean of the rows of their pieces, and by their new rows. ``None`` if they are too few.
    """
    tokenizer, embedding = DualTokenizer.load(result.folder), Checkpoint(result.folder).embedding()
    rows: dict[str, int] = {}  # with byte-level BPE a word has up to two equal rows
    for row, word in enumerate(tokenizer.added.all_surfaces()):
        rows.setdefault(word, row)
    if len(rows) < _FEWEST:
        return None
    words, entries = [*rows][:_N_MAP], [*rows.values()][:_N_MAP]
    special = {row for row, token in tokenizer.base.get_added_tokens_decoder().items() if token.special}
    base_ids = sorted(set(tokenizer.base.get_vocab(with_added_tokens=False).values()) - special)
    ids = base_ids[:: max(1, len(base_ids) // _N_MAP)]
    stored = tokenizer.added.pieces
    split = [stored.values[stored.offsets[entry] : stored.offsets[entry + 1]].tolist() for entry in entries]
    base = unit_rows(np.asarray(embedding[ids], np.float32))
    after = unit_rows(np.asarray(embedding[np.array(entries) + tokenizer.added.first_id], np.float32))
    points_2d, before, share = project(np.concatenate([base, after]), unit_rows(mean_of_pieces(split, embedding)))
    at_base, after = points_2d[: len(ids)], points_2d[len(ids) :]
    pieces = [tokenizer.base.id_to_token(row) or f"[{row}]" for row in ids]
    points = [
        {"label": label, "x": x, "y": y, "what": what, "panel": panel, "named": labels is words and i < _N_NAMED}
        for panel, coordinates in (("before: mean of the base pieces", before), ("after: the new rows", after))
        for what, labels, xy in (("wordpieces", pieces, at_base), ("added words", words, coordinates))
        for i, (label, (x, y)) in enumerate(zip(labels, xy.tolist(), strict=True))
    ]
    return chart_map(points, share)


def report(
    session: Session,
    folders: Sequence[Path],
    chosen: tuple[str | None, str | None] = (None, None),
    out: Path | None = None,
) -> Json:
    """Write the page about the results in ``folders`` and those they were made from, or about the ``chosen`` corpus and
    model.

    Returns the path and the ``bytes`` of the ``page``, and the anchors of its ``sections``. Raises ``MissingError`` if
    there are no results, or vl-convert is not installed.
    """
    require("report", "vl_convert", by="report")
    results = with_ancestors(folders) if folders else _in_workspace(session, *chosen)
    target = out or Path(f"report-{_file_name(results)}.html")
    names = _names(results)
    check_file(target)
    sections = _make_sections(results, names)
    text = html(f"Report on {names[results[-1].folder]}", sections, __version__)
    with open_file(target, "w") as file:
        file.write(text)
    page = {"page": str(target), "bytes": target.stat().st_size}
    return {**page, "sections": [section.name for section in sections]}


def _in_workspace(session: Session, corpus: str | None, model: str | None) -> list[Result]:
    name, chosen = session.names(corpus, model)
    results = session.workspace.results(name, chosen)
    if not results:
        raise MissingError(
            f"no results for {name} and {chosen} in {session.workspace.root}", "run greenadapt adapt first"
        )
    return results


def _file_name(results: Sequence[Result]) -> str:
    """The corpus and the model, or the folder of the last result."""
    last = results[-1]
    return "-".join(last.path.parts[-3:-1]) if last.path != last.folder and last.path.is_symlink() else last.path.name


def _names(results: Sequence[Result]) -> dict[Path, str]:
    """The name of each result on the page, by folder: the stage and, if it differs, the folder's name."""
    names: dict[Path, str] = {}
    for result in results:
        stage, folder_name = result.manifest.stage, result.path.name
        name = stage if is_key_of(folder_name, stage) else f"{stage} {folder_name}"
        is_taken = name in names.values()
        names[result.folder] = f"{name} ({result.path.parent.name})" if is_taken else name
    return names


def _make_sections(results: list[Result], names: dict[Path, str]) -> list[Section]:
    """What was gained, the rows, the map of words, and the costs; without sections that have nothing."""

    def of(stage: str) -> list[Result]:
        return [result for result in results if result.manifest.stage == stage]

    groups = task_groups(of(FINETUNE), names)
    gain = [block for group in groups for block in compare_models(group)]
    for result in of(PRETRAIN):
        gain += loss_tables(read_described(result.folder / SCORES))
    adapted = {names[result.folder]: result for result in of(EXPAND)}
    rows: list[str | Table | Chart] = [
        f"The base tokenizer of {name} takes {pieces['before']:.3f} pieces per word of the text, {pieces['after']:.3f} "
        f"with the added words. This counts the {N_COUNTED:,} most frequent words."
        for name, result in adapted.items()
        if (pieces := result.manifest.facts["pieces_per_word"])
    ]
    judged, notes = _read_figures(of(ALIGN), adapted)
    rows += [*_judge_rows(judged), *notes]
    maps = [chart for result in adapted.values() if (chart := map_words(result)) is not None]
    stages = [StageData(names[item.folder], item.manifest.facts.get("command"), item.manifest.cost) for item in results]
    sections = [Section("gain", "What was gained", gain), Section("rows", "Rows", rows), Section("map", "Map", maps)]
    return [*(section for section in sections if section.blocks), cost_section(stages)]


def _read_figures(aligned: list[Result], adapted: dict[str, Result]) -> tuple[dict[str, Json], list[str]]:
    """The figures on held-out words of maps and recipes of rows, by name, and why some have none."""
    judged: dict[str, Json] = {}
    notes: list[str] = []
    for number, result in enumerate(aligned, 1):
        heldout = result.manifest.facts["heldout"]
        name = "the map" if len(aligned) == 1 else f"map {number}"
        if heldout["figures"]:
            judged[name] = heldout["figures"]
        elif heldout.get("note"):
            notes.append(f"{name}: {heldout['note']}")
    for model, result in adapted.items():
        facts = result.manifest.facts["rows"]
        for recipe, figures in facts["heldout"].items():
            if figures and not (recipe == MAP and aligned):  # its figures are there already
                prefix = "" if len(adapted) == 1 else f"{model}, "
                chosen = " (the new rows)" if recipe == facts["recipe"] else ""
                judged[f"{prefix}--rows {recipe}{chosen}"] = figures
    return judged, notes


def _judge_rows(judged: dict[str, Json]) -> list[Table | Chart]:
    """How well maps and recipes of rows predict the rows of held-out words."""
    if not judged:
        return []
    cells, bars = [], []
    for name, figures in judged.items():
        near = figures["base_rows"]["cosine"]
        shares = (as_percent(near["precision_at_1"]), as_percent(near["precision_at_10"]))
        cells.append([name, f"{figures['n_heldout']:,}", f"{figures['r2']:.3f}", f"{figures['cosine']:.3f}", *shares])
        bands = figures["by_count"]
        for band, after in zip(bands, [*bands[1:], None], strict=True):
            if band["precision_at_10"] is not None:
                label = f"{band['min_count']:,} to {after['min_count'] - 1:,}" if after else f"{band['min_count']:,} up"
                bars.append({"band": label, "share": band["precision_at_10"], "by": name})
    columns = ["rows by", "held out", "R²", "mean cosine", "own row first", "own row among ten"]
    table = Table("Rows of held-out words, predicted", columns, cells)
    return [table, *([chart_by_count(bars)] if bars else [])]


def task_groups(results: Sequence[Result], names: dict[Path, str]) -> list[TaskGroup]:
    """The fine-tuned models, those with the same task and test set together."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        test = result.manifest.inputs.get("test", {}).get("sha256")
        is_alone = is_multitask(result.folder) or test is None
        key = str(result.folder) if is_alone else f"{result.manifest.facts.get('task')} {test}"
        groups.setdefault(key, []).append(result)
    return [_group(group, names) for group in groups.values()]


def _group(results: list[Result], names: dict[Path, str]) -> TaskGroup:
    # The base model, with which the others are compared, comes first.
    results = sorted(results, key=lambda result: (result.folder / WORDS_FILE).is_file())
    models = [TunedModel(names[model.folder], read_described(model.folder / SCORES)) for model in results]
    first = results[0]
    if is_multitask(first.folder):
        return TaskGroup(f"Several tasks: {models[0].name}", models)
    test = first.manifest.inputs.get("test")
    title = TASK_NAMES[first.manifest.facts["task"]]
    if test is None:
        return TaskGroup(title, models, notes=["There was no test set (finetune --test)."])
    source = str(test.get("path") or test.get("source"))
    title += f" on {Path(source).name}"
    try:
        examples = _examples(first, test, source)
    except GreenadaptError as error:
        return TaskGroup(title, models, notes=[f"Intervals need the test set: {error}"])
    return _compare(title, results, models, examples)


def _examples(result: Result, test: Json, source: str) -> list[Any]:
    """The test set; raises ``GreenadaptError`` if it is missing or has changed."""
    if "path" not in test:
        raise GreenadaptError(f"{source} is no file, and a report downloads nothing")
    if source_input(source)["sha256"] != test["sha256"]:
        raise GreenadaptError(f"{source} changed since")
    return list(load_task(read_described(result.folder / TASK_FILE)).read(source, Silent()))


def _compare(title: str, results: list[Result], models: list[TunedModel], examples: list[Any]) -> TaskGroup:
    """The models with intervals; all others are compared with the first."""
    compared, notes = [], []
    base: Array | None = None
    groups = groups_of(examples)
    for result, model in zip(results, models, strict=True):
        task = load_task(read_described(result.folder / TASK_FILE))
        seeds = tuple(int(seed_scores["seed"]) for seed_scores in model.scores["seeds"])
        statistics = statistics_of(task, examples, result, seeds)
        drawn, _ = resample(statistics, *groups)
        bounds = interval(drawn, task.main_score)
        fields: dict[str, Any] = {"low": bounds.low, "high": bounds.high}
        if base is not None and base.shape == statistics.shape:
            difference = paired_bootstrap(drawn, resample(base, *groups)[0], task.main_score)
            fields["difference"] = (difference.difference, difference.low, difference.high)
        elif base is not None:
            notes.append(f"{model.name} has other seeds or labels than {models[0].name}: they are not compared.")
        else:
            base = statistics
        compared.append(TunedModel(model.name, model.scores, **fields))
    return TaskGroup(title, compared, models[0].name if len(models) > 1 else None, notes)
