"""The windows in which a model reads a context that is longer than it can read at once."""

from dataclasses import dataclass

import numpy as np

from greenadapt.errors import InputError


@dataclass(frozen=True)
class Window:
    """A slice of a context, counted in its pieces: active from ``a_l`` to before ``a_r``, with ``p_l`` pieces of the
    context before it and ``p_r`` after it that are only read.
    """

    a_l: int
    a_r: int
    p_l: int
    p_r: int

    @property
    def begin(self) -> int:
        """First piece that is read."""
        return self.a_l - self.p_l

    @property
    def end(self) -> int:
        """The piece after the last that is read."""
        return self.a_r + self.p_r

    def holds(self, first: int, last: int) -> bool:
        """Whether the pieces ``first`` to ``last``, both included, are all read."""
        return self.begin <= first and last < self.end


def longest_question(max_length: int = 512, n_special: int = 3) -> int:
    """How many pieces of a question leave room for windows of at least one piece."""
    return max_length - n_special - 2


def windows(m: int, q: int, max_length: int = 512, n_special: int = 3) -> list[Window]:
    """The windows of a context of ``m`` pieces behind a question of ``q``.

    ``room = max_length - n_special - q`` pieces of the context are read at once, ``room // 2`` of them active; the
    active slices tile the context. What is left of the room is shared by both sides, an odd piece goes to the right,
    and what one side cannot use to the other (Poerner et al. 2020, section 5). Raises ``InputError`` if the question
    is longer than ``longest_question``.
    """
    room = max_length - n_special - q
    width = room // 2
    if width < 1:
        raise InputError(f"a question of {q} pieces, at most {longest_question(max_length, n_special)} can be read")
    found = []
    for a_l in range(0, m, width):
        a_r = min(m, a_l + width)
        spare = room - (a_r - a_l)
        p_l = min(a_l, max(spare // 2, spare - (m - a_r)))
        found.append(Window(a_l, a_r, p_l, min(m - a_r, spare - p_l)))
    return found


def strided(m: int, q: int, stride: int, max_length: int = 384, n_special: int = 3) -> list[Window]:
    """The windows of BERT's code for SQuAD: one begins every ``stride`` pieces, all read as much as there is room for.

    Each piece is active in the window that has the most context on its poorer side, and a hundredth of a piece more for
    each piece that the window has; of equal ones in the first. A ``stride`` beyond the room would leave pieces out, so
    that the room is the longest. Raises ``InputError`` for a question that leaves no room.
    """
    room = max_length - n_special - q
    if room < 1:
        raise InputError(f"a question of {q} pieces, at most {max_length - n_special - 1} can be read")
    begins = range(0, max(m - room, 0) + min(stride, room), min(stride, room)) if m else ()
    best, owner = np.full(m, -1.0), np.zeros(m, np.int64)
    for number, begin in enumerate(begins):
        n = min(room, m - begin)
        place = np.arange(n)
        context = np.minimum(place, n - 1 - place) + 0.01 * n
        is_better = context > best[begin : begin + n]
        best[begin : begin + n][is_better] = context[is_better]
        owner[begin : begin + n][is_better] = number
    edges = np.searchsorted(owner, np.arange(len(begins) + 1)).tolist()  # the windows' pieces lie end to end
    return [
        Window(a_l, a_r, a_l - begin, min(m, begin + room) - a_r)
        for begin, a_l, a_r in zip(begins, edges, edges[1:], strict=False)
    ]


def merged(found: list[Window]) -> list[Window]:
    """``windows`` with those that read the same pieces as one, active in all their slices.

    The last ones of a context do, and all of one that can be read at once: what a model says of them is the same.
    """
    joined: list[Window] = []
    for window in found:
        if joined and (joined[-1].begin, joined[-1].end) == (window.begin, window.end):
            first = joined.pop()
            window = Window(first.a_l, window.a_r, first.p_l, window.p_r)
        joined.append(window)
    return joined
