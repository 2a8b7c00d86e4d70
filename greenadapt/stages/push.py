"""Upload a model's folder to the model hub."""

from contextlib import ExitStack
from pathlib import Path

from greenadapt.checkpoints.provenance import check_model
from greenadapt.checkpoints.source import find_model, hub_answers
from greenadapt.errors import ConflictError, UsageError
from greenadapt.progress import Progress
from greenadapt.store.files import Json
from greenadapt.store.results import MANIFEST, open_result, read_manifest, verify_result

_PRIVATE = (MANIFEST, "predictions*.jsonl", "logits*.safetensors", ".*")
"""Names of files that stay private: the manifest names paths of this machine, the others tell test texts."""
_LONGEST_REASON = 300


def push(folder: Path, repo: str, progress: Progress, *, private: bool = False, shows_bars: bool = True) -> Json:
    """Upload a model's folder to the repository ``repo`` of the model hub, created if it does not exist.

    ``private``: whether a new repository is private; ``shows_bars``: whether the hub's library draws bars. Returns
    ``repo`` and the ``url`` of the commit. Raises ``InputError`` for a damaged folder, ``UsageError`` for a name
    without owner, ``MissingError`` if no hub answers, ``ConflictError`` if it is not reached or refuses.
    """
    if repo.count("/") != 1:
        raise UsageError(f"{repo} is not a name on the hub", "give OWNER/NAME")
    model = find_model(str(folder))
    check_model(model, whole=True)
    if (model.folder / MANIFEST).is_file():
        verify_result(open_result(model.folder, read_manifest(model.folder).stage))

    from huggingface_hub import HfApi, constants
    from huggingface_hub.utils.tqdm import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    from greenadapt.version import __version__

    api = HfApi(library_name="greenadapt", library_version=__version__)
    progress.note(f"uploading {model.folder} to {repo}")
    try:
        with hub_answers(), ExitStack() as stack:
            if not shows_bars and not are_progress_bars_disabled():
                disable_progress_bars()
                stack.callback(enable_progress_bars)
            created = api.create_repo(repo, private=private or None, exist_ok=True)
            commit = api.upload_folder(
                repo_id=created.repo_id,
                folder_path=model.folder,
                ignore_patterns=[*_PRIVATE, *(f"*/{pattern}" for pattern in _PRIVATE)],
                commit_message=f"Upload of {model.folder.name} by greenadapt {__version__}",
            )
    except (OSError, ValueError, RuntimeError) as error:
        cause = error.__cause__ if isinstance(error, RuntimeError) and error.__cause__ else error
        reason = " ".join(str(cause).split())[:_LONGEST_REASON]
        raise ConflictError(
            f"the hub at {constants.ENDPOINT} did not take {repo} ({reason})",
            "check the name, the network, HF_ENDPOINT, and HF_TOKEN, which has to allow writing",
        ) from None
    return {"repo": repo, "url": str(commit.commit_url)}
