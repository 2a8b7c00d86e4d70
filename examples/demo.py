"""Adapt the offline model to the docstrings of Python packages, and fine-tune both models on labels from their mark-up.

    python examples/demo.py [--workspace demo] [--workers 2]

Takes four to five minutes on two idle cores. Without torch it leaves out the task.
"""

import argparse
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

import greenadapt
from greenadapt.api.arguments import make_session
from greenadapt.checkpoints.layout import LOGITS, SEEDS, TASK_FILE, read_described
from greenadapt.cli.output.printing import print_comparison, print_costs
from greenadapt.config import CHOSEN_FOR_ENTITIES, MINILM, SessionOptions, TaskConfig, TextOptions, TrainConfig
from greenadapt.corpus.pydocs import UNPARSABLE, docstrings, find_packages, paragraphs
from greenadapt.corpus.splitting import HELDOUT
from greenadapt.cost import total
from greenadapt.errors import InputError, as_percent, is_installed
from greenadapt.progress import Silent
from greenadapt.stages.corpus import choose_corpus
from greenadapt.stages.finetune.compare import Comparison, compare, statistics_of
from greenadapt.stages.finetune.request import FinetuneRequest
from greenadapt.stages.status import with_ancestors
from greenadapt.store.arrays import Array, ArrayFile
from greenadapt.store.files import Json
from greenadapt.tasks.base import Task, load_task
from greenadapt.tasks.conll import Sentence, split_text
from greenadapt.tasks.metrics import paired_bootstrap
from greenadapt.tokenization.dual_tokenizer import DualTokenizer

MODELS = ("adapted", "base", "base, two seeds averaged")
N_WORDS = 5
_HELDOUT_SHARE = 0.01
# Words that a general model splits into pieces; the demo shows those in this machine's corpus.
_PROBES = (
    "dtype", "eigenvalues", "ndarray", "kwargs", "iterable", "tuple", "coroutine", "hashable", "tokenizer", "callable",
    "subclass", "timedelta", "unicode", "bytecode", "dataframe", "optimizer", "namespace", "metadata", "boolean",
    "polynomials",
)  # fmt: skip
_BATCH = 1000  # texts encoded at a time


@dataclass(frozen=True)
class TaskPlan:
    """The size of the demo's training and test; three seeds of both models take about three minutes on two cores.

    The learning rate was tuned with the base model on other sentences of the same packages, the epochs for speed. Both
    models make the same number of steps: the base model reads each sentence twice, the adapted model in both
    tokenizations.
    """

    train: int = 300
    """Sentences."""
    test: int = 800
    """Sentences."""
    epochs: int = 3
    learning_rate: float = 2e-4
    seeds: tuple[int, ...] = (0, 1, 2)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the demo, and print what it gained and cost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workspace", type=Path, default=Path("demo"))
    parser.add_argument("--workers", type=int)
    options = parser.parse_args(arguments)
    run(options.workspace, options.workers)


def run(workspace: Path, workers: int | None = None, corpus: str = "demo", plan: TaskPlan | None = None) -> Json:
    """Adapt the model in ``workspace``, fine-tune it and its base, and print the results.

    Returns ``fertility``, ``words``, and ``rows``, the F1 of each of ``MODELS`` (none without torch).
    """
    out = workspace / "adapted"
    adapted = greenadapt.adapt(
        *(corpus, MINILM, out),
        text=TextOptions(heldout=_HELDOUT_SHARE),
        options=SessionOptions(workspace, workers=workers),
    )
    stages = with_ancestors([out])
    with open(stages[0].folder / HELDOUT, encoding="utf-8", newline="\n") as file:
        pieces = fertility(adapted.tokenizer, file)
    words = choose_words(adapted.words)
    print(adapted.neighbours(*words, top=4), "\n")
    whole = as_percent(pieces["whole_words"] / max(pieces["words"], 1))
    print(f"{pieces['words']:,} words of held-out documents: {pieces['before']:.3f} pieces per word by the base")
    print(f"tokenizer, {pieces['after']:.3f} by the expanded one; {whole} are split words that are whole now.\n")
    print(adapted, "\n")
    rows: list[Json] = []
    costs = [{"stage": result.manifest.stage, **result.manifest.cost} for result in stages]
    trained: list[Json] = []
    if is_installed("torch"):
        plan = plan or TaskPlan()
        compared = fine_tune(workspace, workers, corpus, plan)
        rows = compared.rows
        trained = [{"stage": result.path.name, **result.manifest.cost} for result in compared.results]
        print_comparison(rows)
    else:
        print("The task at the demo's end needs torch, which is not installed.\n")
    print_costs([*costs, *trained])
    print(f"Load the adapted model with AutoModel.from_pretrained({str(out)!r}), and its tokenizer likewise.\n")
    adapting, training = total(costs), total(trained)
    if rows:
        difference, low, high = (f"{100 * rows[1][name]:+.2f}" for name in ("difference", "low", "high"))
        print(f"base model: F1 {100 * rows[1]['score']:.2f}")
        print(f"adapted model: F1 {100 * rows[0]['score']:.2f}, {difference} points (95 % interval {low} to {high})")
        print("after few steps: train longer to see what stays")
        print(f"{training.seconds:.0f} s to fine-tune and test both models")
    print(f"cost: {adapting.seconds:.0f} s and {adapting.energy_kwh * 1000:.2g} Wh to adapt the model")
    return {"fertility": pieces, "words": words, "rows": rows}


def fine_tune(workspace: Path, workers: int | None, corpus: str, plan: TaskPlan) -> Comparison:
    """Train the adapted and the offline model to find identifiers in docstrings, and compare them.

    The last row is the base model with the predictions of two seeds averaged, at the cost of two passes.
    """
    session = make_session(SessionOptions(workspace=workspace, workers=workers), True)
    packages = choose_corpus(session, corpus, TextOptions(heldout=_HELDOUT_SHARE)).packages
    for name, part in identifier_set(plan.train, plan.test, names=packages, workers=session.workers).items():
        print(f"code identifiers in docstrings: {len(part):,} sentences in {name}.tsv")
        write_conll(workspace / f"{name}.tsv", part)
    request = FinetuneRequest.of_one(
        model=str(workspace / "adapted"),
        train=(str(workspace / "train.tsv"),),
        test=str(workspace / "test.tsv"),
        task=TaskConfig(**CHOSEN_FOR_ENTITIES),
        training=TrainConfig(epochs=plan.epochs, learning_rate=plan.learning_rate, mix="both", word_vectors=True),
        seeds=plan.seeds,
        save_logits=True,
    )
    compared = compare(replace(session, out=workspace / "identifiers"), request, [MINILM])
    ours, base = compared.results
    task = load_task(read_described(ours.folder / TASK_FILE))
    examples = task.read(request.test or "", Silent())
    averaged = averaged_over_seeds(task, examples, [base.folder / SEEDS / str(seed) / LOGITS for seed in request.seeds])
    base_sums = np.stack([task.statistics(examples, predictions) for predictions in averaged])
    difference = paired_bootstrap(statistics_of(task, examples, ours, request.seeds), base_sums, task.main_score)
    # The averages share models, so their deviation does not show how runs vary.
    control: dict[str, Any] = {"folder": str(base.path), "score": difference.theirs, "std": None, **asdict(difference)}
    rows = [{**row, "model": name} for row, name in zip([*compared.rows, control], MODELS, strict=True)]
    return replace(compared, rows=rows)


def averaged_over_seeds(task: Task[Any], examples: Sequence[Any], logits: Sequence[Path]) -> list[list[Json]]:
    """Predictions of each seed's model averaged with the next one's, of the last with the first.

    ``logits`` has one file per seed, as fine-tuning writes them; the base tokenization's are taken. There are as many
    averages as seeds, so that they can be paired with the seeds' own runs; they share models, and vary less than
    as many independent ones would. Two seeds have one average, which appears twice.
    """
    arrays = [ArrayFile(path) for path in logits]
    averages = []
    for first, second in zip(arrays, [*arrays[1:], arrays[0]], strict=True):
        mean: Array = (first["base"] + second["base"]) / 2
        pairs = zip(examples, np.split(mean, first["offsets"][1:-1]), strict=True)
        averages.append([task.decode(example, example_logits) for example, example_logits in pairs])
    return averages


def fertility(tokenizer: DualTokenizer, texts: Iterable[str]) -> Json:
    """Counts in ``texts``: ``words``, ``base_pieces`` and ``expanded_pieces``, per word ``before`` and ``after``, and
    ``whole_words``, the words that are a single piece only in the expanded tokenization.
    """
    words = base = expanded = whole = 0
    remaining = iter(texts)
    while batch := list(islice(remaining, _BATCH)):
        for encoding in tokenizer.encode_batch(batch):
            words += encoding.n_words
            base += len(encoding.base.ids)
            expanded += len(encoding.expanded.ids)
            whole += int((encoding.expanded.ids >= tokenizer.added.first_id).sum())
    counts = {"words": words, "base_pieces": base, "expanded_pieces": expanded, "whole_words": whole}
    return {**counts, "before": base / max(words, 1), "after": expanded / max(words, 1)}


def choose_words(words: Sequence[str]) -> list[str]:
    """``N_WORDS`` of the added ``words``: the probes among them, then the first."""
    return list(dict.fromkeys([*(word for word in _PROBES if word in set(words)), *words]))[:N_WORDS]


CODE = "CODE"
# Private use characters replace this mark-up, so that it survives the removal of other mark-up.
_BEGIN, _END, _OTHER_MARKUP = "\ue000", "\ue001", "\ue002"
_LETTERS = str.maketrans("0123456789abcdef", "ghijklmnopabcdef")
_DIGITS = {letter: digit for digit, letter in _LETTERS.items()}
_LITERAL = re.compile(r"(?<!`)``(?!\s)([^`\n]+)(?<!\s)``(?![`\\])")
_BACKTICK = re.compile(r"(?<!`)`{1,2}(?!`)")
_EMPHASIS = re.compile(r"(?<![\w*])\*{1,2}(?=\w)[^*\n]*(?<=\w)\*{1,2}(?![\w*])")
# name, dotted.name, *args, --an-option, .method, @decorator, call(x), item[0], key=value
_CODE = re.compile(
    r"(?:\*{1,2}|-{1,2}|[.@])?[A-Za-z_]\w*(?:[.-]\w+)*(?:\([^()\s]*\)|\[[^\[\]\s]*\])*(?:=[\w.+-]*\w)?", re.ASCII
)
_COLUMNS = re.compile(r"(?<=[^\s.!?:=-]) {3,}(?=\S)")
_MARKED = re.compile(f"{_BEGIN}([^{_END}]*){_END}")
_SENTENCE_END = re.compile(rf"(?:(?<=[.!?])|(?<=[.!?]\)))(?<!e\.g\.)(?<!i\.e\.)(?<!cf\.)(?<!vs\.)\s+(?=[(A-Z{_BEGIN}])")
# A literal next to a letter or a quote would reveal the removed mark-up.
_CLINGING = re.compile(rf"[^\s(\[{{,/–—-]{_BEGIN}|{_END}[^\s)\]}},;:.!?/–—-]")
_NO_PROSE = re.compile(rf"[{_OTHER_MARKUP}`|]|>>>|://|\.\.\s")
_FEWEST_WORDS, _MOST_WORDS = 5, 60
_LARGEST_SHARE = 4
"""At most one in this many sentences of a part is from the same package."""


def identifier_set(
    n_train: int = 400, n_test: int = 1000, *, names: Sequence[str] = (), workers: int = 1
) -> dict[str, list[Sentence]]:
    """``train`` and ``test``: at most this many labelled sentences from the installed packages (or ``names``), the same
    for the same packages.

    All sentences of a package are in the same part: its docstrings resemble each other, so that a finer split would
    test memorization. No sentence is repeated, ignoring case. ``workers`` is the number of processes. Raises
    ``InputError`` if fewer than two packages have such sentences.
    """
    tasks = [(package.name, package.root / file) for package in find_packages(names) for file in package.files]
    paths = [path for _, path in tasks]
    if workers == 1:
        by_file = map(_read_file, paths)
    else:
        with ProcessPoolExecutor(workers) as pool:
            by_file = pool.map(_read_file, paths, chunksize=64)
    by_package: dict[str, list[Sentence]] = defaultdict(list)
    seen: set[str] = set()
    for (package, _), sentences in zip(tasks, by_file, strict=True):
        for sentence in sentences:
            key = " ".join(sentence.words).lower()
            if key not in seen:
                seen.add(key)
                by_package[package].append(sentence)
    if len(by_package) < 2:
        raise InputError(
            f"{len(by_package)} of the installed packages has docstrings with marked code, at least 2 are needed",
            "install a package such as numpy or scipy beside greenadapt",
        )
    return _parts(by_package, {"train": n_train, "test": n_test})


def write_conll(path: Path, sentences: Iterable[Sentence]) -> None:
    """Write labelled sentences in CoNLL's format."""
    rows = (zip(sentence.words, sentence.tags or (), strict=True) for sentence in sentences)
    path.write_text("\n".join("".join(f"{word}\t{tag}\n" for word, tag in row) for row in rows), "utf-8")


def labelled_sentences(docstring: str) -> Iterator[Sentence]:
    """Yield the sentences of a docstring with code between double backticks, labelled, without the backticks.

    Excludes sentences that would teach wrong labels: with other mark-up (roles, links, emphasis, columns of a table,
    which is mostly unlabelled code), with code of several words, and with a word that is code only in some places.
    """
    if "``" not in docstring:
        return
    text = _LITERAL.sub(_mark, docstring)
    text = _EMPHASIS.sub(rf"{_OTHER_MARKUP}\g<0>", _BACKTICK.sub(_OTHER_MARKUP, text))
    text = _COLUMNS.sub(rf"{_OTHER_MARKUP}\g<0>", text)
    for sentence in (part for paragraph in paragraphs(text) for part in _SENTENCE_END.split(paragraph)):
        if _is_usable(sentence):
            labelled = _labelled(sentence)
            if _FEWEST_WORDS <= len(labelled.words) <= _MOST_WORDS and not _is_contradictory(labelled):
                yield labelled


def _mark(literal: re.Match[str]) -> str:
    if not _CODE.fullmatch(literal[1]):
        return _OTHER_MARKUP
    # As letters, the code survives the removal of other mark-up, and looks like prose.
    return f"{_BEGIN}{literal[1].encode().hex().translate(_LETTERS)}{_END}"


def _is_usable(marked: str) -> bool:
    whole = _BEGIN in marked and marked.rstrip(")")[-1:] in tuple(".!?:")
    return whole and not _NO_PROSE.search(marked) and not _CLINGING.search(marked)


def _labelled(marked: str) -> Sentence:
    text, entities, end = "", [], 0
    for match in _MARKED.finditer(marked):
        text += marked[end : match.start()]
        content = bytes.fromhex(match[1].translate(_DIGITS)).decode()
        entities.append((len(text), len(text) + len(content)))
        text += content
        end = match.end()
    split = split_text(text + marked[end:], "punctuation")
    tags = ["O"] * len(split.words)
    for first, last in entities:
        inside = [word for word, (begin, _) in enumerate(split.spans or ()) if first <= begin < last]
        for word in inside:
            tags[word] = f"{'B' if word == inside[0] else 'I'}-{CODE}"
    return Sentence(split.words, tuple(tags))


def _is_contradictory(sentence: Sentence) -> bool:
    tagged = list(zip(sentence.words, sentence.tags or (), strict=True))
    code = {word.lower() for word, tag in tagged if tag != "O" and word[0].isalpha()}
    return any(word.lower() in code for word, tag in tagged if tag == "O")


def _read_file(path: Path) -> list[Sentence]:
    """The labelled sentences of a source file; empty if it cannot be parsed."""
    content = path.read_bytes()
    try:
        texts = list(docstrings(content)) if b"``" in content else []
    except UNPARSABLE:
        return []
    return [sentence for _, text in texts for sentence in labelled_sentences(text)]


def _parts(by_package: dict[str, list[Sentence]], sizes: dict[str, int]) -> dict[str, list[Sentence]]:
    """Assign each package, the largest first, to the part that is furthest from its size."""
    chosen: dict[str, list[Sentence]] = {part: [] for part in sizes}
    for package in sorted(by_package, key=lambda name: (-len(by_package[name]), name)):
        part = min(sizes, key=lambda name: len(chosen[name]) / sizes[name])
        max_sentences = max(1, sizes[part] // _LARGEST_SHARE)
        chosen[part] += sorted(by_package[package], key=_digest)[:max_sentences]
    return {part: sorted(chosen[part], key=_digest)[:size] for part, size in sizes.items()}


def _digest(sentence: Sentence) -> bytes:
    return sha256(" ".join(sentence.words).encode()).digest()


if __name__ == "__main__":
    main()
