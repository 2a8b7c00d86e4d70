"""The prepared corpus: a vocabulary with counts, and the text as word numbers, its lines in random order.

Documents are split into words, numbered, counted, shuffled and written. A line's number determines a random key, and
lines are sorted by key, one range of keys at a time. The order therefore depends neither on memory nor on the number of
processes.
"""

import shutil
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from greenadapt.config import CorpusConfig
from greenadapt.corpus.splitting import (
    HELDOUT,
    DocumentLog,
    Numbering,
    SplitBatch,
    gather,
    hold_out,
    make_batches,
    split_batches,
)
from greenadapt.corpus.text import Document
from greenadapt.errors import InputError, ResourceError, byte_size, pluralize
from greenadapt.progress import Bar, Progress
from greenadapt.store.arrays import (
    SPLITMIX_STEP,
    Array,
    ArrayFile,
    BoolArray,
    Int32Array,
    Int64Array,
    StreamedArray,
    UInt64Array,
    mix_bits,
    write_arrays,
)
from greenadapt.store.files import AGAIN
from greenadapt.tokenization.vocabulary import WordSplitter

_BLOCK_LINES = 1 << 16
_BLOCK_TOKENS = 1 << 20
LineBlocks = Iterator[tuple[Int32Array, Int32Array]]
"""Lines of word numbers in blocks: the length of each line, and the numbers."""
_KEYED = np.dtype([("key", "<u8"), ("length", "<i4")])


@dataclass(frozen=True)
class LineFile:
    """Lines of word numbers in two plain files: all numbers, int32, and the length of each line, int32."""

    ids: Path
    lengths: Path

    @property
    def n_tokens(self) -> int:
        """How many numbers have been written."""
        return self.ids.stat().st_size // 4

    def remove(self) -> None:
        """Remove both files."""
        self.ids.unlink(missing_ok=True)
        self.lengths.unlink(missing_ok=True)

    def blocks(self) -> Iterator[tuple[int, Int32Array, Int32Array]]:
        """Yield consecutive lines, about ``_BLOCK_TOKENS`` numbers at a time: index of the first line, lengths, ids."""
        with open(self.ids, "rb") as ids, open(self.lengths, "rb") as lengths:
            line = 0
            while len(block := np.fromfile(lengths, np.int32, _BLOCK_LINES)):
                for part in split_by_tokens(block):
                    yield line, part, np.fromfile(ids, np.int32, int(part.sum(dtype=np.int64)))
                    line += len(part)


def split_by_tokens(lengths: Int32Array) -> Iterator[Int32Array]:
    """Yield consecutive parts of ``lengths``, ``(n_lines,)``, that sum to at most ``_BLOCK_TOKENS`` or are one line."""
    ends = np.cumsum(lengths, dtype=np.int64)
    begin = 0
    while begin < len(lengths):
        before = ends[begin] - lengths[begin]
        end = max(begin + 1, int(np.searchsorted(ends, before + _BLOCK_TOKENS, "right")))
        yield lengths[begin:end]
        begin = end


def line_keys(start: int, n: int, seed: int) -> UInt64Array:
    """Random keys, uint64 ``(n,)``, of ``n`` lines from number ``start`` on."""
    key = np.arange(start + 1, start + n + 1, dtype=np.uint64) * SPLITMIX_STEP
    key += np.uint64(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0])
    return mix_bits(key)


class Shuffle:
    """Puts lines in random order through one temporary file per range of keys.

    ``folder`` holds ``n_buckets`` ranges, one of which is in memory.
    """

    def __init__(self, folder: Path, seed: int, n_buckets: int) -> None:
        self._folder = folder
        self._seed = seed
        self._n_buckets = n_buckets
        self.n_lines = 0
        self.n_tokens = 0

    def add(self, text: LineFile, kept_lines: BoolArray, new_number: Int32Array, bar: Bar) -> None:
        """Add the kept lines of ``text`` that have words, renumbered."""
        for line, block_lengths, block_ids in text.blocks():
            keep = kept_lines[line : line + len(block_lengths)] & (block_lengths > 0)
            lengths, ids = block_lengths[keep], new_number[block_ids[np.repeat(keep, block_lengths)]]
            keys = line_keys(self.n_lines, len(lengths), self._seed)
            self.n_lines += len(lengths)
            self.n_tokens += len(ids)
            starts = np.cumsum(lengths, dtype=np.int64) - lengths
            bucket = (keys >> np.uint64(32)) * np.uint64(self._n_buckets) >> np.uint64(32)
            for number in np.unique(bucket).tolist():
                chosen = np.flatnonzero(bucket == number)
                keyed = np.empty(len(chosen), _KEYED)
                keyed["key"], keyed["length"] = keys[chosen], lengths[chosen]
                _append(self._keyed_file(number), keyed)
                _append(self._ids_file(number), gather(ids, starts[chosen], lengths[chosen]))
            bar.advance(len(block_ids))

    def lines(self) -> LineBlocks:
        """Yield all lines, sorted by key, and delete the temporary files."""
        for number in range(self._n_buckets):
            if not self._keyed_file(number).exists():
                continue
            keyed = np.fromfile(self._keyed_file(number), _KEYED)
            ids = np.fromfile(self._ids_file(number), np.int32)
            self._keyed_file(number).unlink()
            self._ids_file(number).unlink()
            order = np.argsort(keyed["key"], kind="stable")
            starts = (np.cumsum(keyed["length"], dtype=np.int64) - keyed["length"])[order]
            begin = 0
            for lengths in split_by_tokens(keyed["length"][order]):
                yield lengths, gather(ids, starts[begin : begin + len(lengths)], lengths)
                begin += len(lengths)

    def _ids_file(self, number: int) -> Path:
        return self._folder / f"bucket-{number}.ids"

    def _keyed_file(self, number: int) -> Path:
        return self._folder / f"bucket-{number}.lines"


def write_array(file: BinaryIO, array: Array) -> None:
    """Write the bytes of a contiguous array; unlike numpy's ``tofile``, raises ``OSError`` on a full disk."""
    file.write(array.data)


def _append(path: Path, array: Array) -> None:
    with open(path, "ab") as file:
        write_array(file, array)


def write_vocabulary(path: Path, words: Sequence[str], counts: Int64Array) -> None:
    """Write ``words`` and ``counts``, int64 ``(n_words,)``, as UTF-8 lines ``word TAB count``."""
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.writelines(f"{word}\t{count}\n" for word, count in zip(words, counts.tolist(), strict=True))


def read_vocabulary(path: Path) -> tuple[list[str], Int64Array]:
    """Read words and counts, int64 ``(n_words,)``; raises ``InputError`` if the file is damaged."""
    try:
        parts = path.read_bytes().decode().replace("\n", "\t").split("\t")
        return parts[:-1:2], np.fromiter(map(int, parts[1::2]), np.int64, len(parts) // 2)
    except ValueError as error:
        raise InputError(f"{path} does not have a word, a tab and a count in each line ({error})", AGAIN) from None


VOCABULARY_FILE = "vocabulary.tsv"
STREAM_FILE = "words.safetensors"
MIN_MEMORY = 64 << 20
DISK_PER_TEXT_BYTE = 2
"""Approximate bytes on disk per byte of text: at the peak, each word is stored twice in four bytes."""


def check_resources(folder: Path, max_memory: int, size_hint: int | None, progress: Progress) -> None:
    """Raise ``ResourceError`` if there is too little memory, or too little disk for ``size_hint`` bytes of text."""
    if max_memory < MIN_MEMORY:
        raise ResourceError(
            f"--max-memory is {byte_size(max_memory)}, preparing a corpus needs at least {byte_size(MIN_MEMORY)}"
        )
    if size_hint is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    needed, free = DISK_PER_TEXT_BYTE * size_hint, shutil.disk_usage(folder).free
    progress.note(f"about {byte_size(size_hint)} of text: needs about {byte_size(needed)} of disk in {folder}")
    if needed > free:
        raise ResourceError(
            f"preparing the corpus needs about {byte_size(needed)} of disk, {folder} has {byte_size(free)} free",
            "free some space, or use another --workspace",
        )


def write_numbers(batches: Iterable[SplitBatch], numbers: Numbering, text: LineFile, bar: Bar) -> None:
    """Write the lines of ``batches`` to ``text``, with words numbered by ``numbers``."""
    with open(text.ids, "wb") as ids_file, open(text.lengths, "wb") as lengths_file:
        unfinished = np.zeros(0, np.int32)  # the last line, which the next batch may continue
        for batch in batches:
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


def is_first_occurrence(hashes: "array[int]") -> BoolArray:
    """Whether each of ``hashes``, uint64 ``(n,)``, is the first with its value, bool ``(n,)``."""
    is_first = np.zeros(len(hashes), bool)
    is_first[np.unique(np.frombuffer(hashes, np.uint64), return_index=True)[1]] = True
    return is_first


def count_words(text: LineFile, kept_lines: BoolArray, n_words: int) -> Int64Array:
    """How often each word occurs in the kept lines of ``text``, int64 ``(n_words,)``."""
    counts = np.zeros(n_words, np.int64)
    for line, lengths, ids in text.blocks():
        keep = np.repeat(kept_lines[line : line + len(lengths)], lengths)
        counts += np.bincount(ids[keep], minlength=n_words)
    return counts


def write_by_frequency(words: list[str], counts: Int64Array, n_documents: int, path: Path) -> Int32Array:
    """Write the vocabulary, most frequent words first, ties in code point order; returns the new number of each word.

    Raises ``InputError`` if there are no words.
    """
    if not words:
        raise InputError(
            f"the corpus ({pluralize(n_documents, 'document')} with text) holds no words", "give one with text"
        )
    by_word = np.array(sorted(range(len(words)), key=words.__getitem__), np.int64)
    order = by_word[np.argsort(-counts[by_word], kind="stable")]
    write_vocabulary(path, [words[i] for i in order.tolist()], counts[order])
    new_number = np.empty(len(words), np.int32)
    new_number[order] = np.arange(len(words), dtype=np.int32)
    return new_number


def n_buckets(n_tokens: int, max_memory: int) -> int:
    """The number of buckets such that a bucket, its keys and its sorted copy fit in ``max_memory`` bytes."""
    return 1 + 8 * 4 * n_tokens // max_memory


def write_stream(
    path: Path, blocks: LineBlocks, n_lines: int, n_tokens: int, offsets: Path, progress: Progress
) -> None:
    """Write the arrays ``ids`` and ``lines``; the file ``offsets`` holds the lines until all ids are written."""

    def ids() -> Iterator[Int32Array]:
        end = 0
        with open(offsets, "wb") as file, progress.bar("shuffling lines", n_tokens, "words") as bar:
            write_array(file, np.zeros(1, np.int64))
            for lengths, block in blocks:
                write_array(file, np.cumsum(lengths, dtype=np.int64) + end)
                end += len(block)
                yield block
                bar.advance(len(block))

    def lines() -> Iterator[Array]:
        with open(offsets, "rb") as file:
            while len(block := np.fromfile(file, np.int64, 1 << 20)):
                yield block

    arrays = {
        "ids": StreamedArray((n_tokens,), np.dtype(np.int32), ids()),
        "lines": StreamedArray((n_lines + 1,), np.dtype(np.int64), lines()),
    }
    write_arrays(path, arrays)


class PreparedCorpus:
    """A folder that ``prepare_corpus`` wrote.

    ``words`` are the most frequent first, ties in code point order; ``counts``, int64 ``(n_words,)``, how often each
    occurs.
    ``ids``, int32 ``(n_tokens,)``, are rows of ``words``; line ``i`` is ``ids[lines[i]:lines[i + 1]]``, with ``lines``
    int64 ``(n_lines + 1,)``. Both are memory-mapped.
    """

    def __init__(self, folder: Path) -> None:
        self.stream_file = folder / STREAM_FILE
        arrays = ArrayFile(self.stream_file)
        self.ids: Int32Array = arrays["ids"]
        self.lines: Int64Array = arrays["lines"]
        self.words, self.counts = read_vocabulary(folder / VOCABULARY_FILE)


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
    cluster: str | None = None,
) -> dict[str, int]:
    """Split ``documents`` with the tokenizer in ``splitter_file``, and write the files of a prepared corpus.

    ``splitter_file`` is a ``tokenizer.json`` or a model's folder.
    A line of the result is a line of a document. Lines without words are dropped, and so are documents that repeat an
    earlier one (except for blank lines), unless ``config.keep_duplicates``. The bytes written do not depend on
    ``workers`` or on ``max_memory`` (bytes; the shuffle takes at most a quarter). ``folder`` also holds temporary
    files. ``size_hint`` is the size of the text in bytes, if known; the nodes of the ``cluster`` at an address, if any,
    split the text.

    Returns counts: ``documents``, ``duplicates`` and ``text_bytes`` of the documents split, and ``lines``, ``tokens``
    and ``words`` of the result.

    All processes together take about 150 MB plus 40 MB per worker plus 200 bytes per distinct word and 40 bytes per
    document, regardless of the length of the text.
    Raises ``InputError`` if there are no words, ``ResourceError`` if there is too little memory or disk.
    """
    check_resources(folder, max_memory, size_hint, progress)
    temporary = folder / "temporary"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    (folder / HELDOUT).unlink(missing_ok=True)
    try:
        text, log, numbers = LineFile(temporary / "ids", temporary / "lengths"), DocumentLog(), Numbering()
        documents = hold_out(documents, config.heldout, folder)
        batches = make_batches(documents, log, cut_lines=WordSplitter.load(splitter_file).chunkwise)
        with (
            closing(split_batches(batches, splitter_file, workers, cluster)) as split,
            progress.bar("splitting text into words", size_hint, "bytes") as bar,
        ):
            write_numbers(split, numbers, text, bar)
        words = list(numbers)
        del numbers
        is_kept = np.ones(len(log.hashes), bool) if config.keep_duplicates else is_first_occurrence(log.hashes)
        kept_lines = np.repeat(is_kept, np.frombuffer(log.n_lines, np.int64))
        counts = count_words(text, kept_lines, len(words))
        new_number = write_by_frequency(words, counts, len(log.hashes), folder / VOCABULARY_FILE)
        del words
        shuffle = Shuffle(temporary, config.seed, n_buckets(text.n_tokens, max_memory))
        with progress.bar("numbering words by frequency", text.n_tokens, "words") as bar:
            shuffle.add(text, kept_lines, new_number, bar)
        text.remove()
        n_lines, n_tokens = shuffle.n_lines, shuffle.n_tokens
        write_stream(folder / STREAM_FILE, shuffle.lines(), n_lines, n_tokens, temporary / "offsets", progress)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return {
        "documents": len(is_kept),
        "duplicates": int(len(is_kept) - is_kept.sum()),
        "text_bytes": log.n_bytes,
        "lines": n_lines,
        "tokens": n_tokens,
        "words": len(new_number),
    }
