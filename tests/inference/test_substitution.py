"""The substitution test, against transformers with another embedding matrix, one text at a time."""

from typing import Any

import numpy as np
import pytest
import torch

import greenadapt.inference.substitution as module
from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.inference.substitution import Occurrence, state_cosines
from greenadapt.models.weights import open_encoder
from greenadapt.progress import Silent
from greenadapt.vectors.quality import SPLIT
from tests.support.small_tasks import TinyModel

PAD = {"Roberta": 1, "ModernBert": 1, "MPNet": 1}
WORDS = [40, 60, 75]  # rows of the embedding
PIECES = [[6, 7], [8, 9, 10], [11, 12]]


def _occurrences() -> list[Occurrence]:
    """Texts of several lengths; in each second one the word occurs twice."""
    draw = np.random.default_rng(0)
    occurrences = []
    for i, n in enumerate([9, 5, 30, 12, 7]):
        ids = draw.choice(np.setdiff1d(np.arange(5, 120), WORDS), n).astype(np.int32)
        position = int(draw.integers(1, n - 2))
        ids[position] = WORDS[i % 3]
        ids[-2] = WORDS[i % 3] if i % 2 else ids[-2]
        cut = [piece for row in ids.tolist() for piece in (PIECES[i % 3] if row == WORDS[i % 3] else [row])]
        occurrences.append(Occurrence(ids, position, i % 3, np.array(cut, np.int32), position))
    return occurrences


def _cosines(model: Any, rows: dict[str, Any], pad: int) -> dict[str, Any]:
    with Silent().bar("", None, "") as bar:
        return state_cosines(model, _occurrences(), rows, pad, bar)


@pytest.mark.parametrize("family", ["Bert", "Roberta", "ModernBert", "MPNet"])
def test_the_cosines_are_those_of_another_embedding_matrix(
    tiny_model: TinyModel, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import transformers

    monkeypatch.setattr(module, "_BATCH_PIECES", 40)  # several batches, one of them padded
    folder = tiny_model(f"{family}Model", initializer_range=0.3)
    checkpoint = Checkpoint.open(folder)
    table = np.array(checkpoint.embedding(), np.float32)
    random = np.random.default_rng(1).normal(scale=0.3, size=(3, table.shape[1])).astype(np.float32)
    cosines = _cosines(open_encoder(checkpoint, len(table)), {"own": table[WORDS], "other": random}, PAD.get(family, 0))
    np.testing.assert_allclose(cosines["own"], 1, atol=1e-5)
    plain: Any = transformers.AutoModel.from_pretrained(folder)

    def state(occurrence: Occurrence, ids: Any = None) -> torch.Tensor:
        with torch.no_grad():
            text = torch.from_numpy(occurrence.ids if ids is None else ids)
            output: torch.Tensor = plain(text[None].long()).last_hidden_state
        return output[0, occurrence.position]

    expected, split = [], []
    for occurrence in _occurrences():
        weight, row = plain.get_input_embeddings().weight, WORDS[occurrence.word]
        original, before = weight[row].clone(), state(occurrence)
        split.append(float(torch.cosine_similarity(before, state(occurrence, occurrence.split), dim=0)))
        with torch.no_grad():
            weight[row] = torch.from_numpy(random[occurrence.word])
            expected.append(float(torch.cosine_similarity(before, state(occurrence), dim=0)))
            weight[row] = original
    np.testing.assert_allclose(cosines["other"], expected, atol=1e-5)
    np.testing.assert_allclose(cosines[SPLIT], split, atol=1e-5)
    assert max(expected) < 0.99
    assert max(split) < 0.999
