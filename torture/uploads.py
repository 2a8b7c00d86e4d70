"""``push`` to a stand-in of the model hub that refuses, cuts connections or is slow while the command is killed."""

import json
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.support.hub import TOKEN, Hub, local_hub
from tests.support.processes import Forked
from torture.campaign import Part
from torture.injected import CODE
from torture.outcomes import Outcome
from torture.trials import Bench, PromiseError, check_message, is_worded

_REPO = "me/model"
_REQUESTS = 10
"""About how many requests a push makes."""


class Uploads(Part):
    """``push`` of an adapted model: afterwards the hub has all of it or nothing, and the folder is as it was."""

    def __init__(self, folder: Path, scale: float) -> None:
        self._bench = Bench(folder)
        self._kinds: dict[str, Callable[[Upload], None]] = {"refuse": refused, "cut": cut, "kill": killed}
        self._expected: dict[str, bytes] = {}

    def cases(self) -> list[str]:
        return [f"upload/{kind}" for kind in self._kinds]

    def attempt(self, case: str, seed: int) -> Iterator[Outcome]:
        self._bench.make_inputs()
        model = self._bench.inputs / "adapted"
        before = _files(model)
        if not self._expected:
            with local_hub() as hub:
                self._expected = Upload(model, hub, random.Random(seed), {}).succeed()
        with local_hub() as hub:
            upload = Upload(model, hub, random.Random(seed), self._expected)
            try:
                self._kinds[case.partition("/")[2]](upload)
                upload.require_all_or_nothing()
                hub.before = lambda: ""
                if upload.succeed() != self._expected or _files(model) != before:
                    raise PromiseError("lost", "the hub or the folder does not hold what was pushed")
                yield Outcome("survived", upload.note)
            except PromiseError as error:
                yield error.outcome


class Upload:
    """One attempt, to an empty hub."""

    def __init__(self, model: Path, hub: Hub, draw: random.Random, expected: dict[str, bytes]) -> None:
        self.hub, self.draw, self.note = hub, draw, ""
        self._model, self._expected = model, expected

    def started(self) -> Forked:
        arguments = ["-c", CODE, json.dumps({"hub": self.hub.url}), "push", str(self._model), _REPO]
        return Forked(arguments, HF_TOKEN=TOKEN)

    def succeed(self) -> dict[str, bytes]:
        """Run the command, which must succeed; return the files on the hub."""
        ended = self.started().completed(120)
        if ended.returncode:
            raise PromiseError("lost", f"the next push ended with {ended.returncode}: {ended.stderr[-800:]}")
        return self._held()

    def judge(self, codes: tuple[int, ...] = (1,)) -> None:
        ended = self.started().completed(240)
        if ended.returncode:
            check_message(ended, codes)
        if TOKEN in ended.stdout + ended.stderr:
            raise PromiseError("leaked", "the token is shown")

    def require_all_or_nothing(self) -> None:
        """A commit is one request, so that others see the whole model or none of it."""
        if (held := self._held()) and held != self._expected:
            raise PromiseError("lost", f"the hub has a part: {sorted(held)}")

    def _held(self) -> dict[str, bytes]:
        return {path: content for (_, _, path), content in self.hub.files.items()}


def refused(upload: Upload) -> None:
    """The hub refuses from one request on, or is out of order."""
    first, status = upload.draw.randrange(_REQUESTS), upload.draw.choice(["401", "403", "404", "429", "500", "503"])
    countdown = iter(range(first))
    upload.hub.before = lambda: "" if next(countdown, None) is not None else status
    upload.note = f"{status} after {first} requests"
    upload.judge()


def cut(upload: Upload) -> None:
    """The connection ends without an answer, at one request or from it on."""
    first, goes_on = upload.draw.randrange(_REQUESTS), upload.draw.random() < 0.5
    countdown = iter(range(first))
    at = iter([True])
    upload.hub.before = lambda: "cut" if next(countdown, None) is None and (goes_on or next(at, False)) else ""
    upload.note = f"{'from' if goes_on else 'at'} request {first}"
    upload.judge()


def killed(upload: Upload) -> None:
    """SIGKILL or SIGTERM while the hub answers slowly."""
    upload.hub.before = lambda: time.sleep(0.2) or ""  # type: ignore[func-returns-value]
    process = upload.started()
    time.sleep(upload.draw.uniform(0.05, 3.0))
    process.send_signal(upload.draw.choice([signal.SIGKILL, signal.SIGTERM]))
    ended = process.completed(60)
    if is_worded(ended):
        check_message(ended, (143,))


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
