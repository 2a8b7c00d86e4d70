"""A stage that one process runs, or several that a launcher started together."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from greenadapt.config import RunConfig, TrainConfig
from greenadapt.errors import InputError
from greenadapt.progress import Silent
from greenadapt.stages.session import Session
from greenadapt.storage.files import Json
from greenadapt.storage.results import Job, Outcome, Place, Result
from greenadapt.workers import launched_processes

if TYPE_CHECKING:
    from greenadapt.models.machine import Machine

Build = Callable[[Path], Outcome]


def start_machine(session: Session, training: TrainConfig, run: RunConfig, settings: Json) -> "Machine":
    """What a stage trains on; its trackers write beside the session's folder, and are told the ``settings``."""
    from greenadapt.models.machine import Machine

    out = session.out or Path()
    return Machine.start(training.precision, run.report_to, out.with_name(f"{out.name}-logs"), settings)


def run_together(
    session: Session,
    place: Place,
    start: Callable[[], "Machine"],
    build: Callable[[Session, "Machine", Path], Outcome],
    job: Callable[[Build], Job],
) -> Result:
    """Run a stage into ``place``: the first process keeps the books, all of them build, the others in silence.

    ``start`` gives the machine, which one process alone needs only where it builds. ``build`` writes into a work
    folder; ``job`` is given it as it is called in the first process. Raises ``InputError`` in the others where the
    first one failed.
    """

    def run(build: Build) -> Result:
        with session.locked():
            return session.run(place, job(build))

    if launched_processes()[1] == 1:
        return run(lambda work: build(session, start(), work))
    machine = start()
    if not machine.is_first:
        work = machine.shared(None)
        if work is not None:
            build(replace(session, progress=Silent()), machine, Path(work))
            machine.wait()
        result = place.current()
        if result is None:
            raise InputError("the first process failed", "its message says why")
        return result
    told = False

    def tell(work: Path) -> Outcome:
        nonlocal told
        told = machine.shared(str(work)) is not None
        return build(session, machine, work)

    try:
        result = run(tell)
    finally:
        if not told:
            machine.shared(None)
    if told:  # the others read the result once it is there; after an error nobody waits, the launcher ends them
        machine.wait()
    return result
