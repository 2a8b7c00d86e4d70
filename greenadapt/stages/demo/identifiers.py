"""A small NER data set that any machine can build: code identifiers in the docstrings of its Python packages.

reStructuredText puts code between double backticks. Such code of one word (a name, a.dotted.name, a_call(), key=value)
becomes an entity of type CODE, and the mark-up is removed. The corpus ``pydocs`` has the same text without labels:
vectors trained on it have seen no mark-up either, since the corpus removes it.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from greenadapt.corpus.pydocs import UNPARSABLE, docstrings, find_packages, paragraphs, read_sources
from greenadapt.errors import InputError
from greenadapt.tasks.conll import Sentence, split_text

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
