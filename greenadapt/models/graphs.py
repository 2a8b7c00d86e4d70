"""Compiled models, run by ONNX Runtime; torch is loaded only to compile one."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from greenadapt.checkpoints.layout import GRAPH_FILE, CompiledSettings, GraphInput
from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.errors import InputError, first_line, require
from greenadapt.models.rows import RowTable, read_table
from greenadapt.models.streaming import Block, Inference, Runner
from greenadapt.store.arrays import Array, Int64Array
from greenadapt.tasks.base import Features
from greenadapt.workers import usable_cores

Graph = Callable[[Mapping[str, Array]], Array]
"""The graph's inputs by name → ``logits``."""

# As many as a core's caches hold, see models/forward.py.
_BATCH_PIECES = 1 << 10
_NEEDS = "onnxruntime", "onnx", "onnxscript"
"""What runs graphs, and what else makes them."""


@dataclass(frozen=True, eq=False)
class GraphRunner(Runner):
    """A compiled model: the graph reads rows of the embedding, which are looked up in the table on disk
    for each block.
    """

    graph: Graph
    inputs: tuple[str, ...]
    """See ``Compiled.inputs``."""
    table: RowTable
    checkpoint: Checkpoint
    head: str
    pad_id: int
    threads: int
    is_background = True
    """The graph runs outside Python's lock, so that outputs are used meanwhile."""

    @property
    def batch_pieces(self) -> int:
        """What the caches of all cores hold."""
        return _BATCH_PIECES * self.threads

    @contextmanager
    def open(self, block: Block, settings: Inference) -> Iterator[Callable[[Features], Array]]:
        """The graph, with the rows of the block."""
        rows = self.table.read(block.ids)
        row_of = np.zeros(block.ids[-1] + 1, np.int64)
        row_of[block.ids] = np.arange(len(block.ids))

        def call(inputs: Features) -> Array:
            ids = inputs.pad(inputs.ids, self.pad_id)
            arguments = {"inputs_embeds": rows[row_of[ids]], "attention_mask": inputs.mask}
            if "token_type_ids" in self.inputs:
                arguments["token_type_ids"] = inputs.pad(inputs.types, 0)
            if "position_ids" in self.inputs:
                arguments["position_ids"] = _positions(ids, self.pad_id)
            if settings.memory is not None:
                arguments |= settings.memory.read(inputs)
            logits = self.graph(arguments)
            return logits if logits.ndim == 3 else logits[:, None]

        yield call


def graph_inputs(checkpoint: Checkpoint) -> tuple[GraphInput, ...]:
    """The inputs of a model's graph after ``inputs_embeds``.

    A model that counts positions from the id of padding on cannot find padding without ids.
    """
    config = checkpoint.config
    names: list[GraphInput] = ["attention_mask"]
    if checkpoint.architecture.has_segments and int(config.get("type_vocab_size") or 0) > 1:
        names.append("token_type_ids")
    if checkpoint.architecture.counts_from_padding:
        names.append("position_ids")
    return tuple(names)


def require_onnx(purpose: str, *, to_compile: bool) -> None:
    """Raise ``MissingError`` if the packages that run graphs, or make them, are not installed."""
    require("compile", *_NEEDS[: None if to_compile else 1], by=purpose)


def open_graph(folder: Path, n_outputs: int) -> GraphRunner:
    """The graph of a compiled model; raises ``InputError`` if it is broken, or has not ``n_outputs`` logits."""
    compiled = CompiledSettings.read(folder)
    assert compiled is not None
    checkpoint, table = read_table(folder)
    file = folder / GRAPH_FILE
    if not file.is_file():
        raise InputError(f"{folder} has no {file.name}", "copy the whole folder, or compile the model again")
    threads = _threads()
    graph = _open(file, threads, n_outputs)
    pad = int(checkpoint.config.get("pad_token_id") or 0)
    return GraphRunner(graph, compiled.inputs, table, checkpoint, compiled.head, pad, threads)


def _threads() -> int:
    """``OMP_NUM_THREADS``, a number or a list with one per level of nesting; by default the usable cores."""
    number = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return int(number) if number.isdecimal() and int(number) > 0 else usable_cores()


def _open(file: Path, threads: int, n_outputs: int) -> Graph:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.spin_duration_us", "20")  # as GOMP_SPINCOUNT for torch
    if not has_vnni():
        # The fast kernel for int8 adds pairs of products in 16 bits there, which overflow.
        options.add_session_config_entry("session.x64quantprecision", "1")
    try:
        # Sum and normalization in a single step take eight times as long as normalization alone.
        session = onnxruntime.InferenceSession(
            file, options, providers=["CPUExecutionProvider"], disabled_optimizers=["SkipLayerNormFusion"]
        )
    except Exception as error:  # its own types, which have no common one
        raise InputError(f"{file} cannot be run ({first_line(error)})", "compile the model again") from None
    if (width := session.get_outputs()[0].shape[-1]) != n_outputs:
        raise InputError(
            f"{file} has {width} outputs, the task has {n_outputs}", "copy the whole folder, or compile the model again"
        )

    def graph(inputs: Mapping[str, Array]) -> Array:
        return session.run(["logits"], dict(inputs))[0]

    return graph


def has_vnni(system: Path = Path("/")) -> bool:
    """Whether Linux says that the processor sums products of int8 numbers in 32 bits (VNNI); elsewhere ``False``."""
    try:
        return "vnni" in (system / "proc/cpuinfo").read_text("utf-8", "replace")
    except OSError:
        return False


def _positions(ids: Int64Array, pad_id: int) -> Int64Array:
    """As transformers' ``create_position_ids_from_input_ids``: (b, n)."""
    is_piece = ids != pad_id
    return is_piece.cumsum(axis=1) * is_piece + pad_id
