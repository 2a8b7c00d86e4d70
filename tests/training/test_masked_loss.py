from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.models.machine import Machine
from greenadapt.models.mlm import open_masked_lm
from greenadapt.models.rows import Rows
from greenadapt.progress import Silent
from greenadapt.training.masking import MaskedSample
from tests.support.small_tasks import TinyModel, expand
from tests.support.small_texts import masked_dataset

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def model(tiny_model: TinyModel, tmp_path: Path) -> Path:
    return expand(tiny_model("BertForMaskedLM", initializer_range=0.1), tmp_path / "adapted")


def test_the_loss_is_the_mean_over_all_masked_pieces(model: Path, tmp_path: Path) -> None:
    checkpoint, base = Checkpoint.open(model), Checkpoint.open(tmp_path / "bertformaskedlm")
    table = masked_dataset(model, tmp_path / "text", is_fixed=True)
    opened = open_masked_lm(checkpoint, Rows.all(checkpoint.n_rows), base.n_rows, 0)
    opened.model.train()
    measured = MaskedSample(table, 12)
    with Silent().bar("", None, "") as bar:
        losses = measured.losses(opened.model, Machine.start("float32"), 60, bar)
        whole = MaskedSample(table, 1000).losses(opened.model, Machine.start("float32"), 10**6, bar)
    assert opened.model.training
    plain = transformers.AutoModelForMaskedLM.from_pretrained(model).eval()
    for view, numbers in measured.samples.items():
        total, n = 0.0, 0
        for number in numbers.tolist():
            batch = table.batch(np.array([number]), 0)
            with torch.no_grad():
                logits = plain(input_ids=batch.ids).logits[0, batch.extra["positions"], : base.n_rows]
            total -= logits.log_softmax(-1)[torch.arange(len(batch.targets)), batch.targets].sum().item()
            n += len(batch.targets)
        assert n == measured.n_targets()[view]
        assert losses[view] == pytest.approx(total / n, abs=1e-5)
        assert whole[view] != pytest.approx(total / n, abs=1e-5)
