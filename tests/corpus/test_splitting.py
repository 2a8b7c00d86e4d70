from pathlib import Path

from greenadapt.corpus.splitting import HELDOUT, hold_out
from greenadapt.corpus.text import Document

DOCUMENTS = [Document((f"title {i}", f"text {i}")) for i in range(2000)]


def test_the_share_is_kept_out_and_written_down(tmp_path: Path) -> None:
    training = list(hold_out(DOCUMENTS, 0.1, tmp_path))
    lines = (tmp_path / HELDOUT).read_text().splitlines()
    assert len(lines) == 2 * (2000 - len(training))
    assert 150 <= 2000 - len(training) <= 250
    assert {line for document in training for line in document.lines}.isdisjoint(lines)
    assert set(hold_out(reversed(DOCUMENTS), 0.1, tmp_path)) == set(training)  # whatever the order
