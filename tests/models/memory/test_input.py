from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer

from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.errors import InputError, UsageError
from greenadapt.models.memory.cache import MemoryReader
from greenadapt.tasks.base import Encoder, Features
from greenadapt.tasks.classification import Text, text_inputs
from tests.support.small_tasks import NEW, VOCABULARY, TinyModel, adapted


def _texts(n: int = 40, longest: int = 30) -> list[str]:
    draw = np.random.default_rng(0)
    return [" ".join(draw.choice(VOCABULARY, draw.integers(0, longest))) for _ in range(n)]


def _reader(folder: Path, general: Path) -> tuple[Encoder, MemoryReader]:
    encoder = Encoder.of(Checkpoint.open(folder))
    return encoder, MemoryReader.of(encoder, Checkpoint.open(general))


@pytest.mark.parametrize("view", ["base", "expanded"])
def test_the_general_model_reads_what_its_own_tokenizer_gives(tiny_model: TinyModel, view: str) -> None:
    """Whatever the domain model reads, in a batch as plain transformers pads it."""
    folder = adapted(tiny_model)
    general = folder.parent / "base"
    encoder, reader = _reader(folder, general)
    texts = _texts()
    views = list(text_inputs((Text(text) for text in texts), encoder, counts={"cut": 0}))  # type: ignore[arg-type]
    features = [feature for one in views for feature in getattr(one, view)]
    assert (max(int(feature.ids.max()) for feature in features) >= reader.added.first_id) == (view == "expanded")
    read = reader.read(Features.of(features))
    expected = AutoTokenizer.from_pretrained(general)(texts, padding=True, return_tensors="pt")
    assert torch.equal(read["memory_ids"], expected["input_ids"])
    assert torch.equal(read["memory_mask"], expected["attention_mask"])
    assert torch.equal(read["memory_types"], expected["token_type_ids"])


def test_pairs_keep_their_segments(tiny_model: TinyModel) -> None:
    folder = adapted(tiny_model)
    encoder, reader = _reader(folder, folder.parent / "base")
    pairs = [Text("tachycardia in the heart", "a coronavirus"), Text("dtypes", "eigenvalues of eigenvalues")]
    views = list(text_inputs(pairs, encoder, counts={"cut": 0}))  # type: ignore[arg-type]
    read = reader.read(Features.of([one.expanded[0] for one in views]))
    tokenizer = AutoTokenizer.from_pretrained(folder.parent / "base")
    expected = tokenizer([p.text for p in pairs], [p.second for p in pairs], padding=True, return_tensors="pt")
    assert torch.equal(read["memory_ids"], expected["input_ids"])
    assert torch.equal(read["memory_types"], expected["token_type_ids"])


def test_a_batch_without_padding_has_no_mask(tiny_model: TinyModel) -> None:
    folder = adapted(tiny_model)
    _, reader = _reader(folder, folder.parent / "base")
    ids = np.array([2, reader.added.first_id, 3, 2, reader.added.first_id, 3])
    read = reader.read(Features(ids, np.zeros(6, np.int32), np.array([3, 3])))
    assert set(read) == {"memory_ids", "memory_types"}
    pieces = reader.added.pieces.stored.values[: reader.added.pieces.stored.offsets[1]]
    assert read["memory_ids"].tolist() == [[2, *pieces.tolist(), 3]] * 2


def test_a_general_model_without_segments_is_given_none(tiny_model: TinyModel) -> None:
    folder = adapted(tiny_model)
    general = tiny_model("BertModel", name="alike", type_vocab_size=1)
    _, reader = _reader(folder, general)
    assert set(reader.read(Features(np.array([2, 3]), np.array([0, 1]), np.array([2])))) == {"memory_ids"}


def test_of_a_longer_text_the_first_pieces_and_the_last_special_token_are_read(tiny_model: TinyModel) -> None:
    folder = adapted(tiny_model)
    general = tiny_model("BertModel", name="short", max_position_embeddings=16)
    encoder, reader = _reader(folder, general)
    assert reader.max_length == 16
    new = encoder.tokenizer.encode(" ".join(NEW * 4)).expanded.ids
    ids, types, _ = encoder.single(new)
    short, short_types, _ = encoder.single(new[:1])
    lengths = np.array([len(short), len(ids), len(short)])
    given = np.concatenate([short, ids, short]), np.concatenate([short_types, types, short_types]), lengths
    inputs = reader.in_base_pieces(Features(*given))
    whole = [2, *encoder.tokenizer.encode(" ".join(NEW * 4)).base.ids.tolist(), 3]
    first = [2, *encoder.tokenizer.encode(NEW[0]).base.ids.tolist(), 3]
    assert len(whole) > 16
    assert inputs.lengths.tolist() == [len(first), 16, len(first)]
    assert inputs.ids.tolist() == [*first, *whole[:15], 3, *first]
    assert len(inputs.types) == len(inputs.ids)
    views = text_inputs([Text("tachycardia"), Text(" ".join(NEW * 4)), Text("")], encoder, counts={"cut": 0})  # type: ignore[arg-type]
    assert reader.n_cut(views) == 1


def test_nothing_at_all_is_read_as_nothing(tiny_model: TinyModel) -> None:
    folder = adapted(tiny_model)
    _, reader = _reader(folder, folder.parent / "base")
    assert len(reader.in_base_pieces(Features.of([])).ids) == 0


def test_another_vocabulary_is_refused(tiny_model: TinyModel) -> None:
    folder = adapted(tiny_model)
    general = tiny_model("RobertaModel", name="other")
    with pytest.raises(InputError, match=r"other has a different vocabulary: \d+ of its \d+ entries are among"):
        _reader(folder, general)


def test_words_added_by_longest_match_are_refused(tiny_model: TinyModel) -> None:
    from dataclasses import replace

    folder = adapted(tiny_model)
    encoder = Encoder.of(Checkpoint.open(folder))
    encoder.tokenizer.added = replace(encoder.tokenizer.added, oov="greedy")
    with pytest.raises(UsageError, match="--oov greedy"):
        MemoryReader.of(encoder, Checkpoint.open(folder.parent / "base"))
