"""A model's folder to the model hub."""

import fnmatch
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from greenadapt.checkpoints.source import find_model
from greenadapt.errors import ConflictError, InputError, MissingError, UsageError, first_line
from greenadapt.progress import Progress
from greenadapt.storage.files import Json
from greenadapt.storage.results import MANIFEST, open_result, read_manifest, verified

_PRIVATE = (MANIFEST, "predictions.jsonl", "predictions-*.jsonl", "logits.safetensors", "logits-*.safetensors")
"""Left out: the manifest names files of this machine, and predictions and logits, of several tasks one file a set, tell
of the test set's texts."""


@dataclass(frozen=True)
class PushRequest:
    """What goes where on the hub."""

    folder: Path
    repo: str
    """``OWNER/NAME``."""
    private: bool = False
    """Whether a repository that does not exist yet is created as a private one."""
    revision: str | None = None
    """The branch, the main one by default."""
    message: str | None = None
    """Of the commit."""
    exclude: tuple[str, ...] = ()
    """Patterns of files to leave out, as of a shell; ``*`` also matches ``/``."""
    dry_run: bool = False


def push(request: PushRequest, progress: Progress) -> Json:
    """Upload a model's folder to a repository of the model hub, which is created if it does not exist.

    Returns ``repo``, ``url`` of the commit (``None`` in a dry run), ``private`` (``None`` if not known) and ``files``,
    each with ``path`` and ``bytes``. Other files of the repository stay.

    Raises ``InputError`` for a damaged folder, ``UsageError`` for an invalid name or an empty choice of files, and
    ``MissingError`` or ``ConflictError`` if the hub cannot be reached or refuses.
    """
    _check_repo(request.repo)
    folder = find_model(str(request.folder)).folder
    if (folder / MANIFEST).is_file():
        verified(open_result(folder, read_manifest(folder).stage))
    files = list(_published(folder, request.exclude))
    if not files:
        raise UsageError(f"every file of {request.folder} is left out", "give other patterns to --exclude")
    sizes = {str(path.relative_to(folder)): path.stat().st_size for path in files}
    described = [{"path": path, "bytes": size} for path, size in sizes.items()]
    found: Json = {"repo": request.repo, "url": None, "private": None, "files": described}
    if request.dry_run:
        return found
    progress.note(f"uploading {len(files)} files, {sum(sizes.values()) / 1e6:,.1f} MB, to {request.repo}")
    return {**found, **_upload(request, folder, files)}


def hide_bars() -> None:
    """Keep the hub's library from drawing its bars, which fill a log."""
    from huggingface_hub.utils.tqdm import disable_progress_bars

    disable_progress_bars()


def _check_repo(repo: str) -> None:
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils._validators import validate_repo_id

    try:
        validate_repo_id(repo)
    except HFValidationError as error:
        raise UsageError(f"{repo!r} is not a name on the hub ({error})", "give OWNER/NAME") from None
    if "/" not in repo:
        raise UsageError(f"{repo} has no owner", f"give OWNER/{repo}")


def _published(folder: Path, exclude: tuple[str, ...]) -> Iterator[Path]:
    """The files to upload, sorted; nothing hidden, and nothing behind a symlink."""
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        steps = [folder / part for part in (inside, *inside.parents[:-1])]
        if not path.is_file() or any(step.is_symlink() for step in steps):
            continue
        if any(fnmatch.fnmatchcase(path.name, pattern) for pattern in _PRIVATE) or any(
            part.startswith(".") for part in inside.parts
        ):
            continue
        if not any(fnmatch.fnmatchcase(str(inside), pattern) for pattern in exclude):
            yield path


def _upload(request: PushRequest, folder: Path, files: list[Path]) -> Json:
    from huggingface_hub import CommitOperationAdd, HfApi, __version__

    from greenadapt import __version__ as own

    api = HfApi(library_name="greenadapt", library_version=own, user_agent=f"huggingface_hub/{__version__}")
    with _refusals(request.repo):
        created = api.create_repo(request.repo, private=request.private or None, exist_ok=True)
        if request.revision is not None:
            api.create_branch(created.repo_id, branch=request.revision, exist_ok=True)
        commit = api.create_commit(
            created.repo_id,
            [CommitOperationAdd(str(path.relative_to(folder)), path) for path in files],
            commit_message=request.message or f"Upload of {folder.name} by greenadapt {own}",
            revision=request.revision,
        )
        private = api.model_info(created.repo_id, expand=["private"]).private
    return {"url": str(commit.commit_url), "private": private}


@contextmanager
def _refusals(repo: str) -> Iterator[None]:
    """The hub's errors in one line each, without what was sent."""
    from huggingface_hub import constants, errors
    from huggingface_hub.errors import HfHubHTTPError, LocalTokenNotFoundError, OfflineModeIsEnabled

    login = "log in with hf auth login, or set HF_TOKEN to a token that may write there"
    try:
        with _cause_of_failed_uploads():
            yield
    except OfflineModeIsEnabled:
        raise MissingError("HF_HUB_OFFLINE is set", "unset it to push") from None
    except LocalTokenNotFoundError:
        raise MissingError("not logged in to the model hub", login) from None
    except HfHubHTTPError as error:
        status = error.response.status_code
        reason = error.server_message or error.response.reason_phrase
        if status in (401, 403):
            raise MissingError(f"the hub refuses to write to {repo} ({status}: {reason})", login) from None
        raise ConflictError(f"the hub did not take {repo} ({status}: {reason})", "try again later") from None
    except ValueError as error:  # a card that the hub does not accept
        raise InputError(
            f"the hub refuses README.md ({' '.join(str(error).split())})", "mend its front matter"
        ) from None
    except (OSError, errors.HTTPError) as error:  # type: ignore[attr-defined]  # of the library that the hub's uses
        raise MissingError(
            f"the model hub could not be reached at {constants.ENDPOINT} ({first_line(error)})",
            "check the network, and HF_ENDPOINT",
        ) from None


@contextmanager
def _cause_of_failed_uploads() -> Iterator[None]:
    """The hub's library hides what failed in an upload behind a ``RuntimeError``."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error.__cause__, Exception):
            raise error.__cause__ from None
        raise
