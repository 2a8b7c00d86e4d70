"""The demo: adapt the offline model to the offline corpus, and fine-tune both on labels that the text itself has."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from itertools import islice
from pathlib import Path

import numpy as np

from greenadapt.checkpoints.layout import LOGITS, PREDICTIONS, SEEDS, TASK_FILE, read_described
from greenadapt.config import MINILM, AlignConfig, ExpandConfig, TextOptions, TrainConfig, W2VConfig
from greenadapt.corpus.pydocs import UNPARSABLE, docstrings, find_packages, fingerprint_pydocs, paragraphs, read_sources
from greenadapt.corpus.splitting import HELDOUT
from greenadapt.errors import InputError, MissingError, require_torch
from greenadapt.inference.models import averaged_over_seeds
from greenadapt.progress import Silent
from greenadapt.stages.adapt import AdaptRequest, adapt
from greenadapt.stages.corpus import choose_corpus
from greenadapt.stages.finetune.compare import compare, read_predictions
from greenadapt.stages.finetune.request import FinetuneRequest
from greenadapt.stages.neighbours import neighbours
from greenadapt.stages.session import FINETUNE, Session
from greenadapt.storage.files import Json, hash_json
from greenadapt.storage.jobs import Job, Outcome
from greenadapt.storage.results import Result
from greenadapt.tasks.base import load_task
from greenadapt.tasks.conll import Sentence, split_text
from greenadapt.tasks.metrics import paired
from greenadapt.tokenization.added_words import AddedWords
from greenadapt.tokenization.dual_tokenizer import DualTokenizer
from greenadapt.vectors.neighbours import Neighbours

CODE = "CODE"
# Private use characters replace this mark-up, so that it survives the removal of all other mark-up.
_BEGIN, _END, _OTHER = "\ue000", "\ue001", "\ue002"
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
_NO_PROSE = re.compile(rf"[{_OTHER}`|]|>>>|://|\.\.\s")
_FEWEST_WORDS, _MOST_WORDS = 5, 60
_LARGEST_SHARE = 4
"""No package gives more than one in this many sentences of a part."""


@dataclass(frozen=True)
class IdentifierSet:
    """Labelled sentences for training and testing, from different packages."""

    train: list[Sentence]
    test: list[Sentence]

    def write(self, folder: Path) -> tuple[Path, Path]:
        """Write ``train.tsv`` and ``test.tsv`` in CoNLL's format, and return their paths."""
        paths = folder / "train.tsv", folder / "test.tsv"
        for path, sentences in zip(paths, (self.train, self.test), strict=True):
            path.write_text("\n".join(map(_conll, sentences)), "utf-8")
        return paths


def identifier_set(
    n_train: int = 400, n_test: int = 1000, *, names: Sequence[str] = (), workers: int = 1
) -> IdentifierSet:
    """At most this many sentences from the installed packages (or ``names``), the same for the same packages.

    A package is either trained or tested on: its docstrings are near copies of each other, so that a finer split
    would test memorization. No sentence is repeated, ignoring case. ``workers`` is the number of
    processes. Raises ``InputError`` if fewer than two packages have such sentences.
    """
    by_package: dict[str, list[Sentence]] = defaultdict(list)
    seen: set[str] = set()
    for package, sentence in _read(names, workers):
        key = " ".join(sentence.words).lower()
        if key not in seen:
            seen.add(key)
            by_package[package].append(sentence)
    if len(by_package) < 2:
        raise InputError(
            f"{len(by_package)} of the installed packages has docstrings with marked code, at least 2 are needed",
            "install a package such as numpy or scipy beside greenadapt",
        )
    return IdentifierSet(*_parts(by_package, (n_train, n_test)))


def labelled_sentences(docstring: str) -> Iterator[Sentence]:
    """The sentences of a docstring that have code between double backticks, labelled, without the backticks.

    Excludes what would teach wrong labels: sentences with other mark-up (roles, links, emphasis, columns of a table:
    mostly code without the label), with code of several words, and with a word that is code in one place and not in
    another.
    """
    if "``" not in docstring:
        return
    text = _LITERAL.sub(_mark, docstring)
    text = _EMPHASIS.sub(rf"{_OTHER}\g<0>", _BACKTICK.sub(_OTHER, text))
    text = _COLUMNS.sub(rf"{_OTHER}\g<0>", text)
    for paragraph in paragraphs(text):
        for sentence in _SENTENCE_END.split(paragraph):
            if _is_usable(sentence):
                labelled = _labelled(sentence)
                if _FEWEST_WORDS <= len(labelled.words) <= _MOST_WORDS and not _is_contradictory(labelled):
                    yield labelled


def _mark(literal: re.Match[str]) -> str:
    if not _CODE.fullmatch(literal[1]):
        return _OTHER
    # As letters it survives the removal of the other mark-up, and looks like prose.
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


def _read(names: Sequence[str], workers: int) -> Iterator[tuple[str, Sentence]]:
    tasks = [(package.name, package.root / file) for package in find_packages(names) for file in package.files]
    found = read_sources(_read_file, (path for _, path in tasks), workers)
    for (package, _), sentences in zip(tasks, found, strict=True):
        yield from ((package, sentence) for sentence in sentences)


def _read_file(path: Path) -> list[Sentence]:
    """The labelled sentences of one source, none if it cannot be parsed."""
    content = path.read_bytes()
    if b"``" not in content:
        return []
    try:
        found = list(docstrings(content))
    except UNPARSABLE:
        return []
    return [sentence for _, text in found for sentence in labelled_sentences(text)]


def _parts(by_package: dict[str, list[Sentence]], sizes: tuple[int, ...]) -> list[list[Sentence]]:
    """Packages to parts, the largest first, each to the part that is furthest from its size."""
    chosen: list[list[Sentence]] = [[] for _ in sizes]
    for package in sorted(by_package, key=lambda name: (-len(by_package[name]), name)):
        part = min(range(len(sizes)), key=lambda i: len(chosen[i]) / sizes[i])
        most = max(1, sizes[part] // _LARGEST_SHARE)
        chosen[part] += sorted(by_package[package], key=_digest)[:most]
    return [sorted(sentences, key=_digest)[:size] for sentences, size in zip(chosen, sizes, strict=True)]


def _digest(sentence: Sentence) -> bytes:
    return sha256(" ".join(sentence.words).encode()).digest()


def _conll(sentence: Sentence) -> str:
    return "".join(f"{word}\t{tag}\n" for word, tag in zip(sentence.words, sentence.tags or (), strict=True))


IDENTIFIERS = "identifiers"
MODELS = ("adapted", "base", "base, two seeds averaged")


@dataclass(frozen=True)
class TaskPlan:
    """The size of the demo's training and test; three seeds of both models take three minutes or so on two cores.

    The learning rate was chosen with the base model on other sentences of the same packages, the epochs for speed. The
    base model makes as many steps as the adapted one: it reads each sentence twice where that reads both tokenizations.
    """

    train: int = 300
    """Sentences."""
    test: int = 800
    """Sentences."""
    epochs: int = 3
    learning_rate: float = 2e-4
    seeds: tuple[int, ...] = (0, 1, 2)


@dataclass(frozen=True)
class DemoTask:
    """Code identifiers found in docstrings, by the adapted model, the base model, and the base model at equal cost."""

    stages: list[Result]
    """The labelled sentences, and the two fine-tuned models, the adapted one first."""
    rows: list[Json]
    """As those of ``compare.Comparison``, in the order of ``MODELS``; the score is F1."""

    def as_dict(self) -> Json:
        """``sentences`` of both parts, ``seeds``, and ``rows``."""
        seeds = self.stages[1].manifest.config["seeds"]
        return {"sentences": self.stages[0].manifest.counts, "seeds": seeds, "rows": self.rows}


def demo_task(session: Session, adapted: Result, packages: Sequence[str], plan: TaskPlan) -> DemoTask:
    """Fine-tune ``adapted`` and the offline model on identifiers in docstrings of ``packages`` (empty: all).

    Everything goes to the workspace, beside ``adapted``. Raises ``MissingError`` if torch is not installed.
    """
    corpus = adapted.manifest.facts["corpus"]
    sentences = _sentences(session, corpus, packages, plan)
    request = FinetuneRequest.of_one(
        model=str(adapted.path),
        train=(str(sentences.path / "train.tsv"),),
        test=str(sentences.path / "test.tsv"),
        training=TrainConfig(epochs=plan.epochs, learning_rate=plan.learning_rate, mix="both"),
        seeds=plan.seeds,
        save_logits=True,
    )
    out = session.workspace.place(corpus, MINILM, FINETUNE).path
    compared = compare(replace(session, out=out, updates=True), request, [MINILM])
    rows = [*compared.rows, _control(request, *compared.results)]
    named = [{**row, "model": name} for row, name in zip(rows, MODELS, strict=True)]
    return DemoTask([sentences, *compared.results], named)


def _sentences(session: Session, corpus: str, packages: Sequence[str], plan: TaskPlan) -> Result:
    def build(work: Path) -> Outcome:
        session.progress.note("looking for marked code in docstrings")
        made = identifier_set(plan.train, plan.test, names=packages, workers=session.workers)
        made.write(work)
        return Outcome({"train": len(made.train), "test": len(made.test)})

    config = {"train": plan.train, "test": plan.test, "packages": list(packages)}
    inputs = {"docstrings": {"sha256": hash_json(fingerprint_pydocs(packages))}}
    with session.locked(corpus, MINILM):
        place = session.workspace.place(corpus, MINILM, IDENTIFIERS)
        return session.run(place, Job(IDENTIFIERS, config, inputs, build))


def _control(request: FinetuneRequest, ours: Result, base: Result) -> Json:
    """The row of the base model at the cost of two passes."""

    task = load_task(read_described(ours.folder / TASK_FILE))
    examples = task.read(request.test or "", Silent())
    own = [read_predictions(ours.folder / SEEDS / str(seed) / PREDICTIONS) for seed in request.seeds]
    logits = [base.folder / SEEDS / str(seed) / LOGITS for seed in request.seeds]
    averaged = averaged_over_seeds(task, examples, logits)
    ours_sums, theirs = (np.stack([task.statistics(examples, one) for one in each]) for each in (own, averaged))
    found = paired(ours_sums, theirs, task.main_score)
    # The averages share models, so their deviation does not show how runs vary.
    return {"folder": str(base.path), "score": found.theirs, "std": None, **asdict(found)}


_BATCH = 1000  # texts encoded at a time


@dataclass(frozen=True)
class Fertility:
    """Counts over the same words in both tokenizations."""

    words: int
    base_pieces: int
    expanded_pieces: int
    whole_words: int
    """Words that only the expanded tokenizer keeps as one piece."""

    @property
    def before(self) -> float:
        """Base pieces per word."""
        return self.base_pieces / max(self.words, 1)

    @property
    def after(self) -> float:
        """Expanded pieces per word."""
        return self.expanded_pieces / max(self.words, 1)


def fertility(tokenizer: DualTokenizer, texts: Iterable[str]) -> Fertility:
    """Count the pieces of ``texts`` in both tokenizations, a batch at a time."""
    words = base = expanded = whole = 0
    remaining = iter(texts)
    while batch := list(islice(remaining, _BATCH)):
        for encoding in tokenizer.encode_batch(batch):
            words += encoding.n_words
            base += len(encoding.base.ids)
            expanded += len(encoding.expanded.ids)
            whole += int((encoding.expanded.ids >= tokenizer.added.first_id).sum())
    return Fertility(words, base, expanded, whole)


CORPUS = "demo"
HELDOUT_SHARE = 0.01
N_WORDS = 10
# Domain words that a general model splits into pieces; those in this machine's corpus are shown.
PROBES = [
    "dtype",
    "eigenvalues",
    "ndarray",
    "kwargs",
    "iterable",
    "tuple",
    "coroutine",
    "hashable",
    "tokenizer",
    "callable",
    "subclass",
    "timedelta",
    "unicode",
    "bytecode",
    "dataframe",
    "optimizer",
    "namespace",
    "metadata",
    "boolean",
    "polynomials",
]


@dataclass(frozen=True)
class Demo:
    """The results of the demo."""

    stages: list[Result]
    fertility: Fertility
    neighbours: list[Neighbours]
    task: DemoTask | None
    """``None`` if torch is not installed."""

    @property
    def adapted(self) -> Result:
        """The adapted model's folder."""
        return self.stages[-1]

    @property
    def results(self) -> list[Result]:
        """All results, in order."""
        return [*self.stages, *(self.task.stages if self.task else [])]

    @property
    def heldout(self) -> Json:
        """The figures of the new rows on held-out words; see ``diagnostics.HeldOut``."""
        rows = self.adapted.manifest.facts["rows"]
        return dict(rows["heldout"].get(rows["recipe"]) or {})

    def as_dict(self) -> Json:
        """``folder``, ``counts``, ``fertility``, ``alignment``, ``neighbours``, ``task``, and each stage's ``cost``."""
        return {
            "folder": str(self.adapted.path),
            "counts": self.adapted.manifest.counts,
            "fertility": {**asdict(self.fertility), "before": self.fertility.before, "after": self.fertility.after},
            "alignment": self.heldout,
            "neighbours": [asdict(row) for row in self.neighbours],
            "task": self.task.as_dict() if self.task else None,
            "cost": {result.path.name: result.manifest.cost for result in self.results},
        }


def demo(session: Session, corpus: str = CORPUS, task: TaskPlan | None = None) -> Demo:
    """Adapt the offline model to the docstrings of ``corpus``, look at the result, and fine-tune it on a task.

    Without torch the task is left out, and a warning says so.
    """
    text = TextOptions(heldout=HELDOUT_SHARE)
    packages = choose_corpus(session, corpus, text).packages
    plan = AdaptRequest(W2VConfig(workers=session.workers), AlignConfig(), ExpandConfig(rows="form"), text)
    stages = adapt(replace(session, out=None), corpus, MINILM, plan)
    prepared, adapted = stages[0].folder, stages[-1].folder
    with open(prepared / HELDOUT, encoding="utf-8", newline="\n") as file:
        counted = fertility(DualTokenizer.load(adapted), file)
    near = neighbours(session, corpus, MINILM, _probes(adapted), 4)
    try:
        require_torch("the task at the demo's end")
    except MissingError as error:
        session.progress.warn(str(error))
        return Demo(stages, counted, near, None)
    return Demo(stages, counted, near, demo_task(session, stages[-1], packages, task or TaskPlan()))


def _probes(adapted: Path) -> list[str]:
    """``N_WORDS`` of the added words: the probes among them, then the most frequent."""
    added = AddedWords.open(adapted / "words.safetensors")
    words = [added.surface(entry) for entry in range(len(added))]
    return list(dict.fromkeys([*(word for word in PROBES if word in set(words)), *words]))[:N_WORDS]
