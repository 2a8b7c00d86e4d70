"""The prepared corpus: a vocabulary with counts, and the text as word numbers, its lines in random order."""

import shutil
from array import array
from collections.abc import Iterable
from contextlib import closing
from functools import cached_property
from pathlib import Path

import numpy as np

from greenadapt.config import CorpusConfig
from greenadapt.corpus.decoding import Document
from greenadapt.corpus.heldout import HELDOUT, without_heldout
from greenadapt.corpus.merging import added_positions, merged_lines
from greenadapt.corpus.seen import SeenDocuments, read_seen, write_seen
from greenadapt.corpus.shuffle import LineFile, Shuffle
from greenadapt.corpus.steps import (
    STREAM_FILE,
    VOCABULARY_FILE,
    Stream,
    check_resources,
    count_words,
    fill,
    first_of_each,
    n_buckets,
    write_by_frequency,
    write_numbers,
    write_stream,
)
from greenadapt.corpus.stream import DocumentLog, Numbering, make_batches, split_batches
from greenadapt.corpus.word_counts import read_vocabulary
from greenadapt.errors import InputError, MissingError
from greenadapt.progress import Progress, Silent
from greenadapt.storage.arrays import ArrayFile, Int32Array, Int64Array, UInt64Array
from greenadapt.tokenization.vocabulary import WordSplitter


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
        stream = Stream(shuffle.lines(), shuffle.n_lines, shuffle.n_tokens)
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


def _added(former: PreparedCorpus, new: Stream, new_number: Int32Array, seed: int, temporary: Path) -> Stream:
    """``former``, its words renumbered, with the lines of ``new``."""
    n_lines = former.n_lines + new.n_lines
    write_stream(new, temporary / "offsets", temporary / STREAM_FILE, Silent())
    positions = added_positions(former.n_lines, n_lines, seed)
    blocks = merged_lines(former, PreparedCorpus(temporary), positions, new_number)
    return Stream(blocks, n_lines, former.n_tokens + new.n_tokens)
