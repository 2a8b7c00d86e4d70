"""The steps that a command would run (``--dry-run``), by the checks of a real run, without writing."""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from greenadapt.storage.files import Json
from greenadapt.storage.jobs import Job, Place, plan_job
from greenadapt.storage.results import Result

UP_TO_DATE, WOULD_RUN = "up to date", "would run"


class DryRun(Exception):  # noqa: N818  (it is no error)
    """Ends a dry run at a step that would run, since later steps need its result."""


@dataclass(frozen=True)
class PlannedStep:
    """One step of a command."""

    stage: str
    status: str
    """``UP_TO_DATE`` or ``WOULD_RUN``."""
    folder: str
    """Where its result is, or would be written."""
    why: str = ""
    """Why it would run."""
    resumes: bool = False
    """Whether it would resume a killed run."""
    seconds: float | None = None
    """The seconds that the present result took."""
    counts: Json = field(default_factory=dict)
    """Of a result that is up to date."""
    adapter: Json | None = None
    """The parts that the tasks' adapters add to the encoder, see ``count_adapters``."""

    def as_dict(self) -> Json:
        """JSON values; ``adapter`` only if there is one."""
        values = asdict(self)
        if self.adapter is None:
            del values["adapter"]
        return values


class DryRunPlan:
    """The steps that a dry run has reached, and the later ones that it has checked."""

    def __init__(self) -> None:
        self._steps: dict[Path, PlannedStep] = {}
        self._expected: dict[Path, str] = {}
        self._adapters: dict[Path, Json] = {}

    @property
    def steps(self) -> list[PlannedStep]:
        """All steps in order; a step after one that would run would run, too."""
        running = [step.stage for step in self._steps.values() if step.status == WOULD_RUN]
        later = [
            PlannedStep(stage, WOULD_RUN, str(path), f"after {running[-1]}")
            for path, stage in self._expected.items()
            if running and path not in self._steps
        ]
        steps = [replace(step, adapter=self._adapters.get(path)) for path, step in self._steps.items()]
        return [*steps, *later]

    def expect(self, place: Place, stage: str) -> None:
        """Note a later step, which writes to ``place``."""
        self._expected.setdefault(place.path, stage)

    def add_adapter(self, place: Place, counts: Json) -> None:
        """Note what the adapters of the step that writes to ``place`` add."""
        self._adapters[place.path] = counts

    def run(self, place: Place, job: Job, *, force: bool) -> Result:
        """The result in ``place`` if it is up to date; raises ``DryRun`` if the job would run."""
        planned = plan_job(place, job, force=force)
        result = planned.current
        seconds = result.manifest.cost.get("seconds") if result else None
        if result is not None and not planned.why:
            counts = result.manifest.counts
            self._steps[place.path] = PlannedStep(
                job.stage, UP_TO_DATE, str(place.path), seconds=seconds, counts=counts
            )
            return result
        return self.stop(PlannedStep(job.stage, WOULD_RUN, str(place.path), planned.why, planned.resumes, seconds))

    def stop(self, step: PlannedStep) -> Result:
        """Note a ``step`` that would run, and raise ``DryRun``."""
        self._steps[Path(step.folder)] = step
        raise DryRun


def run_each(runs: Iterable[Callable[[], Result]]) -> list[Result]:
    """The results of independent runs; a dry run looks at all of them, then raises ``DryRun`` if any would run."""
    results, stopped = [], False
    for run in runs:
        try:
            results.append(run())
        except DryRun:
            stopped = True
    if stopped:
        raise DryRun
    return results
