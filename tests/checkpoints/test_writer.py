"""Writing grown checkpoints: plain transformers loads them, and nothing but the vocabulary changes."""

import json
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.checkpoints.writer import copy_side_files, write_expanded
from greenadapt.errors import InputError
from greenadapt.store.arrays import StreamedArray
from tests.support.sentence_models import describe_sentences
from tests.support.small_tasks import NEW, sentences
from tests.support.small_tasks import expand as add_words

TinyModel = Callable[..., Path]
Config = dict[str, object]
N_NEW = 7
SMALL = "20KB"  # of a shard; the tiny models have about 100 KB
UNTIED = {"tie_word_embeddings": False}
NARROW = {"embedding_size": 16}
CASES: list[tuple[str, Config]] = [
    ("BertModel", {}),
    ("BertForMaskedLM", {}),
    ("BertForMaskedLM", UNTIED),
    *((f"{name}ForMaskedLM", {}) for name in ("Roberta", "DistilBert", "MPNet", "ModernBert")),
    ("BertForPreTraining", {}),
    ("BertForQuestionAnswering", {}),
    ("RobertaForTokenClassification", {}),
    ("ElectraForMaskedLM", NARROW),
]


def load(folder: Path, architecture: str, **options: object) -> transformers.PreTrainedModel:
    """The model as transformers loads it; every weight must be there, and no other."""
    model_class = getattr(transformers, architecture)
    model, info = model_class.from_pretrained(folder, output_loading_info=True, **options)
    assert {problem: names for problem, names in info.items() if names} == {}
    return model.eval()


def new_rows(checkpoint: Checkpoint, n: int = N_NEW) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(n, checkpoint.dim)).astype(np.float32)


@dataclass(frozen=True)
class Expanded:
    before: Checkpoint
    after: Checkpoint
    rows: np.ndarray


def expand(source: Path, folder: Path, **options: object) -> Expanded:
    before = Checkpoint(source)
    rows = new_rows(before)
    write_expanded(before, rows, folder, **options)
    return Expanded(before, Checkpoint(folder), rows)


def vocabulary_weights(checkpoint: Checkpoint) -> set[str]:
    decoder = {checkpoint.decoder_name} if checkpoint.decoder_name else set()
    return {checkpoint.embedding_name, *checkpoint.bias_names, *decoder}


@pytest.mark.parametrize(
    ("architecture", "config", "shard"),
    [*((*case, "5GB") for case in CASES), (*CASES[1], SMALL)],
)
def test_transformers_loads_it_and_old_logits_stay(
    tiny_model: TinyModel, tmp_path: Path, architecture: str, config: Config, shard: str
) -> None:
    source = tiny_model(architecture, max_shard_size=shard, **config)
    result = expand(source, tmp_path / "out")
    n_rows = result.before.n_rows

    assert set(result.after.names) == set(result.before.names)
    for name in result.before.names:
        grown = name in vocabulary_weights(result.before)
        assert len(result.after[name]) == len(result.before[name]) + N_NEW * grown, name
        assert result.after[name].dtype == result.before[name].dtype
        assert result.after[name][: len(result.before[name])].tobytes() == result.before[name].tobytes(), name
    np.testing.assert_array_equal(result.after.embedding()[n_rows:], result.rows)

    base, model = load(source, architecture), load(tmp_path / "out", architecture)
    assert model.config.vocab_size == n_rows + N_NEW == len(model.get_input_embeddings().weight)
    ids = torch.randint(5, n_rows, (2, 20), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected, outputs = base(ids), model(ids)
    for key, tensor in expected.items():
        got = outputs[key][..., : tensor.shape[-1]]
        torch.testing.assert_close(got, tensor, atol=1e-6, rtol=0)


def test_the_output_for_new_words(tiny_model: TinyModel, tmp_path: Path) -> None:
    architecture, ids = "BertForMaskedLM", torch.tensor([[5, 6, 7]])
    logits = {}
    for tied in (True, False):
        source = tiny_model(architecture, name=f"tied {tied}", tie_word_embeddings=tied)
        weights = load_file(source / "model.safetensors")
        bias = torch.linspace(-3, 2, Checkpoint(source).n_rows)
        biases = {name: bias.clone() for name in Checkpoint(source).bias_names}
        save_file(weights | biases, source / "model.safetensors", {"format": "pt"})
        result = expand(source, tmp_path / f"out {tied}")
        for name in biases:
            np.testing.assert_array_equal(result.after[name], np.append(bias.numpy(), np.full(N_NEW, -3, np.float32)))
        model = load(tmp_path / f"out {tied}", architecture)
        decoder = model.get_output_embeddings().weight[result.before.n_rows :].detach().numpy()
        np.testing.assert_array_equal(decoder, result.rows if tied else np.zeros_like(result.rows))
        with torch.no_grad():
            logits[tied] = model(ids).logits[..., result.before.n_rows :]
    torch.testing.assert_close(logits[False], torch.full_like(logits[False], -3))
    assert logits[True].std() > 0


def test_a_saved_copy_of_the_embedding_stays_one(tiny_model: TinyModel, tmp_path: Path) -> None:
    source = tiny_model("BertForMaskedLM")
    weights = load_file(source / "model.safetensors")
    embedding = weights["bert.embeddings.word_embeddings.weight"]
    copies = {
        "cls.predictions.decoder.weight": embedding.clone(),
        "cls.predictions.decoder.bias": weights["cls.predictions.bias"].clone(),
    }
    save_file({**weights, **copies}, source / "model.safetensors", {"format": "pt"})
    replaced = {9: np.full(32, 0.5, np.float32)}
    result = expand(source, tmp_path / "out", replaced=replaced)
    np.testing.assert_array_equal(result.after.embedding(), result.after["cls.predictions.decoder.weight"])
    np.testing.assert_array_equal(result.after["cls.predictions.bias"], result.after["cls.predictions.decoder.bias"])
    np.testing.assert_array_equal(result.after.embedding()[9], replaced[9])
    load(tmp_path / "out", "BertForMaskedLM")


def test_weights_with_old_names_get_those_of_today_and_no_byte_changes(tiny_model: TinyModel, tmp_path: Path) -> None:
    source = tiny_model("BertForMaskedLM")
    weights = load_file(source / "model.safetensors")
    old_names = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): weight
        for name, weight in weights.items()
    }
    extra = {
        "bert.embeddings.position_ids": torch.arange(160)[None],
        "odd.nan": torch.tensor([0x7FC01234, 0x7F800001], dtype=torch.int32).view(torch.float32),
        "odd.scalar": torch.tensor(3.0),
        "odd.mask": torch.tensor([True, False]),
    }
    save_file({**old_names, **extra}, source / "model.safetensors", {"format": "pt"})
    result = expand(source, tmp_path / "out")
    assert set(result.after.names) == {*weights, *extra}
    for name in result.after.names:
        if name not in vocabulary_weights(result.before):
            assert result.after[name].tobytes() == result.before[name].tobytes()
            assert result.after[name].shape == result.before[name].shape
    model = transformers.BertForMaskedLM.from_pretrained(tmp_path / "out")
    assert torch.equal(model.bert.embeddings.LayerNorm.weight, weights["bert.embeddings.LayerNorm.weight"])


def test_element_types(tiny_model: TinyModel, tmp_path: Path) -> None:
    source_type = torch.bfloat16
    source = tiny_model("BertForMaskedLM")
    weights = {name: weight.to(source_type) for name, weight in load_file(source / "model.safetensors").items()}
    counter = torch.tensor([1 << 40, -3])
    save_file({**weights, "counter": counter}, source / "model.safetensors", {"format": "pt"})
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps({**config, "dtype": str(source_type).removeprefix("torch.")}))
    result = expand(source, tmp_path / "out")

    written = load_file(tmp_path / "out" / "model.safetensors")
    assert torch.equal(written.pop("counter"), counter)
    n_rows = result.before.n_rows
    for name, weight in written.items():
        assert weight.dtype == source_type
        assert torch.equal(weight[: len(weights[name])], weights[name].to(source_type)), name
    # New rows are rounded once, not to the type of the old checkpoint first.
    assert torch.equal(written[result.before.embedding_name][n_rows:], torch.from_numpy(result.rows).to(source_type))
    assert transformers.BertForMaskedLM.from_pretrained(tmp_path / "out").dtype == source_type


def test_values_too_large_for_a_type_are_refused(tiny_model: TinyModel, tmp_path: Path) -> None:
    folder = tiny_model("BertModel")
    weights = {name: weight.half() for name, weight in load_file(folder / "model.safetensors").items()}
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    checkpoint = Checkpoint(folder)
    rows = new_rows(checkpoint)
    rows[2, 3] = 70_000
    with pytest.raises(InputError, match=r"word_embeddings\.weight has the value 70000, too large for float16"):
        write_expanded(checkpoint, rows, tmp_path / "out")


@pytest.mark.slow
def test_replaced_rows(tiny_model: TinyModel, tmp_path: Path) -> None:
    # 20 MB: the embedding is read in more than one block.
    source = tiny_model("BertForMaskedLM", tie_word_embeddings=False, width=256, vocab_size=20_000)
    checkpoint = Checkpoint(source)
    rows = (0, 17, 16_500, checkpoint.n_rows - 1)
    replaced = {row: np.full(checkpoint.dim, float(row), np.float32) for row in rows}
    result = expand(source, tmp_path / "out", replaced=replaced)
    expected = np.array(checkpoint.embedding())
    for row, value in replaced.items():
        expected[row] = value
    np.testing.assert_array_equal(result.after.embedding()[: checkpoint.n_rows], expected)
    decoder = "cls.predictions.decoder.weight"
    np.testing.assert_array_equal(result.after[decoder][: checkpoint.n_rows], checkpoint[decoder])


class Ones:
    """Rows made anew whenever they are read."""

    def __init__(self, n: int, dim: int) -> None:
        self.n, self.dim = n, dim

    def __iter__(self) -> Iterator[np.ndarray]:
        for _ in range(0, self.n, 1000):
            yield np.ones((1000, self.dim), np.float32)


def test_new_rows_are_never_all_in_memory(tiny_model: TinyModel, tmp_path: Path) -> None:
    n, dim = 60_000, 256
    checkpoint = Checkpoint(tiny_model("BertModel", width=dim, intermediate_size=8))
    rows = StreamedArray((n, dim), np.dtype(np.float32), Ones(n, dim))
    write_expanded(checkpoint, new_rows(checkpoint, 1), tmp_path / "first")  # what is imported on first use
    tracemalloc.start()
    write_expanded(checkpoint, rows, tmp_path / "out")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 0.1 * n * dim * 4
    embedding = Checkpoint(tmp_path / "out").embedding()
    assert embedding.shape == (checkpoint.n_rows + n, dim)
    assert (embedding[checkpoint.n_rows :] == 1).all()


@pytest.mark.slow
def test_sentence_transformers_loads_the_adapted_model(tiny_model: TinyModel) -> None:
    """With the base model's modules; texts without added words have the base model's vectors."""
    sentence_transformers = pytest.importorskip("sentence_transformers", reason="NOT TESTED: sentence-transformers")
    base = describe_sentences(tiny_model(initializer_range=0.1), "Pooling", "Dense", "Normalize")
    folder = add_words(base, base.parent / "adapted")
    assert [*folder.rglob("*.bin")] == []
    texts = [" ".join(words) for words in sentences(6, 0)]
    old, new = (sentence_transformers.SentenceTransformer(str(path), device="cpu") for path in (base, folder))
    assert [type(module).__name__ for module in new] == ["Transformer", "Pooling", "Dense", "Normalize"]
    has_word = [any(word in text.split() for word in NEW) for text in texts]
    differences = abs(old.encode(texts) - new.encode(texts)).max(axis=1)
    assert {*has_word} == {False, True}
    assert [difference > 1e-3 for difference in differences] == has_word
    np.testing.assert_allclose(differences[[not has for has in has_word]], 0, atol=1e-6)


def test_module_folders_are_plain_and_hold_no_pickle(tmp_path: Path) -> None:
    source, folder, outside = (tmp_path / name for name in ("source", "out", "outside"))
    for directory in (source / "2_Dense", folder, outside):
        directory.mkdir(parents=True)
    (outside / "config.json").write_text("{}")
    for name in ("config.json", "model.safetensors", "pytorch_model.bin", "code.py"):
        (source / "2_Dense" / name).write_text("{}")
    paths = ["", "2_Dense", "../outside", str(outside), "..", ".", "missing"]
    (source / "modules.json").write_text(json.dumps([{"path": path} for path in paths]))
    copy_side_files(source, folder)
    copied = sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())
    assert copied == ["2_Dense/config.json", "2_Dense/model.safetensors", "modules.json"]
    (source / "modules.json").write_text('{"a": 1}')
    with pytest.raises(InputError, match=r"modules\.json is not a JSON list"):
        copy_side_files(source, folder)
