"""The pretrain stage as a library is called, and what works on its results."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.numpy import load_file

from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.config import MemoryConfig, PretrainConfig, TextOptions, TrainConfig
from greenadapt.errors import ConflictError, InputError, UsageError
from greenadapt.stages.finetune.compare import finetune
from greenadapt.stages.pretrain import PretrainRequest, pretrain
from greenadapt.tasks.base import Encoder
from greenadapt.tokenization.dual_tokenizer import DualTokenizer
from tests.support.small_tasks import TinyModel, adapted, facts_file, ner_request, read_json, session, texts_file
from tests.support.small_texts import text_file

pytestmark = pytest.mark.usefixtures("one_thread")
CONFIG = PretrainConfig(max_length=32, head_steps=3)
TRAIN = TrainConfig(epochs=2, learning_rate=2e-3, batch_size=8)


def request(tmp_path: Path, model: Path, **changes: Any) -> PretrainRequest:
    """On ``text.txt``, which is written where it is not there."""
    file = tmp_path / "text.txt"
    if not file.exists():
        text_file(file)
    fields: dict[str, Any] = dict(model=str(model), texts=(str(file),), config=CONFIG, training=TRAIN)
    return PretrainRequest(**{**fields, **changes})


@pytest.mark.slow
def test_finetune_and_plain_transformers_work_on_the_result(tiny_model: TinyModel, tmp_path: Path) -> None:
    model = adapted(tiny_model)
    facts = facts_file(model)
    result = pretrain(session(tmp_path, "dapt"), request(tmp_path, model))
    folder = result.folder
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]
    plain, info = transformers.AutoModelForMaskedLM.from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"]
    assert type(plain).__name__ == "BertForMaskedLM"
    encoder, info = transformers.AutoModel.from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"]
    dual = DualTokenizer.load(folder).encode("tachycardia of the heart")
    with torch.no_grad():
        states = encoder(input_ids=torch.tensor([dual.expanded.ids.tolist()])).last_hidden_state
        assert torch.equal(states, plain.bert(input_ids=torch.tensor([dual.expanded.ids.tolist()])).last_hidden_state)
    written = read_json(folder / "greenadapt.json")
    assert {name: written[name] for name in facts} == facts
    assert len(written["pretrained"]) == 1
    # Pre-trained again, on the task's own texts, and fine-tuned: the names of base and corpus are still known.
    texts = texts_file(tmp_path / "task.jsonl")
    again = pretrain(
        session(tmp_path, "tapt"), request(tmp_path, folder, texts=(str(texts),), reading=TextOptions(fields=("text",)))
    )
    assert read_json(again.folder / "scores.json")["new_head_steps"] is None
    assert len(read_json(again.folder / "greenadapt.json")["pretrained"]) == 2
    tuned = finetune(session(tmp_path, "ner"), ner_request(tmp_path, again.folder))
    assert tuned.manifest.facts["model"]["name"] == "tiny-medicine"
    assert "base_model" not in (again.folder / "README.md").read_text("utf-8")  # a folder, which is not a hub id


@pytest.mark.slow
def test_a_model_without_added_words(tiny_model: TinyModel, tmp_path: Path) -> None:
    model = tiny_model("RobertaForMaskedLM")
    plain_request = request(tmp_path, model)
    in_run = session(tmp_path)
    result = pretrain(in_run, plain_request)
    losses = read_json(result.folder / "scores.json")["losses"]
    assert set(losses["heldout"]["after"]) == {"base"}
    assert "has no added words" in in_run.progress.notes[0]  # type: ignore[attr-defined]
    assert not (result.folder / "base_tokenizer").exists()
    assert read_json(result.folder / "greenadapt.json")["model"]["source"] == str(model)
    assert not Encoder.of(Checkpoint(result.folder)).has_words
    transformers.AutoTokenizer.from_pretrained(result.folder)


@pytest.mark.slow
def test_up_to_date_and_what_makes_it_anew(tiny_model: TinyModel, tmp_path: Path) -> None:
    model = adapted(tiny_model)
    first_request = request(tmp_path, model, general_text=str(text_file(tmp_path / "general.txt", 10, 5)))
    first = pretrain(session(tmp_path), first_request)
    assert first.fresh
    assert set(first.manifest.inputs) == {"model", "text 1", "general text"}
    assert set(first.manifest.facts["losses"]) == {"heldout", "general"}
    assert not pretrain(session(tmp_path), first_request).fresh
    assert not pretrain(session(tmp_path), replace(first_request, max_tokens=999)).fresh
    text_file(tmp_path / "general.txt", 10, 6)
    with pytest.raises(ConflictError, match=r"holds another result \(general text changed\)"):
        pretrain(session(tmp_path), first_request)


@pytest.mark.slow
def test_memory_and_what_it_needs(tiny_model: TinyModel, tmp_path: Path) -> None:
    model = adapted(tiny_model)
    facts_file(model)
    memory = MemoryConfig("gated", layers=(2,))
    with_memory = request(tmp_path, model, reading=TextOptions("text"), memory="base", memory_config=memory)
    result = pretrain(session(tmp_path), with_memory)
    assert result.manifest.config["memory"]["layers"] == [2]
    assert load_file(result.folder / "memory.safetensors")
    assert result.manifest.inputs["memory"]["source"] == str(model.parent / "base")
    card = (result.folder / "README.md").read_text("utf-8")
    assert "states of the general model" in card
    described = read_json(result.folder / "greenadapt.json")["pretrained"][0]["memory"]
    assert described["strategy"] == "gated"
    plain = transformers.AutoModel.from_pretrained(result.folder)
    assert plain.config._attn_implementation != "greenadapt_memory"


def test_a_memory_that_pretraining_cannot_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--strategy logits"):
        request(tmp_path, tmp_path, memory="x", memory_config=MemoryConfig("logits"))


@pytest.mark.slow
def test_models_and_texts_that_do_not_go(tiny_model: TinyModel, tmp_path: Path) -> None:
    base = tiny_model()
    tuned = finetune(session(tmp_path, "ner"), ner_request(tmp_path, base))
    with pytest.raises(UsageError, match="is fine-tuned for a task"):
        pretrain(session(tmp_path), request(tmp_path, tuned.folder))
    with pytest.raises(UsageError, match=r"--max-length is 500, but .* reads at most 160 pieces"):
        pretrain(session(tmp_path), request(tmp_path, base, config=replace(CONFIG, max_length=500)))
    single = tmp_path / "one.txt"
    single.write_text("the heart rate\n")
    few = request(tmp_path, base, texts=(str(single),), config=replace(CONFIG, heldout=0.999))
    with pytest.raises(InputError, match=r"leaves no text to train on.*--heldout 0"):
        pretrain(session(tmp_path), few)
    empty = tmp_path / "none.txt"
    empty.write_text("\u200b\n", "utf-8")  # a character that has no piece
    unheld = replace(CONFIG, heldout=0.0)
    with pytest.raises(InputError, match="--text has no text: give a file that has some"):
        pretrain(session(tmp_path), request(tmp_path, base, config=unheld, texts=(str(empty),)))
    assert not (tmp_path / "run").exists()
