"""How a model's folder was created, its entry in a manifest, and its task's files."""

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
    is_multitask,
    read_described,
    task_names,
)
from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.checkpoints.source import PretrainedModel, find_model, hub_id, id_of_folder
from greenadapt.progress import Progress
from greenadapt.storage.files import Json, expanded, hash_file, hash_json
from greenadapt.tokenization.added_words import WORDS_FILE
from greenadapt.tokenization.export import copy_tokenizers
from greenadapt.tokenization.files import (
    FILES_OF_SETTINGS,
    SETTINGS_FILE,
    TOKENIZER_FILE,
    VocabularyFolder,
    read_settings,
    tokenizer_files,
)

_COMMIT = re.compile(r"[0-9a-f]{40}")
_FRONT_MATTER = re.compile(r"\s*---\n(.*?)\n---[ \t]*(?:\n|$)", re.DOTALL)


def read_facts(folder: Path) -> Json | None:
    """How an adapted model's folder was created; ``None`` for any other folder.

    Raises ``InputError`` if the file lacks the names of the model and the corpus.
    """
    file = folder / FACTS_FILE
    if not file.is_file():
        return None
    return read_described(file)


def base_id(model: PretrainedModel) -> str | None:
    """The hub id of the pretrained model that ``model`` is or was adapted from, if known."""
    made = read_facts(model.folder)
    return hub_id(made["model"]["source"] if made else model.source) or id_of_folder(model.folder)


def licence_of(model: PretrainedModel) -> Json:
    """The entries of a model's card that state its licence, as the hub reads them; empty if it states none."""
    import yaml  # not huggingface_hub, which takes ten times as long to import

    card = model.folder / "README.md"
    try:
        front = _FRONT_MATTER.match(card.read_text("utf-8-sig")) if card.is_file() else None
        stated = yaml.safe_load(front[1]) if front else None
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        stated = None  # the card is another program's, and only its licence is of interest
    names = ("license", "license_name", "license_link")
    return (
        {name: stated[name] for name in names if isinstance(stated.get(name), str)} if isinstance(stated, dict) else {}
    )


def reads_sentences(folder: Path) -> bool:
    """Whether a model's folder has added words, and ``sentence-transformers`` loads it."""
    return (folder / WORDS_FILE).is_file() and (folder / "modules.json").is_file()


def starting_model(model: str) -> PretrainedModel:
    """The model, with a name that includes its corpus, and with the path that the user gave; see ``find_model``."""
    found = find_model(model)
    made = read_facts(found.folder)
    if made is None:
        return found
    given = expanded(model)
    source = str(given.absolute()) if given.is_dir() else found.source
    return replace(found, name=f"{made['model']['name']}-{made['corpus']}", source=source)


def adapted_input(model: PretrainedModel) -> Json:
    """``model_input`` of a model that may have added words, a task, or several, and a memory."""
    return _with_files(model, [*_encoder_files(model.folder), *_task_files(model.folder)])


def encoder_input(model: PretrainedModel) -> Json:
    """``adapted_input`` without what the model's tasks add to their shared encoder."""
    return _with_files(model, _encoder_files(model.folder))


def _with_files(model: PretrainedModel, files: list[Path]) -> Json:
    entry = model_input(model)
    if files:
        entry["sha256"] = hash_json([entry["sha256"], *map(hash_file, files)])
    return entry


def _encoder_files(folder: Path) -> list[Path]:
    files = [folder / name for name in (WORDS_FILE, TASK_FILE, MEMORY_FILE)]
    weights = [file for file in _memory_files(folder) if file.suffix == ".safetensors"]
    return [path for path in [*files, *weights] if path.is_file()]


def _memory_files(folder: Path) -> list[Path]:
    """The configuration and the weights, in one file or several, of a model's own memory."""
    general = folder / MEMORY_FOLDER
    return sorted([*general.glob("config.json"), *general.glob("model*.safetensors*")])


def task_input(folder: Path) -> Json | None:
    """The task of the fine-tuned model in ``folder``, as an input in a manifest; ``None`` if it has none."""
    files = [path for path in (folder / TASK_FILE, *_task_files(folder)) if path.is_file()]
    if not files:
        return None
    hashes = [hash_file(path) for path in files]
    return {"sha256": hashes[0] if len(files) == 1 else hash_json(hashes), "path": str(files[0])}


def _task_files(folder: Path) -> list[Path]:
    """For a model of several tasks: their list, and each task's settings and weights."""
    if not is_multitask(folder):
        return []
    tasks = [folder / TASKS / name / file for name in task_names(folder) for file in (TASK_FILE, WEIGHTS_FILE)]
    return [path for path in (folder / MULTITASK_FILE, *tasks) if path.is_file()]


def copy_task(source: Path, folder: Path) -> None:
    """Copy the task or tasks of the fine-tuned model in ``source``, if any, and its memory's files."""
    for path in _task_files(source):
        copied = folder / path.relative_to(source)
        copied.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copied)
    for name in (TASK_FILE, MEMORY_FILE):
        if (source / name).is_file():
            shutil.copyfile(source / name, folder / name)
    if (general := source / MEMORY_FOLDER).is_dir():
        (folder / MEMORY_FOLDER).mkdir()
        copy_tokenizers(general, folder / MEMORY_FOLDER)
        for file in _memory_files(source):
            shutil.copyfile(file, folder / MEMORY_FOLDER / file.name)


def model_facts(model: PretrainedModel) -> Json:
    """A model's entry in a manifest, by which later stages find it."""
    return {"name": model.name, "source": model.source}


def check_model(model: PretrainedModel, *, whole: bool = False, generative: bool = False) -> Checkpoint:
    """Open a model's weights, and refuse early what would later fail or spoil the result.

    Raises ``InputError`` or ``MissingError`` for broken files and for NaN or infinity in the embedding, or in any
    weight if the ``whole`` model will be copied or trained, and for a generative language model unless ``generative``.
    """
    checkpoint = Checkpoint.open(model.folder, generative=generative)
    checkpoint.require_finite(None if whole else [checkpoint.embedding_name])
    return checkpoint


def model_input(model: PretrainedModel) -> Json:
    """A model as an input in a manifest: a hash of its files that count, and the commit of one from the hub."""
    names = ("config.json", *FILES_OF_SETTINGS)
    present = [model.folder / name for name in names if (model.folder / name).is_file()]
    weights = Checkpoint.open(model.folder, generative=True).files
    files = {*present, *tokenizer_files(model.folder), *weights}
    entry = {"sha256": hash_json({path.name: hash_file(path) for path in files}), "source": model.source}
    if model.folder.parent.name == "snapshots" and _COMMIT.fullmatch(model.folder.name):  # in the hub's cache
        entry["revision"] = model.folder.name
    return entry


def note_lowercasing(model: PretrainedModel, progress: Progress) -> None:
    """Report if a model without ``tokenizer.json`` may be cased, and nothing says so."""
    if not (model.folder / TOKENIZER_FILE).is_file() and VocabularyFolder.find(model.folder).may_be_cased:
        progress.note(
            f"vocab.txt of {model.name} has capitals, but no {SETTINGS_FILE} says do_lower_case: texts are lower-cased "
            "as by transformers; if the model is cased, give a copy of its folder in which that file is "
            '{"do_lower_case": false}'
        )


def note_code(model: PretrainedModel, progress: Progress) -> None:
    """Report which files of ``model`` name code (``auto_map``), which is not copied."""
    named = {
        "config.json": Checkpoint.open(model.folder, generative=True).names_code,
        "tokenizer_config.json": "auto_map" in read_settings(model.folder),
    }
    if files := [name for name, names_code in named.items() if names_code]:
        progress.note(f"left out auto_map of {model.name}'s {' and '.join(files)}: it names code, which is never run")
