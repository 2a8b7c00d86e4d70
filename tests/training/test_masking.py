from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.models.machine import Machine
from greenadapt.models.memory.general_model import MemoryReader
from greenadapt.models.mlm import open_masked_lm
from greenadapt.models.rows import Rows
from greenadapt.progress import Silent
from greenadapt.tasks.base import Encoder
from greenadapt.training.masking import MaskedDataset, MaskedSample, Masking
from tests.support.small_tasks import TinyModel, adapted, expand
from tests.support.small_texts import masked_dataset


@pytest.fixture
def model(tiny_model: TinyModel) -> Path:
    return adapted(tiny_model)


def every(table: MaskedDataset, view: int) -> np.ndarray:
    return table.inputs_of(np.arange(table.n_items), np.full(table.n_items, view == 1))


def original(table: MaskedDataset, number: int) -> np.ndarray:
    item, view = divmod(number, table.n_views)
    packed_view = table.text.views[view]
    return np.asarray(packed_view.values[slice(*packed_view.offsets[item : item + 2].tolist())])


def test_a_batch_is_its_inputs_with_masks(model: Path, tmp_path: Path) -> None:
    table = masked_dataset(model, tmp_path / "text")
    numbers = every(table, 0)
    assert (np.diff(table.lengths(numbers)) >= 0).all()
    batch = table.batch(numbers, 0)
    assert batch.mask.sum(1).tolist() == table.lengths(numbers).tolist()
    flat = batch.ids.flatten()
    positions = batch.extra["positions"]
    assert len(positions) == len(batch.targets) == table.n_terms(numbers, 0)
    whole = torch.zeros_like(batch.ids)
    for row, number in enumerate(numbers.tolist()):
        ids = original(table, number)
        whole[row, : len(ids)] = torch.tensor(ids.tolist())
    assert whole.flatten()[positions].tolist() == batch.targets.tolist()
    unmasked = np.setdiff1d(np.arange(len(flat)), positions.numpy())
    padded = torch.where(batch.mask.bool(), whole, table.pad_id).flatten()
    assert flat[unmasked].tolist() == padded[unmasked].tolist()
    assert (flat[positions] == table.masking.mask_id).sum() > 0.7 * len(positions)
    assert not batch.types.any()
    assert set(batch.inputs(has_segments=True)) == {"input_ids", "attention_mask", "token_type_ids", "positions"}


def test_masks_do_not_depend_on_the_batch(model: Path, tmp_path: Path) -> None:
    table = masked_dataset(model, tmp_path / "text")
    numbers = every(table, 1)
    together = table.batch(numbers, 2)
    counted = 0
    for row, number in enumerate(numbers.tolist()):
        alone = table.batch(np.array([number]), 2)
        n = alone.ids.shape[1]
        assert alone.ids[0].tolist() == together.ids[row, :n].tolist()
        assert table.n_terms(np.array([number]), 2) == len(alone.targets)
        counted += len(alone.targets)
    assert counted == table.n_terms(numbers, 2)
    assert table.batch(numbers, 3).ids.tolist() != together.ids.tolist()
    fixed = masked_dataset(model, tmp_path / "text", is_fixed=True)
    assert fixed.batch(numbers, 3).ids.tolist() == fixed.batch(numbers, 0).ids.tolist()
    assert fixed.batch(numbers, 0).ids.tolist() not in (together.ids.tolist(), table.batch(numbers, 0).ids.tolist())


def test_added_words_are_read_and_never_guessed(model: Path, tmp_path: Path) -> None:
    table = masked_dataset(model, tmp_path / "text")
    n_old = Encoder.of(Checkpoint(model)).tokenizer.added.first_id
    base, expanded = every(table, 0), every(table, 1)
    for epoch in range(3):
        batch = table.batch(expanded, epoch)
        assert (batch.ids >= n_old).sum() == sum((original(table, number) >= n_old).sum() for number in expanded)
        assert (batch.targets < n_old).all()
        assert (table.batch(base, epoch).ids < n_old).all()


def test_the_general_model_reads_what_the_domain_model_reads(model: Path, tmp_path: Path) -> None:
    """No view of memory has an original that was masked."""
    checkpoint = Checkpoint(model.parent / "base")
    reader = MemoryReader.of(Encoder.of(Checkpoint(model)), checkpoint)
    table = masked_dataset(model, tmp_path / "text", reader)
    n_old = checkpoint.n_rows
    encoder = Encoder.of(checkpoint)
    for view in (0, 1):
        numbers = every(table, view)
        batch = table.batch(numbers, 1)
        ids, memory = batch.ids, batch.extra["memory_ids"]
        mask = batch.extra.get("memory_mask", torch.ones_like(memory)).bool()
        n_masked = (ids == table.masking.mask_id).sum(1)
        assert n_masked.sum() > 30
        assert (memory == table.masking.mask_id).sum(1).tolist() == n_masked.tolist()
        for row in range(len(numbers)):
            read = ids[row, : int(batch.mask[row].sum())].tolist()
            memory_ids = memory[row][mask[row]].tolist()
            if view == 0:
                assert memory_ids == read
            # An added word, which is never masked, stands there in its pieces, and nothing else is different.
            words = encoder.tokenizer.base
            added = Encoder.of(Checkpoint(model)).tokenizer.added.all_surfaces()
            expected = []
            for piece in read:
                surface = added[piece - n_old] if piece >= n_old else ""
                expected += words.encode(surface, add_special_tokens=False).ids if surface else [piece]
            assert memory_ids == expected


PIECES = np.arange(10, 60, dtype=np.int32)  # of 100 old rows; added ones lie above
MASK = 3


def masking(share: float = 0.15) -> Masking:
    return Masking(share, MASK, PIECES)


def ordinary(n: int) -> np.ndarray:
    """[CLS], ``n`` words of a piece, [SEP]."""
    return np.concatenate([[1], 10 + np.arange(n) % 50, [2]]).astype(np.int32)


@pytest.mark.slow
def test_shares() -> None:
    ids = ordinary(41)  # 15 % are 6.15
    inputs = [masking().corrupt(ids, 1, 4, 0, i) for i in range(2000)]
    counts = np.array([len(item.positions) for item in inputs])
    assert set(counts.tolist()) == {6, 7}
    assert counts.mean() == pytest.approx(0.15 * 41, abs=0.03)
    read = np.concatenate([item.ids[item.positions] for item in inputs])
    targets = np.concatenate([item.targets for item in inputs])
    n = len(read)
    is_mask, is_target = read == MASK, read == targets
    # A random piece is the same as the target in one of 50 cases.
    assert is_mask.sum() / n == pytest.approx(0.8, abs=0.01)
    assert is_target.sum() / n == pytest.approx(0.1 + 0.1 / 50, abs=0.008)
    random = read[~is_mask & ~is_target]
    assert np.isin(random, PIECES).all()
    assert len(np.unique(random)) == 50
    assert np.bincount(random, minlength=60)[10:].std() / (len(random) / 50) < 0.2
    # Every position is as likely as any other.
    frequency = np.bincount(np.concatenate([item.positions for item in inputs]), minlength=43) / len(inputs)
    assert frequency[[0, -1]].tolist() == [0, 0]
    assert np.abs(frequency[1:-1] - 0.15).max() < 0.03


def test_of_a_tokenizer(tiny_model: TinyModel, tmp_path: Path) -> None:
    encoder = Encoder.of(Checkpoint(adapted(tiny_model)))
    of_model = Masking.of(encoder.tokenizer, 0.15)
    special, vocabulary = encoder.special, encoder.tokenizer.base.get_vocab()
    assert of_model.mask_id == vocabulary["[MASK]"] == special.mask
    ids = {special.cls, special.sep, special.pad, special.unk, special.mask}
    assert set(of_model.pieces.tolist()) == set(vocabulary.values()) - ids
    assert of_model.pieces.max() < encoder.tokenizer.added.first_id
    assert (np.diff(of_model.pieces) > 0).all()


@pytest.mark.usefixtures("one_thread")
def test_the_loss_is_the_mean_over_all_masked_pieces(tiny_model: TinyModel, tmp_path: Path) -> None:
    model = expand(tiny_model("BertForMaskedLM", initializer_range=0.1), tmp_path / "adapted")
    checkpoint, base = Checkpoint(model), Checkpoint(tmp_path / "bertformaskedlm")
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
