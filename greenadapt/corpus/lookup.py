"""Which words occur in a task's files, and where words occur in a prepared corpus."""

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from greenadapt.corpus.opening import data_suffix, input_errors, open_binary
from greenadapt.corpus.prepared import PreparedCorpus
from greenadapt.corpus.rows import parse_json
from greenadapt.corpus.text import Decoder
from greenadapt.tokenization.vocabulary import WordSplitter
from greenadapt.tokenization.words import WORD_CATEGORIES

_BLOCK = 1 << 16  # tokens that are searched at a time


@dataclass(frozen=True)
class Context:
    """The words around an occurrence; the word itself is ``words[position]``."""

    words: list[str]
    position: int


def find_contexts(
    corpus: PreparedCorpus, words: Sequence[str], max_contexts: int, width: int
) -> dict[str, list[Context]]:
    """Find each word's first occurrences in different lines, at most ``max_contexts``, with ``width`` words of context.

    The lines of a prepared corpus are in random order, so the first occurrences are a random sample. A word that does
    not occur has an empty list.
    """
    numbers = {word: number for number, word in enumerate(corpus.words)}
    positions: dict[int, dict[int, int]] = {numbers[word]: {} for word in words if word in numbers}  # line → position
    is_pending = np.zeros(len(corpus.words), bool)
    is_pending[list(positions)] = True
    for begin in range(0, corpus.n_tokens, _BLOCK):
        ids = np.asarray(corpus.ids[begin : begin + _BLOCK])
        offsets = np.flatnonzero(is_pending[ids])
        lines = np.searchsorted(corpus.lines, offsets + begin, side="right") - 1
        for offset, line in zip(offsets.tolist(), lines.tolist(), strict=True):
            lines_of_word = positions[int(ids[offset])]
            if len(lines_of_word) < max_contexts:
                lines_of_word.setdefault(line, begin + offset)
        complete = [number for number, lines_of_word in positions.items() if len(lines_of_word) == max_contexts]
        is_pending[complete] = False
        if not is_pending.any():
            break
    return {
        word: [
            _context(corpus, line, offset, width) for line, offset in positions.get(numbers.get(word, -1), {}).items()
        ]
        for word in words
    }


def _context(corpus: PreparedCorpus, line: int, position: int, width: int) -> Context:
    begin, end = corpus.lines[line : line + 2].tolist()
    begin = max(begin, min(position - width // 2, end - width))
    ids = corpus.ids[begin : min(begin + width, end)].tolist()
    return Context([corpus.words[i] for i in ids], position - begin)


def words_in_files(paths: list[Path], splitter: WordSplitter) -> set[str]:
    """Collect the words of the files' texts.

    In JSON and JSON lines (by suffix) every string is text; in other files every line, including tags, since extra
    words do no harm and missing ones would. Raises ``InputError`` if a file cannot be read.
    """
    words: set[str] = set()
    boundaries = _Boundaries()
    for path in paths:
        for text in _texts(str(path)):
            words.update(splitter.split(text))
            # Transformers alone matches added tokens at the boundaries of \\w, not at the tokenizer's words.
            words.update(splitter.normalize(text).translate(boundaries).split())
    return words


class _Boundaries(dict[int, int]):
    """Maps every character that no exported word contains to a space."""

    def __missing__(self, character: int) -> int:
        self[character] = character if unicodedata.category(chr(character)) in WORD_CATEGORIES else ord(" ")
        return self[character]


def _texts(path: str) -> Iterator[str]:
    suffix = data_suffix(path)
    with input_errors(path), open_binary(path) as stream:
        decoder = Decoder()
        if suffix == ".json":
            yield from _strings(parse_json(decoder.joined(decoder.lines(stream, path), path), path))
            return
        for number, line in decoder.lines(stream, path):
            if suffix not in (".jsonl", ".ndjson"):
                yield line
            elif line.strip():
                yield from _strings(parse_json(line, path, number))


def _strings(value: Any) -> Iterator[str]:
    stack = [value]  # not recursive: json.loads accepts deeper nesting than the recursion limit
    while stack:
        value = stack.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            stack.extend(value.values())
        elif isinstance(value, list):
            # A list of strings is a sentence split into tokens.
            is_text = value and all(isinstance(item, str) for item in value)
            stack.extend([" ".join(value)] if is_text else value)
