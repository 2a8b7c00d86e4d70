"""A corpus prepared on a real Ray cluster has the bytes of one machine, whoever dies."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from greenadapt.config import CorpusConfig
from greenadapt.corpus import splitting
from greenadapt.corpus.prepared import MIN_MEMORY, prepare_corpus
from greenadapt.corpus.readers import open_corpus
from greenadapt.corpus.recipes import find_recipe
from greenadapt.corpus.text import Document
from greenadapt.errors import InputError
from greenadapt.progress import Silent
from tests.conftest import wordpiece_tokenizer
from tests.corpus.test_prepared import files, random_documents
from tests.support.small_cluster import add_node

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning")]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bert") / "tokenizer.json"
    wordpiece_tokenizer().save(str(path))
    return path


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Plain and compressed text, JSON lines and a table, with duplicates within and across them, and broken UTF-8."""
    folder = tmp_path_factory.mktemp("texts")
    lines = [" ".join(line.split()) for document in random_documents(900) for line in document.lines]
    plain = "\n".join(lines).encode().replace(b"heart", b"hea\xffrt", 40)
    (folder / "a.txt").write_bytes(plain)
    (folder / "b.txt.gz").write_bytes(gzip.compress("\n".join(["one more", *lines[200:300]]).encode()))
    records = [{"text": "\n".join(lines[i : i + 3]) * (i % 5 > 0)} for i in range(150, 700)]
    (folder / "c.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records * 2))
    (folder / "d.csv").write_text("text\n" + "".join(f'"{line}"\n' for line in lines[:50]))
    (folder / "e.bin").write_bytes(b"\0")
    (folder / "gone.txt").symlink_to("nowhere.txt")
    return folder


def prepared(
    path: Path, tokenizer: Path, folder: Path, config: CorpusConfig, cluster: str | None = None, act: Any = None
) -> tuple[Any, ...]:
    """What is counted and written; ``act`` is called after a third of the documents."""
    read = open_corpus(find_recipe(str(path)), path / "downloads")

    def documents() -> Iterator[Document]:
        for number, document in enumerate(read.documents()):
            if number == 700 and act is not None:
                act()
            yield document

    counts = prepare_corpus(
        documents(), tokenizer, folder, config, workers=1, max_memory=MIN_MEMORY, progress=Silent(), cluster=cluster
    )
    return counts, read.counts, files(folder)


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splitting, "BATCH_BYTES", 5_000)


def test_the_bytes_and_counts_are_those_of_one_machine(
    nodes: Any, texts: Path, tokenizer: Path, tmp_path: Path
) -> None:
    config = CorpusConfig(heldout=0.1)
    expected = prepared(texts, tokenizer, tmp_path / "one", config)
    assert prepared(texts, tokenizer, tmp_path / "many", config, nodes.address) == expected
    assert {"replaced", "empty_documents", "skipped_files"} <= expected[1].keys()
    assert bool(expected[0]["duplicates"]) != config.keep_duplicates


def test_an_error_in_the_text_names_the_line_of_the_file(nodes: Any, tokenizer: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "some words"}\n' * 2_500 + "[]\n" + '{"text": "some words"}\n' * 2_500)
    with pytest.raises(InputError, match=r"a\.jsonl:2501 is a list"):
        prepared(path, tokenizer, tmp_path / "many", CorpusConfig(), nodes.address)


def test_a_killed_node_changes_nothing(nodes: Any, texts: Path, tokenizer: Path, tmp_path: Path) -> None:
    def kill() -> None:
        nodes.remove_node(nodes.list_all_nodes()[-1], allow_graceful=False)

    try:
        result = prepared(texts, tokenizer, tmp_path / "many", CorpusConfig(), nodes.address, kill)
    finally:
        while len(nodes.list_all_nodes()) < 2:
            add_node(nodes)
    assert result == prepared(texts, tokenizer, tmp_path / "one", CorpusConfig())
