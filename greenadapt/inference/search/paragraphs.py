"""Documents cut into paragraphs."""

import re
from collections.abc import Callable, Iterator

from greenadapt.inference.sentence_gaps import sentence_gaps

Span = tuple[int, int]
"""First character, and the one after the last."""
_BLANK_LINES, _LINE_BREAK, _SPACE = re.compile(r"\n[^\S\n]*\n\s*"), re.compile(r"\n\s*"), re.compile(r"\s+")


def paragraphs(text: str, most: int) -> list[Span]:
    """Where the paragraphs of ``text`` are, each of at most ``most`` characters, without the white space between them.

    Text is cut at blank lines; what is longer than ``most`` then, at line breaks; what still is, between sentences,
    then between words, and a longer word anywhere. Neighbouring parts that fit into ``most`` characters together are
    one paragraph, so that headings stay with what follows them.
    """
    found: list[Span] = []
    for start, end in _parts(text, (0, len(text)), most, 0):
        if found and end - found[-1][0] <= most:
            found[-1] = (found[-1][0], end)
        else:
            found.append((start, end))
    return found


def _matches(pattern: "re.Pattern[str]") -> Callable[[str, int, int], Iterator[Span]]:
    return lambda text, start, end: (match.span() for match in pattern.finditer(text, start, end))


_GAPS = (_matches(_BLANK_LINES), _matches(_LINE_BREAK), sentence_gaps, _matches(_SPACE))
"""What parts are cut at, from the clearest to the last resort."""


def _parts(text: str, span: Span, most: int, level: int) -> Iterator[Span]:
    """The parts of a span, each of at most ``most`` characters."""
    start, end = _stripped(text, span)
    if end - start <= most:
        if start < end:
            yield start, end
    elif level == len(_GAPS):
        yield from ((at, min(at + most, end)) for at in range(start, end, most))
    else:
        for gap_start, gap_end in _GAPS[level](text, start, end):
            yield from _parts(text, (start, gap_start), most, level + 1)
            start = gap_end
        yield from _parts(text, (start, end), most, level + 1)


def _stripped(text: str, span: Span) -> Span:
    start, end = span
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    return start, end
