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
    """The ``words`` around and including an occurrence, the word at ``position``."""

    words: list[str]
    position: int


def find_contexts(corpus: PreparedCorpus, words: Sequence[str], most: int, width: int) -> dict[str, list[Context]]:
    """Word → its first occurrences in different lines, at most ``most``, each with at most ``width`` words around it.

    The lines of a prepared corpus are in random order, so the first ones are a random choice. A word that does not
    occur has an empty list.
    """
    numbers = {word: number for number, word in enumerate(corpus.words)}
    found: dict[int, dict[int, int]] = {numbers[word]: {} for word in words if word in numbers}  # line → position
    wanted = np.zeros(len(corpus.words), bool)
    wanted[list(found)] = True
    for begin in range(0, corpus.n_tokens, _BLOCK):
        ids = np.asarray(corpus.ids[begin : begin + _BLOCK])
        places = np.flatnonzero(wanted[ids])
        lines = np.searchsorted(corpus.lines, places + begin, side="right") - 1
        for place, line in zip(places.tolist(), lines.tolist(), strict=True):
            own = found[int(ids[place])]
            if len(own) < most:
                own.setdefault(line, begin + place)
        wanted[[number for number, own in found.items() if len(own) == most]] = False
        if not wanted.any():
            break
    return {
        word: [_context(corpus, line, place, width) for line, place in found.get(numbers.get(word, -1), {}).items()]
        for word in words
    }


def _context(corpus: PreparedCorpus, line: int, place: int, width: int) -> Context:
    begin, end = corpus.lines[line : line + 2].tolist()
    begin = max(begin, min(place - width // 2, end - width))
    ids = corpus.ids[begin : min(begin + width, end)].tolist()
    return Context([corpus.words[i] for i in ids], place - begin)


def words_in_files(paths: list[Path], splitter: WordSplitter) -> set[str]:
    """The words of the files' texts.

    In JSON and JSON lines (by suffix) every string is text, whatever its field; in other files every line, tags
    included: extra words do no harm, missing ones would. Raises ``InputError`` if a file cannot be read.
    """
    found: set[str] = set()
    boundaries = _Boundaries()
    for path in paths:
        for text in _texts(str(path)):
            found.update(splitter.split(text))
            # Plain transformers match added tokens at the boundaries of \\w, not at the tokenizer's words.
            found.update(splitter.normalize(text).translate(boundaries).split())
    return found


class _Boundaries(dict[int, int]):
    """Every character that no exported word contains becomes a space."""

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
    stack = [value]  # not recursive: newer Pythons parse deeper objects than they let functions call themselves
    while stack:
        value = stack.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            stack.extend(value.values())
        elif isinstance(value, list):
            # Tokens of a pre-split sentence are words of one text.
            is_text = value and all(isinstance(item, str) for item in value)
            stack.extend([" ".join(value)] if is_text else value)
