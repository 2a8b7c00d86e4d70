"""The rate and the epochs of word vectors, chosen by the size of the text."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from greenadapt.config import W2VConfig
from greenadapt.stages.w2v import with_schedule
from tests.conftest import WORDS, Run


@pytest.mark.parametrize(("n_words", "epochs"), [(10**6, 20), (9 * 10**6, 10), (10**10, 5)])
def test_less_text_is_read_more_often(n_words: int, epochs: int) -> None:
    assert with_schedule(W2VConfig(), n_words) == W2VConfig(epochs=epochs, alpha=0.05)
    assert with_schedule(W2VConfig(alpha=0.1), n_words) == W2VConfig(epochs=epochs, alpha=0.1)
    assert with_schedule(W2VConfig(epochs=5, alpha=0.025), n_words) == W2VConfig()  # also values that are the defaults


@pytest.mark.slow
def test_what_the_user_sets_is_not_chosen(run_alone: Run, tmp_path: Path, tiny_model: Callable[..., Path]) -> None:
    (tmp_path / "text.txt").write_text(f"{' '.join(WORDS)}\n" * 40)
    shared = ("w2v", "text.txt", "-m", tiny_model(), "--min-count", 1, "--workers", 1, "--json")

    def trained(*options: object) -> tuple[int, float]:
        result = json.loads(run_alone(*shared, *options).stdout)
        config = json.loads((Path(result["folder"]) / "manifest.json").read_text())["config"]
        return config["epochs"], config["alpha"]

    assert trained() == (20, 0.05)
    assert trained("--epochs", 2) == (2, 0.05)
    assert trained("--preset", "paper") == (5, 0.025)
    assert trained("--preset", "paper", "--alpha", 0.1) == (5, 0.1)
    assert json.loads(run_alone(*shared).stdout)["status"] == "up to date"
