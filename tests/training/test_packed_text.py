import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.corpus.text import Document
from greenadapt.store.arrays import Sequences
from greenadapt.tasks.base import Encoder
from greenadapt.training.packed_text import PackedText, pack
from tests.support.small_tasks import TinyModel, adapted
from tests.support.small_texts import documents, packed


def characters(encoder: Encoder, view: Sequences, i: int) -> str:
    """What an input spells, without spaces."""
    base, added = encoder.tokenizer.base, encoder.tokenizer.added
    ids, surfaces = view.values[slice(*view.offsets[i : i + 2].tolist())].tolist(), added.all_surfaces()
    names = [surfaces[row - added.first_id] if row >= added.first_id else base.id_to_token(row) for row in ids]
    return "".join(re.sub("^(##|\u0120|\u2581)", "", name) for name in names)


def test_inputs_hold_the_words_of_the_text_in_order(tiny_model: TinyModel, tmp_path: Path) -> None:
    text, encoder = packed(adapted(tiny_model), tmp_path / "text", documents(40), max_length=16)
    base, expanded = text.views
    assert len(base) == len(expanded) == len(text) == text.counts["inputs"]
    assert np.diff(base.offsets).max() <= 16
    assert np.diff(base.offsets).min() >= 3
    # Without special tokens and cuts, what is left is what the tokenizer gives for each text.
    whole = [encoder.tokenizer.encode(document.lines[0]) for document in documents(40)]
    ids = np.concatenate([encoding.base.ids for encoding in whole])
    special = (encoder.special.cls, encoder.special.sep)
    np.testing.assert_array_equal(base.values[~np.isin(base.values, special)], ids)
    np.testing.assert_array_equal(
        expanded.values[~np.isin(expanded.values, special)],
        np.concatenate([encoding.expanded.ids for encoding in whole]),
    )
    assert text.counts == {"documents": 40, "inputs": len(text), "pieces": len(ids), "left_out": 0}
    for i in range(len(text)):
        assert characters(encoder, base, i) == characters(encoder, expanded, i)
    assert (expanded.values >= encoder.tokenizer.added.first_id).sum() > 20
    seen = text.used_rows(int(expanded.values.max()) + 1)
    assert set(np.flatnonzero(seen).tolist()) == {*base.values.tolist(), *expanded.values.tolist()}


def test_a_word_longer_than_an_input_is_left_out(tiny_model: TinyModel, tmp_path: Path) -> None:
    letters = "zyxwvutsrqponmlkjihgfedcba"  # 26 pieces
    text, encoder = packed(tiny_model(), tmp_path / "text", [Document((f"the {letters} heart",))], max_length=16)
    assert text.counts["left_out"] == 1
    ids = text.views[0].values.tolist()
    names = [encoder.tokenizer.base.id_to_token(row) for row in ids]
    assert names == ["[CLS]", "the", "[SEP]", "[CLS]", "heart", "[SEP]"]


def test_a_share_is_held_out_by_content(tiny_model: TinyModel, tmp_path: Path) -> None:
    encoder = packed(tiny_model(), tmp_path / "all", documents(200))[1]
    halves = []
    for name, texts in (("one", documents(200)), ("other", documents(200)[::-1])):
        folders = [tmp_path / name / part for part in ("train", "heldout")]
        pack(texts, encoder, folders, 0.3)
        halves.append([PackedText.open(folder) for folder in folders])
    (train, heldout), (again, _) = halves
    assert train is not None
    assert heldout is not None
    assert again is not None
    assert train.counts["documents"] + heldout.counts["documents"] == 200
    assert 0.2 < heldout.counts["documents"] / 200 < 0.4
    assert sorted(train.views[0].values.tolist()) == sorted(again.views[0].values.tolist())


def test_what_did_not_come_to_its_end_is_not_there(tiny_model: TinyModel, tmp_path: Path) -> None:
    encoder = Encoder.of(Checkpoint(tiny_model()))

    def broken() -> Iterator[Document]:
        yield documents(1)[0]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pack(broken(), encoder, [tmp_path / "text"])
    assert PackedText.open(tmp_path / "text") is None
