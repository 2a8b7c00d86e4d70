"""What the tests of vectors share."""

import pytest

from greenadapt.vectors import cbow


@pytest.fixture(autouse=True)
def _a_checkpoint_after_every_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cbow, "CHECKPOINT_SECONDS", 0)
