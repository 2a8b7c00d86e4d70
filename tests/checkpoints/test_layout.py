"""What a fine-tuned model's folder says of its seeds, where their weights are, and what tasks may be called."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from greenadapt.checkpoints.layout import TASK_NAME, n_weights, read_seeds, weights_of_seed
from greenadapt.errors import MissingError


def scored(folder: Path, *seeds: int) -> Path:
    (folder / "scores.json").write_text(json.dumps({"seeds": [{"seed": seed} for seed in seeds]}), "utf-8")
    return folder


def test_the_first_seed_is_in_the_folder_itself(tmp_path: Path) -> None:
    folder = scored(tmp_path, 7, 3)
    assert read_seeds(folder) == (7, 3)
    assert weights_of_seed(folder, None) == weights_of_seed(folder, 7) == folder
    assert weights_of_seed(folder, 3) == folder / "seeds" / "3"
    with pytest.raises(MissingError, match="has no seed 4: it has 7, 3"):
        weights_of_seed(folder, 4)


def test_a_model_without_scores_has_no_seeds(tmp_path: Path) -> None:
    assert weights_of_seed(tmp_path, None) == tmp_path
    with pytest.raises(MissingError, match="has one model and no seed 0: leave out --seed"):
        weights_of_seed(tmp_path, 0)


def test_weights_are_counted(tmp_path: Path) -> None:
    save_file({"a": np.zeros((3, 5)), "b": np.zeros(4), "c": np.zeros(())}, tmp_path / "weights.safetensors")
    assert n_weights(tmp_path) == 3 * 5 + 4 + 1
    with pytest.raises(MissingError, match=r"has no weights\.safetensors"):
        n_weights(tmp_path / "elsewhere")


def test_names() -> None:
    for name in ("ill.1", "_x", "7-b_c", "x" * 100):
        assert TASK_NAME.fullmatch(name), name
    for name in ("", "-a", "..", "a/b", "\u00e9", "a\n", "x" * 101):
        assert not TASK_NAME.fullmatch(name), name
