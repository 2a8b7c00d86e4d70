"""The demo: adapt the offline model to the offline corpus, and fine-tune both on labels from the text's mark-up."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from itertools import islice
from pathlib import Path

import numpy as np

from greenadapt.checkpoints.layout import LOGITS, SEEDS, TASK_FILE, read_described
from greenadapt.config import (
    CHOSEN_FOR_ENTITIES,
    MINILM,
    AlignConfig,
    ExpandConfig,
    TaskConfig,
    TextOptions,
    TrainConfig,
    W2VConfig,
)
from greenadapt.corpus.pydocs import UNPARSABLE, docstrings, find_packages, fingerprint_pydocs, paragraphs, read_sources
from greenadapt.corpus.splitting import HELDOUT
from greenadapt.errors import InputError, MissingError, require_torch
from greenadapt.inference.models import averaged_over_seeds
from greenadapt.progress import Silent
from greenadapt.stages.adapt import AdaptRequest, adapt
from greenadapt.stages.corpus import choose_corpus
from greenadapt.stages.finetune.compare import compare, statistics_of
from greenadapt.stages.finetune.request import FinetuneRequest
from greenadapt.stages.neighbours import neighbours
from greenadapt.stages.session import FINETUNE, Session
from greenadapt.storage.files import Json, hash_json
from greenadapt.storage.jobs import Job, Outcome
from greenadapt.storage.results import Result
from greenadapt.tasks.base import load_task
from greenadapt.tasks.conll import Sentence, split_text
from greenadapt.tasks.metrics import paired
from greenadapt.tokenization.added_words import WORDS_FILE, AddedWords
from greenadapt.tokenization.dual_tokenizer import DualTokenizer
from greenadapt.vectors.neighbours import Neighbours

CORPUS, IDENTIFIERS = "demo", "identifiers"
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


@dataclass(frozen=True)
class Demo:
    """The results of the demo."""

    results: list[Result]
    """Of ``adapt``; with torch also the labelled sentences and the fine-tuned models, the adapted one first."""
    adapted: Result
    fertility: Json
    """See ``fertility``."""
    neighbours: list[Neighbours]
    task: Json | None
    """``sentences`` of both parts, ``seeds``, and ``rows``, the F1 of each of ``MODELS``; ``None`` without torch."""

    @property
    def heldout(self) -> Json:
        """The figures of the new rows on held-out words."""
        rows = self.adapted.manifest.facts["rows"]
        return dict(rows["heldout"].get(rows["recipe"]) or {})

    def as_dict(self) -> Json:
        """``folder``, ``counts``, ``fertility``, ``alignment``, ``neighbours``, ``task``, and each stage's ``cost``."""
        return {
            "folder": str(self.adapted.path),
            "counts": self.adapted.manifest.counts,
            "fertility": self.fertility,
            "alignment": self.heldout,
            "neighbours": [asdict(row) for row in self.neighbours],
            "task": self.task,
            "cost": {result.path.name: result.manifest.cost for result in self.results},
        }


def demo(session: Session, corpus: str = CORPUS, plan: TaskPlan | None = None) -> Demo:
    """Adapt the offline model to the docstrings of ``corpus``, measure the result, and fine-tune it on a task.

    Without torch, warns and leaves out the task.
    """
    session.progress.note(
        f"adapting {MINILM} to docstrings of Python packages, then fine-tuning both models with three seeds: "
        "four to five minutes on two idle cores"
    )
    text = TextOptions(heldout=_HELDOUT_SHARE)
    packages = choose_corpus(session, corpus, text).packages
    request = AdaptRequest(W2VConfig(workers=session.workers), AlignConfig(), ExpandConfig(rows="form"), text)
    results = adapt(replace(session, out=None), corpus, MINILM, request)
    adapted = results[-1]
    with open(results[0].folder / HELDOUT, encoding="utf-8", newline="\n") as file:
        counts = fertility(DualTokenizer.load(adapted.folder), file)
    neighbour_rows = neighbours(session, corpus, MINILM, _probes(adapted.folder), 4)
    task = None
    try:
        require_torch("the task at the demo's end")
    except MissingError as error:
        session.progress.warn(str(error))
    else:
        of_task, task = _task(session, adapted, packages, plan or TaskPlan())
        results = [*results, *of_task]
    return Demo(results, adapted, counts, neighbour_rows, task)


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


def _probes(adapted: Path) -> list[str]:
    """``N_WORDS`` added words: the probes among them, then the most frequent."""
    words = AddedWords.open(adapted / WORDS_FILE).all_surfaces()
    return list(dict.fromkeys([*(word for word in _PROBES if word in set(words)), *words]))[:N_WORDS]


def _task(session: Session, adapted: Result, packages: Sequence[str], plan: TaskPlan) -> tuple[list[Result], Json]:
    """Fine-tune ``adapted`` and the offline model on identifiers in docstrings of ``packages`` (empty: all), and
    compare them. All results go to the workspace, beside ``adapted``.
    """
    corpus = adapted.manifest.facts["corpus"]
    sentences = _sentences(session, corpus, packages, plan)
    request = FinetuneRequest.of_one(
        model=str(adapted.path),
        train=(str(sentences.path / "train.tsv"),),
        test=str(sentences.path / "test.tsv"),
        task=TaskConfig(**CHOSEN_FOR_ENTITIES),
        training=TrainConfig(epochs=plan.epochs, learning_rate=plan.learning_rate, mix="both"),
        seeds=plan.seeds,
        save_logits=True,
    )
    out = session.workspace.place(corpus, MINILM, FINETUNE).path
    compared = compare(replace(session, out=out, updates=True), request, [MINILM])
    rows = [*compared.rows, _control(request, *compared.results)]
    named = [{**row, "model": name} for row, name in zip(rows, MODELS, strict=True)]
    task = {"sentences": sentences.manifest.counts, "seeds": list(plan.seeds), "rows": named}
    return [sentences, *compared.results], task


def _sentences(session: Session, corpus: str, packages: Sequence[str], plan: TaskPlan) -> Result:
    def build(work: Path) -> Outcome:
        session.progress.note("looking for marked code in docstrings")
        parts = identifier_set(plan.train, plan.test, names=packages, workers=session.workers)
        for name, part in parts.items():
            write_conll(work / f"{name}.tsv", part)
        return Outcome({name: len(part) for name, part in parts.items()})

    config = {"train": plan.train, "test": plan.test, "packages": list(packages)}
    inputs = {"docstrings": {"sha256": hash_json(fingerprint_pydocs(packages))}}
    with session.locked(corpus, MINILM):
        place = session.workspace.place(corpus, MINILM, IDENTIFIERS)
        return session.run(place, Job(IDENTIFIERS, config, inputs, build))


def _control(request: FinetuneRequest, ours: Result, base: Result) -> Json:
    """The row of the base model with the predictions of two seeds averaged, at the cost of two passes."""
    task = load_task(read_described(ours.folder / TASK_FILE))
    examples = task.read(request.test or "", Silent())
    averaged = averaged_over_seeds(task, examples, [base.folder / SEEDS / str(seed) / LOGITS for seed in request.seeds])
    base_sums = np.stack([task.statistics(examples, predictions) for predictions in averaged])
    comparison = paired(statistics_of(task, examples, ours, request.seeds), base_sums, task.main_score)
    # The averages share models, so their deviation does not show how runs vary.
    return {"folder": str(base.path), "score": comparison.theirs, "std": None, **asdict(comparison)}


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
    by_file = read_sources(_read_file, (path for _, path in tasks), workers)
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
