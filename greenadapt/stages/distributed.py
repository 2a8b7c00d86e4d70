"""Run a stage in one process, or in several started by a launcher."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from greenadapt.config import RunConfig, TrainConfig
from greenadapt.errors import InputError
from greenadapt.progress import Silent
from greenadapt.stages.session import Session
from greenadapt.storage.files import Json
from greenadapt.storage.jobs import Job, Outcome, Place
from greenadapt.storage.results import Result
from greenadapt.workers import launched_processes

if TYPE_CHECKING:
    from greenadapt.models.machine import Machine

Build = Callable[[Path], Outcome]


class DistributedStage(Protocol):
    """A stage that writes into ``place``."""

    @property
    def session(self) -> Session: ...

    @property
    def place(self) -> Place: ...

    def machine(self) -> "Machine":
        """The machine to run on; a single process starts it only if it builds."""

    def job(self, build: Build) -> Job:
        """The job of ``build``, for the first process."""

    def build(self, session: Session, open_machine: "Callable[[], Machine]", work: Path) -> Outcome:
        """Write into a work folder, in all processes, on the machine that ``open_machine`` gives.

        What needs no machine comes before, since the first call imports torch.
        """


def start_machine(session: Session, training: TrainConfig, run: RunConfig, settings: Json) -> "Machine":
    """The machine of a stage; its trackers write beside the session's folder, and log the ``settings``."""
    from greenadapt.models.machine import Machine

    out = session.out or Path()
    return Machine.start(training.precision, run.report_to, out.with_name(f"{out.name}-logs"), settings)


def run_together(stage: DistributedStage) -> Result:
    """Run a stage: the first process manages the result, all build, the others silently.

    Raises ``InputError`` in the others if the first one failed.
    """
    session, place = stage.session, stage.place

    def run(build: Build) -> Result:
        with session.locked():
            return session.run(place, stage.job(build))

    if launched_processes()[1] == 1 or session.plan is not None:
        return run(lambda work: stage.build(session, stage.machine, work))
    machine = stage.machine()
    if not machine.is_first:
        work = machine.shared(None)
        if work is not None:
            stage.build(replace(session, progress=Silent()), lambda: machine, Path(work))
            machine.wait()
        result = place.current()
        if result is None:
            raise InputError("the first process failed", "see its error message")
        return result
    is_shared = False

    def share(work: Path) -> Outcome:
        nonlocal is_shared
        is_shared = machine.shared(str(work)) is not None
        return stage.build(session, lambda: machine, work)

    try:
        result = run(share)
    finally:
        if not is_shared:
            machine.shared(None)
    if is_shared:  # the others read the result once it exists; after an error nobody waits, the launcher ends them
        machine.wait()
    return result
