import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from greenadapt.progress import handle_signals, limit_time, time_limits


def test_sigint_waits_for_the_step_and_then_interrupts() -> None:
    handler = signal.getsignal(signal.SIGINT)
    with handle_signals() as stop:
        stop.raise_if_requested()
        assert not stop.is_requested
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.is_requested
        with pytest.raises(KeyboardInterrupt):
            stop.raise_if_requested()
    assert signal.getsignal(signal.SIGINT) is handler


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGALRM, 75)])
def test_sigterm_and_the_end_of_the_time_exit_with_their_codes_at_a_checkpoint(number: int, code: int) -> None:
    with time_limits():
        limit_time(3600, is_alone=True)
        with handle_signals() as stop:
            signal.raise_signal(number)
            with pytest.raises(SystemExit) as exit_:
                stop.raise_if_requested()
    assert exit_.value.code == code


@pytest.mark.slow
def test_a_second_signal_does_not_wait() -> None:
    with pytest.raises(KeyboardInterrupt), handle_signals() as stop:  # noqa: PT012
        os.kill(os.getpid(), signal.SIGINT)
        while not stop.is_requested:  # another thread may have got it
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(10)
        raise AssertionError("went on")


def test_processes_agree() -> None:
    with handle_signals() as stop:
        stop.synchronize(lambda mine: max(mine, signal.SIGTERM))
        with pytest.raises(SystemExit):
            stop.raise_if_requested()


def test_other_threads_are_left_alone() -> None:
    def run() -> bool:
        with handle_signals() as stop:
            return stop.is_requested

    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(run).result() is False


def wait() -> None:
    """As long work does; ``time.sleep`` would not end where Python drops an exception."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        time.sleep(0.01)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.slow
def test_the_end_of_the_time_is_not_lost_where_python_drops_exceptions() -> None:
    class Slow:
        def __del__(self) -> None:
            time.sleep(0.1)

    with pytest.raises(SystemExit) as exit_, time_limits():  # noqa: PT012
        limit_time(0.05, is_alone=True)
        Slow()
        wait()
    assert exit_.value.code == 75


def test_one_of_several_processes_waits_for_the_next_checkpoint() -> None:
    with time_limits():
        limit_time(3600, is_alone=False)
        signal.raise_signal(signal.SIGALRM)
        with handle_signals() as stop:
            assert stop.is_requested
    with handle_signals() as stop:
        assert not stop.is_requested


def test_a_limit_ends_with_its_command() -> None:
    before = signal.getsignal(signal.SIGALRM)
    with time_limits():
        limit_time(3600, is_alone=True)
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 0
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
    assert signal.getsignal(signal.SIGALRM) is before
