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
from greenadapt.progress import ALARM, STAGE, Progress, stoppable
from greenadapt.storage.files import (
    Json,
    beside,
    hash_file,
    plain,
    publish_folder,
    publish_version,
    require_link,
    write_json,
)
from greenadapt.storage.own_json import read_own_object
from greenadapt.storage.ownership import (
    MARK,
    NEW_CARD,
    is_own,
    is_result,
    read_mark,
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
    other_inputs,
    paths_of,
    read_manifest,
    refuse_overlap,
    same_content,
    verified,
    with_relative,
)


@dataclass(frozen=True)
class _Mark:
    key: str
    attempts: int
    cost: dict[str, Any]


@dataclass(frozen=True)
class Attempts:
    """The attempts at a job that were killed."""

    key: str
    """Of the job."""
    attempts: int = 0
    cost: Cost | None = None

    @classmethod
    def left(cls, work: Path) -> "Attempts | None":
        """Those that left the folder ``work``; ``None`` if it has no mark, or an invalid one."""
        try:
            path = former_mark(work) if read_mark(work) is None else work / MARK
            values = read_own_object(path, _Mark, "unfinished work")
            return cls(values["key"], values["attempts"], Cost(**values["cost"]) if values["cost"] else None)
        except (OSError, GreenadaptError, TypeError):
            return None

    @classmethod
    def at(cls, key: str, work: Path) -> "Attempts":
        """Those at the job ``key`` that left ``work``."""
        left = cls.left(work)
        return left if left is not None and left.key == key else cls(key)

    def plus(self, cost: Cost) -> "Attempts":
        """These attempts and one more."""
        return Attempts(self.key, self.attempts + 1, self.cost + cost if self.cost else cost)

    def write(self, work: Path) -> None:
        """Mark ``work``."""
        write_mark(work, key=self.key, attempts=self.attempts, cost=self._cost())

    def as_dict(self) -> Json:
        """The cost of all attempts, and how many there were, for the manifest."""
        return {**self._cost(), "attempts": self.attempts}

    def _cost(self) -> Json:
        return self.cost.as_dict() if self.cost else {}


def begin_attempt(work: Path, key: str, *, resumes: bool) -> Attempts:
    """Make the folder ``work`` for one more attempt at the job ``key``; returns those before.

    What they left is kept if the job ``resumes``. Raises ``ConflictError`` if somebody else made the folder.
    """
    require_own(work, is_work)
    left, is_former = Attempts.left(work), read_mark(work) is None
    known = left if left is not None and left.key == key else None
    if not (known and resumes):
        remove_folder(work)
    work.mkdir(parents=True, exist_ok=True)
    before = known or Attempts(key)
    replace(before, attempts=before.attempts + 1).write(work)
    if left is not None and is_former:
        former_mark(work).unlink(missing_ok=True)
    return before


def is_work(folder: Path) -> bool:
    """Whether greenadapt made this folder to work in."""
    return is_own(folder) or (folder.is_dir() and not folder.is_symlink() and Attempts.left(folder) is not None)


def former_mark(work: Path) -> Path:
    """Where version 0.2.0 wrote the mark of the folder ``work``: beside it."""
    return work.with_name(f"{work.name}.key")


_log = logging.getLogger(__name__)

OF_MACHINES = frozenset({"workers", "sync_words"})
"""Settings that are no property of a result, though manifests of version 0.2.0 have the first."""


@dataclass(frozen=True)
class Outcome:
    """What a stage's builder reports about its output."""

    counts: Json
    facts: Json = field(default_factory=dict)


@dataclass(frozen=True)
class Job:
    """A stage to run: its name, what determines its result, and the function that writes it into a folder."""

    stage: str
    config: Json
    inputs: dict[str, Json]
    build: Callable[[Path], Outcome]
    resumes: bool = False
    """Whether ``build`` resumes what a killed run left in its folder."""
    card: Callable[[Path, Outcome, Json], str] | None = None
    """The text of ``README.md``, from the folder, the outcome of ``build`` and the cost; for a card with the cost."""
    kept: bool = False
    """Whether a finished result is replaced only by force, even if just the content of an input changed."""
    advice: Mapping[str, str] = field(default_factory=dict)
    """What to do instead if only this input, by name, differs."""
    joins: bool = False
    """Whether the result belongs in the folder of an input."""
    command: str | None = None
    """The command line that requested it, if any; kept among the facts."""
    again: str = "creating it again"
    """What is done where an input changed, in words."""


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
        """The finished result here, unverified; ``None`` if there is none, or it cannot be read."""
        folder = self.path.resolve()
        try:
            return Result(folder, read_manifest(folder), self.path)
        except (MissingError, InputError):
            return None


@dataclass(frozen=True)
class Planned:
    """Whether a job has to run, and why."""

    wanted: Manifest
    standing: Result | None
    """The result that is there."""
    why: str
    """Why the job runs, such as ``text changed``; empty if ``standing`` is up to date."""
    resumes: bool = False
    """Whether a killed run left something to go on from."""


def plan_job(place: Place, job: Job, *, force: bool) -> Planned:
    """Say what ``run_job`` would do, and write nothing.

    Raises ``ConflictError`` if ``place`` holds a result of another configuration or of other inputs, a finished model,
    or a folder that is not greenadapt's, or is a mount point.
    """
    _refuse_foreign(place)
    if not job.joins:
        _refuse_overlap(place, paths_of(job.inputs))
    wanted = Manifest(job.stage, plain(job.config), job.inputs)
    standing = place.current()
    why = "--force" if force else "no result yet"
    if standing is not None and not force:
        _refuse_other(place, job, standing.manifest, wanted)
        changed = _changed_inputs(job, standing, wanted)
        if job.kept:
            standing = verified(standing)
        damaged = [] if changed and place.linked else [*damaged_files(standing)]
        if not (changed or damaged):
            _log.debug("%s: up to date, nothing that it depends on changed: %s", job.stage, standing.folder)
            return Planned(wanted, replace(standing, checked=True), "")
        if not place.linked:
            _refuse_edited(damaged)
        why = f"{', '.join(changed) or 'a file'} changed"
    _refuse_irreplaceable(place)
    left = place.work.is_dir() and Attempts.at(wanted.key, place.work).attempts > 0
    return Planned(wanted, standing, why, job.resumes and left)


def run_job(place: Place, job: Job, *, force: bool, progress: Progress) -> Result:
    """Bring ``place`` up to date with ``job``: do nothing, resume a killed run, or start from scratch.

    Raises what ``plan_job`` raises.
    """
    token = STAGE.set(job.stage)
    try:
        return _run_job(place, job, force=force, progress=progress)
    finally:
        STAGE.reset(token)


def _run_job(place: Place, job: Job, *, force: bool, progress: Progress) -> Result:
    planned = plan_job(place, job, force=force)
    wanted, standing = planned.wanted, planned.standing
    if standing is not None and not planned.why:
        return standing
    if standing is not None and not force:
        progress.note(f"{job.stage}: {planned.why} since {place.path} was created, {job.again}")
    work, before = place.work, _begin(place, wanted.key, job.resumes)
    resumed = ", and resumes a killed run" if before.attempts and job.resumes else ""
    _log.debug("%s: runs (%s)%s", job.stage, planned.why, resumed)
    try:
        with Meter(keep=lambda cost: before.plus(cost).write(work)) as meter:
            outcome = job.build(work)
    except Exception:
        if not job.resumes or all(path.name == MARK for path in work.iterdir()):
            _discard(place)
        raise
    with stoppable() as stop:  # the work is done, and checkpoints are gone: publish it first
        cost = before.plus(meter.cost).as_dict()
        if job.card is not None:
            (work / CARD).write_text(job.card(work, outcome, cost), "utf-8")
        manifest = Manifest(
            wanted.stage,
            wanted.config,
            with_relative(wanted.inputs, place.path),
            files=_checksums(work),
            counts=plain(outcome.counts),
            cost=cost,
            facts=plain({**({} if job.command is None else {"command": job.command}), **outcome.facts}),
        )
        write_json(work / MANIFEST, asdict(manifest))
        if standing is not None and _keep_card(standing, work):
            progress.note(f"{place.path / CARD} was edited and is kept; the new card is {NEW_CARD} beside it")
        (work / MARK).unlink()
        folder = (publish_version if place.linked else publish_folder)(work, place.path)
    _log.debug("%s: took %.2f s, wrote %s", job.stage, meter.cost.seconds, folder)
    if stop.signal != ALARM:  # which comes again
        stop.leave()
    return Result(folder, manifest, place.path, fresh=True, checked=True)


@dataclass(frozen=True)
class Begun:
    """Work on a job that goes on elsewhere, before ``run_job`` finds it and goes on with it."""

    work: Path
    """The folder that ``run_job`` will build in."""
    _before: Attempts

    def spend(self, cost: Cost) -> None:
        """Count ``cost``, all that was spent so far, as the job's."""
        spent = self._before.cost + cost if self._before.cost else cost
        replace(self._before, cost=spent).write(self.work)


def begin_job(place: Place, job: Job, *, force: bool) -> Begun | None:
    """Make the work folder in which ``run_job`` will build a job that ``resumes``; ``None`` if it is up to date.

    Raises what ``plan_job`` raises.
    """
    planned = plan_job(place, job, force=force)
    if planned.standing is not None and not planned.why:
        return None
    begun = Begun(place.work, _begin(place, planned.wanted.key, job.resumes))
    begun.spend(Cost())
    return begun


def check_place(place: Place, stage: str, config: Json, *, force: bool) -> None:
    """Raise ``ConflictError`` for what ``run_job`` would refuse in ``place``, before earlier stages run."""
    _refuse_foreign(place)
    _refuse_overlap(place, {})
    standing = place.current()
    if standing is not None and not force:
        settings = _other_settings(place, standing.manifest, Manifest(stage, plain(config), {}))
        if settings:
            raise ConflictError(f"{place.path} exists with another configuration ({settings})", _keep_both(place))
    else:
        _refuse_irreplaceable(place)


def _refuse_other(place: Place, job: Job, current: Manifest, wanted: Manifest) -> None:
    """Raise ``ConflictError`` with the difference unless ``current`` is an earlier state of ``wanted``."""
    settings = _other_settings(place, current, wanted)
    inputs = other_inputs(current.inputs, wanted.inputs, place.path, linked=place.linked)
    if settings or inputs:
        what = "exists with another configuration" if settings else "was made from other inputs"
        each = [settings] * bool(settings) + [f"{name}: {change}" for name, change in inputs.items()]
        hint = "" if settings else _advice(job, inputs)
        raise ConflictError(f"{place.path} {what} ({', '.join(each)})", hint or _keep_both(place))


def _other_settings(place: Place, current: Manifest, wanted: Manifest) -> str:
    """The settings that differ, if any; raises ``ConflictError`` for a result of another stage."""
    if current.stage != wanted.stage:
        raise ConflictError(f"{place.path} holds a result of {current.stage}, not of {wanted.stage}", "use --force")
    return describe_difference(current.config, wanted.config)


def _keep_both(place: Place) -> str:
    return f"keep both with {'--variant NAME' if place.linked else 'another --out'}, or replace it with --force"


def _changed_inputs(job: Job, current: Result, wanted: Manifest) -> list[str]:
    """The inputs whose content changed since ``current``; raises ``ConflictError`` if ``current`` must be kept."""
    old = current.manifest.inputs
    names = [name for name, entry in wanted.inputs.items() if not same_content(old[name], entry)]
    if job.kept and names:  # training took hours, and the model may be in use
        raise ConflictError(
            f"{current.path} is finished, but {', '.join(names)} changed since",
            _advice(job, names) or "train it again with --force, or keep both with another --out",
        )
    return names


def _advice(job: Job, names: Iterable[str]) -> str:
    """The advice of ``job`` if only the inputs ``names`` differ; "" if it has none for one of them."""
    known = [job.advice.get(name, "") for name in names]
    return known[0] if all(known) else ""


def describe_difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """``name: old → new`` for every setting that differs but ``OF_MACHINES``, or an empty string."""
    names = [name for name in {**old, **new} if old.get(name) != new.get(name) and name not in OF_MACHINES]
    return ", ".join(f"{name}: {old.get(name)} → {new.get(name)}" for name in names)


def _refuse_edited(damaged: Iterable[Path]) -> None:
    """Raise ``ConflictError`` if a file of a folder that the user named is another than the stage wrote: weights that
    were trained since, perhaps. One that is gone is made again. The card may be edited, see ``_keep_card``.
    """
    for file in damaged:
        if file.is_file():
            raise ConflictError(
                f"{file} was changed since greenadapt wrote it", "give another --out, or replace it with --force"
            )


def _refuse_foreign(place: Place) -> None:
    path = place.path
    if place.linked and path.is_symlink():
        return
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        raise ConflictError(f"{path} exists and is not a folder", "give another --out")
    if path.is_dir() and any(path.iterdir()) and not is_result(path):
        raise ConflictError(f"{path} is not empty and holds no greenadapt result", "give an empty or new folder")


def _refuse_overlap(place: Place, read: Mapping[str, str]) -> None:
    """A workspace may hold what is read, such as earlier results, but may not lie in it."""
    if place.linked:
        refuse_overlap(place.path.parent, is_replaced=False)
    else:
        refuse_overlap(place.path, read)


def _refuse_irreplaceable(place: Place) -> None:
    """A folder that the user named is swapped as a whole: a mount point cannot be, and files added would be lost.

    So would what somebody else put where greenadapt works beside it.
    """
    path = place.path
    require_own(place.work, is_work)
    if place.linked:
        require_link(path)
        return
    require_own(beside(path, "old"))
    if os.path.ismount(path):
        raise ConflictError(f"{path} is a mount point, which cannot be replaced", "give a folder in it")
    if path.is_dir():
        refuse_added(path)


def _keep_card(standing: Result, work: Path) -> bool:
    """Keep the card of ``standing`` in ``work`` if it was edited by hand; the new one goes beside it."""
    theirs, ours = standing.folder / CARD, work / CARD
    written = standing.manifest.files.get(CARD, {}).get("sha256")
    if not theirs.is_file() or hash_file(theirs) == written:
        return False
    if ours.is_file():
        ours.rename(work / NEW_CARD)
    shutil.copyfile(theirs, ours)
    return True


def _begin(place: Place, key: str, resumes: bool) -> Attempts:
    """Begin to build in the work folder; returns the killed attempts before."""
    before = begin_attempt(place.work, key, resumes=resumes)
    for name in (MANIFEST, CARD, NEW_CARD):
        (place.work / name).unlink(missing_ok=True)
    return before


def _discard(place: Place) -> None:
    """Remove the unfinished work, and in a workspace its folder unless there is other work."""
    with suppress(OSError):
        remove_folder(place.work)
        if place.linked:
            place.work.parent.rmdir()


def _checksums(folder: Path) -> dict[str, Json]:
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != MARK)
    return {
        path.relative_to(folder).as_posix(): {"sha256": hash_file(path), "bytes": path.stat().st_size} for path in files
    }
