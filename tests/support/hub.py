"""A stand-in for the model hub: what ``huggingface_hub`` creates and commits is kept here."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

TOKEN = "hf_aVerySecretTokenOfTheTests"
URL = "http://hub.example"


@dataclass
class Hub:
    """Two methods of ``HfApi``, whose ``upload_folder`` chooses the files to commit."""

    repos: dict[str, bool] = field(default_factory=dict)
    """Repository → whether it is private."""
    files: dict[tuple[str, str], bytes] = field(default_factory=dict)
    """Repository, path → content."""

    def create_repo(self, repo: str, *, private: bool | None, exist_ok: bool) -> Any:
        self.repos.setdefault(repo, bool(private))
        return SimpleNamespace(repo_id=repo)

    def create_commit(self, *, repo_id: str, operations: Iterable[Any], **_: Any) -> Any:
        for operation in operations:
            with operation.as_file() as file:
                self.files[repo_id, operation.path_in_repo] = file.read()
        return SimpleNamespace(commit_url=f"{URL}/{repo_id}/commit/ab")
