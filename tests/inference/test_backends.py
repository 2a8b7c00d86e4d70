"""Models run by ONNX Runtime, against the same models in torch float32."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
import transformers
from onnx import helper, numpy_helper

import greenadapt
from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.config import CompileConfig, ReadingOptions, TaskConfig
from greenadapt.errors import InputError, MissingError, UsageError
from greenadapt.inference.models import OpenedModel
from greenadapt.models import graph_export, graphs
from greenadapt.models.forward import TorchRunner
from greenadapt.models.graphs import GraphRunner, has_vnni, open_graph
from greenadapt.models.streaming import Inference, stream_task
from greenadapt.models.task_folder import TaskFolder
from greenadapt.models.weights import InferenceModel, open_task_model
from greenadapt.stages.compile import compile_model
from greenadapt.stages.session import Session
from greenadapt.store.arrays import write_arrays
from greenadapt.store.files import hash_file
from greenadapt.store.workspace import Workspace
from greenadapt.tasks.base import Feature, Item, make_task
from tests.conftest import Notes, tiny_model_in
from tests.support.small_tasks import FAMILIES, TASK_MODELS, expand, sentences

pytestmark = pytest.mark.slow  # a model is exported
LABELS = ("O", "B-Disease", "I-Disease")
NER = replace(make_task(TaskConfig(task="ner")), labels=LABELS)


@pytest.fixture(scope="module", autouse=True)
def exported_once() -> Iterator[None]:
    """A model is exported once in this file; quantizing and running it is done each time."""
    graphs: dict[str, bytes] = {}
    export = graph_export.export_plain

    def once(exported: InferenceModel, inputs: tuple[str, ...], file: Path) -> None:
        weights = hash_file(exported.checkpoint.folder / "model.safetensors")
        if weights not in graphs:
            export(exported, inputs, file)
            graphs[weights] = file.read_bytes()
        file.write_bytes(graphs[weights])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graph_export, "export_plain", once)
        yield


@pytest.fixture(scope="module")
def tagger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT with added words that tags words; its weights are random.

    A number that has no effect is large in the few pieces where the first one before it is positive, else 0.
    """
    folder = tmp_path_factory.mktemp("tagger")
    config: Any = {"num_labels": 3, "num_hidden_layers": 1, "initializer_range": 0.3}
    base = tiny_model_in(folder, "BertForTokenClassification", name="base", **config)
    model = expand(base, folder / "model")
    opened = transformers.BertForTokenClassification.from_pretrained(model)
    last = opened.bert.encoder.layer[-1]
    with torch.no_grad():
        last.intermediate.dense.weight[0] = torch.eye(opened.config.hidden_size)[0] * 3000
        last.intermediate.dense.bias[0] = 0
        last.output.dense.weight[:, 0] = 0
    opened.save_pretrained(model)
    (model / "task.json").write_text(json.dumps({**NER.settings(), "pool": "mean", "max_length": 32}))
    return model


def compiled(model: Path, out: Path, **config: Any) -> Path:
    compile_model(Session(Workspace(out.parent / "ws"), Notes(), out=out), str(model), CompileConfig(**config))
    return out


@pytest.fixture(scope="module")
def served(tagger: Path) -> Path:
    """The same, compiled for ONNX Runtime."""
    return compiled(tagger, tagger.parent / "served")


TEXTS = [" ".join(words) for words in sentences(30, 0)]


def logits_of(folder: Path, task: str | None = None, **options: Any) -> list[np.ndarray]:
    """The pooled logits of each text."""
    opened = OpenedModel.open(TaskFolder.open(str(folder), task=task), ReadingOptions(**options))
    examples = (opened.task.example(text, "here") for text in TEXTS)
    return [logits for _, logits in opened.logits(opened.inputs(examples))]


@pytest.mark.parametrize("options", [{"pool": "mean"}, {"margin": 0.03}])
def test_a_compiled_model_gives_the_same_logits(tagger: Path, served: Path, options: dict[str, Any]) -> None:
    for ours, torchs in zip(logits_of(served, **options), logits_of(tagger, **options), strict=True):
        np.testing.assert_allclose(ours, torchs, atol=1e-4, rtol=0)


def test_threads_are_those_that_openmp_uses(served: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3,2")
    opened = OpenedModel.open(TaskFolder.open(str(served)), ReadingOptions()).runner
    assert isinstance(opened, GraphRunner)
    assert opened.threads == 3


def test_the_graph_names_no_file_of_the_machine(served: Path) -> None:
    assert b".py" not in (served / "model.onnx").read_bytes()


def test_it_is_read_and_scored_without_torch(tagger: Path, served: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    gold = [{"tokens": text.split(), "tags": (list(LABELS) * 9)[: len(text.split())]} for text in TEXTS]
    (tmp_path / "gold.jsonl").write_text("\n".join(map(json.dumps, gold)))
    classes = tmp_path / "classes"
    shutil.copytree(served, classes)
    (classes / "manifest.json").unlink()
    (classes / "task.json").write_text(
        json.dumps(replace(make_task(TaskConfig(task="classification")), labels=LABELS).settings())
    )
    commands = [
        ["predict", "-m", str(served), "-i", "texts.txt", "-o", "tags.jsonl"],
        ["evaluate", "-m", str(served), "--test", "gold.jsonl", "--json"],
        ["evaluate", "-m", str(classes), "--test", "gold.jsonl"],
    ]
    code = (
        "import sys; from greenadapt.cli import app\n"
        "sys.modules |= dict.fromkeys(('torch', 'transformers', 'accelerate', 'sklearn', 'onnx'))\n"  # not installed
        f"for command in {commands}:\n try: app(command)\n except SystemExit as end: print(end.code)\n"
    )
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    predicting, scores, *codes = finished.stdout.splitlines()
    assert [predicting, *codes] == ["0", "0", "1"]
    assert len((tmp_path / "tags.jsonl").read_text().splitlines()) == len(TEXTS)
    torchs = greenadapt.load(tagger).evaluate(tmp_path / "gold.jsonl")
    assert json.loads(scores)["mean"] == torchs["mean"]
    assert "scikit-learn" in finished.stderr


def test_plain_onnxruntime_loads_the_graph(tagger: Path, served: Path) -> None:
    import onnxruntime

    session = onnxruntime.InferenceSession(served / "model.onnx")
    assert [output.name for output in session.get_outputs()] == ["logits"]
    model = transformers.AutoModelForTokenClassification.from_pretrained(tagger).eval()
    inputs = {"attention_mask": np.array([[1] * 7, [1] * 4 + [0] * 3]), "token_type_ids": np.zeros((2, 7), np.int64)}
    ids = torch.arange(14).reshape(2, 7) + 5
    rows = model.get_input_embeddings()(ids).detach()
    [logits] = session.run(["logits"], {"inputs_embeds": rows.numpy(), **inputs})
    with torch.no_grad():
        expected = model(input_ids=ids, **{name: torch.from_numpy(array) for name, array in inputs.items()}).logits
    np.testing.assert_allclose(logits[0], expected[0], atol=1e-4, rtol=0)
    np.testing.assert_allclose(logits[1, :4], expected[1, :4], atol=1e-4, rtol=0)


@pytest.mark.slow
def test_int8_is_near_and_a_piece_with_large_numbers_does_not_spoil_the_others(tagger: Path, tmp_path: Path) -> None:
    small = compiled(tagger, tmp_path / "int8", quantize="int8")
    assert '"int8"' in (small / "compiled.json").read_text()
    together = logits_of(small)
    pairs = zip(logits_of(small, pool="base"), logits_of(tagger, pool="base"), strict=True)
    differences = np.concatenate([np.abs(a - b).max(axis=1) for a, b in pairs])
    assert differences.max() > 1e-5
    assert np.median(differences) < 0.1
    opened = OpenedModel.open(TaskFolder.open(str(small)), ReadingOptions())
    for text, logits in zip(TEXTS[:5], together, strict=False):
        [(_, alone)] = opened.logits(opened.inputs([opened.task.example(text, "here")]))
        np.testing.assert_allclose(alone, logits, atol=1e-4)


@pytest.mark.long
def test_sums_of_large_products_do_not_overflow(tmp_path: Path) -> None:
    """On x86 without VNNI ONNX Runtime's fast kernel adds two products, of up to 255 · 127, in 16 bits."""
    rows = np.ones((1, 4, 64), np.float32)
    rows[..., 0] = 0
    kinds = {name: helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name, shape in (
        ("x", ["b", "n", 64]), ("logits", ["b", "n", 3]))}  # fmt: skip
    product = helper.make_node("MatMul", ["x", "weight"], ["logits"])
    weight = numpy_helper.from_array(np.ones((64, 3), np.float32), "weight")
    graph = helper.make_graph([product], "product", [kinds["x"]], [kinds["logits"]], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.save(graph_export.quantize_products(model), tmp_path / "model.onnx")
    logits = graphs._open(tmp_path / "model.onnx", 1, 3)({"x": rows})
    np.testing.assert_allclose(logits, 63, rtol=0.01)


@pytest.mark.parametrize(("flags", "expected"), [("avx2 avx512_vnni", True), ("avx2", False), (None, False)])
def test_fast_products_of_int8_are_for_processors_that_do_not_overflow(
    tmp_path: Path, flags: str | None, expected: bool
) -> None:
    if flags:
        (tmp_path / "proc").mkdir()
        (tmp_path / "proc/cpuinfo").write_text(f"flags\t\t: fpu {flags}\n")
    assert has_vnni(tmp_path) == expected


def examples_of(checkpoint: Checkpoint, head: str) -> Iterator[Item]:
    """Random inputs of many lengths, and one with a padding piece within."""
    draw = np.random.default_rng(0)
    for n in (1, 5, 17, 30, 30):
        ids = draw.integers(0, checkpoint.n_rows, n).astype(np.int32)
        types = np.sort(draw.integers(0, 1 + checkpoint.architecture.has_segments, n)).astype(np.int32)
        units = np.zeros(1, np.int32) if head == "SequenceClassification" else np.arange(n, dtype=np.int32)
        feature = [Feature(ids, types, units)]
        yield Item(feature, feature, len(units))


HEAD_OF = {
    family: [head for name, head in TASK_MODELS if name == family][i % 3 - 1] for i, family in enumerate(FAMILIES)
}


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_every_architecture(family: str, tmp_path: Path) -> None:
    head = HEAD_OF[family]
    folder = tiny_model_in(tmp_path, f"{family}For{head}", num_labels=2, initializer_range=0.3)
    model = open_task_model(folder)
    graph_export.write_graph(model, "none", folder).write(folder)
    write_arrays(folder / "embedding.safetensors", {model.checkpoint.embedding_name: model.checkpoint.embedding()})
    graph = open_graph(folder, 2)
    run = Inference(64, graph.pad_id, pool="base")
    examples = list(examples_of(model.checkpoint, head))
    expected = stream_task(TorchRunner(model.model, model.rows), examples, run)
    for ours, torchs in zip(stream_task(graph, examples, run), expected, strict=True):
        np.testing.assert_allclose(ours.base, torchs.base, atol=1e-4, rtol=0)


def test_what_is_refused(tagger: Path, served: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a compiled model"):
        open_task_model(served)
    with pytest.raises(UsageError, match=r"--precision bfloat16, but .* is compiled"):
        greenadapt.load(served, reading=ReadingOptions(precision="bfloat16")).predict(TEXTS)
    with pytest.raises(InputError, match="is compiled already"):
        compiled(served, tmp_path / "again")
    with pytest.raises(MissingError, match=r"no task\.json: give the folder that finetune wrote"):
        compiled(tiny_model_in(tmp_path, "BertModel"), tmp_path / "encoder")
    with_memory = shutil.copytree(tagger, tmp_path / "with-memory")
    (with_memory / "task.json").write_text(json.dumps({**NER.settings(), "memory": {"general": {}}}))
    with pytest.raises(UsageError, match=r"a memory \(G-MAP\)"):
        compiled(with_memory, tmp_path / "gmap")


@pytest.mark.slow
@pytest.mark.long
def test_one_of_several_tasks_is_compiled(two_tasks: Path, tmp_path: Path) -> None:
    """Its adapter is in the graph, and the folder has one task."""
    served = compiled(two_tasks, tmp_path / "served", task="ner")
    for ours, torchs in zip(logits_of(served), logits_of(two_tasks, "ner"), strict=True):
        np.testing.assert_allclose(ours, torchs, atol=1e-4, rtol=0)


def test_a_broken_graph_is_named(served: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(served, broken)
    (broken / "manifest.json").unlink()
    (broken / "model.onnx").write_bytes(b"no graph")
    with pytest.raises(InputError, match=r"model\.onnx cannot be run"):
        logits_of(broken)
