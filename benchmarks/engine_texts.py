"""The texts that ``engines.py`` trains on: each is made once, and memory-mapped by every run.

What a text is, is said by a dictionary: ``{"corpus": path, "bytes": size, "model": name}``, a file split as a model
splits it; ``{"zipf": n_words, "tokens": n}``, words drawn by 1 / rank; ``{"planted": seed, "tokens": n}``, see
``planted.py``.
"""

import shutil
from pathlib import Path

import numpy as np
import planted
import word2vec_c

from greenadapt.checkpoints.source import find_model
from greenadapt.config import CorpusConfig
from greenadapt.corpus.prepared import STREAM_FILE, VOCABULARY_FILE, PreparedCorpus, prepare_corpus, write_vocabulary
from greenadapt.corpus.readers import open_corpus
from greenadapt.corpus.recipes import find_recipe
from greenadapt.progress import Silent
from greenadapt.storage.arrays import Array, write_arrays
from greenadapt.storage.files import Json, hash_json

_LINE = 25  # words of random text


def made(text: Json, work: Path, is_written: bool) -> Path:
    """The folder of ``text`` in ``work``, a ``PreparedCorpus``; where ``is_written`` also as word2vec.c reads it."""
    folder = work / f"text-{hash_json(text)[:12]}"
    if not folder.is_dir():
        part = folder.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        _make(text, part)
        part.replace(folder)
    if is_written and not text_file(folder).is_file():
        word2vec_c.write_text(PreparedCorpus.open(folder), text_file(folder))
    return folder


def text_file(folder: Path) -> Path:
    """Where word2vec.c finds the text."""
    return folder / "text.txt"


def _make(text: Json, folder: Path) -> None:
    if "corpus" in text:
        _split(Path(text["corpus"]), text["model"], folder)
    elif "planted" in text:
        ids = planted.drawn(text["planted"], text["tokens"])
        _write(planted.words(), ids.ravel(), ids.shape[1], folder)
    else:
        _write([str(word) for word in range(text["zipf"])], _by_rank(text["zipf"], text["tokens"]), _LINE, folder)


def _split(path: Path, model: str, folder: Path) -> None:
    reading = open_corpus(find_recipe(str(path)), folder)
    splitter, config = find_model(model).folder, CorpusConfig()
    prepare_corpus(reading.documents(), splitter, folder, config, workers=2, max_memory=2 << 30, progress=Silent())


def _by_rank(n_words: int, n_tokens: int) -> Array:
    shares = np.cumsum(1 / np.arange(1, n_words + 1))
    return np.searchsorted(shares / shares[-1], np.random.default_rng(0).random(n_tokens))


def _write(words: list[str], ids: Array, line: int, folder: Path) -> None:
    """``ids`` in lines of ``line`` words, and after them each word once that is not among them.

    Without these a side that counts its words itself, as word2vec.c does, would have smaller tables.
    """
    ids = np.append(ids, np.flatnonzero(np.bincount(ids, minlength=len(words)) == 0))
    counts = np.bincount(ids, minlength=len(words))
    order = np.argsort(-counts, kind="stable")
    rank = np.empty(len(words), np.int32)
    rank[order] = np.arange(len(words))
    write_vocabulary(folder / VOCABULARY_FILE, [words[i] for i in order.tolist()], counts[order])
    lines = np.append(np.arange(0, len(ids), line), len(ids))
    write_arrays(folder / STREAM_FILE, {"ids": rank[ids], "lines": lines})
