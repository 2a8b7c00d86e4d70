from dataclasses import replace

import pytest

from greenadapt.errors import ConflictError
from greenadapt.stages.session import Session, data_name


@pytest.mark.parametrize(
    ("sources", "name"),
    [
        (["/data/NCBI-disease/train.tsv", "/data/NCBI-disease/devel.tsv.gz"], "NCBI-disease"),
        (["/data/NCBI-disease/data/train-00000-of-00001.jsonl"], "NCBI-disease"),
        (["/x/bc5cdr.train.tsv", "/x/BC2GM.tsv"], "bc5cdr-BC2GM"),
        (["nyu-mll/glue/sst2:train"], "glue-sst2"),
        (["/NCBI/" + "dataset" * 100 + "x.csv"], "dataset" * 100 + "x"),  # in linear time
        (["/a.tsv", "/b.tsv", "/c.tsv", "/d.tsv", "/e.tsv"], "a-b-and-3-more"),
    ],
)
def test_a_run_is_called_after_its_data(sources: list[str], name: str) -> None:
    assert data_name(sources) == name


def test_a_folder_where_clean_removes_is_refused(session: Session) -> None:
    inside = replace(session, out=session.workspace.root / "results" / "index-aaaaaaaaaaaa")
    with pytest.raises(ConflictError, match="lies in the workspace: leave it out"):
        inside.check_out("index")
