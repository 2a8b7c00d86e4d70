"""Which words occur in a task's files."""

import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from greenadapt.corpus.decoding import Decoder
from greenadapt.corpus.opening import data_suffix, input_errors, open_binary
from greenadapt.corpus.rows import parse_json
from greenadapt.tokenization.vocabulary import WordSplitter
from greenadapt.tokenization.words import WORD_CATEGORIES


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
