import os
import signal
import threading
import time

import pytest

from greenadapt.training.stepping import stoppable


def test_sigint_waits_for_the_step_and_then_interrupts() -> None:
    handler = signal.getsignal(signal.SIGINT)
    with stoppable() as stop:
        stop.leave()
        assert not stop.wanted
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.wanted
        with pytest.raises(KeyboardInterrupt):
            stop.leave()
    assert signal.getsignal(signal.SIGINT) is handler


def test_sigterm_exits_with_its_code() -> None:
    with stoppable() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(SystemExit) as exit_:
            stop.leave()
    assert exit_.value.code == 143


@pytest.mark.slow
def test_a_second_signal_does_not_wait() -> None:
    with pytest.raises(KeyboardInterrupt), stoppable() as stop:  # noqa: PT012
        os.kill(os.getpid(), signal.SIGINT)
        while not stop.wanted:  # another thread may have got it
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(10)
        raise AssertionError("went on")


def test_processes_agree() -> None:
    with stoppable() as stop:
        stop.agree(lambda mine: max(mine, signal.SIGTERM))
        with pytest.raises(SystemExit):
            stop.leave()


def test_other_threads_are_left_alone() -> None:
    seen = []

    def run() -> None:
        with stoppable() as stop:
            seen.append(stop.wanted)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [False]
