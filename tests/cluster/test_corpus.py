"""A corpus prepared on a real Ray cluster has the bytes of one machine."""

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
from greenadapt.progress import Silent
from tests.conftest import wordpiece_tokenizer
from tests.corpus.test_prepared import files, random_documents

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning")]


def write_texts(folder: Path) -> None:
    """Plain and compressed text, JSON lines and a table, with duplicates within and across them, and broken UTF-8."""
    lines = [" ".join(line.split()) for document in random_documents(300) for line in document.lines]
    plain = "\n".join(lines).encode().replace(b"heart", b"hea\xffrt", 40)
    (folder / "a.txt").write_bytes(plain)
    (folder / "b.txt.gz").write_bytes(gzip.compress("\n".join(["one more", *lines[100:150]]).encode()))
    records = [{"text": "\n".join(lines[i : i + 3]) * (i % 5 > 0)} for i in range(50, 250)]
    (folder / "c.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records * 2))
    (folder / "d.csv").write_text("text\n" + "".join(f'"{line}"\n' for line in lines[:50]))
    (folder / "e.bin").write_bytes(b"\0")


def test_a_killed_node_changes_no_byte_and_no_count(
    nodes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(splitting, "BATCH_BYTES", 5_000)
    tokenizer, texts = tmp_path / "tokenizer.json", tmp_path / "texts"
    wordpiece_tokenizer().save(str(tokenizer))
    texts.mkdir()
    write_texts(texts)

    def prepare(folder: Path, cluster: str | None) -> tuple[Any, ...]:
        """What is counted and written; on the cluster a node dies after a third of the documents."""
        read = open_corpus(find_recipe(str(texts)), tmp_path / "downloads")

        def documents() -> Iterator[Document]:
            for number, document in enumerate(read.documents()):
                if number == 250 and cluster is not None:
                    nodes.remove_node(nodes.list_all_nodes()[-1], allow_graceful=False)
                yield document

        limits: Any = {"workers": 1, "max_memory": MIN_MEMORY, "progress": Silent()}
        counts = prepare_corpus(documents(), tokenizer, folder, CorpusConfig(heldout=0.1), **limits, cluster=cluster)
        return counts, read.counts, files(folder)

    result = prepare(tmp_path / "many", nodes.address)
    assert result == prepare(tmp_path / "one", None)
    assert result[0]["duplicates"] > 0
    assert {"replaced", "empty_documents", "skipped_files"} <= result[1].keys()
