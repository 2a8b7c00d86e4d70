"""What a workspace or folders hold: results and whether they are up to date, unfinished work, who is writing."""

import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from greenadapt.checkpoints.source import model_name
from greenadapt.errors import GreenadaptError, MissingError
from greenadapt.stages.changes import changes
from greenadapt.stages.clean import CleanRequest, find
from greenadapt.stages.session import ALIGN, CORPUS, EXPAND, W2V, Session
from greenadapt.storage.files import Json, beside, expanded
from greenadapt.storage.jobs import Place
from greenadapt.storage.locks import holder
from greenadapt.storage.results import MANIFEST, Result, read_manifest, result_behind
from greenadapt.storage.workspace import Leftover, Workspace, leftovers, tree_size, unfinished_beside

UP_TO_DATE, STALE, UNSURE, DAMAGED, MISSING = "up to date", "stale", "unsure", "damaged", "not made"
"""States of a result; what is ``unsure`` has an input that is gone, or that only ``--verify`` compares."""
_ORDER = (CORPUS, W2V, ALIGN, EXPAND)
"""The stages of adapt, each made from the one before."""


def status(
    session: Session, corpus: str | None, model: str | None, folders: Sequence[Path] = (), *, verify: bool = False
) -> list[Json]:
    """One row per result, per unfinished work, per lock that is held, and per kind of what ``clean`` can remove.

    ``kind`` is ``result``, ``unfinished``, ``lock`` or ``leftovers``. Of the results in ``folders`` if given, else of
    the workspace and of those that its commands wrote elsewhere (``--out``). Takes no lock, writes nothing, and reads
    only manifests and small inputs unless ``verify``. Raises ``MissingError`` for a folder that does not exist, and for
    a folder or a corpus without results.
    """
    reading = _Reading(verify)
    if folders:
        return [row for folder in folders for row in _of_folder(reading, session.workspace, folder)]
    workspace = session.workspace
    name = None if corpus is None else session.corpus_name(corpus)
    wanted = None if model is None else model_name(model)
    elsewhere = [
        row
        for row in reading.elsewhere(workspace)
        if name in (None, row.get("corpus")) and wanted in (None, row.get("model"))
    ]
    rows: list[Json] = []
    for known in workspace.corpora() if name is None else [name]:
        for each in workspace.models(known):
            if wanted in (None, each):
                made = {row["stage"] for row in elsewhere if (row.get("corpus"), row.get("model")) == (known, each)}
                rows += reading.pipeline(known, each, workspace.root / known / each, made)
    rows += elsewhere
    left = [one for one in leftovers(workspace) if name in (None, one.corpus) and wanted in (None, one.model)]
    rows += [_unfinished(one) for one in left if one.kind == "unfinished" and not one.foreign]
    rows += [_lock(path, owner) for path, owner in _locks(workspace.root, name, wanted)]
    if not rows and (corpus is not None or model is not None):
        if name is not None and name not in workspace.corpora():
            known = ", ".join(workspace.corpora()) or "no corpus yet"
            raise MissingError(f"no corpus {corpus} in {workspace.root}", f"it has {known}")
        what = " and ".join(each for each in (corpus, model) if each is not None)
        raise MissingError(f"nothing of {what} in {workspace.root}", "greenadapt status shows all that there is")
    kept = {one.path for one, _ in find(session, CleanRequest()).kept}
    return rows + _reclaimable([one for one in left if one.path not in kept])


@dataclass(frozen=True)
class _Reading:
    """Reads results, each once."""

    verify: bool
    states: dict[Path, str] = field(default_factory=dict)
    """By resolved folder."""

    def pipeline(self, corpus: str, model: str, folder: Path, elsewhere: set[str]) -> Iterator[Json]:
        """The results for a corpus and a model in the order of the work, and the stages of adapt that are to come.

        Those that were made ``elsewhere`` are not.
        """
        names = [path.name for path in folder.iterdir() if (path / MANIFEST).is_file() and path.name[0] != "."]
        names.sort(key=lambda name: (_rank(name.split("@")[0]), name))
        stages = {name.split("@")[0] for name in names}
        for name in names:
            stage, _, variant = name.partition("@")
            yield {
                **self.row(folder / name),
                "corpus": corpus,
                "model": model,
                "stage": stage,
                "variant": variant or None,
            }
        later = [stage for stage in _ORDER if stage not in stages and stages & {*_ORDER[: _rank(stage)]}]
        for stage in later:
            if stage != CORPUS and not (stages | elsewhere) & {*_ORDER[_rank(stage) :]}:
                yield {
                    **_result(folder / stage, MISSING, ["no result yet"]),
                    **{"corpus": corpus, "model": model, "stage": stage},
                }

    def elsewhere(self, workspace: Workspace) -> Iterator[Json]:
        """The rows of what was written elsewhere, as far as it is still there and can be read."""
        for folder in workspace.elsewhere():
            with suppress(PermissionError):
                yield from self.place(folder)

    def place(self, path: Path) -> list[Json]:
        """The rows of the result in a folder that the user named, of what was begun there, and of its writer."""
        rows = [self.row(path)] if (path / MANIFEST).is_file() else []
        work = unfinished_beside(Place(path, linked=False))
        rows += [] if work is None else [_unfinished(work)]
        lock = beside(path, "lock")
        return rows + ([] if (owner := holder(lock)) is None else [_lock(lock, owner)])

    def row(self, path: Path) -> Json:
        """The row of the result in ``path``."""
        folder = path.resolve()
        try:
            result = Result(folder, read_manifest(folder), path)
        except (GreenadaptError, OSError) as error:
            self.states[folder] = DAMAGED
            return {**_result(path, DAMAGED, [str(error)]), "stage": path.name}
        state, why = self._state(result)
        manifest = result.manifest
        facts = manifest.facts.get("model")
        return {
            **_result(path, state, why),
            "corpus": manifest.facts.get("corpus"),
            "model": facts.get("name") if isinstance(facts, dict) else None,
            "stage": manifest.stage,
            "made": _time((folder / MANIFEST).stat().st_mtime),
            "bytes": tree_size(folder)[0],
            "seconds": manifest.cost.get("seconds"),
            "command": manifest.facts.get("command"),
        }

    def _state(self, result: Result) -> tuple[str, list[str]]:
        """Whether a result is up to date, also with what it was made from; and why not."""
        found = changes(result, verify=self.verify)
        stale = found.stale
        if not stale:
            for entry in result.manifest.inputs.values():
                source = result_behind(entry, result.path)
                if source is not None and (known := self._known(source.resolve())) in (STALE, DAMAGED):
                    stale.append(f"made from {source.name}, which is {known}")
        state = DAMAGED if found.damaged else STALE if stale else UNSURE if found.unsure else UP_TO_DATE
        self.states[result.folder] = state
        return state, [*found.damaged, *stale, *found.unsure]

    def _known(self, folder: Path) -> str:
        """The state of the result that another one was made from."""
        if folder not in self.states:
            self.row(folder)
        return self.states[folder]


def _rank(stage: str) -> int:
    return _ORDER.index(stage) if stage in _ORDER else len(_ORDER)


def _result(path: Path, state: str, why: list[str]) -> Json:
    """A row of a result, with null for what is not known."""
    empty = dict.fromkeys(("corpus", "model", "stage", "variant"))
    unknown = dict.fromkeys(("made", "bytes", "seconds", "command"))
    return {"kind": "result", **empty, "state": state, "why": why, "folder": str(path), **unknown}


def _unfinished(left: Leftover) -> Json:
    return {
        "kind": "unfinished",
        "corpus": left.corpus or None,
        "model": left.model or None,
        "stage": left.stage,
        "folder": str(left.path),
        "changed": _time(left.changed),
        "bytes": left.bytes,
        "seconds": left.seconds,
        "attempts": left.attempts,
        "writer": left.writer,
    }


def _lock(path: Path, owner: str) -> Json:
    return {"kind": "lock", "file": str(path), "writer": owner}


def _locks(root: Path, corpus: str | None, model: str | None) -> Iterator[tuple[Path, str]]:
    """The locks below a workspace that are held."""
    found = (path for pattern in ("*/*/.lock", ".*/.*.lock", ".*/*.lock") for path in root.glob(pattern))
    for path in sorted(set(found)):
        folders = path.relative_to(root).parts
        if corpus in (None, folders[0]) and model in (None, folders[1]) and (owner := holder(path)) is not None:
            yield path, owner


def _reclaimable(free: Sequence[Leftover]) -> list[Json]:
    """What ``clean`` can remove, by kind."""
    kinds = dict.fromkeys(one.kind for one in free)
    return [
        {
            "kind": "leftovers",
            "what": kind,
            "files": sum(one.kind == kind for one in free),
            "bytes": sum(one.bytes for one in free if one.kind == kind),
        }
        for kind in kinds
    ]


def _of_folder(reading: _Reading, workspace: Workspace, given: Path) -> list[Json]:
    """The rows of a result's folder, or of those in a folder such as ``runs``."""
    path = expanded(given).absolute()
    inside: list[Path] = []
    if path.is_dir() and not (path / MANIFEST).is_file():
        results = sorted(each for each in path.iterdir() if (each / MANIFEST).is_file() and each.name[0] != ".")
        inside = [*dict.fromkeys([*results, *_begun(path)])]
    rows = [row for each in [path, *inside] for row in reading.place(each)]
    if rows:
        return rows
    if path.is_dir():
        raise MissingError(f"{given} holds no greenadapt result (no {MANIFEST})", "give a stage's folder")
    if path.exists() or str(given) in workspace.corpora():
        raise MissingError(
            f"{given} is no folder", f"for a corpus: greenadapt status --corpus {shlex.quote(str(given))}"
        )
    raise MissingError(f"{given} does not exist", "check the path; greenadapt status shows what is in the workspace")


def _begun(folder: Path) -> list[Path]:
    """The results in a folder that were begun, by their folders of work."""
    return [folder / work.name[1 : -len(".work")] for work in sorted(folder.glob(".*.work")) if work.is_dir()]


def _time(seconds: float) -> str:
    """A time as ISO 8601, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
