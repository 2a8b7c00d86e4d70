"""Documents cut into paragraphs, and texts into sentences."""

import re
from collections.abc import Callable, Iterator
from itertools import chain

_BREAK = r"\n\r\v\f\x1c-\x1e\x85\u2028\u2029"
_BREAKS = re.compile(rf"\r\n|[{_BREAK}]")
_GAP = re.compile(
    rf"""[.!?…।؟。！？{_BREAK}](?:(?<=[.!?…।؟])["'”’»)\]]*(?P<stop>\s+)|(?<=[。！？])[」』”’）]*(?P<wide>\s*)|(?<=[{_BREAK}])\s*)"""
)
"""Where a sentence may end: a full stop before white space, one of a script that has no spaces, or a line break.

It begins with a set of characters, which Python searches for about ten times as fast as for alternatives.
"""
_QUOTES = frozenset("\"'“‘«„「『")
_OPENING = "\"'“‘«([{"
_NEVER_LAST = frozenset(
    {"e.g", "i.e", "cf", "vs", "ca", "approx", "fig", "figs", "eq", "eqs", "ref", "refs", "dr", "prof", "mr", "mrs"}
    | {"ms", "viz", "resp"}
)
"""Abbreviations that do not end a sentence."""
_BEFORE_NUMBER = frozenset(
    {"al", "no", "nos", "vol", "p", "pp", "ch", "sec", "sect", "tab", "tabs", "suppl", "art", "ed", "st", "c"}
    | {"jan", "feb", "mar", "apr", "jun", "jul", "aug", "sep", "sept", "oct", "nov", "dec"}
)
"""Abbreviations that do not end a sentence where a digit follows."""
_LOOK_BACK = 20  # characters before a full stop that may be such a word


def sentence_gaps(context: str, first: int, last: int) -> Iterator[tuple[int, int]]:
    """Yield the gaps between the sentences of ``context[first:last]``: the end of one, and the begin of the next.

    A gap is an empty line; a line break that no lower-case letter follows; or white space after one of ``.!?`` that a
    letter other than a lower-case one, a digit or a quotation mark follows. Abbreviations such as ``e.g.``, and ``al.``
    before a number, end no sentence.
    """
    for match in _GAP.finditer(context, first, last):
        kind = match.lastgroup
        begin, end = match.span(kind or 0)
        following = context[end] if end < len(context) else ""
        gap = context[begin:end]
        n_breaks = 0 if gap == " " else len(_BREAKS.findall(gap))
        if (
            n_breaks > 1
            or (n_breaks and not following.islower())
            or kind == "wide"
            or (kind and _begins(following) and not _is_abbreviation(context, match.start(), begin, following))
        ):
            yield begin, end


def _begins(following: str) -> bool:
    """Whether a sentence may begin with this character, if there is one; scripts without case have no lower one."""
    return following in _QUOTES or (following.isalnum() and not following.islower())


def _is_abbreviation(context: str, start: int, end: int, following: str) -> bool:
    """Whether the full stop at ``start`` belongs to the word before it, and ``following`` is in the same sentence.

    Up to ``end`` there may be other signs after it.
    """
    if context[start:end] != ".":
        return False
    before = context[max(0, start - _LOOK_BACK) : start]
    word = "" if not before or before[-1].isspace() else before.split()[-1].lstrip(_OPENING)
    if len(word) == 1 and word.isupper():  # the initial of a name
        return True
    return word.lower() in _NEVER_LAST or (following.isdigit() and word.lower() in _BEFORE_NUMBER)


Span = tuple[int, int]
"""First character, and the one after the last."""
_BLANK_LINES, _LINE_BREAK, _SPACE = re.compile(r"\n[^\S\n]*\n\s*"), re.compile(r"\n\s*"), re.compile(r"\s+")


def paragraphs(text: str, max_chars: int) -> list[Span]:
    """The spans of the paragraphs of ``text``, of at most ``max_chars`` characters, without the white space between.

    Text is cut at blank lines. A part that is still too long is cut at its line breaks, then between sentences, then
    between words; a word that is too long is cut anywhere. Neighbouring parts that fit into ``max_chars`` together are
    one paragraph, so that a heading stays with the text below it.
    """
    first, last = _strip(text, 0, len(text))
    if last - first <= max_chars:
        return [(first, last)] if first < last else []
    spans: list[Span] = []
    for start, end in _parts(text, first, last, max_chars, 0):
        if spans and end - spans[-1][0] <= max_chars:
            spans[-1] = (spans[-1][0], end)
        else:
            spans.append((start, end))
    return spans


def _matches(pattern: "re.Pattern[str]") -> Callable[[str, int, int], Iterator[Span]]:
    return lambda text, start, end: (match.span() for match in pattern.finditer(text, start, end))


_GAPS = (_matches(_BLANK_LINES), _matches(_LINE_BREAK), sentence_gaps, _matches(_SPACE))
"""Where parts are cut, from the clearest place to the last resort."""


def _parts(text: str, start: int, end: int, max_chars: int, level: int) -> Iterator[Span]:
    """The parts, each of at most ``max_chars`` characters, of a longer span."""
    if level == len(_GAPS):
        yield from ((i, min(i + max_chars, end)) for i in range(start, end, max_chars))
        return
    for gap_start, gap_end in chain(_GAPS[level](text, start, end), [(end, end)]):
        first, last = _strip(text, start, gap_start)
        if last - first > max_chars:
            yield from _parts(text, first, last, max_chars, level + 1)
        elif first < last:
            yield first, last
        start = gap_end


def _strip(text: str, start: int, end: int) -> Span:
    part = text[start:end]
    return start + len(part) - len(part.lstrip()), start + len(part.rstrip())
