"""``compile`` and ``export``: a model for ONNX Runtime, and word vectors for other programs."""

import shutil
from dataclasses import asdict
from functools import partial
from pathlib import Path

import numpy as np

from greenadapt.checkpoints.layout import (
    EMBEDDING_FILE,
    FACTS_FILE,
    GRAPH_FILE,
    TASK_FILE,
    WORD_VECTORS_FILE,
    CompiledSettings,
)
from greenadapt.checkpoints.provenance import adapted_input, model_facts
from greenadapt.checkpoints.source import PretrainedModel, find_model
from greenadapt.config import CompileConfig
from greenadapt.errors import InputError, UsageError, require_torch
from greenadapt.inference.models import open_in_torch
from greenadapt.models.graphs import require_onnx
from greenadapt.models.task_folder import TaskFolder
from greenadapt.stages.align import open_vectors, trained_vectors
from greenadapt.stages.session import COMPILE, W2V, Session
from greenadapt.store.arrays import StreamedArray, write_arrays
from greenadapt.store.files import Json, write_json
from greenadapt.store.outputs import check_file
from greenadapt.store.results import Job, Outcome, Result
from greenadapt.tokenization.export import copy_tokenizers
from greenadapt.vectors.word_vectors import write_vectors

_LEFT_OUT = ("tasks", "adapter")
"""Settings of a shared encoder, which a compiled task does not have."""


def compile_model(session: Session, model: str, config: CompileConfig) -> Result:
    """Write a model for ONNX Runtime into the session's ``out``, with tokenizers, added words, embedding and task.

    Raises ``UsageError`` for a model with a memory, for a model of several tasks if none is named, and without
    ``session.out``, ``MissingError`` for a model without a task and if a package that compiles is not installed.
    """
    if session.out is None:
        raise UsageError("no output folder", "give one with --out")
    require_torch("compiling")
    require_onnx("compiling", to_compile=True)
    source = find_model(model)
    session.check_out(COMPILE, _settings(config))
    task = _task(source, config)
    build = partial(_write, source, task, config)
    return session.run(Job(COMPILE, _settings(config), {"model": adapted_input(source)}), build)


def _settings(config: CompileConfig) -> Json:
    """The settings, and the version of ONNX Runtime that the graph was made for."""
    import onnxruntime

    return {**asdict(config), "onnxruntime": onnxruntime.__version__}


def _task(source: PretrainedModel, config: CompileConfig) -> TaskFolder:
    if CompiledSettings.read(source.folder) is not None:
        raise InputError(f"{source.source} is compiled already", "give the model that it was made from")
    task = TaskFolder.open(str(source.folder), config.seed, config.task)
    if task.settings.get("memory") is not None:
        raise UsageError(f"{task.folder} has a memory (G-MAP), which ONNX Runtime does not run", "use it as it is")
    return task


def _write(source: PretrainedModel, task: TaskFolder, config: CompileConfig, work: Path) -> Outcome:
    from greenadapt.models.graph_export import write_graph

    model = open_in_torch([task])
    write_graph(model, config.quantize, work).write(work)
    checkpoint, table = model.checkpoint, model.rows.table
    rows = StreamedArray(table.embedding.shape, np.dtype("<f4"), table.blocks())
    write_arrays(work / EMBEDDING_FILE, {checkpoint.embedding_name: rows})
    write_json(work / "config.json", checkpoint.config)
    copy_tokenizers(source.folder, work)
    if task.settings:
        write_json(work / TASK_FILE, {name: value for name, value in task.settings.items() if name not in _LEFT_OUT})
    names = [FACTS_FILE, *([WORD_VECTORS_FILE] if task.settings.get("word_vectors") else [])]
    for file in (source.folder / name for name in names):
        if file.is_file():
            shutil.copyfile(file, work / file.name)
    graph_bytes, embedding_bytes = ((work / name).stat().st_size for name in (GRAPH_FILE, EMBEDDING_FILE))
    counts = {"rows": checkpoint.n_rows, "graph_bytes": graph_bytes, "embedding_bytes": embedding_bytes}
    return Outcome(counts, {"model": model_facts(source)})


_SUFFIXES = (".bin", ".vec", ".txt")


def export_vectors(
    session: Session, file: Path, corpus: str | None, model: str | None, vectors: Path | None = None
) -> Json:
    """Write the vectors of a corpus, or those in ``vectors``, to ``file`` in the format of its suffix.

    Raises ``UsageError`` for an unknown suffix and for vectors of another corpus or model, and what ``check_file``
    raises.
    """
    if not file.name.removesuffix(".gz").endswith(_SUFFIXES):
        raise UsageError(f"{file} has an unknown suffix", "use .bin, .vec or .txt, optionally with .gz")
    if vectors is not None and not vectors.is_dir() and not (corpus is None and model is None):
        raise UsageError("--vectors FILE excludes --corpus and --model", "leave them out")
    check_file(file)
    if vectors is None:
        loaded = trained_vectors(session.find_only(corpus, model, W2V)).vectors
    else:
        loaded = open_vectors(session, vectors, corpus, model).vectors
    write_vectors(loaded, file)
    return {"file": str(file), "words": len(loaded.words), "dim": loaded.dim}
