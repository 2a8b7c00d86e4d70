"""New documents added to a prepared corpus, against a preparation of everything at once."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from greenadapt.config import CorpusConfig
from greenadapt.corpus.prepared import PreparedCorpus, added_positions, line_keys
from greenadapt.corpus.splitting import HELDOUT
from greenadapt.corpus.text import Document
from tests.conftest import wordpiece_tokenizer
from tests.corpus.test_prepared import files, lines_of, plain_lines, prepare, random_documents


@pytest.fixture(scope="module")
def splitter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("splitter") / "tokenizer.json"
    wordpiece_tokenizer().save(str(path))
    return path


def update(before: Path, documents: list[Document], splitter: Path, folder: Path, **options: object) -> dict[str, int]:
    return prepare(documents, splitter, folder, previous=PreparedCorpus.open(before), **options)


@pytest.mark.parametrize(
    "config", [CorpusConfig(), CorpusConfig(keep_duplicates=True), CorpusConfig(heldout=0.2, seed=3)], ids=str
)
def test_documents_added_at_the_end_give_the_bytes_of_a_full_run(
    splitter: Path, tmp_path: Path, config: CorpusConfig
) -> None:
    documents = random_documents(120)
    documents[30] = documents[20]
    documents[110:112] = [documents[100], documents[5]]
    full = prepare(documents, splitter, tmp_path / "full", config=config)
    prepare(documents[:90], splitter, tmp_path / "0", config=config)
    for number, n in enumerate((97, 120, 120)):
        folder = tmp_path / str(number + 1)
        counts = update(tmp_path / str(number), documents[:n], splitter, folder, config=config)
        assert counts["gone"] == 0
    assert (tmp_path / "full" / HELDOUT).is_file() == (config.heldout > 0)
    assert files(tmp_path / "3") == files(tmp_path / "full")
    assert {name: counts[name] for name in ("lines", "tokens", "words")} == {
        name: full[name] for name in ("lines", "tokens", "words")
    }
    assert counts["documents"] == 0


def test_seen_documents_are_skipped_and_others_counted_wherever_they_are(splitter: Path, tmp_path: Path) -> None:
    documents = random_documents(60)
    first, gone, new = documents[:40], documents[:10], documents[40:]
    changed = Document((*first[20].lines, "a line that was added"))
    prepare(first, splitter, tmp_path / "before")
    text = [*new, *new[:3], *reversed(first[10:20]), changed, *first[21:], first[30]]
    counts = update(tmp_path / "before", text, splitter, tmp_path / "after")
    after = PreparedCorpus.open(tmp_path / "after")
    assert (counts["documents"], counts["duplicates"], counts["gone"]) == (24, 3, 11)
    assert len(gone) + 1 == counts["gone"]  # the former text of the changed one, too
    expected = plain_lines([*first, *new, changed], splitter)
    assert Counter(lines_of(after)) == Counter(expected)
    frequencies = dict(zip(after.words, after.counts.tolist(), strict=True))
    assert frequencies == Counter(word for line in expected for word in line)
    assert after.counts.tolist() == sorted(after.counts, reverse=True)


def test_a_kept_duplicate_is_new_once_it_is_read_more_often_than_before(splitter: Path, tmp_path: Path) -> None:
    first, second = Document(("fever and pain",)), Document(("fever",))
    config = CorpusConfig(keep_duplicates=True)
    prepare([first, first, second], splitter, tmp_path / "before", config=config)
    counts = update(
        tmp_path / "before", [first, second, first, first, first], splitter, tmp_path / "after", config=config
    )
    assert (counts["documents"], counts["lines"]) == (2, 5)


def test_added_lines_lie_where_their_keys_sort_them() -> None:
    order = np.argsort(line_keys(0, 500, 7))
    assert added_positions(380, 500, 7).tolist() == np.flatnonzero(order >= 380).tolist()
    assert added_positions(500, 500, 7).tolist() == []
