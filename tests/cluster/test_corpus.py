"""A corpus prepared on a real Ray cluster has the bytes of one machine, whatever the parts, and whoever dies."""

import gzip
import json
import resource
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from greenadapt.cluster import Cluster, alive_nodes, connected
from greenadapt.config import CorpusConfig
from greenadapt.corpus import on_cluster, prepared, readers
from greenadapt.corpus.on_cluster import PARTS, prepare_on_cluster
from greenadapt.corpus.prepared import MIN_MEMORY, prepare_corpus
from greenadapt.corpus.readers import CorpusReader, open_corpus
from greenadapt.corpus.recipes import find_recipe
from greenadapt.errors import InputError
from greenadapt.progress import Bar, Silent
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


class Acting(Silent):
    """Calls ``act`` when one more part is split and so many are."""

    def __init__(self, act: Callable[[], None], *moments: int) -> None:
        self._act, self._moments = act, moments
        self._is_splitting, self.n_split, self.notes = False, 0, list[str]()

    def note(self, message: str) -> None:
        self.notes.append(message)

    warn = note

    @contextmanager
    def bar(self, label: str, total: float | None, unit: str) -> Iterator[Bar]:
        self._is_splitting = label.startswith("splitting")
        yield self

    def advance(self, amount: float, **facts: str) -> None:
        self.n_split += self._is_splitting
        if self._is_splitting and self.n_split in self._moments:
            self._act()


def reading(path: Path) -> CorpusReader:
    return open_corpus(find_recipe(str(path)), path / "downloads")


def on_one_machine(path: Path, tokenizer: Path, folder: Path, config: CorpusConfig) -> tuple[Any, ...]:
    read = reading(path)
    counts = prepare_corpus(
        read.documents(), tokenizer, folder, config, workers=1, max_memory=MIN_MEMORY, progress=Silent()
    )
    return counts, {**read.counts, "skipped": read.skipped}, files(folder)


def prepared_on_nodes(
    cluster: Cluster, path: Path, tokenizer: Path, folder: Path, config: CorpusConfig, progress: Any = None
) -> tuple[Any, ...]:
    read = reading(path)
    counts = prepare_on_cluster(
        cluster, read, tokenizer, folder, config, max_memory=200_000, progress=progress or Silent()
    )
    [parts] = folder.glob(*PARTS)
    shutil.rmtree(parts)
    return counts, {**read.counts, "skipped": read.skipped}, files(folder)


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "SMALLEST", 30_000)
    monkeypatch.setattr(on_cluster, "DOCUMENTS_AT_ONCE", 1_000)
    monkeypatch.setattr(prepared, "MIN_MEMORY", 1)


@pytest.fixture(scope="module")
def cluster(four_nodes: Any) -> Iterator[Cluster]:
    with connected(four_nodes.address) as cluster:
        yield cluster


@pytest.mark.parametrize(
    "config",
    [CorpusConfig(heldout=0.1), pytest.param(CorpusConfig(keep_duplicates=True), marks=pytest.mark.long)],
    ids=["", "all"],
)
def test_the_bytes_and_counts_are_those_of_one_machine(
    cluster: Cluster, texts: Path, tokenizer: Path, tmp_path: Path, config: CorpusConfig
) -> None:
    expected = on_one_machine(texts, tokenizer, tmp_path / "one", config)
    counted = Acting(lambda: None)
    assert prepared_on_nodes(cluster, texts, tokenizer, tmp_path / "many", config, counted) == expected
    assert {"replaced", "empty_documents", "skipped_files", "dangling_links"} <= expected[1].keys()
    assert bool(expected[0]["duplicates"]) != config.keep_duplicates
    assert counted.n_split > 16


@pytest.mark.long
def test_what_was_done_when_a_command_ended_is_not_done_again(
    cluster: Cluster, texts: Path, tokenizer: Path, tmp_path: Path
) -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepared_on_nodes(cluster, texts, tokenizer, tmp_path / "many", CorpusConfig(), Acting(stop, 8))
    later = Acting(lambda: None)
    result = prepared_on_nodes(cluster, texts, tokenizer, tmp_path / "many", CorpusConfig(), later)
    assert result == on_one_machine(texts, tokenizer, tmp_path / "one", CorpusConfig())
    (note,) = later.notes
    assert 8 <= int(note.split()[0]) < later.n_split


def test_an_error_in_a_part_names_the_line_of_the_file(cluster: Cluster, tokenizer: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "some words"}\n' * 2_500 + "[]\n" + '{"text": "some words"}\n' * 2_500)
    with pytest.raises(InputError, match=r"a\.jsonl:2501 is a list"):
        prepared_on_nodes(cluster, path, tokenizer, tmp_path / "many", CorpusConfig())


def test_killed_nodes_change_nothing(
    cluster: Cluster, four_nodes: Any, texts: Path, tokenizer: Path, tmp_path: Path
) -> None:
    def kill() -> None:
        four_nodes.remove_node(four_nodes.list_all_nodes()[-1], allow_graceful=False)

    killing = Acting(kill, 2, 9)
    try:
        result = prepared_on_nodes(cluster, texts, tokenizer, tmp_path / "many", CorpusConfig(), killing)
        deadline = time.monotonic() + 60
        while len(alive_nodes(cluster.ray)) > 2 and time.monotonic() < deadline:
            time.sleep(0.1)
        assert len(alive_nodes(cluster.ray)) == 2
    finally:
        while len(four_nodes.list_all_nodes()) < 4:
            add_node(four_nodes)
    assert result == on_one_machine(texts, tokenizer, tmp_path / "one", CorpusConfig())


def _limit_files(number: int, size: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    time.sleep(0.1)  # so that each node has some


@pytest.mark.long
def test_a_full_disk_of_a_node_is_named(cluster: Cluster, texts: Path, tokenizer: Path, tmp_path: Path) -> None:
    """The last one, since the processes of the cluster keep the limit."""
    list(cluster.run(_limit_files, range(8), 10_000))
    with pytest.raises(OSError, match="File too large") as error:
        prepared_on_nodes(cluster, texts, tokenizer, tmp_path / "many", CorpusConfig())
    assert error.value.filename.startswith(str(tmp_path / "many"))
