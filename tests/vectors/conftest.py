"""What the tests of vectors share."""

from pathlib import Path

import pytest

from greenadapt.corpus.prepared import PreparedCorpus
from greenadapt.vectors import cbow
from tests.vectors.test_cbow import planted_text, prepare


@pytest.fixture(autouse=True)
def _a_checkpoint_after_every_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cbow, "CHECKPOINT_SECONDS", 0)


@pytest.fixture
def corpus(tmp_path: Path) -> PreparedCorpus:
    """400 lines of planted text."""
    return prepare(planted_text(), tmp_path / "corpus")
