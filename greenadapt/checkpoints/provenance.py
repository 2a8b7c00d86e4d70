"""How a model was created, its entry in a manifest, and the files of its tasks."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

from greenadapt.checkpoints.layout import (
    FACTS_FILE,
    MEMORY_FILE,
    MEMORY_FOLDER,
    MULTITASK_FILE,
    TASK_FILE,
    TASKS,
    WEIGHTS_FILE,
    WORD_VECTORS_FILE,
    is_multitask,
    read_described,
    task_names,
)
from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.checkpoints.source import PretrainedModel, find_model, hub_id, id_of_folder
from greenadapt.progress import Progress
from greenadapt.store.files import Json, expand_home, hash_file, hash_json
from greenadapt.tokenization.added_words import WORDS_FILE
from greenadapt.tokenization.export import copy_tokenizers
from greenadapt.tokenization.files import (
    FILES_OF_SETTINGS,
    SETTINGS_FILE,
    TOKENIZER_FILE,
    read_settings,
    tokenizer_files,
)

_COMMIT = re.compile(r"[0-9a-f]{40}")
_FRONT_MATTER = re.compile(r"\s*---\n(.*?)\n---[ \t]*(?:\n|$)", re.DOTALL)


def read_facts(folder: Path) -> Json | None:
    """Read how an adapted model was created; ``None`` for another folder.

    Raises ``InputError`` if the file lacks the model or the corpus.
    """
    file = folder / FACTS_FILE
    return read_described(file) if file.is_file() else None


def base_id(model: PretrainedModel) -> str | None:
    """The hub id of ``model``, or of the pretrained model that it was adapted from, if known."""
    facts = read_facts(model.folder)
    return hub_id(facts["model"]["source"] if facts else model.source) or id_of_folder(model.folder)


def licence_of(model: PretrainedModel) -> Json:
    """The licence entries in the front matter of a model's card; empty if there are none."""
    import yaml  # huggingface_hub takes ten times as long to import

    card = model.folder / "README.md"
    try:
        front = _FRONT_MATTER.match(card.read_text("utf-8-sig")) if card.is_file() else None
        metadata = yaml.safe_load(front[1]) if front else None
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        metadata = None  # an invalid card of another program counts as one without licence
    if not isinstance(metadata, dict):
        return {}
    names = ("license", "license_name", "license_link")
    return {name: metadata[name] for name in names if isinstance(metadata.get(name), str)}


def reads_sentences(folder: Path) -> bool:
    """Whether ``folder`` is an expanded model of ``sentence-transformers``."""
    return (folder / WORDS_FILE).is_file() and (folder / "modules.json").is_file()


def starting_model(model: str) -> PretrainedModel:
    """Find a model; the name of an adapted model includes its corpus, and its source is the user's path."""
    pretrained = find_model(model)
    facts = read_facts(pretrained.folder)
    if facts is None:
        return pretrained
    path = expand_home(model)
    source = str(path.absolute()) if path.is_dir() else pretrained.source
    return replace(pretrained, name=f"{facts['model']['name']}-{facts['corpus']}", source=source)


def adapted_input(model: PretrainedModel) -> Json:
    """``model_input``, including added words, tasks and memory."""
    entry = model_input(model)
    if files := [*_encoder_files(model.folder), *_task_files(model.folder)]:
        entry["sha256"] = hash_json([entry["sha256"], *map(hash_file, files)])
    return entry


def _encoder_files(folder: Path) -> list[Path]:
    files = [folder / name for name in (WORDS_FILE, TASK_FILE, MEMORY_FILE, WORD_VECTORS_FILE)]
    weights = [file for file in _memory_files(folder) if file.suffix == ".safetensors"]
    return [path for path in [*files, *weights] if path.is_file()]


def _memory_files(folder: Path) -> list[Path]:
    """The configuration and weights of a model's trained memory."""
    general = folder / MEMORY_FOLDER
    return sorted([*general.glob("config.json"), *general.glob("model*.safetensors*")])


def task_input(folder: Path) -> Json | None:
    """The manifest entry of the task of the fine-tuned model in ``folder``; ``None`` if it has no task."""
    files = [path for path in (folder / TASK_FILE, *_task_files(folder)) if path.is_file()]
    if not files:
        return None
    hashes = [hash_file(path) for path in files]
    return {"sha256": hashes[0] if len(files) == 1 else hash_json(hashes), "path": str(files[0])}


def _task_files(folder: Path) -> list[Path]:
    """The list of tasks of a multitask model, and the settings and weights of each task."""
    if not is_multitask(folder):
        return []
    tasks = [folder / TASKS / name / file for name in task_names(folder) for file in (TASK_FILE, WEIGHTS_FILE)]
    return [path for path in (folder / MULTITASK_FILE, *tasks) if path.is_file()]


def copy_task(source: Path, folder: Path) -> None:
    """Copy the tasks and the memory of the model in ``source``, if any."""
    for path in _task_files(source):
        copied = folder / path.relative_to(source)
        copied.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copied)
    for name in (TASK_FILE, MEMORY_FILE, WORD_VECTORS_FILE):
        if (source / name).is_file():
            shutil.copyfile(source / name, folder / name)
    if (general := source / MEMORY_FOLDER).is_dir():
        (folder / MEMORY_FOLDER).mkdir()
        copy_tokenizers(general, folder / MEMORY_FOLDER)
        for file in _memory_files(source):
            shutil.copyfile(file, folder / MEMORY_FOLDER / file.name)


def model_facts(model: PretrainedModel) -> Json:
    """The name and source of a model in a manifest, by which later stages find it."""
    return {"name": model.name, "source": model.source}


def check_model(model: PretrainedModel, *, whole: bool = False) -> Checkpoint:
    """Open a model's weights, and check them before they are used.

    Raises ``InputError`` or ``MissingError`` for broken files, for NaN or infinity in the embedding (in any weight if
    ``whole``, for models that are copied or trained).
    """
    checkpoint = Checkpoint(model.folder)
    checkpoint.require_finite(None if whole else [checkpoint.embedding_name])
    return checkpoint


def model_input(model: PretrainedModel) -> Json:
    """The manifest entry of a model: a hash of its relevant files, and the commit of a model from the hub."""
    names = ("config.json", *FILES_OF_SETTINGS)
    present = [model.folder / name for name in names if (model.folder / name).is_file()]
    weights = Checkpoint(model.folder).files
    files = {*present, *tokenizer_files(model.folder), *weights}
    entry = {"sha256": hash_json({path.name: hash_file(path) for path in files}), "source": model.source}
    if model.folder.parent.name == "snapshots" and _COMMIT.fullmatch(model.folder.name):  # in the hub's cache
        entry["revision"] = model.folder.name
    return entry


def note_lowercasing(model: PretrainedModel, progress: Progress) -> None:
    """Warn that a model without ``tokenizer.json`` is lower-cased by default although it may be cased."""
    if (model.folder / TOKENIZER_FILE).is_file() or "do_lower_case" in read_settings(model.folder):
        return
    vocabulary = model.folder / "vocab.txt"
    entries = vocabulary.read_text("utf-8", "replace").splitlines() if vocabulary.is_file() else []
    if any(entry != entry.lower() for entry in entries if entry[:1] not in "[<"):
        progress.note(
            f"vocab.txt of {model.name} has capitals, but no {SETTINGS_FILE} says do_lower_case: texts are lower-cased "
            "as by transformers; if the model is cased, give a copy of its folder in which that file is "
            '{"do_lower_case": false}'
        )
