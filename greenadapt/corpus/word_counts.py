"""``vocabulary.tsv``: one word per line with its count, most frequent first."""

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from greenadapt.errors import InputError
from greenadapt.storage.arrays import Int64Array

_LINES = re.compile(rb"(?:[^\t\n]++\t[0-9]++\n)*+")  # possessive: it never goes back, and takes no memory


def write_vocabulary(path: Path, words: Sequence[str], counts: Int64Array) -> None:
    """Write ``words`` and ``counts``, int64 ``(n_words,)``, as UTF-8 lines ``word TAB count``.

    Raises ``InputError`` for a word that cannot be read back: an empty one, or one with a tab or line break.
    """
    with open(path, "w", encoding="utf-8", newline="") as file:
        for row, (word, count) in enumerate(zip(words, counts.tolist(), strict=True)):
            if not word or "\t" in word or "\n" in word:
                raise InputError(
                    f"word {row} is {word!r}, and {path.name} cannot hold empty words, tabs or line breaks"
                )
            file.write(f"{word}\t{count}\n")


def read_vocabulary(path: Path) -> tuple[list[str], Int64Array]:
    """Read words and their counts, int64 ``(n_words,)``; raises ``InputError`` with file and line if it cannot."""
    content = path.read_bytes()
    if _LINES.fullmatch(content):
        with suppress(UnicodeDecodeError):
            parts = content.decode().replace("\n", "\t").split("\t")
            return parts[:-1:2], np.fromiter(map(int, parts[1::2]), np.int64, len(parts) // 2)
    return _read_by_line(path)


def _read_by_line(path: Path) -> tuple[list[str], Int64Array]:
    """The same, slower, for a file in which a line is wrong."""
    words: list[str] = []
    counts: list[int] = []
    with open(path, encoding="utf-8", newline="\n") as file:  # words may contain other line separators
        try:
            for number, line in enumerate(file, 1):
                word, tab, count = line.removesuffix("\n").partition("\t")
                if not (word and tab and count.isascii() and count.isdigit()):
                    raise InputError(
                        f"{path}, line {number}: {line[:80]!r} is not a word, a tab and a count",
                        "run the stage again with --force",
                    )
                words.append(word)
                counts.append(int(count))
        except UnicodeDecodeError as error:
            raise InputError(f"{path}, after line {len(words)}: not UTF-8 ({error.reason})") from None
    return words, np.array(counts, np.int64)
