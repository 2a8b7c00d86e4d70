"""List the tasks that share a folder's encoder, remove one, and count the weights of adapters."""

import re
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from greenadapt.architectures import stated_type
from greenadapt.checkpoints.layout import (
    SCORES,
    SEEDS,
    TASKS,
    WEIGHTS_FILE,
    n_weights,
    read_described,
    require_multitask,
    require_tasks,
    task_names,
)
from greenadapt.checkpoints.source import PACKAGED, find_model, require_whole
from greenadapt.config import ADAPTERS, AdapterConfig
from greenadapt.errors import ConflictError, MissingError, UsageError, first_line, require_torch
from greenadapt.models.task_folder import read_task
from greenadapt.storage.files import Json, beside, described_in, expanded, read_object, real_folder, replace_json
from greenadapt.storage.hub import hub_answers
from greenadapt.storage.locks import lock
from greenadapt.storage.ownership import added_files
from greenadapt.storage.results import MANIFEST, read_manifest

if TYPE_CHECKING:
    from greenadapt.models.adapters.kinds import AdapterCount


_MOVED = re.compile(r"\..+-[0-9a-f]{8}\.removed")
"""What a task's folder is called until it is deleted: a random name, which nobody else has."""


@dataclass(frozen=True)
class ListedTask:
    """One of several tasks."""

    name: str
    kind: str
    """``ner``, ``classification`` or ``qa``."""
    adapter: str
    metric: str
    weights: int
    """The number of its own parameters."""
    bytes: int
    """Size of their file."""
    is_added: bool
    """Whether it was added after the encoder was trained."""
    scores: Json
    """``dev`` and ``test``, if there are any, by set: ``mean`` over the seeds and, of several, ``std``."""


def list_tasks(folder: Path) -> list[ListedTask]:
    """The tasks of ``folder``; raises ``UsageError`` if it has no shared encoder."""
    require_multitask(folder)
    require_whole(folder)
    return [_listed(folder, name) for name in task_names(folder)]


def remove_task(folder: Path, name: str) -> None:
    """Remove a task from ``folder``, with its weights of all seeds; nothing else changes.

    Its files are removed from the manifest before the first one is deleted, so that the folder is valid at any moment.
    Raises ``UsageError`` if the folder has no shared encoder, ``MissingError`` listing the tasks if it has no such
    task, ``ConflictError`` if it has no other, or if somebody else put a file into the task's folder.
    """
    folder = real_folder(folder)
    require_multitask(folder)
    with lock(beside(folder, "lock"), folder):
        require_tasks(folder, [name])
        if len(task_names(folder)) == 1:
            raise ConflictError(
                f"{name} is the only task of {folder}", "delete the folder, or add another task with finetune --add-to"
            )
        gone = [folder / TASKS / name]
        if not read_task(folder, name).is_added:
            # The file that lists the task is removed last, so that the command can be repeated after a kill.
            gone = [*(seed / TASKS / name for seed in sorted((folder / SEEDS).glob("*"))), *gone]
            _refuse_added(folder, gone)
            _forget_files(folder, gone)
        else:
            _refuse_added(gone[0], gone)
        for path in gone:
            if path.is_dir():  # atomically: others see all of it or nothing
                path.rename(path.with_name(f".{name}-{uuid4().hex[:8]}.removed"))
        end_removals(folder)


def end_removals(folder: Path) -> None:
    """Delete what removals, killed ones included, have moved aside; the caller holds the folder's lock."""
    for base in (folder, *(folder / SEEDS).glob("*")):
        for hidden in (base / TASKS).glob(".*"):
            if _MOVED.fullmatch(hidden.name):
                shutil.rmtree(hidden)


def _listed(folder: Path, name: str) -> ListedTask:
    described = read_task(folder, name)
    own = folder / TASKS / name
    file = (own if described.is_added else folder) / SCORES
    scores: Json = {}
    if file.is_file():
        with described_in(file, "train the model again"):
            scores = read_described(file)["tasks"].get(name, {})
    return ListedTask(
        name=name,
        kind=described.task.name,
        adapter=described.adapter.adapter,
        metric=str(described.settings.get("metric", described.task.main)),
        weights=n_weights(own),
        bytes=(own / WEIGHTS_FILE).stat().st_size,
        is_added=described.is_added,
        scores=scores,
    )


def _refuse_added(result: Path, gone: list[Path]) -> None:
    """Raise ``ConflictError`` if a file below ``gone`` is not one of ``result``, the folder with the manifest."""
    if not (result / MANIFEST).is_file():
        return
    below = tuple(f"{path.relative_to(result).as_posix()}/".removeprefix("./") for path in gone)
    if not any(name.startswith(below) for name in read_manifest(result).files):
        return  # a removal that was killed has taken them out of the manifest
    if added := [name for name in added_files(result) if name.startswith(below)]:
        raise ConflictError(f"{result / added[0]} is a file that greenadapt did not write", "move it away first")


def _forget_files(folder: Path, gone: list[Path]) -> None:
    """Write the manifest without the files below ``gone``, atomically."""
    if not (folder / MANIFEST).is_file():
        return
    manifest = read_manifest(folder)
    below = tuple(f"{path.relative_to(folder).as_posix()}/" for path in gone)
    files = {name: entry for name, entry in manifest.files.items() if not name.startswith(below)}
    replace_json(folder / MANIFEST, asdict(replace(manifest, files=files)))


METHODS = (
    *map(AdapterConfig, ADAPTERS),
    *(AdapterConfig("pals", layers=half) for half in ("top", "bottom")),
)
"""Every method at the paper's sizes."""


def count_params(model: str | None, adapters: Sequence[AdapterConfig], n_tasks: int) -> list[Json]:
    """One row for each of ``adapters``, with those of ``n_tasks`` tasks beside the encoder of ``model``.

    ``adapter``, ``placement``, ``form``, ``size`` and ``heads`` (``None`` if there are none), ``layers`` (from 1),
    ``weights`` of one task as the paper counts, without biases and layer norms, and ``all_weights`` of all tasks, what
    they share once;
    ``parameters`` and ``all_parameters`` with these; ``base_parameters`` of the encoder with its pooler, and ``ratio``
    of both together to it. Heads are not counted. Without ``model`` it is BERT-base; of a hub id only its configuration
    is downloaded. Raises ``MissingError`` for an unknown model, ``InputError`` if its configuration is invalid,
    ``UsageError`` if model and adapters do not fit.
    """
    require_torch("counting the weights of adapters")
    from greenadapt.models.adapters.kinds import BERT_BASE, count_adapter, n_parameters, shaped_encoder

    if n_tasks < 1:
        raise UsageError(f"--tasks is {n_tasks}, must be at least 1")
    path = None if model is None else config_file(model)
    settings = BERT_BASE if path is None else read_object(path, "model folder", "download the model again")
    if path is not None and (kind := stated_type(settings, {file.name for file in path.parent.iterdir()})):
        settings["model_type"] = kind
    encoder = shaped_encoder(settings, str(path))
    base = n_parameters(encoder)
    return [_row(count_adapter(config, encoder), base, n_tasks) for config in adapters]


def config_file(model: str) -> Path:
    """The ``config.json`` of a folder, of ``minilm`` or ``mpnet``, or of a hub id.

    Raises ``MissingError`` if there is none.
    """
    folder = expanded(model)
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise MissingError(f"{folder} has no config.json", "give a folder that save_pretrained wrote")
        return folder / "config.json"
    if model in PACKAGED:
        return find_model(model).folder / "config.json"
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        with hub_answers():
            return Path(hf_hub_download(model, "config.json"))
    except (HFValidationError, HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise MissingError(
            f"there is no model folder {model}, and no config.json of it could be fetched ({first_line(error)})",
            "give an existing folder, a hub id such as org/name, or minilm",
        ) from None


def _row(count: "AdapterCount", base: int, n_tasks: int) -> Json:
    config, shape = count.config, count.shape
    all_weights = n_tasks * (count.weights - count.shared_weights) + count.shared_weights
    all_parameters = n_tasks * (count.parameters - count.shared_parameters) + count.shared_parameters
    return {
        "adapter": config.adapter,
        "placement": config.placement,
        "form": config.form,
        "size": shape.size or None,
        "heads": shape.heads or None,
        "layers": [layer + 1 for layer in shape.layers],
        "tasks": n_tasks,
        "weights": count.weights,
        "all_weights": all_weights,
        "parameters": count.parameters,
        "all_parameters": all_parameters,
        "base_parameters": base,
        "ratio": (base + all_parameters) / base,
    }
