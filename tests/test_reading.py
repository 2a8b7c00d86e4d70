"""What the readers share."""

import pytest

from greenadapt.corpus.reading import data_suffix


@pytest.mark.parametrize(
    ("path", "suffix"),
    [
        ("a.jsonl", ".jsonl"),
        ("x.v2/A.JSONL.GZ", ".jsonl"),
        ("a.b.Csv.zst", ".csv"),
        ("a.gz.tsv", ".tsv"),
        ("a.gz", ""),
        ("x.csv/a", ""),
        ("owner/name.v2:train", ".v2:train"),
        ("https://host/a.json.xz", ".json"),
        ("-", ""),
        ("", ""),
    ],
)
def test_the_suffix_of_what_is_in_a_file(path: str, suffix: str) -> None:
    assert data_suffix(path) == suffix
