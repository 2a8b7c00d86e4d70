"""Reading checkpoints: the table of names against transformers, every file layout, and input that must be refused."""

import json
import math
import mmap
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from greenadapt.architectures import ARCHITECTURES as KNOWN
from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.errors import InputError, MissingError
from tests.support.small_tasks import FAMILIES, TinyModel, set_config

HEADS = ["Model", "ForMaskedLM", "ForPreTraining", "ForTokenClassification"]
ARCHITECTURES = [f + h for f in FAMILIES for h in HEADS if hasattr(transformers, f + h)]
ODD_SIZE = 1009  # a vocabulary size that no other dimension has


def live_model(architecture: str) -> transformers.PreTrainedModel:
    model_class = getattr(transformers, architecture)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 64}
    ids = {"bos_token_id": 0, "cls_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "sep_token_id": 2}
    return model_class(model_class.config_class(vocab_size=ODD_SIZE, max_position_embeddings=40, **sizes, **ids))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_table_names_every_weight_of_the_vocabulary(architecture: str) -> None:
    model = live_model(architecture)
    kind = KNOWN[model.config.model_type]
    embedding = {kind.embedding, kind.prefix + kind.embedding}
    in_model = {name for name, weight in model.named_parameters(remove_duplicate=False) if ODD_SIZE in weight.shape}
    assert len(in_model & embedding) == 1
    assert in_model - embedding <= {kind.decoder, *kind.biases}
    every = dict(model.named_parameters(remove_duplicate=False))
    assert model.get_input_embeddings().weight is every[(in_model & embedding).pop()]
    if architecture.endswith("ForMaskedLM"):
        of_published = {"lm_predictions.lm_head.bias"}  # of DeBERTa-v3, for which transformers makes a new head
        assert in_model - embedding == {kind.decoder, *kind.biases} - of_published
        assert every[kind.decoder] is model.get_output_embeddings().weight


def test_the_embedding_is_mapped_in_its_own_type(tiny_model: TinyModel) -> None:
    folder = tiny_model("BertForMaskedLM")
    weights = load_file(folder / "model.safetensors")
    save_file({name: weight.bfloat16() for name, weight in weights.items()}, folder / "model.safetensors")
    embedding = Checkpoint(folder).embedding()
    assert embedding.dtype.name == "bfloat16"
    assert not embedding.flags.writeable
    base: object = embedding
    while isinstance(base, np.ndarray):
        base = base.base
    assert isinstance(base, mmap.mmap)
    expected = weights["bert.embeddings.word_embeddings.weight"].bfloat16().float().numpy()
    np.testing.assert_array_equal(embedding.astype(np.float32), expected)
    as_bin(folder)
    of_torch = Checkpoint(folder).embedding()
    assert of_torch.dtype.name == "bfloat16"
    np.testing.assert_array_equal(of_torch, embedding)


def as_bin(folder: Path, **options: bool) -> None:
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin", **options)
    (folder / "model.safetensors").unlink()


as_old_bin = partial(as_bin, _use_new_zipfile_serialization=False)


def as_sharded_bin(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    shard_of = {name: f"pytorch_model-0000{i % 2 + 1}-of-00002.bin" for i, name in enumerate(weights)}
    for shard in set(shard_of.values()):
        torch.save({n: w for n, w in weights.items() if shard_of[n] == shard}, folder / shard)
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"metadata": {}, "weight_map": shard_of}))
    (folder / "model.safetensors").unlink()


@pytest.mark.parametrize("convert", [as_bin, as_old_bin, as_sharded_bin])
def test_old_torch_files_hold_the_same(tiny_model: TinyModel, convert: Callable[[Path], None]) -> None:
    whole = Checkpoint(tiny_model("BertForMaskedLM", name="whole"))
    folder = tiny_model("BertForMaskedLM", name="converted")
    convert(folder)
    assert_equal(Checkpoint(folder), whole)


def assert_equal(checkpoint: Checkpoint, expected: Checkpoint) -> None:
    assert set(checkpoint.names) == set(expected.names)
    for name in expected.names:
        np.testing.assert_array_equal(checkpoint[name], expected[name])


class Bomb:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return Path.touch, (self.path,)


def test_a_pickle_is_never_executed(tiny_model: TinyModel) -> None:
    folder = tiny_model("BertModel")
    (folder / "model.safetensors").unlink()
    torch.save({"embeddings.word_embeddings.weight": Bomb(folder / "executed")}, folder / "pytorch_model.bin")
    with pytest.raises(InputError, match=r"refused: torch's weights-only loader .*: convert it to") as caught:
        Checkpoint(folder)
    assert not re.search("weights_only|will likely|option|\n", str(caught.value))  # torch's own advice, to load it
    assert not (folder / "executed").exists()


NO_WEIGHTS = [
    ({"epoch": 5}, "does not hold weights by name: save the state_dict"),
    ({"embeddings.word_embeddings.weight": torch.eye(2).to_sparse()}, r"weight is .*\(float32, sparse_coo"),
]


@pytest.mark.parametrize(("content", "message"), NO_WEIGHTS)
def test_torch_files_that_hold_something_else(tiny_model: TinyModel, content: dict[str, object], message: str) -> None:
    folder = tiny_model("BertModel")
    as_bin(folder)
    weights = torch.load(folder / "pytorch_model.bin", weights_only=True)
    torch.save({**weights, **content}, folder / "pytorch_model.bin")
    with pytest.raises(InputError, match=message):
        Checkpoint(folder)


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 440473133\n"


def test_torch_files_that_are_something_else(tiny_model: TinyModel) -> None:
    folder = tiny_model("BertModel")
    as_bin(folder)
    path = folder / "pytorch_model.bin"
    archive = path.read_bytes()
    for content, message in ((POINTER, "is a Git LFS pointer, not"), (archive[: len(archive) // 2], "is refused")):
        path.write_bytes(content)
        with pytest.raises(InputError, match=rf"pytorch_model\.bin {message}"):
            Checkpoint(folder)


def test_torch_files_without_torch(tiny_model: TinyModel, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tiny_model("BertModel")
    as_bin(folder)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingError, match=r'pip install "greenadapt\[train\]", or convert'):
        Checkpoint(folder)


WITHOUT_TYPE = [
    ("BertForPreTraining", "vocab.txt", False, "bert"),
    ("RobertaModel", "merges.txt", False, "roberta"),
    ("XLMRobertaForMaskedLM", "tokenizer.json", True, "xlm-roberta"),
]


def without_type(folder: Path, vocabulary: str, *, named: bool) -> None:
    """Take the type out of a configuration, and the names of classes unless they are ``named``."""
    config = json.loads((folder / "config.json").read_text())
    for name in ("model_type", *([] if named else ["architectures"])):
        del config[name]
    (folder / "config.json").write_text(json.dumps(config))
    (folder / vocabulary).touch()


@pytest.mark.parametrize(("architecture", "vocabulary", "named", "expected"), WITHOUT_TYPE)
def test_old_configurations_do_not_state_a_type(
    tiny_model: TinyModel, architecture: str, vocabulary: str, named: bool, expected: str
) -> None:
    folder = tiny_model(architecture)
    with_type = Checkpoint(folder)
    without_type(folder, vocabulary, named=named)
    checkpoint = Checkpoint(folder)
    assert checkpoint.architecture.model_type == checkpoint.config["model_type"] == expected
    np.testing.assert_array_equal(checkpoint.embedding(), with_type.embedding())


def test_weights_of_other_frameworks_are_named(tiny_model: TinyModel) -> None:
    folder = tiny_model("BertModel")
    (folder / "model.safetensors").rename(folder / "tf_model.h5")
    with pytest.raises(MissingError, match=r"has no model\.safetensors, only tf_model\.h5 of another framework: save"):
        Checkpoint(folder)


@pytest.mark.parametrize(
    ("shard", "message"),
    [("../outside/model.safetensors", "not a file in its folder"), ("part.safetensors", "no.such")],
)
def test_an_index_names_files_of_its_folder_and_their_weights(tiny_model: TinyModel, shard: str, message: str) -> None:
    tiny_model("BertModel", name="outside")
    folder = tiny_model("BertModel", name="inside")
    (folder / "model.safetensors").rename(folder / "part.safetensors")
    index = {"weight_map": {"no.such": shard}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(InputError, match=message):
        Checkpoint(folder)


def test_folders_that_hold_no_model(tiny_model: TinyModel) -> None:
    folder = tiny_model("BertModel")
    set_config(folder, model_type="deberta")
    with pytest.raises(InputError, match=r"type deberta.*supported are .*bert, .*modernbert, .*roberta"):
        Checkpoint(folder)
    set_config(folder, model_type="modernbert")
    with pytest.raises(InputError, match=r"no weight model\.embeddings\.tok_embeddings\.weight"):
        Checkpoint(folder)
    (folder / "config.json").write_text("[]")
    with pytest.raises(InputError, match="JSON"):
        Checkpoint(folder)
    (folder / "config.json").unlink()
    with pytest.raises(MissingError, match=r"no config\.json"):
        Checkpoint(folder)


def test_the_vocabulary_must_have_the_size_of_the_embedding(tiny_model: TinyModel) -> None:
    folder = tiny_model("BertForMaskedLM", vocab_size=300)
    set_config(folder, vocab_size=301)
    with pytest.raises(InputError, match=r"has 300 rows, vocab_size in config\.json is 301"):
        Checkpoint(folder)


SIZES = {
    "Bert": ("hidden_size", "max_position_embeddings", "intermediate_size", "num_hidden_layers"),
    "Roberta": ("hidden_size", "type_vocab_size", "max_position_embeddings", "intermediate_size"),
    "DistilBert": ("dim", "max_position_embeddings", "hidden_dim", "n_layers"),
    "Electra": ("embedding_size", "hidden_size", "intermediate_size", "num_hidden_layers"),
    "DebertaV2": ("hidden_size", "intermediate_size", "num_hidden_layers"),
    "Albert": ("embedding_size", "hidden_size", "max_position_embeddings", "intermediate_size", "num_hidden_groups"),
    **dict.fromkeys(("ModernBert", "NomicBert", "Gte"), ("hidden_size", "intermediate_size", "num_hidden_layers")),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_the_configuration_must_have_the_sizes_of_the_weights(tiny_model: TinyModel, family: str) -> None:
    folder = tiny_model(f"{family}Model")
    config = json.loads((folder / "config.json").read_text())
    for setting in SIZES.get(family, SIZES["Bert"]):
        set_config(folder, **{**config, setting: config[setting] + 1})
        message = rf"config\.json: {setting} is {config[setting] + 1}, but .*(has|have) {config[setting]}: download"
        with pytest.raises(InputError, match=message):
            Checkpoint(folder)
    (folder / "config.json").write_text(json.dumps(config))
    Checkpoint(folder)


@pytest.mark.parametrize(("dtype", "value"), [(torch.float32, math.nan), (torch.bfloat16, -math.inf)])
def test_a_weight_that_is_no_number_is_named(tiny_model: TinyModel, dtype: torch.dtype, value: float) -> None:
    folder = tiny_model("BertModel")
    weights = {name: weight.to(dtype) for name, weight in load_file(folder / "model.safetensors").items()}
    weights["embeddings.position_ids"] = torch.arange(10)  # as older checkpoints have them
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    Checkpoint(folder).require_finite()
    weights["encoder.layer.1.output.dense.weight"][5, 7:9] = value
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    checkpoint = Checkpoint(folder)
    checkpoint.require_finite([checkpoint.embedding_name])
    with pytest.raises(InputError, match=r"2 of the 2,048 numbers of encoder\.layer\.1\.output\.dense\.weight are NaN"):
        checkpoint.require_finite()


def test_new_ids_begin_after_the_last_row(tiny_model: TinyModel) -> None:
    checkpoint = Checkpoint(tiny_model("BertModel", vocab_size=300))
    assert checkpoint.first_new_id(300) == 300
    with pytest.raises(InputError, match="has 301 ids, the embedding only 300 rows"):
        checkpoint.first_new_id(301)
