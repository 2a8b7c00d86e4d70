"""What the tests of questions in whole documents share."""

from pathlib import Path

import pytest

from tests.support.small_tasks import TinyModel, adapted


@pytest.fixture
def model(tiny_model: TinyModel) -> Path:
    """An expanded model that answers questions."""
    return adapted(tiny_model, architecture="BertForQuestionAnswering")
