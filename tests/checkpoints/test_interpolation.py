"""A model between two others, against torch arithmetic on two models that plain transformers loads."""

import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from greenadapt.checkpoints.interpolation import Interpolation, n_base_rows
from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.checkpoints.writer import write_weights
from greenadapt.errors import InputError
from tests.support.small_tasks import NEW, TinyModel, adapted, expand, trained

State = dict[str, torch.Tensor]


def state(folder: Path, architecture: str) -> State:
    """The weights as plain transformers loads them; every one must be there, and no other."""
    model, info = getattr(transformers, architecture).from_pretrained(folder, output_loading_info=True)
    assert {problem: names for problem, names in info.items() if names} == {}
    weights: State = model.state_dict()
    return weights


def prefix(architecture: str) -> str:
    """What names of the encoder begin with, as transformers has it."""
    return "" if architecture.endswith("Model") else getattr(transformers, architecture).base_model_prefix + "."


def encoder(folder: Path, architecture: str) -> State:
    """The encoder's weights by their names in a model without a head."""
    start = prefix(architecture)
    weights = state(folder, architecture)
    return {name.removeprefix(start): weight for name, weight in weights.items() if name.startswith(start)}


def write(domain: Path, general: Path, weight: float, out: Path) -> Path:
    """The interpolated model, with a configuration beside it."""
    out.mkdir(exist_ok=True)
    mixed = Interpolation(Checkpoint.open(domain), Checkpoint.open(general), weight)
    write_weights(out, mixed.tensors())
    (out / "config.json").write_bytes((domain / "config.json").read_bytes())
    return out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("domain", "general", "config"),
    [
        ("BertModel", "BertModel", {}),
        ("BertForMaskedLM", "BertModel", {}),
        ("BertForSequenceClassification", "BertForMaskedLM", {}),
        ("RobertaForMaskedLM", "RobertaModel", {}),
        ("ElectraForPreTraining", "ElectraModel", {"embedding_size": 16}),
        ("DistilBertForMaskedLM", "DistilBertModel", {"dim": 32}),
        ("MPNetModel", "MPNetForMaskedLM", {}),
        ("ModernBertForMaskedLM", "ModernBertModel", {}),
        ("XLMRobertaForMaskedLM", "XLMRobertaModel", {}),
    ],
)
def test_each_weight_is_the_mean_that_torch_gives(
    tiny_model: TinyModel, tmp_path: Path, domain: str, general: str, config: dict[str, Any]
) -> None:
    folders = trained(tiny_model(domain, name="domain", **config)), tiny_model(general, name="general", **config)
    found = state(write(*folders, 0.3, tmp_path / "out"), domain)
    ours, theirs = encoder(folders[0], domain), encoder(folders[1], general)
    mixed, both = encoder(tmp_path / "out", domain), ours.keys() & theirs.keys()
    assert len(both) >= 14
    for name in both:
        mean = 0.3 * theirs[name] + (1 - 0.3) * ours[name]
        torch.testing.assert_close(mixed[name], mean, atol=1e-7, rtol=1e-6, msg=name)
        assert name.endswith("position_ids") or not torch.equal(mean, ours[name])
    tied = {tensor.data_ptr() for name, tensor in found.items() if name.startswith(prefix(domain))}
    for name, tensor in state(folders[0], domain).items():  # a head, or a pooler that the other one has not
        if name.removeprefix(prefix(domain)) not in both and found[name].data_ptr() not in tied:
            torch.testing.assert_close(found[name], tensor, atol=0, rtol=0, msg=name)


@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_at_both_ends_it_is_one_of_them(tiny_model: TinyModel, tmp_path: Path, weight: float) -> None:
    domain, general = trained(tiny_model(name="domain")), tiny_model(name="general")
    found = load_file(write(domain, general, weight, tmp_path / "out") / "model.safetensors")
    for name, tensor in load_file([domain, general][int(weight)] / "model.safetensors").items():
        assert torch.equal(found[name], tensor), name


def test_the_model_between_two_is_the_model_of_the_mean(tiny_model: TinyModel, tmp_path: Path) -> None:
    """What it says, not only what it weighs: the same hidden states as a model whose weights torch has averaged."""
    domain, general = trained(tiny_model("BertForMaskedLM", name="domain")), tiny_model("BertModel", name="general")
    out = write(domain, general, 0.25, tmp_path / "out")
    first, second, found = (transformers.AutoModel.from_pretrained(each).eval() for each in (domain, general, out))
    averaged = {name: 0.25 * second.state_dict()[name] + 0.75 * w for name, w in first.state_dict().items()}
    second.load_state_dict({**averaged, **{n: w for n, w in second.state_dict().items() if "pooler" in n}})
    ids = torch.arange(5, 25).reshape(2, 10)
    with torch.no_grad():
        expected, got = (model(ids).last_hidden_state for model in (second, found))
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=0)


def test_rows_of_added_words_stay(tiny_model: TinyModel, tmp_path: Path) -> None:
    folder = adapted(tiny_model)
    general, domain = folder.parent / "base", trained(folder)
    out = write(domain, general, 0.4, tmp_path / "out")
    rows, ours, theirs = (Checkpoint.open(each).embedding() for each in (out, domain, general))
    assert n_base_rows(Checkpoint.open(domain)) == len(theirs) == len(ours) - len(NEW)
    np.testing.assert_allclose(rows[: len(theirs)], 0.4 * theirs + 0.6 * ours[: len(theirs)], atol=1e-6)
    np.testing.assert_array_equal(rows[len(theirs) :], ours[len(theirs) :])
    other = expand(tiny_model(name="other base"), tmp_path / "other")  # of a general model they are not looked at
    again = Checkpoint.open(write(domain, other, 0.4, tmp_path / "again")).embedding()
    np.testing.assert_array_equal(again[len(theirs) :], ours[len(theirs) :])


def test_names_of_old_checkpoints(tiny_model: TinyModel, tmp_path: Path) -> None:
    """Those that came from TensorFlow have gamma and beta, which transformers renames when it loads."""
    domain, general = trained(tiny_model(name="domain")), trained(tiny_model("BertForMaskedLM", name="general"), seed=2)
    expected = load_file(write(domain, general, 0.5, tmp_path / "out") / "model.safetensors")

    def old(name: str) -> str:
        return name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")

    weights = load_file(general / "model.safetensors")
    assert len([name for name in weights if old(name) != name]) == 12
    save_file({old(name): weight for name, weight in weights.items()}, general / "model.safetensors", {"format": "pt"})
    found = load_file(write(domain, general, 0.5, tmp_path / "old") / "model.safetensors")
    assert found.keys() == expected.keys()
    for name, tensor in found.items():
        assert torch.equal(tensor, expected[name]), name
    name = "embeddings.LayerNorm.weight"
    assert not torch.equal(found[name], load_file(domain / "model.safetensors")[name])


def test_a_tied_output_that_is_written_down_stays_tied(tiny_model: TinyModel, tmp_path: Path) -> None:
    domain, general = trained(tiny_model("BertForMaskedLM", name="domain")), tiny_model(name="general")
    weights = load_file(domain / "model.safetensors")
    decoder, embedding = "cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"
    for own, is_tied in ((weights[embedding].clone(), True), (weights[embedding] + 1, False)):
        save_file({**weights, decoder: own}, domain / "model.safetensors", {"format": "pt"})
        found = load_file(write(domain, general, 0.5, tmp_path / "out") / "model.safetensors")
        assert torch.equal(found[decoder], found[embedding]) == is_tied
        assert torch.equal(found[decoder], own) != is_tied


@pytest.mark.parametrize(("ours", "theirs"), [("bfloat16", "float32"), ("float32", "float16"), ("float64", "float32")])
def test_the_domain_models_element_type_is_kept(tiny_model: TinyModel, tmp_path: Path, ours: str, theirs: str) -> None:
    folders = trained(tiny_model(name="domain")), tiny_model(name="general")
    for folder, dtype in zip(folders, (ours, theirs), strict=True):
        weights = load_file(folder / "model.safetensors")
        cast = {name: weight.to(getattr(torch, dtype)) for name, weight in weights.items()}
        save_file(cast, folder / "model.safetensors", {"format": "pt"})
    found = load_file(write(*folders, 0.3, tmp_path / "out") / "model.safetensors")
    domain, general = (load_file(folder / "model.safetensors") for folder in folders)
    precision = torch.float64 if ours == "float64" else torch.float32
    for name, tensor in found.items():
        mean = 0.3 * general[name].to(precision) + (1 - 0.3) * domain[name].to(precision)
        torch.testing.assert_close(tensor, mean.to(getattr(torch, ours)), msg=name)


@pytest.mark.slow
def test_a_large_table_is_never_whole_in_memory(tiny_model: TinyModel, tmp_path: Path) -> None:
    folders = [tiny_model(name=name, type_vocab_size=1 << 18) for name in ("domain", "general")]
    for folder in folders:  # a layer that is larger than what is read at once
        weights = load_file(folder / "model.safetensors")
        weights["embeddings.token_type_embeddings.weight"] = torch.ones(1 << 18, 32)
        save_file(weights, folder / "model.safetensors", {"format": "pt"})
    tracemalloc.start()
    write(*folders, 0.5, tmp_path / "out")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20 < (1 << 18) * 32 * 4


def refused(domain: Path, general: Path, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Interpolation(Checkpoint.open(domain), Checkpoint.open(general), 0.5)


def test_other_architectures_are_refused(tiny_model: TinyModel, tmp_path: Path) -> None:
    base = tiny_model(name="base")
    refused(base, tiny_model("RobertaModel"), r"base is of type bert, .*robertamodel of type roberta: give models of")
    wide = tiny_model(name="wide", intermediate_size=80)
    layer = r"encoder.layer.0.intermediate.dense.bias"
    refused(base, wide, rf"base has {layer} of 64 numbers, .*wide of 80 numbers: give models")
    refused(wide, base, r"wide has .* of 80 numbers, .*base of 64 numbers")
    refused(base, tiny_model(name="wider", width=40), r"LayerNorm.bias of 32 numbers, .*wider of 40 numbers")
    refused(base, tiny_model(name="heads", num_attention_heads=2), r"base has num_attention_heads 4, .*heads 2")
    deep = tiny_model(name="deep", num_hidden_layers=3)
    refused(base, deep, r"base lacks 16 weights that .*deep has, such as encoder.layer.2.*the same number of layers")
    refused(deep, base, r"base lacks 16 weights that .*deep has")
    longer = tiny_model(name="longer", vocab_size=Checkpoint.open(base).n_rows + 3)
    n = Checkpoint.open(base).n_rows
    refused(base, longer, rf"base has {n} rows that are not of added words, .*longer {n + 3}: give")


def test_other_vocabularies_are_refused(tiny_model: TinyModel, tmp_path: Path) -> None:
    base, other = tiny_model(name="base"), tiny_model(name="other")
    file = other / "tokenizer.json"
    settings = json.loads(file.read_text("utf-8"))
    vocabulary = settings["model"]["vocab"]
    vocabulary["heart"], vocabulary["rate"] = vocabulary["rate"], vocabulary["heart"]
    file.write_text(json.dumps(settings), "utf-8")
    n, ids = len(vocabulary), (vocabulary["rate"], vocabulary["heart"])
    message = rf"different base vocabularies, of {n} and {n} tokens: 'heart' has the ids {ids[0]} and {ids[1]}: give"
    refused(base, other, message)
    refused(expand(base, tmp_path / "expanded"), other, message)
    del vocabulary["heart"]
    file.write_text(json.dumps(settings), "utf-8")
    refused(base, other, rf"of {n} and {n - 1} tokens: 'heart' has the ids {ids[0]} and none")
