"""Where words occur in a prepared corpus."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from greenadapt.corpus.words import PreparedCorpus

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
