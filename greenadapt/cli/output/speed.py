"""How fast work goes on now, which may be another speed than at first."""

_RECENT = 60.0
"""Seconds that the speed is of."""
_APART = 1.0
"""Seconds between two marks."""


class Speed:
    """The speed of work over the last minute; where the last step took longer, that of this step."""

    def __init__(self, now: float) -> None:
        """Work that begins ``now``, in seconds of whatever clock."""
        self._marks = [(now, 0.0)]
        """When how much was done, the last one and at most a minute before it."""

    def mark(self, now: float, done: float) -> None:
        """Note that ``done`` units are done ``now``."""
        if len(self._marks) > 2 and self._marks[-1][0] - self._marks[-2][0] < _APART:
            self._marks.pop()
        self._marks.append((now, done))
        while len(self._marks) > 2 and now - self._marks[1][0] >= _RECENT:
            self._marks.pop(0)

    @property
    def recent(self) -> tuple[float, float]:
        """Units, and the seconds in which they were done."""
        (start, before), (end, done) = self._marks[0], self._marks[-1]
        return done - before, end - start

    def left(self, units: float) -> float | None:
        """The seconds that ``units`` more take at this speed; ``None`` if it is not known."""
        done, seconds = self.recent
        return units * seconds / done if done > 0 and seconds > 0 else None
