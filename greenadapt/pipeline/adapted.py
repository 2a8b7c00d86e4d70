"""Adapted models: where they are, what their folders say of how they were made, and what makes them adapted."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

from greenadapt.added_words import WORDS_FILE
from greenadapt.errors import UsageError
from greenadapt.export import copy_tokenizers
from greenadapt.model import PretrainedModel, find_model
from greenadapt.pipeline.session import EXPAND, Session, model_input
from greenadapt.store import Json, hash_file, hash_json
from greenadapt.training.layout import MEMORY_FILE, MEMORY_FOLDER, TASK_FILE

FACTS_FILE = "greenadapt.json"
_MODEL_FILES = ("config.json", "model.safetensors")


def read_facts(folder: Path) -> Json | None:
    """What an adapted model's folder says of how it was made; ``None`` where it is none."""
    facts = folder / FACTS_FILE
    return dict(json.loads(facts.read_text("utf-8"))) if facts.is_file() else None


def starting_model(model: str) -> PretrainedModel:
    """The model, by a name that says what it was adapted to, and by the path that the user gave; see ``find_model``."""
    found = find_model(model)
    made = read_facts(found.folder)
    if made is None:
        return found
    return replace(found, name=f"{made['model']['name']}-{made['corpus']}", source=str(Path(model).absolute()))


def adapted_model(session: Session, corpus: str | None, model: str | None) -> str:
    """``model`` itself, or the adapted one of ``corpus`` in the workspace; raises ``UsageError`` for neither."""
    if corpus is not None:
        name = session.corpus_name(corpus)
        return str(session.find(name, session.model_name(name, model), EXPAND).path)
    if model is None:
        raise UsageError("no model", "give a folder with --model, or the corpus it was adapted to with --corpus")
    return model


def adapted_input(model: PretrainedModel) -> Json:
    """``model_input`` of a model that may have added words, a task and a memory."""
    entry = model_input(model)
    names = (WORDS_FILE, TASK_FILE, MEMORY_FILE, f"{MEMORY_FOLDER}/model.safetensors")
    files = [path for name in names if (path := model.folder / name).is_file()]
    if files:
        entry["sha256"] = hash_json([entry["sha256"], *map(hash_file, files)])
    return entry


def copy_task(source: Path, folder: Path) -> None:
    """Copy what makes the model in ``source`` a fine-tuned one, if it is: its task, and what it has of a memory."""
    for name in (TASK_FILE, MEMORY_FILE):
        if (source / name).is_file():
            shutil.copyfile(source / name, folder / name)
    if (general := source / MEMORY_FOLDER).is_dir():
        (folder / MEMORY_FOLDER).mkdir()
        copy_tokenizers(general, folder / MEMORY_FOLDER)
        for name in _MODEL_FILES:
            if (general / name).is_file():
                shutil.copyfile(general / name, folder / MEMORY_FOLDER / name)
