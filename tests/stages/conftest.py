"""A session in a temporary workspace, and what it says."""

from pathlib import Path

import pytest

from greenadapt.stages.session import Session
from greenadapt.store.workspace import Workspace
from tests.conftest import Notes


@pytest.fixture
def notes() -> Notes:
    return Notes()


@pytest.fixture
def session(tmp_path: Path, notes: Notes) -> Session:
    return Session(Workspace(tmp_path / "ws"), notes)
