"""A stage that one process runs, or several that a launcher started together."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from greenadapt.errors import InputError
from greenadapt.progress import Progress, Silent
from greenadapt.store import Outcome, Place, Result

if TYPE_CHECKING:
    from greenadapt.training.machine import Machine

Build = Callable[[Path], Outcome]


def run_together(
    machine: "Machine | None",
    place: Place,
    progress: Progress,
    build: Callable[[Path, Progress], Outcome],
    run: Callable[[Build], Result],
) -> Result:
    """Run a stage into ``place``: the first process keeps the books, all of them build.

    ``run`` is given the function that builds into a work folder, and is called by the first process alone; ``build`` is
    that function, silent in the others. ``machine`` is ``None`` where there is one process. Raises ``InputError`` in
    the others where the first one failed.
    """
    if machine is None:
        return run(lambda work: build(work, progress))
    if not machine.is_first:
        work = machine.shared(None)
        if work is not None:
            build(Path(work), Silent())
            machine.wait()
        result = place.current()
        if result is None:
            raise InputError("the first process failed", "its message says why")
        return result
    told = False

    def tell(work: Path) -> Outcome:
        nonlocal told
        told = machine.shared(str(work)) is not None
        return build(work, progress)

    try:
        result = run(tell)
    finally:
        if not told:
            machine.shared(None)
    if told:  # the others read the result once it is there; after an error nobody waits, the launcher ends them
        machine.wait()
    return result
