"""How many weights the adapters of many tasks add to an encoder, without training or downloading."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from greenadapt.architectures import stated_type
from greenadapt.checkpoints.source import PACKAGED, find_model
from greenadapt.config import ADAPTERS, AdapterConfig
from greenadapt.errors import MissingError, UsageError, first_line, require_torch
from greenadapt.storage.files import Json, expanded, read_object
from greenadapt.storage.hub import hub_answers

if TYPE_CHECKING:
    from greenadapt.models.adapters.kinds import AdapterCount

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
