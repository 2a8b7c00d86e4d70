"""Everything that reads a file which somebody else may have written, and a valid file of each kind."""

import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from greenadapt.errors import GreenadaptError
from greenadapt.progress import Silent

_ENOUGH = 2000


@dataclass(frozen=True)
class Reader:
    """A function of greenadapt, and the files that are changed for it."""

    name: str
    files: tuple[str, ...]
    """In the folder of the material, as patterns; one of them is changed each time."""
    read: Callable[[Path, str], Any]
    """Of the folder and the name of the changed file."""
    needs_models: bool = False

    def names(self, folder: Path) -> tuple[str, ...]:
        paths = (path for pattern in self.files for path in sorted(folder.glob(pattern)))
        return tuple(path.relative_to(folder).as_posix() for path in paths if path.is_file() and path.suffix != ".lock")


def _drain(entries: Iterable[Any]) -> None:
    """Take them all, up to an end that no valid file has."""
    for _, _ in zip(range(_ENOUGH), entries, strict=False):
        pass


def _corpus(kind: str | None) -> Callable[[Path, str], None]:
    def read(folder: Path, name: str) -> None:
        from greenadapt.corpus.readers import open_corpus
        from greenadapt.corpus.recipes import find_recipe

        recipe = find_recipe(str(folder / name), {"format": kind} if kind else {})
        for strict, lenient in ((False, True), (True, False)):
            with suppress(*([GreenadaptError] if not strict else [])):
                _drain(open_corpus(recipe, folder, strict=strict, lenient=lenient).documents())

    return read


def _documents(folder: Path, name: str) -> None:
    from greenadapt.inference.entries import read_texts

    _drain(read_texts(str(folder / name), Silent(), fields=("text", "title")))


def _vectors(folder: Path, name: str) -> None:
    from greenadapt.vectors.word_vectors import read_vectors

    read_vectors(folder / name)


def _arrays(folder: Path, name: str) -> None:
    from greenadapt.storage.arrays import ArrayFile

    file = ArrayFile(folder / name)
    for array_name in file.names:
        file[array_name].tobytes()


def _tokenizer(folder: Path, name: str) -> None:
    from greenadapt.tokenization.vocabulary import BaseVocabulary, WordSplitter, load_tokenizer

    words = WordSplitter.load(folder / name).split("The tachycardia of naïve \u202e [SEP] 日本 patients, 120/min\n\0")
    vocabulary = BaseVocabulary(load_tokenizer(folder / name))
    vocabulary.pieces(words)
    vocabulary.pieces_without_row(list(vocabulary.whole_words)[:20])


def _words(folder: Path, name: str) -> None:
    from greenadapt.checkpoints.reader import Checkpoint
    from greenadapt.tokenization.dual_tokenizer import DualTokenizer

    model = (folder / name).parent if "base_tokenizer" not in name else (folder / name).parent.parent
    tokenizer = DualTokenizer.of_model(model, Checkpoint.open(model).n_rows)
    tokenizer.added.all_surfaces()
    tokenizer.encode_batch(["The tachycardia of 🦠 coronavirus", ["dtypes", "", "\u200b"], "x" * 300])


def _model(folder: Path, name: str) -> None:
    from greenadapt.checkpoints.provenance import (
        base_id,
        check_model,
        licence_of,
        model_input,
        note_code,
        starting_model,
    )
    from greenadapt.checkpoints.sentence_modules import SentenceModules
    from greenadapt.checkpoints.writer import copy_side_files

    model = folder / Path(name).parts[0] / Path(name).parts[1]
    model_found = starting_model(str(model))
    for read in (base_id, licence_of, model_input):
        read(model_found)
    note_code(model_found, Silent())
    check_model(model_found, whole=True)
    SentenceModules.read(model)
    (folder / "copied").mkdir(exist_ok=True)
    copy_side_files(model, folder / "copied")


def _task(folder: Path, name: str) -> None:
    from greenadapt.models.task_folder import TaskFolder

    model = folder / Path(name).parts[0] / Path(name).parts[1]
    opened = TaskFolder.find(str(model), task="ill.1" if model.name == "many" else None)
    opened.task.settings()
    opened.task.head_config()


def _manifest(folder: Path, name: str) -> None:
    from greenadapt.checkpoints.source import require_whole
    from greenadapt.stages.status import check_result
    from greenadapt.storage.jobs import Place
    from greenadapt.storage.results import read_manifest, verified

    model = (folder / name).parent
    read_manifest(model)
    result = Place(model, linked=False).current()
    assert result is not None
    with suppress(GreenadaptError):
        require_whole(model)
    with suppress(GreenadaptError):
        verified(result)
    check_result(result, verify=True)


def _index(folder: Path, name: str) -> None:
    """What is found must be what the whole index finds."""
    from torture.material import INDEX, INDEX_ANSWERS, index_answers

    answers = index_answers(folder / INDEX)
    if answers != json.loads((folder / INDEX_ANSWERS).read_text("utf-8")):
        raise AssertionError(f"other paragraphs are found: {answers}")


def _old_index(folder: Path, name: str) -> None:
    """Vectors without a checksum may be others, but must be read where they are."""
    from torture.material import OLD_INDEX, index_answers

    index_answers(folder / OLD_INDEX)


def _index_to_update(folder: Path, name: str) -> None:
    from greenadapt.inference.search.store import FolderStore
    from torture.material import INDEX

    store = FolderStore(folder / INDEX)
    store.require_whole()
    store.facts()


def _compiled(folder: Path, name: str) -> None:
    from greenadapt.checkpoints.layout import GRAPHS, Compiled

    compiled = Compiled.read((folder / name).parent)
    assert compiled is not None
    assert compiled.backend in GRAPHS
    assert {"attention_mask", "token_type_ids", "position_ids"} >= {*compiled.inputs}


def _examples(task: str) -> Callable[[Path, str], None]:
    def read(folder: Path, name: str) -> None:
        from greenadapt.config import TaskConfig
        from greenadapt.tasks.base import make_task

        task_read = make_task(TaskConfig(task=task))  # type: ignore[arg-type]
        examples = task_read.read(str(folder / name), Silent())
        with suppress(GreenadaptError):  # which is about all the examples, not about a file
            fitted = task_read.fit(examples, Silent())
            fitted.labels_in(examples)
            fitted.settings()

    return read


def _entries(task: str) -> Callable[[Path, str], None]:
    def read(folder: Path, name: str) -> None:
        from greenadapt.config import TaskConfig
        from greenadapt.inference.entries import read_entries
        from greenadapt.tasks.base import make_task

        task_read = make_task(TaskConfig(task=task))  # type: ignore[arg-type]
        _drain(read_entries(task_read, str(folder / name), None, Silent()))

    return read


def _tasks_file(folder: Path, name: str) -> None:
    from greenadapt.tasks.tasks_file import read_tasks_file

    read_tasks_file(folder / name)


def _recipe(folder: Path, name: str) -> None:
    from greenadapt.corpus.recipes import find_recipe

    find_recipe(str(folder / name))


def _settings(folder: Path, name: str) -> None:
    from typer.main import get_command

    from greenadapt.cli import app
    from greenadapt.cli.settings import find_settings

    find_settings(get_command(app), "w2v", str(folder / name))


_M = "models"
READERS = {
    reader.name: reader
    for reader in (
        Reader("text", ("a.txt", "a.txt.gz", "a.txt.bz2", "a.txt.xz", "a.txt.zst"), _corpus(None)),
        Reader("jsonl", ("rows.jsonl",), _corpus(None)),
        Reader("csv", ("rows.csv", "rows.tsv"), _corpus(None)),
        Reader("xml", ("pubmed.xml", "jats.nxml"), _corpus(None)),
        Reader("cord19", ("parse.json", "cord.tar.gz"), _corpus("cord19")),
        Reader("pmc", ("article.txt",), _corpus("pmc")),
        Reader("archive", ("all.tar", "all.tar.gz"), _corpus(None)),
        Reader("documents", ("a.txt", "rows.jsonl", "rows.csv", "pubmed.xml", "parse.json", "all.tar.gz"), _documents),
        Reader("vectors", ("glove.txt", "w2v.vec", "w2v.bin", "w2v.bin.gz", "fast.bin"), _vectors),
        Reader("conll", ("words.conll", "train.tsv"), _examples("ner")),
        Reader("squad", ("squad.json",), _examples("qa")),
        Reader("labels", ("rows.jsonl", "rows.json", "rows.csv", "rows.tsv"), _examples("classification")),
        Reader("predict-ner", ("a.txt", "words.conll", "rows.jsonl"), _entries("ner")),
        Reader("predict-texts", ("a.txt", "rows.jsonl", "rows.json"), _entries("classification")),
        Reader("predict-qa", ("squad.json", "rows.jsonl"), _entries("qa")),
        Reader("index", ("index/*", "index/words/*", "index/vectors/*"), _index),
        Reader("index-to-update", ("index/*", "index/words/*", "index/vectors/*"), _index_to_update),
        Reader("old-index", ("old-index/vectors/*",), _old_index),
        Reader("compiled", ("compiled/compiled.json",), _compiled),
        Reader("tasks", ("tasks.toml",), _tasks_file),
        Reader("recipe", ("recipe.toml",), _recipe),
        Reader("settings", ("settings.toml",), _settings),
        Reader("safetensors", (f"{_M}/base/model.safetensors", f"{_M}/adapted/words.safetensors"), _arrays, True),
        Reader(
            "tokenizer",
            (f"{_M}/base/tokenizer.json", f"{_M}/bytelevel/tokenizer.json", f"{_M}/unigram/tokenizer.json"),
            _tokenizer,
            True,
        ),
        Reader(
            "words",
            (
                f"{_M}/adapted/words.safetensors",
                *(f"{_M}/adapted/base_tokenizer/{name}" for name in ("tokenizer.json", "tokenizer_config.json")),
            ),
            _words,
            True,
        ),
        Reader(
            "model",
            (
                *(
                    f"{_M}/adapted/{name}"
                    for name in ("config.json", "model.safetensors", "tokenizer_config.json", "greenadapt.json")
                ),
                *(f"{_M}/adapted/{name}" for name in ("modules.json", "1_Pooling/config.json", "README.md")),
                *(f"{_M}/shards/{name}" for name in ("model.safetensors.index.json", "config.json")),
            ),
            _model,
            True,
        ),
        Reader(
            "task",
            (
                *(f"{_M}/run/{name}" for name in ("task.json", "config.json", "manifest.json")),
                *(f"{_M}/many/{name}" for name in ("multitask.json", "scores.json", "tasks/ill.1/task.json")),
                f"{_M}/labels/task.json",
            ),
            _task,
            True,
        ),
        Reader("manifest", (f"{_M}/run/manifest.json", f"{_M}/many/manifest.json"), _manifest, True),
    )
}
