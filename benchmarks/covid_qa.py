"""Questions on full papers before and after expansion of a QA model that was trained on other papers.

    python benchmarks/covid_qa.py --data covid-qa.json --general squad.json --corpus DOMAIN --work DIR \\
        [--folds 0 1] [--questions 100] [--rows map norm] [--max-length 384] [--epochs 2] [--general-epochs 10]

A QA model is made first: ``--model`` is fine-tuned on general questions, and from there, for each of five folds, on the
questions about the papers of the other four. No paper is in two folds. The paper itself (arXiv 2004.03354, section 5)
trains nothing on papers: that is ``python experiments/green.py qa``.

The model is then expanded for ``--corpus`` without any fine-tuning, and answers the questions of its fold with its own
tokenizer (base), with the new one alone (expanded), and with the mean of both (averaged). What was finished is kept in
``--work``, and a later call goes on from there; other settings of a step do it again.
"""

import argparse
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

import numpy as np
from records import resumable
from tables import points_with_interval

from greenadapt.config import (
    AlignConfig,
    ExpandConfig,
    ReadingOptions,
    RowRecipe,
    RunConfig,
    TaskConfig,
    TextOptions,
    TrainConfig,
    W2VConfig,
)
from greenadapt.inference.qa.answering import BASE_MODEL, MEASURES, MODEL, QaRequest, compare_rows
from greenadapt.inference.qa.inquiry import InquirySources
from greenadapt.report.tables import figure
from greenadapt.stages.align import align
from greenadapt.stages.expand import expand
from greenadapt.stages.finetune.compare import finetune
from greenadapt.stages.finetune.request import FinetuneRequest
from greenadapt.stages.qa import answer, read_answers
from greenadapt.stages.session import Session
from greenadapt.stages.w2v import w2v
from greenadapt.storage.files import Json, write_json
from greenadapt.storage.workspace import Workspace

N_FOLDS = 5
BASE, AVERAGED = "base", "averaged"
VIEWS = {BASE_MODEL: BASE, "expanded": "expanded", MODEL: AVERAGED}
"""What ``compare_rows`` calls a model → what the table does. The adapted model's own base view is the base model."""
LEAST_F1 = 20.0
"""Points of F1 under which a model answers too little to be compared."""
NOTE = """
Points; differences to base with their 95 % interval (paired bootstrap over papers, all questions of one together, where
there are at least ten). Nothing was trained after the expansion.
"""


@dataclass(frozen=True)
class Answers:
    """Rows of ``greenadapt qa --compare``, and the paper that each question is on."""

    rows: tuple[Json, ...]
    papers: tuple[str, ...]

    def compared(self) -> Json:
        return compare_rows(self.rows, self.papers, {BASE_MODEL: BASE, MODEL: AVERAGED})


def main() -> None:
    """Make the models, answer the missing questions, and print the table after each fold."""
    options = _options()
    if options.threads:
        import torch

        torch.set_num_threads(options.threads)
    from greenadapt.cli.output.console import make_progress

    session = Session(Workspace(options.work / "workspace"), make_progress(), workers=options.workers)
    answers: dict[str, dict[str, Answers]] = {rows: {} for rows in options.rows}
    for fold in options.folds:
        folder = options.work / f"fold-{fold}"
        test = write_questions(options, fold, folder)
        base = str(fold_model(session, options, folder))
        for rows in options.rows:
            expanded = adapted_model(session, options, base, rows, folder)
            answers[rows][fold] = ask(session, options, (base, str(expanded)), test, folder / f"answers-{rows}")
            print_report(options, answers)


def papers(file: Path) -> list[Json]:
    """The contexts of a SQuAD file, each with ``qas``, its questions; one that stands there twice is one paper."""
    by_context: dict[str, Json] = {}
    for article in json.loads(file.read_text("utf-8"))["data"]:
        for paragraph in article["paragraphs"]:
            first = by_context.setdefault(paragraph["context"], {**paragraph, "qas": []})
            first["qas"] += paragraph["qas"]
    return list(by_context.values())


def split(sizes: Sequence[int], n_folds: int, seed: int) -> list[list[int]]:
    """The papers of each fold, by the number of questions of each paper: the one with most goes first, each to the fold
    with fewest questions so far; which of several of a size comes first is drawn by the seed.
    """
    order = np.random.default_rng(seed).permutation(len(sizes)).tolist()
    order.sort(key=lambda paper: -sizes[paper])
    folds: list[list[int]] = [[] for _ in range(n_folds)]
    totals = [0] * n_folds
    for paper in order:
        fewest = min(range(n_folds), key=lambda fold: (totals[fold], len(folds[fold])))
        folds[fewest].append(paper)
        totals[fewest] += sizes[paper]
    return [sorted(fold) for fold in folds]


def drawn(chosen: Sequence[Json], n: int | None, seed: int) -> list[Json]:
    """The papers with ``n`` of their questions, drawn over all papers; a larger ``n`` adds questions."""
    places = [
        (paper, question) for paper, paper_content in enumerate(chosen) for question in range(len(paper_content["qas"]))
    ]
    if n is None or n >= len(places):
        return list(chosen)
    selected = {places[i] for i in np.random.default_rng(seed).permutation(len(places))[:n].tolist()}
    papers_left = []
    for paper, paper_content in enumerate(chosen):
        questions = [qa for question, qa in enumerate(paper_content["qas"]) if (paper, question) in selected]
        if questions:
            papers_left.append({**paper_content, "qas": questions})
    return papers_left


def write_questions(options: argparse.Namespace, fold: str, folder: Path) -> Path:
    """Write ``train.json`` and ``test.json`` of a fold, and return the path of ``test.json``."""
    all_papers = papers(options.data)
    folder.mkdir(parents=True, exist_ok=True)
    folds = split([len(paper["qas"]) for paper in all_papers], N_FOLDS, options.seed)
    test = [all_papers[i] for i in folds[int(fold)]]
    remaining = [all_papers[i] for number, members in enumerate(folds) if number != int(fold) for i in members]
    write_squad(folder / "train.json", remaining)
    file = folder / "test.json"
    write_squad(file, drawn(test, options.questions, options.seed))
    return file


def write_squad(file: Path, chosen: Sequence[Json]) -> None:
    """Write SQuAD's JSON with an article for each paper."""
    file.write_text(json.dumps({"data": [{"paragraphs": [paper]} for paper in chosen]}, ensure_ascii=False), "utf-8")


def fold_model(session: Session, options: argparse.Namespace, folder: Path) -> Path:
    """The QA model that saw the papers of the other folds, made from one that saw only general questions."""
    training = TrainConfig(
        epochs=options.general_epochs,
        batch_size=options.general_batch_size,
        learning_rate=options.learning_rate,
        precision=options.precision,
    )
    task = TaskConfig("qa", max_length=options.general_max_length)
    general = _trained(session, options, (options.model, options.general), (task, training), options.work / "general")
    training = replace(training, epochs=options.epochs, batch_size=options.batch_size)
    task = TaskConfig("qa", negatives=options.negatives, max_length=options.max_length)
    return _trained(session, options, (str(general), folder / "train.json"), (task, training), folder / "base")


def _trained(
    session: Session,
    options: argparse.Namespace,
    sources: tuple[str, Path],
    settings: tuple[TaskConfig, TrainConfig],
    out: Path,
) -> Path:
    """``finetune`` of a model on questions."""
    model, train = sources
    task, training = settings
    run, seeds = RunConfig(max_tokens=options.max_tokens), (options.seed,)
    request = FinetuneRequest.of_one(model, (str(train),), task=task, training=training, run=run, seeds=seeds)
    return finetune(replace(session, out=out), request).path


def adapted_model(session: Session, options: argparse.Namespace, base: str, rows: RowRecipe, folder: Path) -> Path:
    """``base`` with the words of the corpus; their vectors, which need only its tokenizer, are trained once."""
    vectors = w2v(session, str(options.corpus), options.model, W2VConfig(workers=options.workers), TextOptions())
    aligned = align(replace(session, out=folder / "map"), None, base, AlignConfig(), vectors.path)
    inner = replace(session, out=folder / f"adapted-{rows}")
    return expand(inner, None, None, ExpandConfig(rows=rows), aligned.path).path


def ask(session: Session, options: argparse.Namespace, models: tuple[str, str], test: Path, folder: Path) -> Answers:
    """The rows of ``greenadapt qa --compare`` with the base model and the adapted one."""
    base, adapted = models
    reading = ReadingOptions(precision=options.precision, max_tokens=options.max_tokens, max_length=options.max_length)
    request = QaRequest(adapted, InquirySources(data=str(test)), reading=reading, compare=base)
    result = answer(replace(session, out=folder), request)
    return answers_on(test, read_answers(result))


def answers_on(test: Path, rows: Iterable[Json]) -> Answers:
    """The rows with their papers, which they name by the question's id only."""
    paper_of = {str(qa["id"]): str(number) for number, paper in enumerate(papers(test)) for qa in paper["qas"]}
    rows = tuple(rows)
    return Answers(rows, tuple(paper_of[row["id"]] for row in rows))


def together(by_fold: dict[str, Answers]) -> Answers:
    """The answers of several folds, whose papers are all different."""
    rows = tuple(row for answers in by_fold.values() for row in answers.rows)
    return Answers(rows, tuple(f"{fold} {paper}" for fold, answers in by_fold.items() for paper in answers.papers))


def table(title: str, compared: Json) -> str:
    """A Markdown table, with a warning if the base model answers too little."""
    lines = [
        f"### {title}: {compared['questions']:,} questions on {compared['contexts']:,} papers",
        "",
        "| model | EM | F1 | substring | EM to base | F1 to base | substring to base |",
        "|---|---|---|---|---|---|---|",
    ]
    models = {model["name"]: model for model in compared["models"]}
    for name, label in VIEWS.items():
        if name not in models:  # a corpus that adds no words leaves one tokenization
            continue
        differences = (
            [_points(models[name]["differences"][score]) for score in MEASURES] if name != BASE_MODEL else [""] * 3
        )
        cells = [label, *(figure(models[name][score]) for score in MEASURES), *differences]
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        f"Of the averaged answers {compared['changed']:,} are others than the base model's: {compared['better']:,} "
        f"better in F1, {compared['worse']:,} worse. Resampled: {compared['resampled']}.",
    ]
    f1 = 100 * models[BASE_MODEL]["f1"]
    if f1 < LEAST_F1:
        lines += ["", f"The base model's F1 is {f1:.1f}, under {LEAST_F1:.0f}: this model cannot tell the two apart."]
    return "\n".join(lines) + "\n"


def _points(interval: Json) -> str:
    return points_with_interval(interval["difference"], interval["low"], interval["high"])


def print_report(options: argparse.Namespace, answers: dict[str, dict[str, Answers]]) -> None:
    """Print the tables of what is finished, and write them to ``table.md`` in ``--work`` and beside it as JSON."""
    sets: dict[str, Json] = {}
    for rows, by_fold in answers.items():
        sets |= {_title(rows, [fold]): fold_answers.compared() for fold, fold_answers in by_fold.items()}
        if len(by_fold) > 1:
            sets[_title(rows, [*by_fold])] = together(by_fold).compared()
    text = "\n".join(table(title, compared) for title, compared in sets.items()) + NOTE
    print(text, flush=True)
    file = options.work / "table.md"
    file.write_text(text, "utf-8")
    settings = {name: Path(value).name if isinstance(value, Path) else value for name, value in vars(options).items()}
    write_json(file.with_suffix(".json"), {"settings": settings, "sets": sets})


def _title(rows: str, folds: Sequence[str]) -> str:
    return f"{rows}, fold{'s' if len(folds) > 1 else ''} {', '.join(folds)}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="SQuAD file of questions on papers")
    parser.add_argument("--corpus", type=Path, required=True, help="unlabelled text of the domain, or a recipe of it")
    parser.add_argument("--work", type=Path, required=True, help="where all of it is kept")
    parser.add_argument(
        "--general", type=Path, required=True, help="SQuAD file of general questions, for the model's first training"
    )
    parser.add_argument("--model", default="minilm", help="what is trained")
    parser.add_argument("--folds", nargs="+", default=[str(i) for i in range(N_FOLDS)], metavar="FOLD",
                        choices=[str(i) for i in range(N_FOLDS)], help="from 0 to 4; all by default")  # fmt: skip
    parser.add_argument("--questions", type=int, help="ask only so many of a fold, drawn over its papers")
    parser.add_argument("--rows", nargs="+", default=["map"], choices=get_args(RowRecipe))
    parser.add_argument("--seed", type=int, default=0, help="of folds, training and drawn questions")
    parser.add_argument("--general-epochs", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=2, help="on the papers")
    parser.add_argument("--general-batch-size", type=int, default=16, help="questions a step")
    parser.add_argument("--batch-size", type=int, default=8, help="the same, on the papers")
    parser.add_argument("--learning-rate", type=float, default=1e-4)
    parser.add_argument("--negatives", type=int, default=1, help="windows without the answer a question, on the papers")
    parser.add_argument("--general-max-length", type=int, help="pieces read at once; the model's limit by default")
    parser.add_argument("--max-length", type=int, help="the same, of papers, when training and when answering")
    parser.add_argument("--precision", default=TrainConfig.precision, choices=["auto", "float32", "bfloat16"])
    parser.add_argument("--max-tokens", type=int, default=RunConfig.max_tokens)
    parser.add_argument("--workers", type=int, default=1, help="processes for the vectors")
    parser.add_argument("--threads", type=int, help="of torch; its own choice by default")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    return options


if __name__ == "__main__":
    resumable(main)
