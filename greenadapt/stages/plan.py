"""What a command would do (``--dry-run``): its steps, found by the same checks as when it runs, without writing."""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from greenadapt.storage.files import Json
from greenadapt.storage.jobs import Job, Place, plan_job
from greenadapt.storage.results import Result

UP_TO_DATE, WOULD_RUN = "up to date", "would run"


class DryRun(Exception):  # noqa: N818  (it is no error)
    """Ends a dry run at a step that would run, since the later ones need its result."""


@dataclass(frozen=True)
class Step:
    """One step of a command."""

    stage: str
    status: str
    """``UP_TO_DATE`` or ``WOULD_RUN``."""
    folder: str
    """Where its result is, or would be written."""
    why: str = ""
    """Why it would run."""
    resumes: bool = False
    """Whether it would go on from what a killed run left."""
    seconds: float | None = None
    """What the result that is there took to make."""
    counts: Json = field(default_factory=dict)
    """Of a result that is up to date."""
    adapter: Json | None = None
    """What the tasks' adapters add to the encoder, see ``count_adapters``."""

    def as_dict(self) -> Json:
        """Ready for JSON, without an adapter where there is none."""
        values = asdict(self)
        if self.adapter is None:
            del values["adapter"]
        return values


class Plan:
    """The steps of a dry run so far, and those that were checked but not reached."""

    def __init__(self) -> None:
        self._steps: dict[Path, Step] = {}
        self._expected: dict[Path, str] = {}
        self._adapters: dict[Path, Json] = {}

    @property
    def steps(self) -> list[Step]:
        """All steps in order; those after one that would run would run, too."""
        running = [step.stage for step in self._steps.values() if step.status == WOULD_RUN]
        later = [
            Step(stage, WOULD_RUN, str(path), f"after {running[-1]}")
            for path, stage in self._expected.items()
            if running and path not in self._steps
        ]
        done = [replace(step, adapter=self._adapters.get(path)) for path, step in self._steps.items()]
        return [*done, *later]

    def expect(self, place: Place, stage: str) -> None:
        """Note that a step will come to ``place``."""
        self._expected.setdefault(place.path, stage)

    def add_adapter(self, place: Place, counts: Json) -> None:
        """Note what the adapters of the step that comes to ``place`` add."""
        self._adapters[place.path] = counts

    def run(self, place: Place, job: Job, *, force: bool) -> Result:
        """The result in ``place`` if it is up to date; raises ``DryRun`` if the job would run."""
        planned = plan_job(place, job, force=force)
        standing = planned.current
        seconds = standing.manifest.cost.get("seconds") if standing else None
        if standing is not None and not planned.why:
            counts = standing.manifest.counts
            self._steps[place.path] = Step(job.stage, UP_TO_DATE, str(place.path), seconds=seconds, counts=counts)
            return standing
        return self.stop(Step(job.stage, WOULD_RUN, str(place.path), planned.why, planned.resumes, seconds))

    def stop(self, step: Step) -> Result:
        """Note a ``step`` that would run, and raise ``DryRun``."""
        self._steps[Path(step.folder)] = step
        raise DryRun

    def run_each(self, runs: Iterable[Callable[[], Result]]) -> list[Result]:
        """The results of runs that do not need each other; raises ``DryRun`` after all if one of them would run."""
        results, stopped = [], False
        for run in runs:
            try:
                results.append(run())
            except DryRun:
                stopped = True
        if stopped:
            raise DryRun
        return results
