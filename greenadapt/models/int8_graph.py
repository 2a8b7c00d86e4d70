"""A graph in ONNX whose products by weights are computed in integers of 8 bits."""

from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnxruntime.quantization.onnx_model import ONNXModel

from greenadapt.storage.arrays import Array

_CONSTANTS: dict[str, Array] = {
    "last_axis": np.array([-1]),
    "tiny": np.array(np.finfo(np.float32).tiny),  # in place of 0, where all numbers of a row are equal
    "step": np.array(1 / 255, np.float32),
    "zero": np.array(0, np.uint8),
}


def in_int8(model: onnx.ModelProto) -> onnx.ModelProto:
    """The graph with each product x W, W constant, from x in 255 steps from the smallest to the largest number of each
    row, and W in 127 steps from 0 to ±max|W| of each column:

        x W ≈ range · scale / 255 · round(255 (x - min) / range) round(W / scale) + min · sums

    with range = max - min of the row, scale = max|W| / 127 of the column, and sums the sums of the columns of
    scale · round(W / scale). Nothing is calibrated, and no row has an effect on another. (ONNX Runtime's own dynamic
    quantization has one step for a batch, by which rows of small numbers are lost beside one of large numbers.)
    """
    ONNXModel(model).replace_gemm_with_matmul()
    nodes, weights = [*model.graph.node], {tensor.name: tensor for tensor in model.graph.initializer}
    graph = _Graph(model)
    for node in nodes:
        if node.op_type == "MatMul" and node.input[1] in weights:
            graph.add_product(node, numpy_helper.to_array(weights[node.input[1]]))
        else:
            model.graph.node.append(node)
    used = {name for node in model.graph.node for name in node.input}
    kept = [tensor for name, tensor in weights.items() if name in used]
    model.graph.initializer.extend(
        [*kept, *(numpy_helper.from_array(value, name) for name, value in graph.constants.items())]
    )
    return model


class _Graph:
    """The graph of a model, emptied, to which nodes are added in order; ``constants`` are those of the products."""

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
        """Add what all products of the same x share."""
        self._rows.add(rows)
        low = self._add("ReduceMin", [rows, "last_axis"], f"{rows}_min")
        high = self._add("ReduceMax", [rows, "last_axis"], f"{rows}_max")
        width = self._add("Max", [self._add("Sub", [high, low], f"{rows}_width"), "tiny"], f"{rows}_range")
        share = self._add("Div", [self._add("Sub", [rows, low], f"{rows}_above"), width], f"{rows}_share")
        self._add("QuantizeLinear", [share, "step", "zero"], f"{rows}_steps")

    def _add(self, kind: str, given: list[str], result: str, **attributes: Any) -> str:
        self._nodes.append(helper.make_node(kind, given, [result], name=result, **attributes))
        return result
