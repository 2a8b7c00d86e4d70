"""A model's folder to the model hub."""

import fnmatch
import glob
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from greenadapt.checkpoints.provenance import check_model
from greenadapt.checkpoints.source import find_model, hub_answers
from greenadapt.errors import ConflictError, InputError, MissingError, UsageError, first_line
from greenadapt.progress import Progress
from greenadapt.storage.files import Json, require_utf8
from greenadapt.storage.results import MANIFEST, open_result, read_manifest, verified

_PRIVATE = (MANIFEST, "predictions.jsonl", "predictions-*.jsonl", "logits.safetensors", "logits-*.safetensors")
"""Files that stay private: the manifest names paths of this machine, predictions and logits reveal the test texts."""

_LONGEST_REASON = 300


@dataclass(frozen=True)
class PushRequest:
    """A folder, and the repository it goes to."""

    folder: Path
    repo: str
    """``OWNER/NAME``."""
    private: bool = False
    """Whether a new repository is private."""
    dry_run: bool = False


def push(request: PushRequest, progress: Progress) -> Json:
    """Upload a model's folder to a repository of the model hub, which is created if it does not exist.

    Returns ``repo``, ``url`` of the commit (``None`` in a dry run), ``private`` (``None`` if unknown) and ``files``,
    each with ``path`` and ``bytes``. Other files of the repository stay.

    Raises ``InputError`` for a damaged folder, ``UsageError`` for an invalid name, and ``MissingError`` or
    ``ConflictError`` if the hub cannot be reached or refuses.
    """
    _check_repo(request.repo)
    model = find_model(str(request.folder))
    check_model(model, whole=True)
    folder = model.folder
    if (folder / MANIFEST).is_file():
        verified(open_result(folder, read_manifest(folder).stage))
    sizes = {str(path.relative_to(folder)): path.stat().st_size for path in _published(folder)}
    described = [{"path": path, "bytes": size} for path, size in sizes.items()]
    report: Json = {"repo": request.repo, "url": None, "private": None, "files": described}
    if request.dry_run:
        return report
    progress.note(f"uploading {len(sizes)} files, {sum(sizes.values()) / 1e6:,.1f} MB, to {request.repo}")
    return {**report, **_upload(request, folder, sizes)}


@contextmanager
def hidden_bars(are_hidden: bool) -> Iterator[None]:
    """Hide the progress bars of the hub's library in the block, since they fill a log."""
    from huggingface_hub.utils.tqdm import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    hides = are_hidden and not are_progress_bars_disabled()
    if hides:
        disable_progress_bars()
    try:
        yield
    finally:
        if hides:
            enable_progress_bars()


def _check_repo(repo: str) -> None:
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils._validators import validate_repo_id

    try:
        validate_repo_id(repo)
    except HFValidationError as error:
        raise UsageError(f"{repo!r} is not a name on the hub ({error})", "give OWNER/NAME") from None
    if "/" not in repo:
        raise UsageError(f"{repo} has no owner", f"give OWNER/{repo}")


def _published(folder: Path) -> Iterator[Path]:
    """The files to upload, sorted; no hidden files, and none behind a symlink."""
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        require_utf8(path)
        steps = [folder / part for part in (inside, *inside.parents[:-1])]
        if not path.is_file() or any(step.is_symlink() for step in steps):
            continue
        is_private = any(fnmatch.fnmatchcase(path.name, pattern) for pattern in _PRIVATE)
        is_hidden = any(part.startswith(".") for part in inside.parts)
        if not (is_private or is_hidden):
            yield path


def _upload(request: PushRequest, folder: Path, names: Iterable[str]) -> Json:
    from huggingface_hub import HfApi, __version__

    from greenadapt import __version__ as version

    api = HfApi(library_name="greenadapt", library_version=version, user_agent=f"huggingface_hub/{__version__}")
    with _refusals(request.repo):
        created = api.create_repo(request.repo, private=request.private or None, exist_ok=True)
        commit = api.upload_folder(
            repo_id=created.repo_id,
            folder_path=folder,
            allow_patterns=[glob.escape(name) for name in names],
            commit_message=f"Upload of {folder.name} by greenadapt {version}",
        )
        private = api.model_info(created.repo_id, expand=["private"]).private
    return {"url": str(commit.commit_url), "private": private}


@contextmanager
def _refusals(repo: str) -> Iterator[None]:
    """Turn errors of the hub into one line each, without the content of the request."""
    from huggingface_hub import constants
    from huggingface_hub.errors import HfHubHTTPError, LocalTokenNotFoundError, OfflineModeIsEnabled

    login = "log in with hf auth login, or set HF_TOKEN to a token that may write there"
    try:
        with hub_answers(), _cause_of_failed_uploads():
            yield
    except OfflineModeIsEnabled:
        raise MissingError("HF_HUB_OFFLINE is set", "unset it to push") from None
    except LocalTokenNotFoundError:
        raise MissingError("not logged in to the model hub", login) from None
    except HfHubHTTPError as error:
        status = error.response.status_code
        reason = " ".join(str(error.server_message or error.response.reason_phrase).split())[:_LONGEST_REASON]
        if status in (401, 403):
            raise MissingError(f"the hub refuses to write to {repo} ({status}: {reason})", login) from None
        if status in (404, 405):
            hint = f"check the name, and HF_ENDPOINT: {constants.ENDPOINT} answers"
        else:
            hint = "try again later" if status >= 500 or status in (408, 409, 429) else "mend what it names"
        raise ConflictError(f"the hub did not take {repo} ({status}: {reason})", hint) from None
    except ValueError as error:  # a card that the hub does not accept
        raise InputError(
            f"the hub refuses README.md ({' '.join(str(error).split())})", "mend its front matter"
        ) from None
    except OSError as error:
        raise MissingError(
            f"the model hub could not be reached at {constants.ENDPOINT} ({first_line(error)})",
            "check the network, and HF_ENDPOINT",
        ) from None


@contextmanager
def _cause_of_failed_uploads() -> Iterator[None]:
    """Raise the cause of a failed upload, which the hub's library wraps in a ``RuntimeError``."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error.__cause__, Exception):
            raise error.__cause__ from None
        raise
