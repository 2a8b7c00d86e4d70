"""Parts of a text, drawn at random."""

import random
from pathlib import Path

from smart_open import open as smart_open


def draw_lines(text: Path, n_words: float, to: Path) -> Path:
    """Write lines of ``text`` to a file, in random order, until they have so many words; fewer are a part of more."""
    with smart_open(str(text), "rb") as stream:
        lines = stream.readlines()
    random.Random(1).shuffle(lines)
    drawn = 0
    with open(to, "wb") as out:
        for line in lines:
            if drawn >= n_words:
                break
            drawn += len(line.split())
            out.write(line)
    return to
