"""Questions put to a collection: which paragraphs are found among many others, and what is answered from them.

    python benchmarks/collection.py --data covid-qa.json --others biomedical.txt.gz software.txt.gz --work DIR \\
        [--n 100000] [--models minilm ADAPTED] [--reader QA_MODEL --test test.json --questions 100]

The papers of a SQuAD file are indexed with ``--n`` other paragraphs, lines of ``--others``, and every question is
searched by BM25, over plain words and over those of each of ``--models``. A question counts as found if a paragraph has
the answer, or a part of it, at its place in the right paper; those whose answer is not in their paper as it stands are
left out. The cost of each index is printed beside that of tantivy alone, which gets the names and texts of the same
paragraphs.

With ``--reader`` so many questions of ``--test``, which the reader must not have seen, are answered from the best
paragraphs, found by BM25 over the words of the last model, and from the whole of their own paper, which is more than a
search can know; with ``--all-papers`` also from all papers, read from end to end.
Finished work in ``--work`` is used again by calls whose files, models and options are the same.
"""

import argparse
import gzip
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
from covid_qa import drawn, papers, write_squad
from records import Records, resumable
from tables import aligned, with_interval

from greenadapt.checkpoints.provenance import adapted_input, starting_model
from greenadapt.config import IndexConfig, ReadingOptions, RetrievalConfig
from greenadapt.inference.qa.answering import Answerer, QaRequest
from greenadapt.inference.qa.inquiry import InquirySources
from greenadapt.inference.search.index import Index
from greenadapt.inference.search.paragraphs import paragraphs
from greenadapt.progress import Silent
from greenadapt.storage.arrays import Array
from greenadapt.storage.files import Json, hash_file, hash_json
from greenadapt.storage.outputs import open_file
from greenadapt.tasks.metrics import interval, paired, summed
from greenadapt.tasks.qa import gold_texts
from greenadapt.tasks.questions import Question, read_questions
from greenadapt.tasks.spans import score_answer

DEEP = 20
"""Paragraphs that are looked at for each question."""
LEAST_CHARS = 200
"""A line with fewer characters is no paragraph."""


def main() -> None:
    """Index, search and answer, and print the tables."""
    options = _options()
    records = Records(options.work / "records.jsonl")
    numbers = {paper["context"]: f"paper {i}" for i, paper in enumerate(papers(options.data))}
    documents, n_others = write_documents(options, [*numbers])
    questions = [
        question
        for question in read_questions(str(options.data), Silent())
        if question.answers and question.answers[0].start >= 0
    ]
    indexes = {model or "plain": indexed(options, records, documents, model) for model in [None, *options.models]}
    rows = {name: searched(records, folder, questions, numbers) for name, folder in indexes.items()}
    print(f"{len(questions):,} questions, {n_others:,} other paragraphs\n")
    print_searches(rows, [numbers[question.context] for question in questions])
    costs = {name: records.by_key[folder.name] for name, folder in indexes.items()}
    print_indexes(costs | {"tantivy alone": indexed_by_tantivy(options, records, documents)})
    if options.reader:
        print_answers(options, records, indexes[options.models[-1]], documents)


def write_documents(options: argparse.Namespace, contexts: Sequence[str]) -> tuple[Path, int]:
    """A file of the papers and the other paragraphs, in random order, and how many others there are.

    It is named after what it is made from.
    """
    made_from = {"n": options.n, "files": [hash_file(file) for file in (options.data, *options.others)]}
    path = options.work / f"documents-{hash_json(made_from)[:12]}.jsonl"
    if not path.is_file():
        shares = [options.n // len(options.others)] * len(options.others)
        other_rows = [
            row for file, n in zip(options.others, shares, strict=True) for row in islice(_other_documents(file), n)
        ]
        order = np.random.default_rng(0).permutation(len(other_rows)).tolist()
        paper_rows = [{"id": f"paper {i}", "text": context} for i, context in enumerate(contexts)]
        with open_file(path, "w") as file:
            for row in [*paper_rows, *(other_rows[i] for i in order)]:
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
    with open(path, "rb") as lines:
        return path, sum(1 for _ in lines) - len(contexts)


def _other_documents(file: Path) -> Iterator[Json]:
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if len(line.strip()) >= LEAST_CHARS:
                yield {"id": f"{file.name}:{number}", "text": line.strip()}


def indexed(options: argparse.Namespace, records: Records, documents: Path, model: str | None) -> Path:
    """Index the documents from the beginning in a process of its own, so that its seconds cover all work."""
    settings = {"documents": documents.name, "model": _digest(model)}
    folder: Path = options.work / f"index-{hash_json(settings)[:12]}"
    if folder.name not in records.by_key:
        command = [sys.executable, "-m", "greenadapt", "index", "--documents", str(documents), "--force"]
        command += ["-o", str(folder), "--json", *(["--model", model] if model else [])]
        begin, cpu = time.perf_counter(), children_cpu()
        row = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
        wall = time.perf_counter() - begin
        cpu = children_cpu() - cpu
        figures = {
            "paragraphs": row["counts"]["paragraphs"],
            "cpu": cpu,
            "memory": row["peak_memory_bytes"],
            "bytes": _bytes(folder / "words"),
        }
        records.add({"key": folder.name, "asked": settings, "seconds": wall, **figures})
    return folder


def children_cpu() -> float:
    """CPU seconds of the processes that this one started, and that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def indexed_by_tantivy(options: argparse.Namespace, records: Records, documents: Path) -> Json:
    """The cost of adding the paragraphs to an index of tantivy, cut before."""
    key = f"tantivy, {documents.name}"
    if key not in records.by_key:
        import tantivy

        with open(documents, encoding="utf-8") as lines:
            rows = [json.loads(line) for line in lines]
        spans = [(row, span) for row in rows for span in paragraphs(row["text"], IndexConfig.paragraph_chars)]
        texts = [(row["id"], row["text"][start:end]) for row, (start, end) in spans]
        builder = tantivy.SchemaBuilder()
        builder.add_text_field("name", stored=True, tokenizer_name="raw", index_option="basic")
        builder.add_text_field("text", stored=True, index_option="freq")
        with tempfile.TemporaryDirectory(dir=options.work) as folder:
            begin, cpu = time.perf_counter(), time.process_time()
            writer = tantivy.Index(builder.build(), folder).writer(64 << 20, 1)
            for name, text in texts:
                document = tantivy.Document()
                document.add_text("name", name)
                document.add_text("text", text)
                writer.add_document(document)
            writer.commit()
            writer.wait_merging_threads()
            seconds = {"seconds": time.perf_counter() - begin, "cpu": time.process_time() - cpu}
            n_bytes = _bytes(Path(folder))
        records.add({"key": key, "paragraphs": len(texts), **seconds, "memory": 0, "bytes": n_bytes})
    return records.by_key[key]


def _digest(model: str | None) -> str | None:
    """The hash of a model's content; ``None`` without a model."""
    return None if model is None else str(adapted_input(starting_model(model))["sha256"])


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def searched(records: Records, folder: Path, questions: Sequence[Question], numbers: dict[str, str]) -> Json:
    """The rank of each question's gold paragraph, and the seconds of a search."""
    key = f"{folder.name}, search"
    if key not in records.by_key:
        index = Index(folder)
        index.search("to open all that a search needs")
        ranks: list[int | None] = []
        begin = time.perf_counter(), time.process_time()
        for question in questions:
            hits = index.search(question.question, DEEP)
            answer, paper = question.answers[0], numbers[question.context]
            end = answer.start + len(answer.text)
            right = (hit.document == paper and hit.start < end and answer.start < hit.end for hit in hits)
            ranks.append(next((rank for rank, is_right in enumerate(right, start=1) if is_right), None))
        seconds = (time.perf_counter() - begin[0]) / len(questions)
        records.add(
            {"key": key, "ranks": ranks, "seconds": seconds, "cpu": (time.process_time() - begin[1]) / len(questions)}
        )
    return records.by_key[key]


def print_searches(rows: Mapping[str, Json], papers_of_questions: Sequence[str]) -> None:
    """What each search found, beside the first one with the 95 % interval over papers."""
    table = [
        ["index, search", "recall@1", "recall@10", "MRR@10", "recall@10 beside the first", "ms a question", "CPU ms"]
    ]
    first = _sums(next(iter(rows.values())), papers_of_questions)
    for name, row in rows.items():
        ranks = np.array([rank or np.inf for rank in row["ranks"]])
        shares = [np.mean(ranks <= 1), np.mean(ranks <= 10), np.mean(np.where(ranks <= 10, 1 / ranks, 0))]
        times = [f"{1000 * row[unit]:.1f}" for unit in ("seconds", "cpu")]
        difference = _beside(_sums(row, papers_of_questions), first)
        table.append([name, *(f"{100 * share:.1f}" for share in shares), difference, *times])
    print(aligned(table))


def print_indexes(rows: Mapping[str, Json]) -> None:
    """Print the size and the cost of each index."""
    table = [["index", "paragraphs", "seconds", "CPU s", "peak MB", "MB on disk"]]
    for name, row in rows.items():
        cells = [f"{size / 1e6:.0f}" for size in (row["memory"], row["bytes"])]
        table.append([name, f"{row['paragraphs']:,}", f"{row['seconds']:.0f}", f"{row['cpu']:.1f}", *cells])
    print(aligned(table))


def _sums(row: Json, papers_of_questions: Sequence[str]) -> Array:
    """(n_papers, 2): the questions whose paragraph is among ten, and all questions."""
    sums = np.array([[rank is not None and rank <= 10, 1.0] for rank in row["ranks"]], float)
    return summed(sums, papers_of_questions)


def _mean(sums: Array) -> Array:
    return sums[..., 0] / sums[..., 1]


def _beside(ours: Array, theirs: Array) -> str:
    """The difference in points of two (n_papers, 2) arrays of sums and counts, with its 95 % interval."""
    return with_interval(paired(ours[np.newaxis], theirs[np.newaxis], _mean))


def print_answers(options: argparse.Namespace, records: Records, index: Path, documents: Path) -> None:
    """EM and F1 of the answers in the best paragraphs, in the own papers, and in all."""
    test = options.work / f"test-{options.questions}.json"
    write_squad(test, drawn(papers(options.test), options.questions, 0))
    questions = read_questions(str(test), Silent())
    ways: dict[str, tuple[InquirySources, RetrievalConfig]] = {}
    for n in options.passages:
        sources = InquirySources(data=str(test), index=str(index))
        ways[f"{n} paragraphs"] = sources, RetrievalConfig(passages=n)
    ways["the own paper"] = InquirySources(data=str(test)), RetrievalConfig()
    if options.all_papers:
        alone = papers_alone(options, documents), questions_alone(test, questions)
        ways["all papers"] = InquirySources(documents=(str(alone[0]),), questions=str(alone[1])), RetrievalConfig()
    read = {
        "documents": documents.name,
        "index": index.name,
        "reader": _digest(options.reader),
        "test": hash_file(test),
        "margin": options.margin,
    }
    digest = hash_json(read)[:12]
    rows = {}
    for name, (sources, retrieval) in ways.items():
        key = f"{name}, {digest}"
        if key not in records.by_key:
            reading = ReadingOptions(precision="float32", margin=options.margin)
            request = QaRequest(options.reader, sources, reading=reading, retrieval=retrieval)
            records.add({"key": key, **answered(request, questions)})
        rows[name] = records.by_key[key]
    print_scores(rows, [question.context for question in questions])


def papers_alone(options: argparse.Namespace, documents: Path) -> Path:
    """A file of the papers, which come first among the documents."""
    path = documents.with_name(documents.name.replace("documents", "papers"))
    with open(documents, encoding="utf-8") as lines:
        path.write_text("".join(islice(lines, len(papers(options.data)))), "utf-8")
    return path


def questions_alone(test: Path, questions: Sequence[Question]) -> Path:
    """A file of the questions without their papers."""
    path = test.with_suffix(".jsonl")
    rows = [{"id": question.id, "question": question.question} for question in questions]
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
    return path


def answered(request: QaRequest, questions: Sequence[Question]) -> Json:
    """EM and F1 of the answer to each question, and the seconds that a question takes."""
    answerer = Answerer(request, Silent())
    begin = time.perf_counter(), time.process_time()
    answers = {row["id"]: row["answer"] for row in answerer.rows()}
    spent = np.array([time.perf_counter(), time.process_time()]) - begin
    seconds, cpu = (spent / len(questions)).tolist()
    scores = [
        score_answer(answers[question.id], gold_texts(question, is_second=False), is_second=False)
        for question in questions
    ]
    return {"em": [score.em for score in scores], "f1": [score.f1 for score in scores], "seconds": seconds, "cpu": cpu}


def print_scores(rows: Mapping[str, Json], contexts: Sequence[str]) -> None:
    """What each way of reading scores, in points, beside the first one, with 95 % intervals over papers.

    ``contexts`` is each question's paper.
    """
    table = [["read", "EM", "F1", "95 % of F1", "F1 beside the first", "s a question", "CPU s"]]

    def f1(row: Json) -> Array:
        return summed(np.array([[score, 1.0] for score in row["f1"]]), contexts)

    first = f1(next(iter(rows.values())))
    for name, row in rows.items():
        whole = interval(f1(row), _mean)
        cells = [f"{100 * np.mean(row['em']):.1f}", f"{100 * whole.value:.1f}"]
        cells += [f"{100 * whole.low:.1f} to {100 * whole.high:.1f}", _beside(f1(row), first)]
        table.append([name, *cells, f"{row['seconds']:.2f}", f"{row['cpu']:.2f}"])
    print(aligned(table))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="SQuAD file of questions on papers")
    parser.add_argument("--others", type=Path, nargs="+", required=True, help="files of a paragraph a line, gzip")
    parser.add_argument("--work", type=Path, required=True, help="where all of it is kept")
    parser.add_argument("--models", nargs="+", default=["minilm"], help="encoders, such as a base and an adapted one")
    parser.add_argument("--n", type=int, default=100_000, help="other paragraphs, as many of each file")
    parser.add_argument("--reader", help="a QA model")
    parser.add_argument("--test", type=Path, help="questions that it has not seen [default: --data]")
    parser.add_argument("--questions", type=int, default=100, help="how many of them are answered")
    parser.add_argument("--passages", type=int, nargs="+", default=[10], help="paragraphs that are read")
    parser.add_argument("--margin", type=float, help="read both tokenizations only where the expanded one is less sure")
    parser.add_argument("--all-papers", action="store_true", help="also look in all papers, which takes long")
    options = parser.parse_args()
    options.test = options.test or options.data
    options.work.mkdir(parents=True, exist_ok=True)
    return options


if __name__ == "__main__":
    resumable(main)
