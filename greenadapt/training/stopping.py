"""Being asked to stop in the middle of a step: the step is finished first, so that its state can be saved."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """Whether a stop was asked for; ``signal`` is by which signal, 0 for none."""

    def __init__(self) -> None:
        self.signal = 0

    @property
    def wanted(self) -> bool:
        """Whether to save and leave now."""
        return self.signal != 0

    def agree(self, largest: Callable[[int], int]) -> None:
        """Make all processes stop at the same step; ``largest`` is ``Machine.largest``. Call it once a step."""
        self.signal = largest(self.signal)

    def leave(self) -> None:
        """Where a stop is wanted, raise ``KeyboardInterrupt`` for SIGINT, ``SystemExit(143)`` for SIGTERM."""
        if self.signal == signal.SIGINT:
            raise KeyboardInterrupt
        if self.wanted:
            raise SystemExit(128 + self.signal)


@contextmanager
def stoppable() -> Iterator[Stop]:
    """Within it, the first SIGINT or SIGTERM only sets ``wanted``, and the second one acts as it does without.

    In a thread other than the main one, where Python handles no signals, nothing is changed.
    """
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.getsignal(number) for number in _SIGNALS}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def handle(number: int, frame: FrameType | None) -> None:
        stop.signal = number
        restore()

    for number in _SIGNALS:
        signal.signal(number, handle)
    try:
        yield stop
    finally:
        restore()
