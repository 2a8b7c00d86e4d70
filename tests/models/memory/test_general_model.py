"""A general model beside a domain model: what is attached, in which precision, and what it reads."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.config import MemoryConfig
from greenadapt.errors import InputError, UsageError
from greenadapt.models.machine import Machine
from greenadapt.models.memory.general_model import GeneralModel, MemoryReader
from greenadapt.models.rows import Rows
from greenadapt.models.weights import open_model
from greenadapt.tasks.base import Encoder, Features, Item
from greenadapt.tasks.classification import ClassificationTask, Text
from tests.conftest import Notes
from tests.support.small_tasks import NEW, VOCABULARY, TinyModel, adapted, sentences

pytestmark = pytest.mark.usefixtures("one_thread")
TEXTS = "SequenceClassification"


def _views(encoder: Encoder, n: int = 16) -> list[Item]:
    texts = [Text(" ".join(words), label=i % 3) for i, words in enumerate(sentences(n, 0))]
    return ClassificationTask(labels=("0", "1", "2")).training(texts, encoder, 0, Notes())


def _model(folder: Path, general: Path, machine: Machine, **memory: Any) -> tuple[Any, GeneralModel, Encoder]:
    checkpoint = Checkpoint(folder)
    encoder = Encoder.of(checkpoint)
    model = open_model(checkpoint, TEXTS, {"num_labels": 3}, Rows.all(checkpoint.n_rows), seed=0)
    chosen = GeneralModel(Checkpoint(general), MemoryConfig(**memory))
    chosen.attach(model, encoder, machine, seed=0)
    return model, chosen, encoder


@pytest.mark.parametrize("is_expanded", [False, True])
def test_the_states_are_those_of_plain_transformers_for_base_pieces(tiny_model: TinyModel, is_expanded: bool) -> None:
    folder = adapted(tiny_model)
    general = folder if is_expanded else folder.parent / "base"
    model, chosen, encoder = _model(folder, general, Machine.start("float32"))
    arguments = MemoryReader.of(encoder, chosen.checkpoint).read(
        Features.of([example.expanded[0] for example in _views(encoder)])
    )
    inputs = {name: torch.from_numpy(arguments[f"memory_{name}"]) for name in ("ids", "mask", "types")}
    n_base = encoder.tokenizer.added.first_id
    assert int(inputs["ids"].max()) < n_base == len(model.memory.general.get_input_embeddings().weight)
    plain = AutoModel.from_pretrained(general).eval()
    hidden = plain(*inputs.values(), output_hidden_states=True).hidden_states
    assert model.memory.plan.states == (1, 2)
    torch.testing.assert_close(model.memory.general_states(**inputs), torch.stack(hidden[1:]), atol=1e-6, rtol=0)


@pytest.mark.parametrize(("frozen", "dtype"), [(True, torch.bfloat16), (False, torch.float32)])
def test_a_frozen_model_is_in_half_precision_on_such_a_machine(
    tiny_model: TinyModel, frozen: bool, dtype: torch.dtype
) -> None:
    folder = adapted(tiny_model)
    model, *_ = _model(folder, folder.parent / "base", Machine.start("bfloat16"), frozen=frozen)
    assert model.memory.general.dtype == dtype
    assert model.dtype == torch.float32


def test_logits_of_pieces_that_differ_cannot_be_added(tiny_model: TinyModel) -> None:
    folder = adapted(tiny_model)
    _model(folder, folder.parent / "base", Machine.start("float32"), strategy="logits")
    checkpoint = Checkpoint(folder)
    model = open_model(checkpoint, "TokenClassification", {"num_labels": 3}, Rows.all(checkpoint.n_rows), seed=0)
    base = Checkpoint(folder.parent / "base")
    general = GeneralModel(base, MemoryConfig("logits"))
    with pytest.raises(UsageError, match="added words are other pieces"):
        general.attach(model, Encoder.of(checkpoint), Machine.start("float32"), seed=0)
    base.config["max_position_embeddings"] -= 1
    with pytest.raises(UsageError, match="reads 159 pieces at once, the domain model 160: give --max-length 159"):
        general.attach(model, Encoder.of(Checkpoint(base.folder)), Machine.start("float32"), seed=0)


def test_a_general_model_that_was_trained_gets_its_base_tokenizer(tiny_model: TinyModel, tmp_path: Path) -> None:
    folder = adapted(tiny_model)
    target = tmp_path / "target" / "memory"
    target.mkdir(parents=True)
    GeneralModel(Checkpoint(folder), MemoryConfig(frozen=False)).copy_tokenizer(target.parent)
    assert (target / "tokenizer.json").read_bytes() == (folder / "base_tokenizer" / "tokenizer.json").read_bytes()
    assert not (target / "words.safetensors").exists()


def _reader(folder: Path, general: Path) -> tuple[Encoder, MemoryReader]:
    encoder = Encoder.of(Checkpoint(folder))
    return encoder, MemoryReader.of(encoder, Checkpoint(general))


@pytest.mark.parametrize("view", ["base", "expanded"])
def test_the_general_model_reads_what_its_own_tokenizer_gives(tiny_model: TinyModel, view: str) -> None:
    """Whatever the domain model reads, in a batch as plain transformers pads it."""
    folder = adapted(tiny_model)
    general = folder.parent / "base"
    encoder, reader = _reader(folder, general)
    draw = np.random.default_rng(0)
    first, second = ([" ".join(draw.choice(VOCABULARY, draw.integers(0, 30))) for _ in range(40)] for _ in range(2))
    views = list(ClassificationTask().inference(map(Text, first, second), encoder))
    features = [feature for one in views for feature in getattr(one, view)]
    assert (max(int(feature.ids.max()) for feature in features) >= reader.added.first_id) == (view == "expanded")
    read = reader.read(Features.of(features))
    expected = AutoTokenizer.from_pretrained(general)(first, second, padding=True, return_tensors="pt")
    assert np.array_equal(read["memory_ids"], expected["input_ids"])
    assert np.array_equal(read["memory_mask"], expected["attention_mask"])
    assert np.array_equal(read["memory_types"], expected["token_type_ids"])


def test_of_a_longer_text_the_first_pieces_and_the_last_special_token_are_read(tiny_model: TinyModel) -> None:
    folder = adapted(tiny_model)
    general = tiny_model("BertModel", name="short", max_position_embeddings=16)
    encoder, reader = _reader(folder, general)
    assert reader.max_length == 16
    new = encoder.tokenizer.encode(" ".join(NEW * 4)).expanded.ids
    ids, types, _ = encoder.single(new)
    short, short_types, _ = encoder.single(new[:1])
    lengths = np.array([len(ids), len(short)])
    inputs = reader.to_base_pieces(Features(np.append(ids, short), np.append(types, short_types), lengths))
    whole = [2, *encoder.tokenizer.encode(" ".join(NEW * 4)).base.ids.tolist(), 3]
    first = [2, *encoder.tokenizer.encode(NEW[0]).base.ids.tolist(), 3]
    assert len(whole) > 16
    assert inputs.lengths.tolist() == [16, len(first)]
    assert inputs.ids.tolist() == [*whole[:15], 3, *first]
    views = ClassificationTask().inference([Text("tachycardia"), Text(" ".join(NEW * 4)), Text("")], encoder)
    assert reader.n_cut(views) == 1


def test_other_vocabularies_and_words_added_by_longest_match_are_refused(tiny_model: TinyModel) -> None:
    folder = adapted(tiny_model)
    encoder = Encoder.of(Checkpoint(folder))
    with pytest.raises(InputError, match=r"other has a different vocabulary: \d+ of its \d+ entries are among"):
        MemoryReader.of(encoder, Checkpoint(tiny_model("RobertaModel", name="other")))
    encoder.tokenizer.added = replace(encoder.tokenizer.added, oov="greedy")
    with pytest.raises(UsageError, match="--oov greedy"):
        MemoryReader.of(encoder, Checkpoint(folder.parent / "base"))
