"""``status``, ``clean`` and ``cost``: results in HOME or in other folders, unfinished ones, and what is not needed."""

import shlex
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from greenadapt.errors import GreenadaptError, MissingError
from greenadapt.stages.session import RUNS, Session
from greenadapt.store.files import Json, expand_home
from greenadapt.store.results import MANIFEST, Result, input_result, read_manifest, require_sizes, verify_result
from greenadapt.store.workspace import (
    UnfinishedResult,
    UnneededFile,
    Workspace,
    find_unfinished,
    find_unneeded,
    remove,
    tree_size,
)

UP_TO_DATE, DAMAGED = "whole", "damaged"


def status(
    session: Session, corpus: str | None, model: str | None, folders: Sequence[Path] = (), *, verify: bool = False
) -> list[Json]:
    """One row per named result, unfinished result, and kind of files that ``clean`` removes.

    ``kind`` is ``result``, ``unfinished`` or ``unneeded``. Covers the results in ``folders`` or, without these, those
    in HOME and the models in ``RUNS``, with ``corpus`` or ``model`` those that were made from its results. Compares the
    sizes of files, or with ``verify`` their checksums. Raises ``MissingError`` for a folder that does not exist, and
    for a folder or a corpus without results.
    """
    if folders:
        return [row for folder in folders for row in _of_folder(session.workspace, folder, verify=verify)]
    workspace = session.workspace
    rows = [
        _row(workspace.root / "names" / name / of_model / stage, name, of_model, verify=verify)
        for name, of_model in session.named_models(corpus, model)
        for stage in workspace.stages(name, of_model)
    ]
    if corpus is not None or model is not None:
        sources = {Path(row["folder"]).resolve() for row in rows}
        for row in _rows_in(RUNS, verify=verify):
            is_readable = row["kind"] == "result" and row["made"] is not None
            if is_readable and sources & {result.folder for result in with_ancestors([Path(row["folder"])])}:
                rows.append(row)
        return rows
    rows += _rows_in(RUNS, verify=verify)
    rows += [_unfinished_row(work) for work in find_unfinished(workspace.root / "results")]
    items = [*find_unneeded(workspace)]
    for kind in dict.fromkeys(item.kind for item in items):
        sizes = [item.bytes for item in items if item.kind == kind]
        rows.append({"kind": "unneeded", "what": kind, "files": len(sizes), "bytes": sum(sizes)})
    return rows


def _row(path: Path, corpus: str | None = None, model: str | None = None, *, verify: bool) -> Json:
    """The row of the result in ``path``, with null for what a damaged result does not tell."""
    folder = path.resolve()
    row: Json = {"kind": "result", "corpus": corpus, "model": model, "stage": path.name}
    row |= {"state": UP_TO_DATE, "why": "", "folder": str(path)}
    row |= dict.fromkeys(("made", "bytes", "seconds", "command"))
    try:
        manifest = read_manifest(folder)
        result = Result(folder, manifest, path)
        facts = manifest.facts.get("model")
        row |= {
            "corpus": corpus or manifest.facts.get("corpus"),
            "model": model or (facts.get("name") if isinstance(facts, dict) else None),
            "stage": manifest.stage,
            "made": _time((folder / MANIFEST).stat().st_mtime),
            "bytes": tree_size(folder),
            "seconds": manifest.cost.get("seconds"),
            "command": manifest.facts.get("command"),
        }
        (verify_result if verify else require_sizes)(result)
    except (GreenadaptError, OSError) as error:
        why = error.message if isinstance(error, GreenadaptError) else str(error)
        row |= {"state": DAMAGED, "why": why}
    return row


def _unfinished_row(work: UnfinishedResult) -> Json:
    return {
        "kind": "unfinished",
        "name": work.name,
        "folder": str(work.path),
        "changed": _time(work.path.stat().st_mtime),
        "bytes": work.bytes,
        "seconds": work.attempts.cost.seconds,
        "attempts": work.attempts.attempts,
        "writer": work.writer,
    }


def _of_folder(workspace: Workspace, named: Path, *, verify: bool) -> list[Json]:
    """The rows of a result's folder, or of all results in a folder such as ``runs``."""
    path = expand_home(named).absolute()
    if (path / MANIFEST).is_file():
        return [_row(path, verify=verify)]
    if path.is_dir():
        if rows := _rows_in(path, verify=verify):
            return rows
        raise MissingError(f"{named} holds no greenadapt result (no {MANIFEST})", "give a stage's folder")
    if path.exists() or str(named) in workspace.corpora():
        raise MissingError(
            f"{named} is no folder", f"for a corpus: greenadapt status --corpus {shlex.quote(str(named))}"
        )
    raise MissingError(f"{named} does not exist", "check the path; greenadapt status shows what is in the workspace")


def _rows_in(folder: Path, *, verify: bool) -> list[Json]:
    """The rows of all results in ``folder``, and of unfinished ones."""
    if not folder.is_dir():
        return []
    inside = sorted(path for path in folder.iterdir() if (path / MANIFEST).is_file() and path.name[0] != ".")
    return [*(_row(path, verify=verify) for path in inside), *map(_unfinished_row, find_unfinished(folder))]


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def clean(session: Session, items: Sequence[UnneededFile]) -> Iterator[Json]:
    """Remove the ``items`` that are still not needed; yields their rows, with ``action`` ``removed`` or ``kept``."""
    free = {item.path for item in find_unneeded(session.workspace)}  # the user may have thought for long
    for item in items:
        why = remove(item) if item.path in free else "a command uses it now"
        yield clean_row(item, "kept" if why else "removed", why)


def clean_row(item: UnneededFile, action: str, why: str = "") -> Json:
    """A row of the output of ``clean``: ``action`` is ``removable``, ``removed`` or ``kept``."""
    return {"what": item.kind, "path": str(item.path), "bytes": item.bytes, "action": action, "why": why}


def list_costs(session: Session, corpus: str | None, model: str | None, folders: Sequence[Path]) -> list[Json]:
    """One row per result in the workspace, of ``corpus`` and ``model`` if given: ``corpus``, ``model``, ``stage`` and
    the fields of ``cost.Cost``; or with ``folder`` per result in ``folders`` and each that these were made from.

    Raises ``MissingError`` if there are no results of ``corpus`` and ``model``, or for a folder without a result.
    """
    if folders:
        return [
            {"folder": str(result.path), "stage": result.manifest.stage, **result.manifest.cost}
            for result in with_ancestors(folders)
        ]
    return [
        {"corpus": name, "model": of_model, "stage": result.path.name, **result.manifest.cost}
        for name, of_model in session.named_models(corpus, model)
        for result in session.workspace.results(name, of_model)
    ]


def with_ancestors(folders: Sequence[Path]) -> list[Result]:
    """The results in ``folders``, each after the results that it was made from, as far as these still exist.

    Raises ``MissingError`` for a folder without a result.
    """
    results: dict[Path, Result] = {}

    def add(folder: Path) -> None:
        if folder.resolve() in results:
            return
        manifest = read_manifest(folder)
        for entry in manifest.inputs.values():
            source = input_result(entry, folder)
            if source is not None and ("path" not in entry or read_manifest(source).digest == entry["sha256"]):
                add(source)
        results[folder.resolve()] = Result(folder.resolve(), manifest, folder)

    for folder in folders:
        add(folder)
    return list(results.values())
