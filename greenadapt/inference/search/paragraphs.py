"""Documents cut into paragraphs, and texts into sentences."""

import re
from collections.abc import Callable, Iterator

_BREAK = r"[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]"
_BREAKS = re.compile(rf"\r\n|{_BREAK}")
_GAP = re.compile(
    rf"""(?:(?P<stop>[.!?…।؟]["'”’»)\]]*)(?=\s)|(?P<wide>[。！？][」』”’）]*)|(?={_BREAK}))(?P<gap>\s*)"""
)
"""Where a sentence may end: a full stop before white space, one of a script that has no spaces, or a line break."""
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
    """Between which characters of ``first`` to before ``last`` a sentence ends and the next one begins.

    An empty line ends a sentence, and so do a line break and one of ``.!?`` with white space after it where what
    follows may begin a sentence: no lower-case letter, and after ``.!?`` a letter, a digit or a quotation mark;
    abbreviations such as ``e.g.``, and ``al.`` before a number, do not.
    """
    for match in _GAP.finditer(context, first, last):
        begin, end = match.span("gap")
        following = context[end] if end < len(context) else ""
        n_breaks = len(_BREAKS.findall(match["gap"]))
        if (
            n_breaks > 1
            or (n_breaks and not following.islower())
            or match["wide"]
            or (match["stop"] and _begins(following) and not _is_abbreviation(context, match, following))
        ):
            yield begin, end


def _begins(following: str) -> bool:
    """Whether a sentence may begin with this character, if there is one; scripts without case have no lower one."""
    return following in _QUOTES or (following.isalnum() and not following.islower())


def _is_abbreviation(context: str, match: "re.Match[str]", following: str) -> bool:
    """Whether the full stop belongs to the word before it, and ``following`` is in the same sentence."""
    if match["stop"] != ".":
        return False
    before = context[max(0, match.start() - _LOOK_BACK) : match.start()]
    words = before.split()
    word = words[-1].lstrip(_OPENING) if words and not before[-1].isspace() else ""
    if len(word) == 1 and word.isupper():  # the initial of a name
        return True
    return word.lower() in _NEVER_LAST or (following.isdigit() and word.lower() in _BEFORE_NUMBER)


Span = tuple[int, int]
"""First character, and the one after the last."""
_BLANK_LINES, _LINE_BREAK, _SPACE = re.compile(r"\n[^\S\n]*\n\s*"), re.compile(r"\n\s*"), re.compile(r"\s+")


def paragraphs(text: str, max_chars: int) -> list[Span]:
    """The spans of the paragraphs of ``text``, of at most ``max_chars`` characters, without the white space between.

    Text is cut at blank lines; what is longer than ``max_chars`` then, at line breaks; what still is, between
    sentences, then between words, and a longer word anywhere. Neighbouring parts that fit into ``max_chars`` characters
    together are one paragraph, so that headings stay with what follows them.
    """
    spans: list[Span] = []
    for start, end in _parts(text, (0, len(text)), max_chars, 0):
        if spans and end - spans[-1][0] <= max_chars:
            spans[-1] = (spans[-1][0], end)
        else:
            spans.append((start, end))
    return spans


def _matches(pattern: "re.Pattern[str]") -> Callable[[str, int, int], Iterator[Span]]:
    return lambda text, start, end: (match.span() for match in pattern.finditer(text, start, end))


_GAPS = (_matches(_BLANK_LINES), _matches(_LINE_BREAK), sentence_gaps, _matches(_SPACE))
"""Where parts are cut, from the clearest place to the last resort."""


def _parts(text: str, span: Span, max_chars: int, level: int) -> Iterator[Span]:
    """The parts of a span, each of at most ``max_chars`` characters."""
    start, end = _stripped(text, span)
    if end - start <= max_chars:
        if start < end:
            yield start, end
    elif level == len(_GAPS):
        yield from ((i, min(i + max_chars, end)) for i in range(start, end, max_chars))
    else:
        for gap_start, gap_end in _GAPS[level](text, start, end):
            yield from _parts(text, (start, gap_start), max_chars, level + 1)
            start = gap_end
        yield from _parts(text, (start, end), max_chars, level + 1)


def _stripped(text: str, span: Span) -> Span:
    part = text[slice(*span)]
    return span[0] + len(part) - len(part.lstrip()), span[0] + len(part.rstrip())
