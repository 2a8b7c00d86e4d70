"""The sentence around an answer, for people to read."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

MAX_CHARS = 300

_BREAK = r"[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]"
_BREAKS = re.compile(rf"\r\n|{_BREAK}")
_PLACE = re.compile(
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


@dataclass(frozen=True)
class Excerpt:
    """A piece of a context, ``start`` its first character in there."""

    text: str
    start: int


def sentence_around(context: str, start: int, end: int, max_chars: int = MAX_CHARS) -> Excerpt:
    """The sentence, or the sentences, that hold the characters ``start`` to before ``end`` of ``context``.

    An empty line ends a sentence, and so do a line break and one of ``.!?`` with white space after it where what
    follows may begin a sentence: no lower-case letter, and after ``.!?`` a letter, a digit or a quotation mark;
    abbreviations such as ``e.g.``, and ``al.`` before a number, do not. What has more than ``max_chars`` characters is
    cut between words on both sides of the span, of which nothing is ever left out.

    Looks at ``max_chars`` characters on either side, however long the context is. Raises ``ValueError`` for a span that
    is none of the context's.
    """
    if not 0 <= start <= end <= len(context):
        raise ValueError(f"characters {start} to {end} of a context that has {len(context)}")
    first, last = max(0, start - max_chars - 1), min(len(context), end + max_chars + 1)  # what is longer is cut
    for gap_start, gap_end in _sentence_gaps(context, first, last):
        if gap_end <= start:
            first = gap_end
        elif gap_start >= end:
            last = gap_start
            break
    first, last = _cut(context, (first, start), (end, last), max_chars)
    while first < start and context[first].isspace():
        first += 1
    while last > end and context[last - 1].isspace():
        last -= 1
    return Excerpt(context[first:last], first)


def _sentence_gaps(context: str, first: int, last: int) -> Iterator[tuple[int, int]]:
    """Between which characters of ``first`` to before ``last`` a sentence ends and the next one begins."""
    for place in _PLACE.finditer(context, first, last):
        begin, end = place.span("gap")
        following = context[end] if end < len(context) else ""
        n_breaks = len(_BREAKS.findall(place["gap"]))
        if (
            n_breaks > 1
            or (n_breaks and not following.islower())
            or place["wide"]
            or (place["stop"] and _begins(following) and not _is_abbreviation(context, place, following))
        ):
            yield begin, end


def _begins(following: str) -> bool:
    """Whether a sentence may begin with this character, if there is one; scripts without case have no lower one."""
    return following in _QUOTES or (following.isalnum() and not following.islower())


def _is_abbreviation(context: str, place: "re.Match[str]", following: str) -> bool:
    """Whether the full stop belongs to the word before it and the sentence goes on with ``following``."""
    if place["stop"] != ".":
        return False
    before = context[max(0, place.start() - _LOOK_BACK) : place.start()]
    words = before.split()
    word = words[-1].lstrip(_OPENING) if words and not before[-1].isspace() else ""
    if len(word) == 1 and word.isupper():  # the initial of a name
        return True
    return word.lower() in _NEVER_LAST or (following.isdigit() and word.lower() in _BEFORE_NUMBER)


def _cut(context: str, before: tuple[int, int], after: tuple[int, int], max_chars: int) -> tuple[int, int]:
    """First character of ``before`` and the one after the last of ``after``, so that with what is between them there
    are at most ``max_chars``: half of the room on either side, and what one side leaves is for the other.
    """
    (first, start), (end, last) = before, after
    room = max(0, max_chars - (end - start))
    n_before, n_after = start - first, last - end
    if n_before + n_after <= room:
        return first, last
    n_before = min(n_before, max(room // 2, room - n_after))
    n_after = min(n_after, room - n_before)
    return _word_begin(context, start - n_before, start), _word_end(context, end, end + n_after)


def _word_begin(context: str, first: int, start: int) -> int:
    """The first character from ``first`` on that begins a word, or ``start``."""
    while first < start and not (first == 0 or context[first - 1].isspace()):
        first += 1
    return first


def _word_end(context: str, end: int, last: int) -> int:
    """The last place up to ``last`` where a word ends, or ``end``."""
    while last > end and not (last == len(context) or context[last].isspace()):
        last -= 1
    return last
