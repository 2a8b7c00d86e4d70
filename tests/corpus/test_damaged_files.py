"""Damaged files of every format are read or refused."""

import gzip
import json
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from greenadapt.config import TaskConfig
from greenadapt.corpus.readers import open_corpus
from greenadapt.corpus.recipes import find_recipe
from greenadapt.errors import GreenadaptError
from greenadapt.progress import Silent
from greenadapt.tasks.base import make_task
from greenadapt.tasks.tasks_file import read_tasks_file
from tests.support.archives import tar_of

ROWS = [{"text": "The heart rate.", "label": "ill"}, {"text": "A cell\nof é", "label": "well"}]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
TEXT = "The heart of naïve \u65e5\u672c patients.\n\nA second line.\n".encode()
TABLE = b'text,label\n"The heart, ""quoted""\nrate",ill\nA cell,well\n'
PUBMED = b"""<?xml version="1.0"?><PubmedArticleSet><PubmedArticle><MedlineCitation><PMID>1</PMID><Article>
<ArticleTitle>A title</ArticleTitle><Abstract><AbstractText Label="AIM">The &lt;i&gt; heart.</AbstractText></Abstract>
</Article></MedlineCitation></PubmedArticle></PubmedArticleSet>"""
JATS = b"""<article><front><article-meta><title-group><article-title>A title</article-title></title-group><abstract>
<p>The heart.</p></abstract></article-meta></front><body><sec><title>One</title><p>A <italic>cell</italic>.</p></sec>
</body></article>"""
SQUAD = json.dumps({"version": "2.0", "data": [{"title": "T", "paragraphs": [{
    "context": "The virus was isolated.", "qas": [{"id": "q1", "question": "What?", "answers":
    [{"text": "virus", "answer_start": 4}], "is_impossible": False}]}]}]}).encode()  # fmt: skip
TAGS = b"-DOCSTART- O\n\nThe\tO\nvirus\tB-Disease\nheart\tI-Disease\n\nA O\ncell B-Gene\n"
TASKS = b'[defaults]\nmax-length = 64\n[[task]]\nname = "ner"\nkind = "ner"\ntrain = "train.tsv"\nchunk = 10\n'
RECIPE = b'title = "A"\nlicence = "CC0"\nformat = "jsonl"\nfields = ["text"]\n[[sources]]\nurl = "a.jsonl"\n'


def read_corpus(path: Path) -> Any:
    recipe = find_recipe(str(path))
    return list(islice(open_corpus(recipe, path.parent).documents(), 2000))


def read_labels(task: Any) -> Callable[[Path], Any]:
    return lambda path: make_task(TaskConfig(task=task)).read(str(path), Silent())


FILES: dict[str, tuple[bytes, Callable[[Path], Any]]] = {
    "a.txt": (TEXT, read_corpus),
    "a.txt.gz": (gzip.compress(TEXT, mtime=0), read_corpus),
    "rows.jsonl": (LINES, read_corpus),
    "rows.csv": (TABLE, read_corpus),
    "pubmed.xml": (PUBMED, read_corpus),
    "article.nxml": (JATS, read_corpus),
    "all.tar": (tar_of({"a.txt": TEXT, "rows.jsonl": LINES, "in/b.txt.gz": gzip.compress(TEXT)}), read_corpus),
    "words.conll": (TAGS, read_labels("ner")),
    "squad.json": (SQUAD, read_labels("qa")),
    "labels.jsonl": (LINES, read_labels("classification")),
    "tasks.toml": (TASKS, read_tasks_file),
    "recipe.toml": (RECIPE, lambda path: find_recipe(str(path))),
}
ODD = st.sampled_from(
    [b"", b"\0", b"\xff", b"\xff\xfe", b"\xef\xbb\xbf", b"\r", b'"', b"\t", b"{", b"]", b"</", b"]]>", b"&b;", b"&#0;",
     b"<!DOCTYPE a [<!ENTITY b SYSTEM 'file:///etc/passwd'>]>", b"\\ud800", b"NaN", b"1e999", b"9" * 5000, b"[" * 3000,
     b'{"a":' * 3000, b"\x1b[2J", b"\xe2\x80\xae", b"\xed\xa0\x80", b"../", b"-DOCSTART-", b"null", b"-1", b"[]"]
)  # fmt: skip
"""What readers have stumbled over."""


@st.composite
def damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """``content`` with one to three parts of up to 40 bytes replaced, left out, repeated, or with its end cut off."""
    for _ in range(draw(st.integers(1, 3))):
        begin = draw(st.integers(0, len(content)))
        end = min(len(content), begin + draw(st.integers(0, 40)))
        new = draw(st.one_of(ODD, st.binary(max_size=8), st.just(content[begin:end] * 2)))
        content = content[:begin] + new + (content[end:] if draw(st.integers(0, 9)) else b"")
    return content


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(data=st.data())
def test_a_damaged_file_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject
) -> None:
    content, read = FILES[name]
    path = tmp_path_factory.mktemp("damaged") / name
    (path.parent / "train.tsv").write_bytes(TAGS)  # which tasks.toml names
    path.write_bytes(content)
    read(path)
    path.write_bytes(data.draw(damaged(content)))
    with suppress(GreenadaptError):  # any other error is a traceback to the user
        read(path)
