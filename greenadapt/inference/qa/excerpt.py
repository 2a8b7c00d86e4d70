"""The sentence around an answer, for people to read."""

from dataclasses import dataclass

from greenadapt.inference.sentence_gaps import sentence_gaps

MAX_CHARS = 300


@dataclass(frozen=True)
class Excerpt:
    """A piece of a context, ``start`` its first character in there."""

    text: str
    start: int


def sentence_around(context: str, start: int, end: int, max_chars: int = MAX_CHARS) -> Excerpt:
    """The sentence, or the sentences, that hold the characters ``start`` to before ``end`` of ``context``.

    For where sentences end see ``sentence_gaps``. What has more than ``max_chars`` characters is
    cut between words on both sides of the span, of which nothing is ever left out.

    Looks at ``max_chars`` characters on either side, however long the context is. Raises ``ValueError`` for a span that
    is none of the context's.
    """
    if not 0 <= start <= end <= len(context):
        raise ValueError(f"characters {start} to {end} of a context that has {len(context)}")
    first, last = max(0, start - max_chars - 1), min(len(context), end + max_chars + 1)  # what is longer is cut
    for gap_start, gap_end in sentence_gaps(context, first, last):
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
