"""``doctor``: the installed packages and the machine."""

import os
import platform
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from greenadapt.errors import byte_size, is_installed
from greenadapt.store.workspace import Workspace
from greenadapt.version import __version__
from greenadapt.workers import usable_cores

State = Literal["ok", "missing", "problem"]
_EXTRAS = {
    "train": (("torch", "transformers", "accelerate", "scikit-learn"), "fine-tuning and pre-training"),
    "vectors": (("gensim",), "word vectors of other programs"),
    "hub": (("datasets",), "data sets of the hub"),
    "sentencepiece": (("sentencepiece", "protobuf"), "models with a SentencePiece file and no tokenizer.json"),
    "search": (("tantivy",), "index, search and qa --index"),
    "report": (("vl-convert-python",), "the page of report"),
    "serve": (("fastapi", "uvicorn"), "serve"),
    "compile": (("onnxruntime", "onnx", "onnxscript"), "compile and its models"),
    "cluster": (("ray",), "--cluster"),
}
"""The packages of each extra, and their purpose."""

_LITTLE_DISK = 1 << 30


@dataclass(frozen=True)
class Check:
    """One line of ``doctor``."""

    check: str
    state: State
    """``problem`` if greenadapt cannot work without it, ``missing`` if only some commands need it."""
    found: str
    advice: str = ""


def doctor(workspace: Workspace) -> Iterator[Check]:
    """Yield every check as soon as it is done; imports torch only if it is installed."""
    yield Check("greenadapt", "ok", f"{__version__} in {Path(__file__).parents[1]}")
    yield Check("python", "ok", f"{platform.python_version()}, {platform.system()} {platform.machine()}")
    for extra, (packages, purpose) in _EXTRAS.items():
        yield _extra(extra, packages, purpose)
    yield _gpu()
    yield Check("cores", "ok", f"{usable_cores()} of {os.cpu_count() or 1}")
    yield _disk(workspace.root)


def _extra(extra: str, packages: Sequence[str], purpose: str) -> Check:
    versions = {name: _version(name) for name in packages}
    installed = ", ".join(f"{name} {number}" for name, number in versions.items() if number is not None)
    missing = ", ".join(name for name, number in versions.items() if number is None)
    if not missing:
        return Check(extra, "ok", installed)
    text = f"{installed}; {missing} not installed" if installed else f"{missing} not installed"
    return Check(extra, "missing", text, f'for {purpose}: pip install "greenadapt[{extra}]"')


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _gpu() -> Check:
    if not is_installed("torch"):
        return Check("GPU", "missing", "not known without torch", "only training uses one")
    try:
        import torch

        if torch.cuda.is_available():
            devices = (torch.cuda.get_device_properties(number) for number in range(torch.cuda.device_count()))
            gpus = ", ".join(f"{device.name} with {byte_size(device.total_memory)}" for device in devices)
            return Check("GPU", "ok", gpus)
        if torch.backends.mps.is_available():
            return Check("GPU", "ok", "Apple's, through MPS")
    except Exception as error:  # a broken driver or installation may raise anything
        return Check("GPU", "missing", f"torch fails: {error}", "install torch again, in a build for this machine")
    return Check("GPU", "missing", "none that torch can use", "training uses the CPU; adapting a model needs no GPU")


def _disk(folder: Path) -> Check:
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    if not os.access(existing, os.W_OK):
        return Check("workspace", "problem", f"{folder} cannot be written", "choose another with --workspace")
    free = shutil.disk_usage(existing).free
    if free < _LITTLE_DISK:
        return Check("workspace", "problem", f"{byte_size(free)} free in {folder}", "free some space: greenadapt clean")
    return Check("workspace", "ok", f"{byte_size(free)} free in {folder}")
