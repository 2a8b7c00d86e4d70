"""The prepared corpus: a vocabulary with counts, and the text as word numbers, its lines in random order."""

import shutil
from array import array
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from greenadapt.config import CorpusConfig
from greenadapt.corpus.heldout import HELDOUT, without_heldout
from greenadapt.corpus.merging import added_positions, merged_lines
from greenadapt.corpus.opening import Document
from greenadapt.corpus.seen import SeenDocuments, read_seen, write_seen
from greenadapt.corpus.shuffle import LineFile, Shuffle, write_array
from greenadapt.corpus.stream import DocumentLog, Numbering, make_batches, split_batches
from greenadapt.corpus.word_counts import read_vocabulary, write_vocabulary
from greenadapt.errors import InputError, MissingError, ResourceError
from greenadapt.progress import Progress, Silent
from greenadapt.storage.arrays import (
    Array,
    ArrayFile,
    BoolArray,
    Int32Array,
    Int64Array,
    Streamed,
    UInt64Array,
    write_arrays,
)
from greenadapt.tokenization.splitter import WordSplitter, load_tokenizer
from greenadapt.wording import byte_size, counted

VOCABULARY_FILE = "vocabulary.tsv"
STREAM_FILE = "words.safetensors"
MIN_MEMORY = 64 << 20
DISK_PER_TEXT_BYTE = 2
"""Approximate bytes on disk per byte of text: at the peak, each word is stored twice in four bytes."""


class PreparedCorpus:
    """A folder that ``prepare_corpus`` wrote, read lazily.

    ``ids``, int32 ``(n_tokens,)``, are rows of ``words``; line ``i`` is ``ids[lines[i]:lines[i + 1]]``, with ``lines``
    int64 ``(n_lines + 1,)``. Both are memory-mapped.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stream_file = folder / STREAM_FILE
        arrays = ArrayFile(self.stream_file)
        self.ids: Int32Array = arrays["ids"]
        self.lines: Int64Array = arrays["lines"]
        self.n_tokens = len(self.ids)
        self.n_lines = len(self.lines) - 1
        if self.n_lines < 0 or self.lines[-1] != self.n_tokens:
            raise InputError(
                f"{arrays.path}: its lines end elsewhere than at its {self.n_tokens} words", "prepare it again"
            )

    @classmethod
    def open(cls, folder: Path) -> "PreparedCorpus":
        """Open ``folder``; raises ``MissingError`` if it holds no prepared corpus."""
        for name in (VOCABULARY_FILE, STREAM_FILE):
            if not (folder / name).is_file():
                raise MissingError(f"{folder} holds no prepared corpus: no {name}", "run greenadapt corpus prepare")
        return cls(folder)

    @property
    def words(self) -> list[str]:
        """The words, most frequent first, ties in code point order."""
        return self._vocabulary[0]

    @property
    def counts(self) -> Int64Array:
        """How often each word occurs, int64 ``(n_words,)``."""
        return self._vocabulary[1]

    @cached_property
    def documents(self) -> UInt64Array:
        """A hash of each document, sorted, uint64 ``(n_documents,)``."""
        return read_seen(self.folder)

    @cached_property
    def _vocabulary(self) -> tuple[list[str], Int64Array]:
        return read_vocabulary(self.folder / VOCABULARY_FILE)


def prepare_corpus(  # noqa: PLR0913
    documents: Iterable[Document],
    splitter_file: Path,
    folder: Path,
    config: CorpusConfig,
    *,
    workers: int,
    max_memory: int,
    progress: Progress,
    size_hint: int | None = None,
    former: PreparedCorpus | None = None,
    appended: bool = False,
) -> dict[str, int]:
    """Split ``documents`` as the tokenizer in ``splitter_file`` does, and write the files of a prepared corpus.

    One line of the result is one line of a document; lines without words are left out, and so are documents that
    repeat an earlier one exactly (blank lines aside), unless ``config.keep_duplicates``. The bytes written do not
    depend on ``workers`` or ``max_memory`` (bytes; the shuffle holds a quarter of it or less). ``folder`` also takes
    temporary files. ``size_hint`` is the size of the text in bytes, if known.

    With ``former``, which was prepared with the same tokenizer and ``config``, only documents that it does not have
    are split, and the result is ``former`` with these: the same bytes as if all its documents had been read before
    them. ``appended``: ``documents`` are only those after all of ``former``.

    Returns counts: ``documents``, ``duplicates`` and ``text_bytes`` of what was split, ``lines``, ``tokens`` and
    ``words`` of the result, and with ``former`` the documents that were held out now (``heldout``), and those of
    ``former`` that were not read again but stay counted (``gone``).

    All processes together take about 150 MB plus 40 MB per worker plus 200 bytes per distinct word (measured by
    ``benchmarks/corpus.py``), and 40 bytes per document, however long the text is.
    Raises ``InputError`` if there are no words, ``ResourceError`` if memory or disk would not suffice.
    """
    _check_resources(folder, max_memory, size_hint, progress)
    temporary = folder / "temporary"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    (folder / HELDOUT).unlink(missing_ok=True)
    seen, numbers = None, Numbering()
    if former is not None:
        seen = SeenDocuments(former.documents, repeats=config.keep_duplicates)
        numbers.update(zip(former.words, range(len(former.words)), strict=True))
        if not (appended and config.keep_duplicates):
            documents = seen.new(documents)
        size_hint = None
        if (former.folder / HELDOUT).is_file():
            shutil.copyfile(former.folder / HELDOUT, folder / HELDOUT)
    try:
        text = LineFile(temporary / "ids", temporary / "lengths")
        heldout = array("Q")
        documents = without_heldout(documents, config.heldout, folder, heldout)
        log = _write_text(documents, splitter_file, text, numbers, workers, progress, size_hint)
        words = list(numbers)
        del numbers
        if not words:
            raise InputError(
                f"the corpus ({counted(len(log.hashes), 'document')} with text) holds no words", "give one with text"
            )
        kept = np.ones(len(log.hashes), bool) if config.keep_duplicates else _first_of_each(log.hashes)
        kept_lines = np.repeat(kept, np.frombuffer(log.n_lines, np.int64))
        counts = _count(text, kept_lines, len(words))
        if former is not None:
            counts[: len(former.counts)] += former.counts
        order = _by_frequency(words, counts)
        write_vocabulary(folder / VOCABULARY_FILE, [words[i] for i in order.tolist()], counts[order])
        n_words = len(words)
        del words
        new_number = np.empty(n_words, np.int32)
        new_number[order] = np.arange(n_words, dtype=np.int32)
        shuffle = Shuffle(temporary, config.seed, _n_buckets(text, max_memory), former.n_lines if former else 0)
        _fill(shuffle, text, kept_lines, new_number, progress)
        stream = _Stream(shuffle.lines(), shuffle.n_lines, shuffle.n_tokens)
        if former is not None:
            stream = _added(former, stream, new_number, config.seed, temporary)
        _write_stream(stream, temporary / "offsets", folder / STREAM_FILE, progress)
        hashes = [np.frombuffer(log.hashes, np.uint64)[kept], np.frombuffer(heldout, np.uint64)]
        write_seen(folder, *hashes, *([former.documents] if former is not None else []))
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return {
        "documents": len(kept),
        "duplicates": int(len(kept) - kept.sum()),
        "text_bytes": log.n_bytes,
        "lines": stream.n_lines,
        "tokens": stream.n_tokens,
        "words": n_words,
        **({} if seen is None else {"gone": 0 if appended else seen.n_gone, "heldout": len(heldout)}),
    }


def _check_resources(folder: Path, max_memory: int, size_hint: int | None, progress: Progress) -> None:
    if max_memory < MIN_MEMORY:
        raise ResourceError(
            f"--max-memory is {byte_size(max_memory)}, preparing a corpus needs at least {byte_size(MIN_MEMORY)}"
        )
    if size_hint is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    needed, free = DISK_PER_TEXT_BYTE * size_hint, shutil.disk_usage(folder).free
    progress.note(f"{byte_size(size_hint)} of text: needs about {byte_size(needed)} of disk in {folder}")
    if needed > free:
        raise ResourceError(
            f"preparing the corpus needs about {byte_size(needed)} of disk, {folder} has {byte_size(free)} free",
            "free some space, or use another --workspace",
        )


def _write_text(  # noqa: PLR0913
    documents: Iterable[Document],
    splitter_file: Path,
    text: LineFile,
    numbers: Numbering,
    workers: int,
    progress: Progress,
    size_hint: int | None,
) -> DocumentLog:
    """Write all documents to ``text``, with words numbered by ``numbers``; returns the documents' log."""
    log = DocumentLog()
    batches = make_batches(documents, log, cut_lines=WordSplitter(load_tokenizer(splitter_file)).chunkwise)
    with (
        open(text.ids, "wb") as ids_file,
        open(text.lengths, "wb") as lengths_file,
        closing(split_batches(batches, splitter_file, workers)) as split,
        progress.bar("splitting text into words", size_hint, "bytes") as bar,
    ):
        unfinished = np.zeros(0, np.int32)  # the last line, which the next batch may continue
        for batch in split:
            row_of = np.fromiter(map(numbers.__getitem__, batch.words), np.int32, len(batch.words))
            write_array(ids_file, row_of[batch.ids])
            lengths = batch.lengths
            if batch.continues:
                lengths[0] += unfinished[0]
            else:
                write_array(lengths_file, unfinished)
            write_array(lengths_file, lengths[:-1])
            unfinished = lengths[-1:]
            bar.advance(batch.n_bytes)
        write_array(lengths_file, unfinished)
    return log


def _first_of_each(hashes: "array[int]") -> BoolArray:
    first = np.zeros(len(hashes), bool)
    first[np.unique(np.frombuffer(hashes, np.uint64), return_index=True)[1]] = True
    return first


def _count(text: LineFile, kept_lines: BoolArray, n_words: int) -> Int64Array:
    counts = np.zeros(n_words, np.int64)
    for first, lengths, ids in text.blocks():
        kept = np.repeat(kept_lines[first : first + len(lengths)], lengths)
        counts += np.bincount(ids[kept], minlength=n_words)
    return counts


def _by_frequency(words: list[str], counts: Int64Array) -> Int64Array:
    by_word = np.array(sorted(range(len(words)), key=words.__getitem__), np.int64)
    return by_word[np.argsort(-counts[by_word], kind="stable")]


def _n_buckets(text: LineFile, max_memory: int) -> int:
    """Enough that a bucket, its lines' keys and its sorted copy stay well within ``max_memory``."""
    return 1 + 8 * 4 * text.n_tokens // max_memory


def _fill(shuffle: Shuffle, text: LineFile, kept_lines: BoolArray, new_number: Int32Array, progress: Progress) -> None:
    """Give ``shuffle`` the kept lines, with their words renumbered; removes ``text``."""
    with progress.bar("numbering words by frequency", text.n_tokens, "words") as bar:
        for first, lengths, ids in text.blocks():
            kept = kept_lines[first : first + len(lengths)] & (lengths > 0)
            shuffle.add(lengths[kept], new_number[ids[np.repeat(kept, lengths)]])
            bar.advance(len(ids))
    text.ids.unlink()
    text.lengths.unlink()


@dataclass(frozen=True)
class _Stream:
    """Lines in blocks of lengths and ids, and how many lines and ids there are."""

    blocks: Iterator[tuple[Int32Array, Int32Array]]
    n_lines: int
    n_tokens: int


def _added(former: PreparedCorpus, new: _Stream, new_number: Int32Array, seed: int, temporary: Path) -> _Stream:
    """``former``, its words renumbered, with the lines of ``new``."""
    n_lines = former.n_lines + new.n_lines
    _write_stream(new, temporary / "offsets", temporary / STREAM_FILE, Silent())
    positions = added_positions(former.n_lines, n_lines, seed)
    blocks = merged_lines(former, PreparedCorpus(temporary), positions, new_number)
    return _Stream(blocks, n_lines, former.n_tokens + new.n_tokens)


def _write_stream(stream: _Stream, offsets: Path, path: Path, progress: Progress) -> None:
    """Write ``ids`` and ``lines``; the offsets are only known once the ids are written, so they are kept in a file
    until then.
    """

    def ids() -> Iterator[Int32Array]:
        end = 0
        with open(offsets, "wb") as file, progress.bar("shuffling lines", stream.n_tokens, "words") as bar:
            write_array(file, np.zeros(1, np.int64))
            for lengths, block in stream.blocks:
                write_array(file, np.cumsum(lengths, dtype=np.int64) + end)
                end += len(block)
                yield block
                bar.advance(len(block))

    def lines() -> Iterator[Array]:
        with open(offsets, "rb") as file:
            while len(block := np.fromfile(file, np.int64, 1 << 20)):
                yield block

    arrays = {
        "ids": Streamed((stream.n_tokens,), np.dtype(np.int32), ids()),
        "lines": Streamed((stream.n_lines + 1,), np.dtype(np.int64), lines()),
    }
    write_arrays(path, arrays)
