"""The prepared corpus: a vocabulary with counts, and the text as word numbers, its lines in random order.

Documents are split into words, numbered, counted, shuffled and written; on a cluster, each part of them by itself. A
random key of its number decides a line's position, and the lines are sorted by key, one range of keys at a time. So
neither memory nor the number of processes changes the order, and lines that are added later are merged to the same
bytes as if all had been shuffled at once.
"""

import re
import shutil
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, Protocol

import numpy as np

from greenadapt.config import CorpusConfig
from greenadapt.corpus.splitting import (
    HELDOUT,
    DocumentLog,
    Numbering,
    SplitBatch,
    document_hash,
    gather,
    make_batches,
    split_batches,
    without_heldout,
)
from greenadapt.corpus.text import Document
from greenadapt.errors import InputError, MissingError, ResourceError, byte_size, counted
from greenadapt.progress import Bar, Progress, Silent
from greenadapt.storage.arrays import (
    SPLITMIX_STEP,
    Array,
    ArrayFile,
    BoolArray,
    Int32Array,
    Int64Array,
    Streamed,
    UInt64Array,
    mixed,
    write_arrays,
)
from greenadapt.tokenization.vocabulary import WordSplitter

_BLOCK_LINES = 1 << 16
_BLOCK_TOKENS = 1 << 20
_KEYED = np.dtype([("key", "<u8"), ("length", "<i4")])


@dataclass(frozen=True)
class LineFile:
    """Lines of numbers in two plain files: all numbers, int32, and the number of them in each line, int32."""

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
        """Consecutive lines, about ``_BLOCK_TOKENS`` numbers at a time: index of the first, lengths, ids."""
        with open(self.ids, "rb") as ids, open(self.lengths, "rb") as lengths:
            first = 0
            while len(block := np.fromfile(lengths, np.int32, _BLOCK_LINES)):
                for part in split_by_tokens(block):
                    yield first, part, np.fromfile(ids, np.int32, int(part.sum(dtype=np.int64)))
                    first += len(part)


def split_by_tokens(lengths: Int32Array) -> Iterator[Int32Array]:
    """Consecutive parts of ``lengths``, ``(n_lines,)``, that sum to at most ``_BLOCK_TOKENS`` or are one line."""
    ends = np.cumsum(lengths, dtype=np.int64)
    begin = 0
    while begin < len(lengths):
        before = ends[begin] - lengths[begin]
        end = max(begin + 1, int(np.searchsorted(ends, before + _BLOCK_TOKENS, "right")))
        yield lengths[begin:end]
        begin = end


def line_keys(first: int, n: int, seed: int) -> UInt64Array:
    """Random keys, uint64 ``(n,)``, of the lines from ``first`` on."""
    key = np.arange(first + 1, first + n + 1, dtype=np.uint64) * SPLITMIX_STEP
    key += np.uint64(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0])
    return mixed(key)


class Shuffle:
    """Puts lines in random order through one temporary file per range of keys.

    ``n_buckets`` ranges are made in ``folder``; one at a time is in memory. Lines are numbered from ``first`` on.
    """

    def __init__(self, folder: Path, seed: int, n_buckets: int, first: int = 0) -> None:
        self._folder = folder
        self._seed = seed
        self._n_buckets = n_buckets
        self._first = first
        self.n_lines = 0
        self.n_tokens = 0

    def add(self, lengths: Int32Array, ids: Int32Array) -> None:
        """Add lines: their numbers of ids, ``(n_lines,)``, and the ids, ``(sum of lengths,)``."""
        keys = line_keys(self._first + self.n_lines, len(lengths), self._seed)
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

    def lines(self) -> Iterator[tuple[Int32Array, Int32Array]]:
        """All lines, sorted by key, in blocks of lengths and ids; temporary files are deleted as they are read."""
        return ((lengths, ids) for _, lengths, ids in self.keyed_lines())

    def keyed_lines(self) -> Iterator[tuple[UInt64Array, Int32Array, Int32Array]]:
        """As ``lines``, with the keys before the lengths."""
        for number in range(self._n_buckets):
            if not self._keyed_file(number).exists():
                continue
            keyed = np.fromfile(self._keyed_file(number), _KEYED)
            ids = np.fromfile(self._ids_file(number), np.int32)
            self._keyed_file(number).unlink()
            self._ids_file(number).unlink()
            order = np.argsort(keyed["key"], kind="stable")
            starts = (np.cumsum(keyed["length"], dtype=np.int64) - keyed["length"])[order]
            keys, begin = keyed["key"][order], 0
            for lengths in split_by_tokens(keyed["length"][order]):
                chosen = slice(begin, begin + len(lengths))
                yield keys[chosen], lengths, gather(ids, starts[chosen], lengths)
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


_LINES = re.compile(rb"(?:[^\t\n]++\t[0-9]++\n)*+")  # possessive: it never goes back, and takes no memory


def write_vocabulary(path: Path, words: Sequence[str], counts: Int64Array) -> None:
    """Write ``words`` and ``counts``, int64 ``(n_words,)``, as UTF-8 lines ``word TAB count``.

    Raises ``InputError`` for a word that cannot be read back: an empty one, or one with a tab or line break.
    """
    with open(path, "w", encoding="utf-8", newline="") as file:
        for row, (word, count) in enumerate(zip(words, counts.tolist(), strict=True)):
            if not word or "\t" in word or "\n" in word:
                raise InputError(
                    f"word {row} is {word!r}, and {path.name} cannot hold empty words, tabs or line breaks"
                )
            file.write(f"{word}\t{count}\n")


def read_vocabulary(path: Path) -> tuple[list[str], Int64Array]:
    """Read words and their counts, int64 ``(n_words,)``; raises ``InputError`` with file and line if it cannot."""
    content = path.read_bytes()
    if _LINES.fullmatch(content):
        with suppress(UnicodeDecodeError):
            parts = content.decode().replace("\n", "\t").split("\t")
            return parts[:-1:2], np.fromiter(map(int, parts[1::2]), np.int64, len(parts) // 2)
    return _read_by_line(path)


def _read_by_line(path: Path) -> tuple[list[str], Int64Array]:
    """The same, slower, for a file in which a line is wrong."""
    words: list[str] = []
    counts: list[int] = []
    with open(path, encoding="utf-8", newline="\n") as file:  # words may contain other line separators
        try:
            for number, line in enumerate(file, 1):
                word, tab, count = line.removesuffix("\n").partition("\t")
                if not (word and tab and count.isascii() and count.isdigit()):
                    raise InputError(
                        f"{path}, line {number}: {line[:80]!r} is not a word, a tab and a count",
                        "run the stage again with --force",
                    )
                words.append(word)
                counts.append(int(count))
        except UnicodeDecodeError as error:
            raise InputError(f"{path}, after line {len(words)}: not UTF-8 ({error.reason})") from None
    return words, np.array(counts, np.int64)


VOCABULARY_FILE = "vocabulary.tsv"
STREAM_FILE = "words.safetensors"
MIN_MEMORY = 64 << 20
DISK_PER_TEXT_BYTE = 2
"""Approximate bytes on disk per byte of text: at the peak, each word is stored twice in four bytes."""


@dataclass(frozen=True)
class NumberedLines:
    """Lines in blocks of lengths and ids, and how many lines and ids there are."""

    blocks: Iterator[tuple[Int32Array, Int32Array]]
    n_lines: int
    n_tokens: int


def check_resources(folder: Path, max_memory: int, size_hint: int | None, progress: Progress) -> None:
    """Raise ``ResourceError`` if memory would not suffice, or disk for ``size_hint`` bytes of text."""
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


def first_of_each(hashes: "array[int] | Array") -> BoolArray:
    """Which of ``hashes``, uint64 ``(n,)``, do not repeat an earlier one."""
    first = np.zeros(len(hashes), bool)
    first[np.unique(np.frombuffer(hashes, np.uint64), return_index=True)[1]] = True
    return first


def count_words(text: LineFile, kept_lines: BoolArray, n_words: int) -> Int64Array:
    """How often each word occurs in the kept lines of ``text``, int64 ``(n_words,)``."""
    counts = np.zeros(n_words, np.int64)
    for first, lengths, ids in text.blocks():
        kept = np.repeat(kept_lines[first : first + len(lengths)], lengths)
        counts += np.bincount(ids[kept], minlength=n_words)
    return counts


def write_by_frequency(words: list[str], counts: Int64Array, n_documents: int, path: Path) -> Int32Array:
    """Write the vocabulary, most frequent words first, ties in code point order; returns the new number of each word.

    Raises ``InputError`` if there are no words.
    """
    if not words:
        raise InputError(
            f"the corpus ({counted(n_documents, 'document')} with text) holds no words", "give one with text"
        )
    by_word = np.array(sorted(range(len(words)), key=words.__getitem__), np.int64)
    order = by_word[np.argsort(-counts[by_word], kind="stable")]
    write_vocabulary(path, [words[i] for i in order.tolist()], counts[order])
    new_number = np.empty(len(words), np.int32)
    new_number[order] = np.arange(len(words), dtype=np.int32)
    return new_number


def n_buckets(n_tokens: int, max_memory: int) -> int:
    """Enough that a bucket, its lines' keys and its sorted copy stay well within ``max_memory``."""
    return 1 + 8 * 4 * n_tokens // max_memory


def fill(shuffle: Shuffle, text: LineFile, kept_lines: BoolArray, new_number: Int32Array, bar: Bar) -> None:
    """Give ``shuffle`` the kept lines of ``text`` that have words, renumbered."""
    for first, lengths, ids in text.blocks():
        kept = kept_lines[first : first + len(lengths)] & (lengths > 0)
        shuffle.add(lengths[kept], new_number[ids[np.repeat(kept, lengths)]])
        bar.advance(len(ids))


def write_stream(stream: NumberedLines, offsets: Path, path: Path, progress: Progress) -> None:
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


SEEN_FILE = "documents.safetensors"


def write_seen(folder: Path, *hashes: UInt64Array) -> None:
    """Write ``hashes``, uint64, sorted, to ``documents.safetensors``: eight bytes per document."""
    write_arrays(folder / SEEN_FILE, {"hashes": np.sort(np.concatenate(hashes))})


def read_seen(folder: Path) -> UInt64Array:
    """The hashes that ``write_seen`` wrote to ``folder``, ``(n_documents,)``."""
    return ArrayFile(folder / SEEN_FILE)["hashes"]


class SeenDocuments:
    """Documents by their ``hashes``, uint64 ``(n_documents,)``, sorted; it takes twelve bytes for each.

    With ``repeats`` a document is new if it is read more often than ``hashes`` has it, otherwise only if they lack it.
    """

    def __init__(self, hashes: UInt64Array, *, repeats: bool) -> None:
        self._hashes = array("Q", hashes.tobytes())
        self._read = array("I", bytes(4 * len(hashes)))  # how often, at the first of equal hashes
        self._repeats = repeats
        self._n_read = 0

    @property
    def n_gone(self) -> int:
        """How many of the documents have not been read again."""
        return len(self._hashes) - self._n_read

    def new(self, documents: Iterable[Document]) -> Iterator[Document]:
        """Those of ``documents`` that are new; counts the others as read."""
        for document in documents:
            if not self._is_seen(document_hash(document)):
                yield document

    def _is_seen(self, value: int) -> bool:
        hashes, read = self._hashes, self._read
        at = bisect_left(hashes, value)
        if at == len(hashes) or hashes[at] != value:
            return False
        this = at + read[at]
        if this == len(hashes) or hashes[this] != value:  # read as often as it was before
            return not self._repeats
        read[at] += 1
        self._n_read += 1
        return True


class Lines(Protocol):
    """Lines of numbers: ``ids``, int32 ``(n_tokens,)``, and ``lines``, int64 ``(n_lines + 1,)``, where each begins."""

    ids: Int32Array
    lines: Int64Array


def added_positions(n_before: int, n_lines: int, seed: int) -> Int64Array:
    """Where in the order of ``n_lines`` lines those from number ``n_before`` on are, ascending: int64
    ``(n_lines - n_before,)``.
    """
    added = np.sort(line_keys(n_before, n_lines - n_before, seed))
    before = np.zeros(len(added) + 1, np.int64)  # old lines whose key lies before that of an added line
    for first in range(0, n_before, _BLOCK_LINES):
        keys = line_keys(first, min(_BLOCK_LINES, n_before - first), seed)
        before += np.bincount(np.searchsorted(added, keys, "left"), minlength=len(before))
    return np.cumsum(before)[:-1] + np.arange(len(added))


def merged_lines(
    old: Lines, added: Lines, positions: Int64Array, new_number: Int32Array
) -> Iterator[tuple[Int32Array, Int32Array]]:
    """Blocks of lengths and ids of ``old``, renumbered by ``new_number``, with ``added`` at ``positions``."""
    n_lines = len(old.lines) + len(added.lines) - 2
    sources = [_Source(old), _Source(added)]
    for begin in range(0, n_lines, _BLOCK_LINES):
        end = min(begin + _BLOCK_LINES, n_lines)
        is_added = np.zeros(end - begin, bool)
        is_added[positions[slice(*np.searchsorted(positions, [begin, end]))] - begin] = True
        lengths = np.empty(end - begin, np.int32)
        for source, chosen in zip(sources, (~is_added, is_added), strict=True):
            lengths[chosen] = source.next_lengths(int(chosen.sum()))
        first = 0
        for part in split_by_tokens(lengths):
            of_added = np.repeat(is_added[first : first + len(part)], part)
            ids = np.empty(len(of_added), np.int32)
            ids[~of_added] = new_number[sources[0].next_ids(int((~of_added).sum()))]
            ids[of_added] = sources[1].next_ids(int(of_added.sum()))
            yield part, ids
            first += len(part)


class _Source:
    def __init__(self, source: Lines) -> None:
        self._source = source
        self._line = self._token = 0

    def next_lengths(self, n: int) -> Int32Array:
        self._line += n
        return np.diff(self._source.lines[self._line - n : self._line + 1]).astype(np.int32)

    def next_ids(self, n: int) -> Int32Array:
        self._token += n
        return self._source.ids[self._token - n : self._token]


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

    ``splitter_file`` is a ``tokenizer.json`` or a model's folder.
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
    check_resources(folder, max_memory, size_hint, progress)
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
        text, log, heldout = LineFile(temporary / "ids", temporary / "lengths"), DocumentLog(), array("Q")
        documents = without_heldout(documents, config.heldout, folder, heldout)
        batches = make_batches(documents, log, cut_lines=WordSplitter.load(splitter_file).chunkwise)
        with (
            closing(split_batches(batches, splitter_file, workers)) as split,
            progress.bar("splitting text into words", size_hint, "bytes") as bar,
        ):
            write_numbers(split, numbers, text, bar)
        words = list(numbers)
        del numbers
        kept = np.ones(len(log.hashes), bool) if config.keep_duplicates else first_of_each(log.hashes)
        kept_lines = np.repeat(kept, np.frombuffer(log.n_lines, np.int64))
        counts = count_words(text, kept_lines, len(words))
        if former is not None:
            counts[: len(former.counts)] += former.counts
        new_number = write_by_frequency(words, counts, len(log.hashes), folder / VOCABULARY_FILE)
        del words
        first = former.n_lines if former else 0
        shuffle = Shuffle(temporary, config.seed, n_buckets(text.n_tokens, max_memory), first)
        with progress.bar("numbering words by frequency", text.n_tokens, "words") as bar:
            fill(shuffle, text, kept_lines, new_number, bar)
        text.remove()
        stream = NumberedLines(shuffle.lines(), shuffle.n_lines, shuffle.n_tokens)
        if former is not None:
            stream = _added(former, stream, new_number, config.seed, temporary)
        write_stream(stream, temporary / "offsets", folder / STREAM_FILE, progress)
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
        "words": len(new_number),
        **({} if seen is None else {"gone": 0 if appended else seen.n_gone, "heldout": len(heldout)}),
    }


def _added(
    former: PreparedCorpus, new: NumberedLines, new_number: Int32Array, seed: int, temporary: Path
) -> NumberedLines:
    """``former``, its words renumbered, with the lines of ``new``."""
    n_lines = former.n_lines + new.n_lines
    write_stream(new, temporary / "offsets", temporary / STREAM_FILE, Silent())
    positions = added_positions(former.n_lines, n_lines, seed)
    blocks = merged_lines(former, PreparedCorpus(temporary), positions, new_number)
    return NumberedLines(blocks, n_lines, former.n_tokens + new.n_tokens)
