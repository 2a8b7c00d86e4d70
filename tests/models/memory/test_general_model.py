"""A general model beside a domain model: what is attached, in which precision, and that kept states are live ones."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModel

from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.config import MemoryConfig, RunConfig, TrainConfig
from greenadapt.errors import UsageError
from greenadapt.models.machine import Machine
from greenadapt.models.memory.general_model import DistinctTexts, GeneralModel, GeneralStates, open_cache
from greenadapt.models.rows import Rows
from greenadapt.models.weights import open_model
from greenadapt.tasks.base import Encoder, Features, Input
from greenadapt.tasks.classification import ClassificationTask, Text
from greenadapt.training.batches import TaskDataset
from greenadapt.training.feed import Feed, Plan
from greenadapt.training.loop import Training
from tests.conftest import Notes
from tests.support.small_tasks import TinyModel, adapted, sentences

pytestmark = pytest.mark.usefixtures("one_thread")
TEXTS = "SequenceClassification"


def _views(encoder: Encoder, n: int = 16) -> list[Input]:
    texts = [Text(" ".join(words), label=i % 3) for i, words in enumerate(sentences(n, 0))]
    return ClassificationTask(labels=("0", "1", "2")).training(texts, encoder, 0, Notes())


def _model(folder: Path, general: Path, machine: Machine, **memory: Any) -> tuple[Any, GeneralModel, Encoder]:
    checkpoint = Checkpoint.open(folder)
    encoder = Encoder.of(checkpoint)
    model = open_model(checkpoint, TEXTS, {"num_labels": 3}, Rows.all(checkpoint.n_rows), seed=0)
    chosen = GeneralModel(Checkpoint.open(general), MemoryConfig(**memory), "any")
    chosen.attach(model, encoder, machine, seed=0)
    return model, chosen, encoder


@pytest.mark.parametrize("is_expanded", [False, True])
def test_the_states_are_those_of_plain_transformers_for_base_pieces(tiny_model: TinyModel, is_expanded: bool) -> None:
    folder = adapted(tiny_model)
    general = folder if is_expanded else folder.parent / "base"
    model, chosen, encoder = _model(folder, general, Machine.start("float32"))
    arguments = chosen.reader(encoder).read(Features.of([example.expanded[0] for example in _views(encoder)]))
    inputs = {name: arguments[f"memory_{name}"] for name in ("ids", "mask", "types")}
    n_base = encoder.tokenizer.added.first_id
    assert int(inputs["ids"].max()) < n_base == len(model.memory.general.get_input_embeddings().weight)
    plain = AutoModel.from_pretrained(general).eval()
    hidden = plain(*inputs.values(), output_hidden_states=True).hidden_states
    assert model.memory.plan.states == (1, 2)
    torch.testing.assert_close(model.memory.general_states(**inputs), torch.stack(hidden[1:]), atol=1e-6, rtol=0)


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_frozen_model_is_in_half_precision_on_such_a_machine(
    tiny_model: TinyModel, frozen: bool, precision: Any
) -> None:
    folder = adapted(tiny_model)
    model, *_ = _model(folder, folder.parent / "base", Machine.start(precision), frozen=frozen)
    assert model.memory.general.dtype == (torch.bfloat16 if frozen and precision == "bfloat16" else torch.float32)
    assert model.dtype == torch.float32


@pytest.mark.slow
def test_kept_states_give_the_loss_of_live_ones(tiny_model: TinyModel, tmp_path: Path) -> None:
    """To what bfloat16 rounds off, step by step; and from the second time on the general model is not called."""
    folder = adapted(tiny_model, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    machine, run = Machine.start("float32"), RunConfig(cache_memory=True)
    losses, calls = [], []
    for is_cached in (False, True, True):
        model, chosen, encoder = _model(folder, folder.parent / "base", machine)
        views, n_calls = _views(encoder), [0]
        model.memory.general.register_forward_hook(lambda *_, n=n_calls: n.__setitem__(0, n[0] + 1))
        memory: Any = chosen.reader(encoder)
        if is_cached:
            states = GeneralStates(model.memory, chosen.sha256, run.max_tokens)
            texts = DistinctTexts.of(map(memory.of_input, views))
            memory = open_cache(tmp_path / "cache", run.max_cache, states, memory, texts, Notes())
        table = TaskDataset.of(views, Rows.all(Checkpoint.open(folder).n_rows), TEXTS, 0, memory)
        train = TrainConfig(epochs=4, batch_size=4, learning_rate=1e-3)
        training = Training(model, Feed([table], Plan(train, run, 0)), machine)
        losses.append([step.loss for step in training.train_steps()])
        calls.append(n_calls[0])
    live, first, second = losses
    assert first == second
    assert first == pytest.approx(live, rel=5e-3)
    assert first != live
    assert calls[0] > calls[1] > calls[2] == 0


def test_logits_of_pieces_that_differ_cannot_be_added(tiny_model: TinyModel) -> None:
    folder = adapted(tiny_model)
    _model(folder, folder.parent / "base", Machine.start("float32"), strategy="logits")
    checkpoint = Checkpoint.open(folder)
    model = open_model(checkpoint, "TokenClassification", {"num_labels": 3}, Rows.all(checkpoint.n_rows), seed=0)
    base = Checkpoint.open(folder.parent / "base")
    general = GeneralModel(base, MemoryConfig("logits"), "any")
    with pytest.raises(UsageError, match="added words are other pieces"):
        general.attach(model, Encoder.of(checkpoint), Machine.start("float32"), seed=0)
    base.config["max_position_embeddings"] -= 1
    with pytest.raises(UsageError, match="reads 159 pieces at once, the domain model 160: give --max-length 159"):
        general.attach(model, Encoder.of(Checkpoint.open(base.folder)), Machine.start("float32"), seed=0)


def test_a_general_model_that_was_trained_gets_its_base_tokenizer(tiny_model: TinyModel, tmp_path: Path) -> None:
    folder = adapted(tiny_model)
    for source in (folder, folder.parent / "base"):
        target = tmp_path / f"of-{source.name}"
        (target / "memory").mkdir(parents=True)
        GeneralModel(Checkpoint.open(source), MemoryConfig(frozen=False), "any").copy_tokenizer(target)
        written = (target / "memory" / "tokenizer.json").read_bytes()
        base = folder / "base_tokenizer" if source == folder else source
        assert written == (base / "tokenizer.json").read_bytes()
        assert not (target / "memory" / "words.safetensors").exists()
