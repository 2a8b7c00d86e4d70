"""Torch models written as graphs for ONNX Runtime, without their embedding, in float32 or in int8."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper
from onnxruntime.quantization.onnx_model import ONNXModel

from greenadapt.checkpoints.layout import GRAPH_FILE, CompiledSettings
from greenadapt.config import Quantize
from greenadapt.errors import ResourceError, first_line
from greenadapt.models.graphs import graph_inputs
from greenadapt.models.weights import InferenceModel
from greenadapt.models.word_vector_map import WordVectorMap
from greenadapt.models.word_vectors import KEYWORD
from greenadapt.store.arrays import Array

_OPSET = 20  # has GELU


class _Logits(torch.nn.Module):
    """One output for every head: (b, n, k), or (b, k) with one per text."""

    def __init__(self, model: Any, task: str | None) -> None:
        super().__init__()
        self.model = model
        self._named = {} if task is None else {"task": task}

    def forward(
        self,
        inputs_embeds: torch.Tensor,
        attention_mask: torch.Tensor,
        token_type_ids: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        word_vectors: torch.Tensor | None = None,
    ) -> torch.Tensor:
        optional = {"token_type_ids": token_type_ids, "position_ids": position_ids, KEYWORD: word_vectors}
        arguments = {name: value for name, value in optional.items() if value is not None} | self._named
        output = self.model(inputs_embeds=inputs_embeds, attention_mask=attention_mask, **arguments)
        if "start_logits" in output:
            return torch.stack([output["start_logits"], output["end_logits"]], dim=-1)
        return output["logits"]


def write_graph(exported: InferenceModel, quantize: Quantize, folder: Path) -> CompiledSettings:
    """Write the graph of a model into ``folder``; raises ``ResourceError`` if the disk is full.

    In int8 the weights of matrix products have one scale per output, and their inputs one scale per piece, computed at
    run time (dynamic quantization, see ``quantize_products``). There is no calibration, and no text has an effect on
    another text of its batch.
    """
    inputs = graph_inputs(exported.checkpoint)
    if _vector_map(exported) is not None:
        inputs = (*inputs, "word_vectors")
    plain = folder / "plain.onnx"
    with _quiet():
        export_plain(exported, inputs, plain)
        _write(plain, quantize, folder / GRAPH_FILE)
    for file in folder.glob(f"{plain.name}*"):
        file.unlink()
    return CompiledSettings(quantize, exported.head, inputs)


def export_plain(exported: InferenceModel, inputs: tuple[str, ...], file: Path) -> None:
    """Write the graph of a model in ONNX and float32, with any number of inputs of any length."""
    model = exported.model.eval()
    (model if exported.task is None else model.encoder).set_attn_implementation("eager")
    b, n, pad = 2, 8, int(exported.checkpoint.config.get("pad_token_id") or 0)
    arguments = {
        "inputs_embeds": torch.zeros(b, n, exported.checkpoint.dim),
        "attention_mask": torch.ones(b, n, dtype=torch.int64),
        "token_type_ids": torch.zeros(b, n, dtype=torch.int64),
        "position_ids": torch.arange(pad + 1, pad + 1 + n).repeat(b, 1),
    }
    if (vectors := _vector_map(exported)) is not None:
        arguments[KEYWORD] = torch.zeros(b, n, vectors.weight.shape[1])
    arguments = {name: arguments[name] for name in ("inputs_embeds", *inputs)}
    program: Any = torch.onnx.export(
        _Logits(model, exported.task).eval(),
        kwargs=arguments,
        dynamic_shapes={name: {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC} for name in arguments},
        input_names=list(arguments),
        output_names=["logits"],
        opset_version=_OPSET,
        dynamo=True,
        verbose=False,
    )
    for node in program.model.graph.all_nodes():  # they contain paths of source files
        node.metadata_props.clear()
    program.save(file)


def _vector_map(exported: InferenceModel) -> WordVectorMap | None:
    model = exported.model if exported.task is None else exported.model.encoder
    memory = getattr(model, "memory", None)
    return memory if isinstance(memory, WordVectorMap) else None


def _write(plain: Path, quantize: Quantize, file: Path) -> None:
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        model = onnx.load(plain)
        if quantize == "int8":
            model = quantize_products(model)
        onnx.save(model, file)
    except (ValueError, DecodeError) as error:  # what the exporter wrote to a full disk is cut, without an error
        raise ResourceError(
            f"{plain}, the exported graph, cannot be read ({first_line(error)})", "free some space on the disk"
        ) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the output of exporters on stdout and stderr."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings(), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


_CONSTANTS: dict[str, Array] = {
    "last_axis": np.array([-1]),
    "tiny": np.array(np.finfo(np.float32).tiny),  # in place of 0, where all numbers of a row are equal
    "step": np.array(1 / 255, np.float32),
    "zero": np.array(0, np.uint8),
}


def quantize_products(model: onnx.ModelProto) -> onnx.ModelProto:
    """The graph with each product x W, W constant, from x in 255 steps from the smallest to the largest number of each
    row, and W in 127 steps from 0 to ±max|W| of each column:

        x W ≈ range · scale / 255 · round(255 (x - min) / range) round(W / scale) + min · sums

    with range = max - min of the row, scale = max|W| / 127 of the column, and sums the sums of the columns of
    scale · round(W / scale). There is no calibration, and no row has an effect on another. (The dynamic quantization of
    ONNX Runtime has one step per batch, so rows of small numbers are lost beside a row of large numbers.)
    """
    ONNXModel(model).replace_gemm_with_matmul()
    nodes, weights = [*model.graph.node], {tensor.name: tensor for tensor in model.graph.initializer}
    graph = _Graph(model)
    for node in nodes:
        if node.op_type == "MatMul" and node.input[1] in weights:
            graph.add_product(node, numpy_helper.to_array(weights[node.input[1]]))
        else:
            model.graph.node.append(node)
    names = {name for node in model.graph.node for name in node.input}
    model.graph.initializer.extend(tensor for name, tensor in weights.items() if name in names)
    model.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in graph.constants.items())
    return model


class _Graph:
    """Empties the graph of a model, and adds nodes in order; ``constants`` are those of the products."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._nodes = model.graph.node
        self.constants = dict(_CONSTANTS)
        self._rows = set[str]()
        del model.graph.node[:], model.graph.initializer[:]

    def add_product(self, product: onnx.NodeProto, weight: Array) -> None:
        """Add the nodes for one product; ``weight`` is W (m, k)."""
        (rows, name), result = product.input, product.output[0]
        if rows not in self._rows:
            self._add_rows(rows)
        scale = np.maximum(np.abs(weight).max(axis=0), np.finfo(np.float32).tiny) / np.float32(127)
        steps = np.rint(weight / scale)
        self.constants[f"{name}_steps"] = steps.astype(np.int8)
        self.constants[f"{name}_scale"] = (scale / 255).astype(np.float32)
        self.constants[f"{name}_sums"] = (steps * scale).sum(axis=0).astype(np.float32)
        integers = self._add("MatMulInteger", [f"{rows}_steps", f"{name}_steps"], f"{result}_integers")
        numbers = self._add("Cast", [integers], f"{result}_numbers", to=onnx.TensorProto.FLOAT)
        shares = self._add("Mul", [numbers, f"{name}_scale"], f"{result}_shares")
        above = self._add("Mul", [shares, f"{rows}_range"], f"{result}_above")
        self._add("Add", [above, self._add("Mul", [f"{rows}_min", f"{name}_sums"], f"{result}_min")], result)

    def _add_rows(self, rows: str) -> None:
        """Add the nodes that all products of the same x share."""
        self._rows.add(rows)
        low = self._add("ReduceMin", [rows, "last_axis"], f"{rows}_min")
        high = self._add("ReduceMax", [rows, "last_axis"], f"{rows}_max")
        width = self._add("Max", [self._add("Sub", [high, low], f"{rows}_width"), "tiny"], f"{rows}_range")
        share = self._add("Div", [self._add("Sub", [rows, low], f"{rows}_above"), width], f"{rows}_share")
        self._add("QuantizeLinear", [share, "step", "zero"], f"{rows}_steps")

    def _add(self, kind: str, inputs: list[str], result: str, **attributes: Any) -> str:
        self._nodes.append(helper.make_node(kind, inputs, [result], name=result, **attributes))
        return result
