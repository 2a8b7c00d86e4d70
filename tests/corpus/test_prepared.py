"""The prepared corpus against a plain loop over the same texts, and what must not change its bytes."""

import errno
import os
import random
import shutil
import signal
from collections import Counter
from collections.abc import Iterator
from multiprocessing import active_children
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from greenadapt.config import CorpusConfig
from greenadapt.corpus import prepared, splitting
from greenadapt.corpus.prepared import (
    MIN_MEMORY,
    PreparedCorpus,
    prepare_corpus,
    read_vocabulary,
    write_array,
    write_vocabulary,
)
from greenadapt.corpus.text import Document
from greenadapt.errors import InputError, ResourceError
from greenadapt.progress import Silent
from greenadapt.tokenization.vocabulary import WordSplitter, load_tokenizer
from tests.conftest import WORDS, Notes, bytelevel_tokenizer, wordpiece_tokenizer


def test_the_vocabulary_is_lines_of_a_word_a_tab_and_a_count(tmp_path: Path) -> None:
    path = tmp_path / "vocabulary.tsv"
    write_vocabulary(path, ["é", "a\r\x0b\x85\u2028"], np.array([7, 2**60]))
    assert path.read_bytes() == f"é\t7\na\r\x0b\x85\u2028\t{2**60}\n".encode()
    words, counts = read_vocabulary(path)
    assert (words, counts.tolist()) == (["é", "a\r\x0b\x85\u2028"], [7, 2**60])
    path.write_bytes(b"good\t5\nword\tthree\n")
    with pytest.raises(InputError, match=r"vocabulary\.tsv"):
        read_vocabulary(path)


def test_what_holds_no_words_is_refused(bert_file: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no words"):
        prepare([Document(("", " \t")), Document(("\x00\u200b",))], bert_file, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module", params=["wordpiece", "bytelevel"])
def tokenizer_file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp(request.param) / "tokenizer.json"
    tokenizer = wordpiece_tokenizer() if request.param == "wordpiece" else bytelevel_tokenizer()
    tokenizer.save(str(path))
    return path


@pytest.fixture(scope="module")
def bert_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bert") / "tokenizer.json"
    wordpiece_tokenizer().save(str(path))
    return path


def random_documents(n: int, seed: int = 0) -> list[Document]:
    """Documents of one to four lines of words, names, numbers and marks; line ends and empty lines occur."""
    source = random.Random(seed)
    names = [f"Gène{i}" for i in range(300)] + ["don't", "'s", "β-blocker", "汉字", "(EGFR)", "\t", "3.14", ""]

    def line() -> str:
        return " ".join(source.choices(WORDS + names, k=source.randrange(0, 40)))

    return [Document(tuple(line() for _ in range(source.randrange(1, 5)))) for _ in range(n)]


def prepare(documents: object, tokenizer: Path, folder: Path, **options: object) -> dict[str, int]:
    arguments = {"workers": 1, "max_memory": 10**9, "progress": Silent(), "config": CorpusConfig(), **options}
    return prepare_corpus(documents, tokenizer, folder, arguments.pop("config"), **arguments)  # type: ignore[arg-type]


def lines_of(corpus: PreparedCorpus) -> list[tuple[str, ...]]:
    spans = zip(corpus.lines[:-1].tolist(), corpus.lines[1:].tolist(), strict=True)
    return [tuple(corpus.words[i] for i in corpus.ids[begin:end]) for begin, end in spans]


def plain_lines(documents: list[Document], tokenizer: Path) -> list[tuple[str, ...]]:
    splitter = WordSplitter(load_tokenizer(tokenizer))
    split = [tuple(splitter.split(line)) for document in documents for line in document.lines]
    return [line for line in split if line]


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_lines_words_and_counts_are_those_of_a_plain_loop(tokenizer_file: Path, tmp_path: Path) -> None:
    documents = random_documents(300)
    counts = prepare(documents, tokenizer_file, tmp_path, config=CorpusConfig(keep_duplicates=True))
    corpus, expected = PreparedCorpus(tmp_path), plain_lines(documents, tokenizer_file)
    assert Counter(lines_of(corpus)) == Counter(expected)
    frequencies = Counter(word for line in expected for word in line)
    assert dict(zip(corpus.words, corpus.counts.tolist(), strict=True)) == frequencies
    assert corpus.words == sorted(frequencies, key=lambda word: (-frequencies[word], word))
    assert (corpus.ids.dtype, corpus.lines.dtype, corpus.counts.dtype) == (np.int32, np.int64, np.int64)
    assert counts["tokens"] == len(corpus.ids) == sum(frequencies.values())
    assert counts["lines"] == len(corpus.lines) - 1 == len(expected)
    assert counts["words"] == len(frequencies)
    assert {path.name for path in tmp_path.iterdir()} == {
        "vocabulary.tsv", "words.safetensors",
    }  # fmt: skip


LINES = st.text("ab'é,\u0301\t\n\x1c \u3000汉", max_size=30)


@pytest.mark.slow
@settings(deadline=None, max_examples=25)
@given(texts=st.lists(st.lists(LINES, max_size=4), max_size=6), batch_bytes=st.integers(1, 40))
def test_cutting_and_batching_change_nothing(
    tokenizer_file: Path, tmp_path_factory: pytest.TempPathFactory, texts: list[list[str]], batch_bytes: int
) -> None:
    documents = [Document((f"line {i}", *lines)) for i, lines in enumerate(texts)] or [Document(("a",))]
    folder = tmp_path_factory.mktemp("prepared")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(splitting, "BATCH_BYTES", batch_bytes)
        patch.setattr(splitting, "_MEMORY_OF_CHUNKS", 2000)
        prepare(documents, tokenizer_file, folder, config=CorpusConfig(keep_duplicates=True))
    assert Counter(lines_of(PreparedCorpus(folder))) == Counter(plain_lines(documents, tokenizer_file))
    shutil.rmtree(folder)


@pytest.mark.slow
def test_bytes_do_not_depend_on_processes_or_memory(
    bert_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = random_documents(400) + random_documents(50)
    prepare(documents, bert_file, tmp_path / "one")
    expected = files(tmp_path / "one")
    monkeypatch.setattr(splitting, "BATCH_BYTES", 5_000)
    prepare(documents, bert_file, tmp_path / "two", workers=2)
    assert files(tmp_path / "two") == expected
    monkeypatch.setattr(prepared, "MIN_MEMORY", 1)
    for max_memory in (1_000, 150_000):
        prepare(documents, bert_file, tmp_path / f"{max_memory}", max_memory=max_memory)
        assert files(tmp_path / f"{max_memory}") == expected


def test_repeated_documents_are_dropped_and_counted(bert_file: Path, tmp_path: Path) -> None:
    documents = [*map(Document, [("heart rate", "virus"), ("heart rate virus",), ("patient",), ("heart rate",)])]
    repeats = [("patient",), ("heart rate", "virus"), ("heart rate", "", " ", "virus"), ("",), ()]
    repeated = [*documents, *map(Document, repeats)]
    once = prepare(documents, bert_file, tmp_path / "once")
    twice = prepare(repeated, bert_file, tmp_path / "twice")
    with_repeats = prepare(repeated, bert_file, tmp_path / "kept", config=CorpusConfig(keep_duplicates=True))
    assert files(tmp_path / "once") == files(tmp_path / "twice")
    assert (once["documents"], once["duplicates"], once["lines"]) == (4, 0, 5)
    assert (twice["documents"], twice["duplicates"], twice["lines"]) == (7, 3, 5)
    assert (with_repeats["documents"], with_repeats["duplicates"], with_repeats["lines"]) == (7, 0, 10)


def test_lines_are_shuffled_by_seed(bert_file: Path, tmp_path: Path) -> None:
    documents = [Document((f"line {i}",)) for i in range(2000)]
    orders = []
    for seed in (1, 2):
        prepare(documents, bert_file, tmp_path / f"{seed}", config=CorpusConfig(seed=seed))
        orders.append([int(line[1]) for line in lines_of(PreparedCorpus(tmp_path / f"{seed}"))])
        assert sorted(orders[-1]) == list(range(2000))
        assert abs(np.corrcoef(orders[-1], range(2000))[0, 1]) < 0.1  # 4.5 standard deviations of a random order
    assert abs(np.corrcoef(*orders)[0, 1]) < 0.1


def test_errors_of_the_reader_pass_and_leave_nothing(bert_file: Path, tmp_path: Path) -> None:
    def documents() -> Iterator[Document]:
        yield from random_documents(50)
        raise InputError("a truncated file")

    with pytest.raises(InputError, match="a truncated file"):
        prepare(documents(), bert_file, tmp_path, workers=2)
    assert list(tmp_path.iterdir()) == []
    assert active_children() == []


def test_disk_is_stated_and_refused(bert_file: Path, tmp_path: Path) -> None:
    progress = Notes()
    prepare(random_documents(5), bert_file, tmp_path, progress=progress, size_hint=3_000_000)
    assert len(progress.notes) == 1
    assert "3.0 MB of text: needs about 6.0 MB of disk" in progress.notes[0]
    with pytest.raises(ResourceError, match=r"needs about 2,000,000,000\.0 GB of disk"):
        prepare(random_documents(5), bert_file, tmp_path, size_hint=10**18)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk_says_so() -> None:
    with pytest.raises(OSError, match="No space left") as raised, open("/dev/full", "wb") as file:
        write_array(file, np.zeros(100_000, np.int32))
    assert raised.value.errno == errno.ENOSPC


def test_too_little_memory_is_refused(bert_file: Path, tmp_path: Path) -> None:
    with pytest.raises(ResourceError, match=r"max-memory is 1\.0 MB.* at least 67\.1 MB"):
        prepare(random_documents(5), bert_file, tmp_path, max_memory=10**6)
    prepare(random_documents(5), bert_file, tmp_path, max_memory=MIN_MEMORY)


@pytest.mark.slow
def test_a_killed_process_is_one_clear_error(bert_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splitting, "BATCH_BYTES", 1_000)

    def documents() -> Iterator[Document]:
        for i, document in enumerate(random_documents(3000)):
            if i == 500:
                child = active_children()[0].pid
                assert child is not None
                os.kill(child, signal.SIGKILL)
            yield document

    with pytest.raises(ResourceError, match="one of the 2 processes"):
        prepare(documents(), bert_file, tmp_path, workers=2)
