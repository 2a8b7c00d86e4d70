"""Stages run as jobs: whether a result is up to date, and how a new one is built and published.

In a workspace a result lies under ``.versions/`` and the stage's name is a symlink to it, swapped by ``os.replace``. A
reader takes no lock: it resolves the link once and opens file after file while its command runs, and all of them are of
one version. Of a folder that is replaced as a whole (``renameat2``) it would read old words and a new embedding without
an error. The link ``.NAME.previous`` keeps the version before the newest for such readers until the next run.

A folder that the user named (``--out``) stays a real folder and is swapped as a whole. Work in progress lies in
``.work/`` beside it and is kept when a run is killed, so that the next run can resume it.
"""

import logging
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from greenadapt.cost import Cost, Meter
from greenadapt.errors import ConflictError, GreenadaptError, InputError, MissingError
from greenadapt.progress import ALARM, Progress, stoppable
from greenadapt.storage.files import (
    Json,
    beside,
    hash_file,
    plain,
    publish_folder,
    publish_version,
    read_own,
    require_link,
    write_json,
)
from greenadapt.storage.ownership import (
    MARK,
    NEW_CARD,
    is_result,
    refuse_added,
    remove_folder,
    require_own,
    write_mark,
)
from greenadapt.storage.results import (
    CARD,
    MANIFEST,
    Manifest,
    Result,
    damaged_files,
    differing_inputs,
    paths_of,
    read_manifest,
    refuse_overlap,
    same_content,
    verified,
    with_relative,
)


@dataclass(frozen=True)
class Attempts:
    """The attempts at a job that were killed."""

    key: str
    """Of the job."""
    attempts: int
    cost: Cost

    @classmethod
    def read(cls, work: Path) -> "Attempts | None":
        """The attempts that the mark of the folder ``work`` counts; ``None`` without a mark, or for an invalid one."""
        try:
            return read_own(work / MARK, cls, "unfinished work")
        except (OSError, GreenadaptError):
            return None

    def with_attempt(self, cost: Cost) -> "Attempts":
        """These attempts and one more, which took ``cost``."""
        return Attempts(self.key, self.attempts + 1, self.cost + cost)

    def write(self, work: Path) -> None:
        """Mark ``work``."""
        write_mark(work, **asdict(self))


_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Outcome:
    """The facts that a stage's builder reports about its output."""

    counts: Json
    facts: Json = field(default_factory=dict)


@dataclass(frozen=True)
class Job:
    """A stage to run: its name, what determines its result, and the function that writes it into a folder."""

    stage: str
    config: Json
    inputs: dict[str, Json]
    build: Callable[[Path], Outcome]
    checkpoints: tuple[str, ...] = ()
    """Patterns (``glob``) of the files in its folder from which ``build`` resumes a killed run; without any it starts
    over."""
    scratch: tuple[str, ...] = ()
    """Patterns of what only ``build`` needs in its folder; removed once the rest of the result is complete."""
    card: Callable[[Path, Outcome, Json], str] | None = None
    """Writes the text of ``README.md``, from the folder, the outcome of ``build`` and the cost."""
    replaced_only_by_force: bool = False
    """Whether a finished result is replaced only by force, even if just the content of an input changed."""
    advice: Mapping[str, str] = field(default_factory=dict)
    """By name of an input: what to do if only this input differs."""
    command: str | None = None
    """The command line that requested the result, if any; kept among the facts."""


@dataclass(frozen=True)
class Place:
    """Where a stage's result is published: ``path`` is a symlink in a workspace, a real folder under ``--out``."""

    path: Path
    linked: bool = True

    @property
    def work(self) -> Path:
        """The folder of unfinished work."""
        return self.path.parent / ".work" / self.path.name if self.linked else beside(self.path, "work")

    def current(self) -> Result | None:
        """The finished result, unverified; ``None`` if there is none, or it cannot be read."""
        folder = self.path.resolve()
        try:
            return Result(folder, read_manifest(folder), self.path)
        except (MissingError, InputError):
            return None


@dataclass(frozen=True)
class Planned:
    """Whether a job has to run, and why."""

    manifest: Manifest
    """Stage, configuration and inputs of the job."""
    current: Result | None
    why: str
    """Why the job runs, such as ``text changed``; empty if ``current`` is up to date."""
    resumes: bool = False
    """Whether a killed run left work to resume."""


def plan_job(place: Place, job: Job, *, force: bool) -> Planned:
    """Find out what ``run_job`` would do, and write nothing.

    Raises ``ConflictError`` if ``place`` holds a result of another configuration or of other inputs, a finished model,
    or a folder that is not greenadapt's, or is a mount point.
    """
    _refuse_foreign(place)
    _refuse_overlap(place, paths_of(job.inputs))
    manifest = Manifest(job.stage, plain(job.config), job.inputs)
    current = place.current()
    why = "--force" if force else "no result yet"
    if current is not None and not force:
        _refuse_difference(place, job, current.manifest, manifest)
        changed = _changed_inputs(job, current, manifest)
        if job.replaced_only_by_force:
            current = verified(current)
        damaged = [] if changed and place.linked else [*damaged_files(current)]
        if not (changed or damaged):
            _log.debug("%s: up to date, nothing that it depends on changed: %s", job.stage, current.folder)
            return Planned(manifest, replace(current, checked=True), "")
        # In a folder that the user named, an edited file may be precious: weights that were trained since, perhaps. A
        # missing file is made again, and the card may be edited, see ``_keep_card``.
        if not place.linked and (edited := [file for file in damaged if file.is_file()]):
            raise ConflictError(
                f"{edited[0]} was changed since greenadapt wrote it", "give another --out, or replace it with --force"
            )
        why = f"{', '.join(changed) or 'a file'} changed"
    _refuse_irreplaceable(place)
    return Planned(manifest, current, why, _resumes(place, job, manifest.key))


def run_job(place: Place, job: Job, *, force: bool, progress: Progress) -> Result:
    """Bring ``place`` up to date with ``job``: do nothing, resume a killed run, or start from scratch.

    Raises what ``plan_job`` raises.
    """
    planned = plan_job(place, job, force=force)
    current = planned.current
    if current is not None and not planned.why:
        return current
    if current is not None and not force:
        progress.note(f"{job.stage}: {planned.why} since {place.path} was created, creating it again")
    resumed = ", and resumes a killed run" if planned.resumes else ""
    _log.debug("%s: runs (%s)%s", job.stage, planned.why, resumed)
    key = planned.manifest.key
    built = _finished_work(place, job, key) or _build(place, job, key, progress)
    with stoppable() as stop:  # the work is done: publish it first
        manifest = built if isinstance(built, Manifest) else _describe(place, job, planned, *built, progress)
        for path in _matches(place.work, job.scratch):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        (place.work / MARK).unlink(missing_ok=True)
        folder = (publish_version if place.linked else publish_folder)(place.work, place.path)
    _log.debug("%s: took %.2f s, wrote %s", job.stage, manifest.cost["seconds"], folder)
    if stop.signal != ALARM:  # which comes again
        stop.raise_if_requested()
    return Result(folder, manifest, place.path, fresh=True, checked=True)


def _build(place: Place, job: Job, key: str, progress: Progress) -> tuple[Outcome, Attempts]:
    """Build the result in the folder of unfinished work; return its facts, and all attempts at it."""
    work, before = place.work, _begin(place, job, key, progress)
    try:
        with Meter(keep=lambda cost: before.with_attempt(cost).write(work)) as meter:
            outcome = job.build(work)
    except Exception:
        if not job.checkpoints or all(path.name == MARK for path in work.iterdir()):
            _discard(place)
        raise
    return outcome, before.with_attempt(meter.cost)


def _describe(
    place: Place, job: Job, planned: Planned, outcome: Outcome, attempts: Attempts, progress: Progress
) -> Manifest:
    """Write the card and, last, the manifest, with which the result is complete."""
    work, current = place.work, planned.current
    cost = {**attempts.cost.as_dict(), "attempts": attempts.attempts}
    if job.card is not None:
        (work / CARD).write_text(job.card(work, outcome, cost), "utf-8")
    command = {} if job.command is None else {"command": job.command}
    manifest = replace(
        planned.manifest,
        inputs=with_relative(job.inputs, place.path),
        files=_checksums(work, job.scratch),
        counts=plain(outcome.counts),
        cost=cost,
        facts=plain(command | outcome.facts),
    )
    if current is not None and _keep_card(current, work):
        progress.note(f"{place.path / CARD} was edited and is kept; the new card is {NEW_CARD} beside it")
    write_json(work / MANIFEST, asdict(manifest))
    return manifest


@dataclass(frozen=True)
class Begun:
    """A job that another machine works on before ``run_job`` finds its work and finishes it."""

    work: Path
    """The folder in which ``run_job`` will build."""
    _before: Attempts

    def spend(self, cost: Cost) -> None:
        """Record ``cost`` as the cost of this attempt so far; that of earlier attempts is added."""
        replace(self._before, cost=self._before.cost + cost).write(self.work)


def begin_job(place: Place, job: Job, *, force: bool, progress: Progress) -> Begun | None:
    """Make the work folder in which ``run_job`` will build a job that has ``checkpoints``; ``None`` if there is nothing
    to build.

    Raises what ``plan_job`` raises.
    """
    planned = plan_job(place, job, force=force)
    if not planned.why or _finished_work(place, job, planned.manifest.key):
        return None
    begun = Begun(place.work, _begin(place, job, planned.manifest.key, progress))
    begun.spend(Cost())
    return begun


def check_place(place: Place, stage: str, config: Json, *, force: bool) -> None:
    """Raise ``ConflictError`` for what ``run_job`` would refuse in ``place``, before earlier stages run."""
    _refuse_foreign(place)
    _refuse_overlap(place, {})
    current = place.current()
    if current is not None and not force:
        settings = _differing_settings(place, current.manifest, Manifest(stage, plain(config), {}))
        if settings:
            raise ConflictError(
                f"{place.path} exists with another configuration ({settings})", _advice_to_keep_both(place)
            )
    else:
        _refuse_irreplaceable(place)


def _refuse_difference(place: Place, job: Job, old: Manifest, new: Manifest) -> None:
    """Raise ``ConflictError`` with the difference unless ``old`` is an earlier state of ``new``."""
    settings = _differing_settings(place, old, new)
    inputs = differing_inputs(old.inputs, new.inputs, place.path, linked=place.linked)
    if settings or inputs:
        problem = "exists with another configuration" if settings else "was made from other inputs"
        changes = [settings] * bool(settings) + [f"{name}: {change}" for name, change in inputs.items()]
        hint = "" if settings else _advice(job, inputs)
        raise ConflictError(f"{place.path} {problem} ({', '.join(changes)})", hint or _advice_to_keep_both(place))


def _differing_settings(place: Place, old: Manifest, new: Manifest) -> str:
    """The settings that differ, if any; raises ``ConflictError`` for a result of another stage."""
    if old.stage != new.stage:
        problem = f"{place.path} holds a result of {old.stage}, not of {new.stage}"
        raise ConflictError(problem, "give another --out; --force would delete that result")
    return describe_difference(old.config, new.config)


def _advice_to_keep_both(place: Place) -> str:
    return f"keep both with {'--variant NAME' if place.linked else 'another --out'}, or replace it with --force"


def _changed_inputs(job: Job, current: Result, new: Manifest) -> list[str]:
    """The inputs whose content changed since ``current``; raises ``ConflictError`` if ``current`` must be kept."""
    old = current.manifest.inputs
    names = [name for name, entry in new.inputs.items() if not same_content(old[name], entry)]
    if job.replaced_only_by_force and names:  # training took hours, and the model may be in use
        raise ConflictError(
            f"{current.path} is finished, but {', '.join(names)} changed since",
            _advice(job, names) or "train it again with --force, or keep both with another --out",
        )
    return names


def _advice(job: Job, names: Iterable[str]) -> str:
    """The advice of ``job`` if only the inputs ``names`` differ; "" if it has none for one of them."""
    advice = [job.advice.get(name, "") for name in names]
    return advice[0] if all(advice) else ""


def describe_difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """``name: old → new`` for every setting that differs and can change a result; or an empty string."""
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    return ", ".join(f"{name}: {_described(old.get(name))} → {_described(new.get(name))}" for name in names)


def _described(value: Any) -> str:
    return "not set" if value is None else str(value)


def _refuse_foreign(place: Place) -> None:
    path = place.path
    if place.linked and path.is_symlink():
        return
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        raise ConflictError(f"{path} exists and is not a folder", "give another --out")
    if path.is_dir() and any(path.iterdir()) and not is_result(path):
        raise ConflictError(f"{path} is not empty and holds no greenadapt result", "give an empty or new folder")


def _refuse_overlap(place: Place, read: Mapping[str, str]) -> None:
    """A workspace may hold inputs, such as earlier results, but may not lie in one."""
    if place.linked:
        refuse_overlap(place.path.parent, is_replaced=False)
    else:
        refuse_overlap(place.path, read)


def _refuse_irreplaceable(place: Place) -> None:
    """A folder that the user named is swapped as a whole: a mount point cannot be, and added files would be lost.

    Files of others where greenadapt works beside it would be lost, too.
    """
    path = place.path
    require_own(place.work)
    if place.linked:
        require_link(path)
        return
    require_own(beside(path, "old"))
    if os.path.ismount(path):
        raise ConflictError(f"{path} is a mount point, which cannot be replaced", "give a folder in it")
    if path.is_dir():
        refuse_added(path)


def _keep_card(current: Result, work: Path) -> bool:
    """Keep the card of ``current`` in ``work`` if it was edited by hand; the new card goes beside it."""
    old, new = current.folder / CARD, work / CARD
    written = current.manifest.files.get(CARD, {}).get("sha256")
    if not old.is_file() or hash_file(old) == written:
        return False
    if new.is_file():
        new.rename(work / NEW_CARD)
    shutil.copyfile(old, new)
    return True


def _finished_work(place: Place, job: Job, key: str) -> Manifest | None:
    """The manifest of a complete, sound result of the job ``key`` that a killed run did not publish."""
    try:
        manifest = read_manifest(place.work)
        if not job.checkpoints or manifest.key != key:
            return None
        return verified(Result(place.work, manifest, place.path)).manifest
    except (MissingError, InputError):
        return None


def _resumes(place: Place, job: Job, key: str) -> bool:
    """Whether a killed run left work from which the job ``key`` resumes."""
    attempts = Attempts.read(place.work) if place.work.is_dir() else None
    has_checkpoint = attempts is not None and attempts.key == key and any(_matches(place.work, job.checkpoints))
    return has_checkpoint or _finished_work(place, job, key) is not None


def _begin(place: Place, job: Job, key: str, progress: Progress) -> Attempts:
    """Make the work folder for one more attempt at the job ``key``; returns the earlier, killed attempts.

    Their files stay if the job has ``checkpoints``; a note says if those of other settings or inputs are removed.
    Raises ``ConflictError`` if somebody else made the folder.
    """
    work = place.work
    require_own(work)
    old = Attempts.read(work)
    before = old if old is not None and old.key == key else None
    if before is None and any(_matches(work, job.checkpoints)):
        progress.note(f"{job.stage}: removes the unfinished work of a run with other settings or inputs, {work}")
    if before is None or not job.checkpoints:
        remove_folder(work)
    work.mkdir(parents=True, exist_ok=True)
    before = before or Attempts(key, 0, Cost())
    replace(before, attempts=before.attempts + 1).write(work)
    for name in (MANIFEST, CARD, NEW_CARD):
        (work / name).unlink(missing_ok=True)
    return before


def _matches(folder: Path, patterns: Iterable[str]) -> set[Path]:
    """What matches the ``patterns`` in ``folder``, without its mark."""
    return {path for pattern in patterns for path in folder.glob(pattern) if path.name != MARK}


def _discard(place: Place) -> None:
    """Remove the unfinished work, and in a workspace its folder unless it holds more work."""
    with suppress(OSError):
        remove_folder(place.work)
        if place.linked:
            place.work.parent.rmdir()


def _checksums(folder: Path, scratch: Iterable[str]) -> dict[str, Json]:
    left_out = {folder / MARK, *_matches(folder, scratch)}
    files = sorted(path for path in folder.rglob("*") if path.is_file() and left_out.isdisjoint({path, *path.parents}))
    return {
        path.relative_to(folder).as_posix(): {"sha256": hash_file(path), "bytes": path.stat().st_size} for path in files
    }
