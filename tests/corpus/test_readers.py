"""Readers on small files written in the true formats, with their odd parts."""

import bz2
import gzip
import hashlib
import io
import json
import lzma
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from backports import zstd

from greenadapt.corpus.readers import CorpusReader, open_corpus, read_whole
from greenadapt.corpus.recipes import find_recipe
from greenadapt.corpus.text import Decoder, Document
from greenadapt.errors import InputError, MissingError
from greenadapt.progress import Silent
from greenadapt.tasks.records import records
from tests.support.archives import tar_of

# ruff: noqa: E501  # such files have long lines


def reading(path: Path, *, strict: bool = False, **overrides: object) -> CorpusReader:
    return open_corpus(find_recipe(str(path), overrides), path.parent / "downloads", strict=strict)


def lines(path: Path, **overrides: object) -> list[tuple[str, ...]]:
    return [document.lines for document in reading(path, **overrides).documents()]


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def write_tar(path: Path, members: dict[str, bytes | str]) -> Path:
    data = tar_of(members)
    return write(path, data if path.suffix == ".tar" else gzip.compress(data))


# Plain text


def test_a_line_is_a_document_and_empty_lines_are_none(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "\ufeffFirst line.\r\n\n  \nSecond\u2028line \n")
    read = reading(path)
    assert [d.lines for d in read.documents()] == [("First line.",), ("Second\u2028line",)]
    assert read.counts == {"documents": 2, "lines": 2}


@pytest.mark.parametrize(
    ("suffix", "compress"),
    [("gz", gzip.compress), ("xz", lzma.compress), ("zst", zstd.compress)],
)
def test_compressed_text_and_truncated_compressed_text(tmp_path: Path, suffix: str, compress: object) -> None:
    text = "".join(f"line {i} {hash(str(i))}\n" for i in range(5000)).encode()
    data = compress(text)  # type: ignore[operator]
    assert len(lines(write(tmp_path / f"a.txt.{suffix}", data))) == 5000
    broken = write(tmp_path / f"b.txt.{suffix}", data[: len(data) // 2])
    with pytest.raises(InputError, match=rf"b\.txt\.{suffix} is truncated or damaged"):
        lines(broken)


def test_broken_utf8_is_counted_or_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", b"good \xef\xbf\xbd\nba\xffd \xe2\x82 x\n")
    read = reading(path)
    assert [d.lines[0] for d in read.documents()] == ["good \ufffd", "ba\ufffdd \ufffd x"]
    assert read.counts["replaced"] == 2
    with pytest.raises(InputError, match=r"a\.txt, line 2: byte 3 \(0xff\) is not UTF-8"):
        list(reading(path, strict=True).documents())


# JSON lines, CSV, TSV


def test_json_lines(tmp_path: Path) -> None:
    records = [{"text": "one\n\ntwo", "body": "b"}, {"text": None, "body": "only"}, {"text": " ", "body": " "}]
    path = write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, records)) + "\n\n")
    read = reading(path, fields=["text", "body"])
    assert [d.lines for d in read.documents()] == [("one", "two", "b"), ("only",)]
    assert read.counts == {"documents": 2, "lines": 4, "empty_documents": 1}


def test_lone_surrogates_are_broken_text(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"text": "a \\ud800 b \\ud83d\\ude00"}')
    read = reading(path)
    assert [d.lines for d in read.documents()] == [("a \ufffd b 😀",)]
    assert read.counts["replaced"] == 1
    with pytest.raises(InputError, match=r"a\.jsonl:1: character 13 is a lone surrogate"):
        list(reading(path, strict=True).documents())


NO_TEXT = "is not text: it has NUL bytes"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", "a text\n".encode("utf-16"), r"a\.txt is UTF-16, not UTF-8: convert it"),
        ("a.txt", b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + b"\n" * 10, NO_TEXT),
        ("a.txt", b"PK\x03\x04\x14\x00\x00\x00" + b"\n" * 10, r"a\.txt is a zip archive"),
        ("a.jsonl", '{"text": "fine"}\n{"body": "x"}', r"a\.jsonl:2 has no field text, it has: body"),
        ("a.jsonl", '{"text": "fine"}\n{"text": "x"', "line 2, column 13 is not JSON"),
        ("a.jsonl", '{"text": "fine"}\n' + "[" * 100_000, "line 2 is (not|unreadable) JSON"),
        ("a.xml", "<PubmedArticleSet><PubmedArticle></PubmedArticleSet>", "is not well-formed XML"),
        ("a.xml", "<html><body/></html>", r"a\.xml has the root element <html>, and no article, PubmedArticle or"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_a_broken_file_is_refused_in_one_line(tmp_path: Path, name: str, content: str | bytes, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        lines(write(tmp_path / name, content))
    assert "\n" not in str(caught.value)


def test_a_row_of_another_length_is_refused_or_skipped_and_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "id,abstract\n1,alpha, omega\n2,beta\n3\n\n")
    with pytest.raises(InputError, match=r"a\.csv:2 has 3 columns, the header 2: quote cells that hold a separator"):
        lines(path, fields=["abstract"])
    recipe = find_recipe(str(path), {"fields": ["abstract"]})
    read = open_corpus(recipe, tmp_path, lenient=True)
    assert [document.lines for document in read.documents()] == [("beta",)]
    assert read.counts == {"documents": 1, "lines": 1, "broken_lines": 2}
    with pytest.raises(InputError, match="or use --lenient to skip such lines"):
        list(open_corpus(recipe, tmp_path, lenient=False).documents())


def test_a_json_array(tmp_path: Path) -> None:
    records = [{"text": "one"}, {"text": float("nan")}, {"text": "two", "id": 7}]  # as pandas writes a missing text
    read = reading(write(tmp_path / "a.json", "\n" + json.dumps(records, indent=1)))
    assert [(d.lines, d.id) for d in read.documents()] == [(("one",), ""), (("two",), "7")]
    assert read.counts["empty_documents"] == 1
    with pytest.raises(InputError, match=r"entry 1 has no field body, it has: text: choose one with --field"):
        lines(tmp_path / "a.json", fields=["body"])


def test_json_that_is_no_array(tmp_path: Path) -> None:
    records = [{"abstract": "one", "title": "t"}, {"abstract": "two", "title": None}]
    path = write(tmp_path / "a.json", "\n".join(map(json.dumps, records)))
    assert lines(path, fields=["title", "abstract"]) == [("t", "one"), ("two",)]
    assert lines(write(path, json.dumps(records[0], indent=2)), fields=["abstract"]) == [("one",)]
    with pytest.raises(InputError, match="has no text in 1 source"):
        lines(write(path, '{"text": NaN}\n{"text": null}\n'))


# Folders and archives


def test_a_folder_and_an_archive_tell_each_file_by_its_suffix(tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    (folder / "sub").mkdir(parents=True)
    write(folder / "b.txt", "from text")
    write(folder / "sub" / "a.jsonl.gz", gzip.compress(b'{"text": "from json"}'))
    write(folder / "picture.png", b"\0\0")
    write(folder / ".hidden.txt", "no")
    read = reading(folder)
    assert [d.lines for d in read.documents()] == [("from text",), ("from json",)]
    assert read.counts["skipped_files"] == 1
    archive = write_tar(tmp_path / "x.tar.gz", {"a.txt": "one\ntwo", "a.bin": b"\0", "d/b.jsonl": '{"text": "three"}'})
    assert lines(archive) == [("one",), ("two",), ("three",)]


def test_hidden_and_compressed_members(tmp_path: Path) -> None:
    packed = gzip.compress(b"one")
    members = {"./d/._b.txt": b"\0", ".d/b.txt": b"\0", "d/a.txt.GZ": packed, "d/b.txt.bz2": bz2.compress(b"two")}
    assert lines(write_tar(tmp_path / "x.tar.gz", dict(members))) == [("one",), ("two",)]
    with pytest.raises(InputError, match=r"y\.tar:b\.txt\.gz (is truncated|cannot be read)"):
        lines(write_tar(tmp_path / "y.tar", {"b.txt.gz": packed[:-6]}))


# Whole documents


def whole(path: Path, kind: str = "auto", fields: tuple[str, ...] = ("text",)) -> list[Document]:
    return list(read_whole(str(path), kind, fields, Decoder()))


def test_whole_text_and_records_keep_their_line_breaks(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "\ufeff one\r\n\ntwo ")
    assert whole(path) == whole(path, "text") == [Document((" one\r\n\ntwo ",), str(path))]
    path = write(tmp_path / "a.jsonl", '{"text": " a\\n\\nb", "t": "c", "id": 3}\n\n{"text": "", "t": null}\n')
    assert whole(path, fields=("t", "text")) == [
        Document(("c", " a\n\nb"), f"{path}:1", "3"), Document(("",), f"{path}:3")
    ]  # fmt: skip
    folder = {Path(document.name).name for document in whole(tmp_path)}
    assert folder == {"a.jsonl:1", "a.jsonl:3", "a.txt"}


def test_other_formats_are_read_whole_as_for_a_corpus(tmp_path: Path) -> None:
    for name, content in (("a.nxml", JATS), ("a.xml", PUBMED), ("a.csv", "text,id\na,1\n"), ("a.json", parse("B  b."))):
        path = write(tmp_path / name, content)
        assert [document for document in whole(path) if document.lines] == list(reading(path).documents())
    assert [document.id for document in whole(tmp_path / "a.csv")] == ["1"]


def test_only_unknown_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"skipped 1 file of unknown kinds \(.*x\.tar\.gz:a\.bin\)"):
        lines(write_tar(tmp_path / "x.tar.gz", {"a.bin": b"\0"}))


# CORD-19

METADATA = """cord_uid,sha,source_x,title,doi,pmcid,abstract,pdf_json_files,pmc_json_files
u1,aa; bb,Elsevier; PMC,Both parses,,PMC1,"Gold abstract, one.",document_parses/pdf_json/aa.json; document_parses/pdf_json/bb.json,document_parses/pmc_json/PMC1.xml.json
u2,cc,WHO,Only PDF,,,,document_parses/pdf_json/cc.json,
u3,,WHO,Only abstract,,,Lonely abstract.,,
u4,dd,Elsevier,Two rows,,,Row abstract.,document_parses/pdf_json/dd.json,
u4,,PMC,Two rows,,PMC4,Row abstract again.,,document_parses/pmc_json/PMC4.xml.json
u5,ee,Elsevier,Parse is not there,,,,document_parses/pdf_json/ee.json,
u6,ff,Elsevier,No body,,,,document_parses/pdf_json/ff.json,
"""


def parse(*body: str, abstract: str | None = None) -> str:
    content: dict[str, object] = {
        "paper_id": "x",
        "metadata": {},
        "body_text": [{"text": t, "section": "S"} for t in body],
    }
    if abstract is not None:
        content["abstract"] = [{"text": abstract, "section": "Abstract"}]
    return json.dumps(content)


PARSES = {
    "document_parses/pdf_json/aa.json": parse("PDF body.", abstract="PDF abstract."),
    "document_parses/pdf_json/bb.json": parse("Supplement."),
    "document_parses/pdf_json/cc.json": parse("First  paragraph.", "Second.", abstract="Parsed abstract."),
    "document_parses/pdf_json/dd.json": parse("PDF of four."),
    "document_parses/pdf_json/ff.json": json.dumps({"paper_id": "ff", "abstract": []}),
    "document_parses/pmc_json/PMC1.xml.json": parse("PMC body."),
    "document_parses/pmc_json/PMC4.xml.json": parse("PMC of four."),
}
CORD19 = {
    ("Gold abstract, one.",), ("Lonely abstract.",), ("Row abstract.",),
    ("PMC body.",), ("PMC of four.",), ("Parsed abstract.", "First paragraph.", "Second."),
}  # fmt: skip


@pytest.mark.parametrize("layout", ["folder", "archive"])
def test_cord19_uses_a_paper_once(tmp_path: Path, layout: str) -> None:
    inner = write_tar(tmp_path / "document_parses.tar.gz", dict(PARSES)).read_bytes()
    release: dict[str, bytes | str] = {"2022-06-02/cord_19_embeddings.tar.gz": b"\x1f\x8b"}
    path = tmp_path / "cord.tar.gz"
    if layout == "folder":
        path = tmp_path / "2022-06-02"
        for name, content in {"metadata.csv": METADATA, **PARSES}.items():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            write(path / name, content)
    else:
        release |= {"2022-06-02/document_parses.tar.gz": inner, "2022-06-02/metadata.csv": METADATA}
        write_tar(path, release)
    read = reading(path, format="cord19")
    documents = [d.lines for d in read.documents()]
    assert len(documents) == len(CORD19)
    assert set(documents) == CORD19
    assert read.counts["repeated_parses"] == 3
    assert read.counts["missing_parses"] == 1
    assert read.counts["empty_documents"] == 1


def test_cord19_single_parse_and_what_is_none(tmp_path: Path) -> None:
    assert lines(write(tmp_path / "aa.json", parse("Body.", abstract="Abstract."))) == [("Abstract.", "Body.")]
    with pytest.raises(InputError, match=r"is not a CORD-19 parse: no body_text, it has: text: .*--format json$"):
        lines(write(tmp_path / "bb.json", '{"text": "x"}'), format="cord19")
    with pytest.raises(InputError, match=r"has no metadata\.csv"):
        lines(write_tar(tmp_path / "c.tar.gz", dict(PARSES)), format="cord19")
    with pytest.raises(InputError, match="has no column pdf_json_files, pmc_json_files"):
        lines(write_tar(tmp_path / "d.tar.gz", {"metadata.csv": "cord_uid,abstract\n"}), format="cord19")


# PubMed

PUBMED = """<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE PubmedArticleSet PUBLIC "-//NLM//DTD PubMedArticle, 1st January 2026//EN" "https://dtd.nlm.nih.gov/ncbi/pubmed/out/pubmed_260101.dtd">
<PubmedArticleSet>
<PubmedArticle><MedlineCitation Status="MEDLINE" Owner="NLM"><PMID Version="1">1</PMID><Article PubModel="Print">
 <ArticleTitle>Role of Ca<sup>2+</sup> and <i>E. coli</i> in H<sub>2</sub>O.</ArticleTitle>
 <Abstract><AbstractText Label="BACKGROUND" NlmCategory="BACKGROUND">First <b>part <i>nested</i></b> &lt; 5.</AbstractText>
  <AbstractText Label="RESULTS">Sum <mml:math xmlns:mml="http://www.w3.org/1998/Math/MathML"><mml:msup><mml:mi>x</mml:mi><mml:mn>2</mml:mn></mml:msup></mml:math> &#945;.</AbstractText>
  <CopyrightInformation>Copyright 2026.</CopyrightInformation></Abstract>
 <VernacularTitle>Anders.</VernacularTitle></Article>
 <OtherAbstract Type="Publisher" Language="spa"><AbstractText>En otro idioma.</AbstractText></OtherAbstract></MedlineCitation></PubmedArticle>
<PubmedArticle><MedlineCitation><PMID Version="1">2</PMID><Article><ArticleTitle>[A translated title].</ArticleTitle></Article></MedlineCitation></PubmedArticle>
<PubmedArticle><MedlineCitation><PMID Version="1">3</PMID><Article><ArticleTitle>[Not Available].</ArticleTitle></Article></MedlineCitation></PubmedArticle>
<PubmedBookArticle><BookDocument><PMID Version="1">4</PMID><Book><BookTitle book="b">Whole book</BookTitle></Book>
 <ArticleTitle>A chapter</ArticleTitle><Abstract><AbstractText>About it.</AbstractText></Abstract></BookDocument></PubmedBookArticle>
<DeleteCitation><PMID Version="1">5</PMID></DeleteCitation>
</PubmedArticleSet>
"""


def test_pubmed(tmp_path: Path) -> None:
    path = write(tmp_path / "pubmed26n0001.xml.gz", gzip.compress(PUBMED.encode()))
    read = reading(path)
    documents = list(read.documents())
    assert [d.lines for d in documents] == [
        ("Role of Ca2+ and E. coli in H2O.", "First part nested < 5. Sum x2 α."),
        ("A translated title.",),
        ("A chapter", "About it."),
    ]
    assert [d.name.rpartition(":")[2] for d in documents] == ["1", "2", "4"]


def test_pubmed_and_pmc_in_one_recipe(tmp_path: Path) -> None:
    """As ``pubmed-pmc`` has them: the baseline's files, and archives of articles."""
    for name in ("baseline", "articles"):
        (tmp_path / name).mkdir()
    write(tmp_path / "baseline" / "pubmed26n0001.xml.gz", gzip.compress(PUBMED.encode()))
    write_tar(tmp_path / "articles" / "00000.tar.gz", {"PMC1.1.xml": JATS})
    recipe = 'title = "both"\nlicence = "none"\nformat = "auto"\n'
    (tmp_path / "both.toml").write_text(recipe + '[[sources]]\nurl = "baseline"\n[[sources]]\nurl = "articles"\n')
    alone = [*lines(tmp_path / "baseline", format="xml"), *lines(tmp_path / "articles", format="pmc")]
    assert lines(tmp_path / "both.toml") == alone
    assert len(alone) == 4
    with_list = write_tar(tmp_path / "b.tar.gz", {"PMC1.1.xml": JATS, "filelist.csv": "Article File\n"})
    assert lines(with_list, format="pmc") == [JATS_LINES]


PEAK = """
import resource, sys
from pathlib import Path
from greenadapt.corpus.readers import open_corpus
from greenadapt.corpus.recipes import find_recipe
print(sum(1 for _ in open_corpus(find_recipe(sys.argv[1]), Path(".")).documents()))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.slow
def test_xml_streams(tmp_path: Path) -> None:
    """A file of 4 MB must not take more memory than one of 0.6 MB; held as a tree, it would take ten times its size."""
    peaks = []
    article = PUBMED[PUBMED.index("<PubmedArticle>") : PUBMED.index("<PubmedBookArticle>")]
    wrapped = f"<record><head>{'x' * 1000}</head>{article}</record>"  # which is freed, too
    for copies in (300, 2_000):
        path = tmp_path / f"{copies}.xml"
        with open(path, "w", encoding="utf-8") as file:
            file.write("<PubmedArticleSet>")
            file.writelines(wrapped for _ in range(copies))
            file.write("</PubmedArticleSet>")
        run = subprocess.run([sys.executable, "-c", PEAK, str(path)], capture_output=True, text=True, check=True)
        count, peak = map(int, run.stdout.split())
        assert count == 2 * copies
        peaks.append(peak * (1 if sys.platform == "darwin" else 1024))
    assert peaks[1] - peaks[0] < 5e6


def test_entities_are_never_expanded(tmp_path: Path) -> None:
    secret = write(tmp_path / "secret.txt", "SECRET")
    content = f"""<?xml version="1.0"?><!DOCTYPE article SYSTEM "jats.dtd" [<!ENTITY in "inside"> <!ENTITY x SYSTEM "{secret.as_uri()}">]>
    <article><body><p>Safe &in; &x; &alpha; text.</p></body></article>"""
    ((line,),) = lines(write(tmp_path / "a.nxml", content))
    assert line == "Safe ∈ &x; α text."  # HTML's meaning of the name, not the file's


# PMC

JATS = """<?xml version="1.0"?>
<!DOCTYPE article PUBLIC "-//NLM//DTD JATS (Z39.96) Journal Archiving and Interchange DTD v1.3 20210610//EN" "JATS-archivearticle1-3.dtd">
<article xmlns:xlink="http://www.w3.org/1999/xlink" xmlns:mml="http://www.w3.org/1998/Math/MathML" article-type="research-article">
<front><article-meta><title-group><article-title>Title</article-title></title-group>
 <abstract><title>Abstract</title><sec><title>Background</title><p>Main <italic>abstract</italic>.</p></sec></abstract>
 <abstract abstract-type="summary"><p>Author summary.</p></abstract>
 <abstract abstract-type="graphical"><p><graphic xlink:href="g.jpg"/>Graphic words.</p></abstract>
 <trans-abstract xml:lang="es"><p>Resumen.</p></trans-abstract></article-meta></front>
<body><p>Opening<sup><xref ref-type="bibr" rid="b1">1</xref></sup> as shown [<xref ref-type="bibr" rid="b1">1</xref>, <xref ref-type="bibr" rid="b2">2</xref>] in <xref ref-type="fig" rid="f1">Fig. 1</xref>.</p>
 <sec><title>Methods</title><p>CO<sub>2</sub> is <inline-formula><tex-math>\\documentclass{minimal}</tex-math><mml:math><mml:mi>y</mml:mi></mml:math></inline-formula> high.
  <disp-formula><tex-math>E=mc^2</tex-math></disp-formula><list><list-item><p>Item one.</p></list-item><list-item><p>Item two.</p></list-item></list> The end.</p>
  <fig id="f1"><label>1</label><caption><p>A caption.</p></caption></fig>
  <table-wrap><table><tr><td><p>Cell</p></td></tr></table></table-wrap>
  <sec><title>Deep</title><p><?pi x?>Deeper<!-- comment --> text<fn><p>Footnote.</p></fn>.</p></sec></sec></body>
<back><ack><p>Thanks.</p></ack><ref-list><ref id="b1"><mixed-citation>Ref.</mixed-citation></ref></ref-list></back>
<sub-article><body><p>Reviewer.</p></body></sub-article>
</article>
"""
JATS_LINES = (
    "Main abstract.", "Author summary.", "Opening as shown in Fig. 1.", "CO2 is y high. The end.",
    "Item one.", "Item two.", "Deeper text.",
)  # fmt: skip


def test_jats(tmp_path: Path) -> None:
    assert lines(write(tmp_path / "PMC1.nxml", JATS)) == [JATS_LINES]
    assert lines(write(tmp_path / "PMC1.xml", JATS)) == [JATS_LINES]
    namespaced = JATS.replace("<article ", '<article xmlns="https://jats.nlm.nih.gov/ns/archiving/1.3/" ')
    assert lines(write(tmp_path / "PMC2.xml", namespaced)) == [JATS_LINES]


XREF = '<xref ref-type="{}" rid="x">{}</xref>'.format


@pytest.mark.parametrize(
    ("inside", "text"),
    [
        # Between words
        ("line<break/>second<hr/>third", "line second third"),
        ("as<disp-formula><label>(1)</label><mml:math><mml:mi>E</mml:mi></mml:math></disp-formula>shows", "as shows"),
        ("two<list><list-item><p>One.</p></list-item><list-item><p>Two.</p></list-item></list>items", "two items / One. / Two."),
        ("a<boxed-text><caption><title>Box</title></caption><p>Boxed.</p></boxed-text>b", "a b / Boxed."),
        ("a<preformat>x = 1</preformat>b<code>y</code>c<supplementary-material><p>S.</p></supplementary-material>d", "a b c d"),
        ("<mml:math><mml:mtable><mml:mtr><mml:mtd>1</mml:mtd><mml:mtd>0</mml:mtd></mml:mtr></mml:mtable></mml:math>", "1 0"),
        # Within words
        ("the <sc>d</sc>-form, <named-content>BRCA</named-content>1 <styled-content>x</styled-content>y", "the d-form, BRCA1 xy"),
        ("(<abbrev>ADHD<def><p>Attention deficit.</p></def></abbrev>)", "(ADHD) / Attention deficit."),
        ("a<?page 3?>b<!-- c -->c <target id='t'/>d", "abc d"),
        ("p<inline-formula><tex-math>$x$</tex-math></inline-formula>-value <inline-formula><mml:math><mml:semantics><mml:mi>z</mml:mi><mml:annotation>z_1</mml:annotation></mml:semantics></mml:math></inline-formula>.", "p-value z."),
        ("<mml:math><mml:mfrac><mml:mn>1</mml:mn><mml:mn>2</mml:mn></mml:mfrac></mml:math> of <chem-struct>C6H6</chem-struct>", "1/2 of C6H6"),
        # Marks
        (f"word<sup>{XREF('bibr', 1)},{XREF('bibr', 2)}–{XREF('bibr', 3)}</sup> and [{XREF('bibr', 4)}, {XREF('bibr', 5)}].", "word and."),
        (f"value{XREF('table-fn', '<sup>a</sup>')} and value{XREF('fn', '*')} x<sup>{XREF('fn', 'b')}</sup>", "value and value x"),
        (f"{XREF('fig', 'Fig. 1')}<bold>A</bold> and {XREF('sec', 'Methods')}, m<sup>2</sup>", "Fig. 1A and Methods, m2"),
        ("as<element-citation><surname>Doe</surname><year>2001</year></element-citation>wrote", "as wrote"),
    ],
)  # fmt: skip
def test_the_elements_in_a_paragraph_of_jats(tmp_path: Path, inside: str, text: str) -> None:
    article = f'<article xmlns:mml="m"><body><sec><p>{inside}</p></sec></body></article>'
    assert lines(write(tmp_path / "a.nxml", article)) == [tuple(text.split(" / "))]


@pytest.mark.parametrize(
    ("inside", "text"),
    [
        ("as<DispFormula><mml:math><mml:mi>E</mml:mi></mml:math></DispFormula>shows", "as E shows"),
        ("<mml:math><mml:mfrac><mml:mi>a</mml:mi><mml:mi>b</mml:mi></mml:mfrac></mml:math>", "a/b"),
    ],
)
def test_the_elements_in_an_abstract_of_pubmed(tmp_path: Path, inside: str, text: str) -> None:
    abstract = f"<Abstract><AbstractText>{inside}</AbstractText></Abstract>"
    other = "<OtherAbstract><AbstractText>Autre.</AbstractText></OtherAbstract>"
    article = f"<Article>{abstract}</Article>{other}"
    assert lines(write(tmp_path / "a.xml", f'<PubmedArticle xmlns:mml="m">{article}</PubmedArticle>')) == [(text,)]


# Opening


def test_what_is_not_there(tmp_path: Path) -> None:
    recipe = find_recipe("cord19")
    with pytest.raises(MissingError, match="corpus prepare cord19 --download"):
        open_corpus(recipe, tmp_path)
    path = write(tmp_path / "a.txt", "x")
    read = reading(path)
    path.unlink()
    with pytest.raises(MissingError, match=r"a\.txt does not exist"):
        list(read.documents())


SMALL = 200_000


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt.gz", gzip.compress(b"a b\n" + b"word " * 50_000), r"a\.txt\.gz, line 2: a document of over 0\.2 MB"),
        ("a.csv", b'text\n"' + b"word word\n" * 30_000, r"a\.csv, line \d+: a document of over 0\.2 MB"),
    ],
)
def test_what_is_too_long_for_text_is_refused(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    recipe = find_recipe(str(write(tmp_path / name, content)))
    with pytest.raises(InputError, match=message):
        list(open_corpus(recipe, tmp_path, max_bytes=SMALL).documents())


@pytest.mark.parametrize("read", [1, 5])
def test_long_lines_are_cut_between_characters(read: int, monkeypatch: pytest.MonkeyPatch) -> None:
    data = "aé中😀".encode() * 9 + b"\xe4\xb8a\xff\x80\xf0\x9f\nb\xe4" + b"\x80" * 7
    monkeypatch.setattr("greenadapt.corpus.text._BLOCK", read)
    for begin in range(6):
        decoder = Decoder()
        blocks = list(decoder.blocks(io.BytesIO(data[begin:]), "a", data[:begin]))
        assert b"".join(blocks).decode() == data.decode(errors="replace")
        assert decoder.counts["replaced"] == data.decode(errors="replace").count("\ufffd")


def own_recipe(folder: Path, source: str, kind: str = "text") -> Path:
    path = folder / "mine.toml"
    path.write_text(f'title = "T"\nlicence = "L"\nformat = "{kind}"\n{source}', encoding="utf-8")
    return path


def test_a_local_file_is_checked_as_the_recipe_says(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text")
    right, source = hashlib.sha256(b"text").hexdigest(), '[[sources]]\nurl = "a.txt"\nsha256 = '
    assert [*reading(own_recipe(tmp_path, f'{source}"{right.upper()}"')).fingerprint().values()] == [right]
    with pytest.raises(InputError, match=rf"a\.txt: SHA-256 is {right}, the recipe has 0{{64}}: give the right file"):
        reading(own_recipe(tmp_path, f'{source}"{"0" * 64}"')).fingerprint()


@pytest.mark.slow
def test_sources_that_are_not_on_this_machine(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match=r"gone\.txt does not exist"):
        reading(own_recipe(tmp_path, '[[sources]]\nurl = "gone.txt"\n'))
    with pytest.raises(MissingError, match="no package nosuch installed for this Python"):
        reading(own_recipe(tmp_path, 'packages = ["nosuch"]\n', "pydocs"))
    os.mkfifo(tmp_path / "pipe.txt")
    with pytest.raises(InputError, match=r"pipe\.txt is a pipe or a device, not a file or a folder"):
        reading(tmp_path / "pipe.txt")


def test_fingerprint_changes_with_the_content(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "x")
    first = reading(path).fingerprint()
    assert first == {str(path): "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"}
    write(path, "y")
    assert reading(path).fingerprint() != first
    of_folder = reading(tmp_path).fingerprint()
    write(tmp_path / "b.txt", "x")
    assert reading(tmp_path).fingerprint() != of_folder


@pytest.mark.parametrize(("kind", "block"), [("jsonl", 1 << 16), ("csv", 16)])
def test_carriage_returns_end_lines(tmp_path: Path, kind: str, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with the universal newlines of Python: CR, CR LF and LF."""
    source, texts = random.Random(block), [f"text {i} é" for i in range(300)]
    records = {"jsonl": [json.dumps({"text": text}) for text in texts], "csv": ["text", *texts]}[kind]
    ends = ["\r", *source.choices(["\r", "\r\r", "\r\n", "\n"], k=len(records) - 2), "\r"]
    content = "\ufeff" + "".join(record + end for record, end in zip(records, ends, strict=True))
    path = write(tmp_path / f"a.{kind}", content)
    monkeypatch.setattr("greenadapt.corpus.text._BLOCK", block)
    documents = [*reading(path).documents()]
    assert [document.lines for document in documents] == [(text,) for text in texts]
    with open(path, encoding="utf-8") as file:
        assert documents[-1].name == f"{path}:{len(list(file))}"


def test_a_carriage_return_in_a_line_or_a_cell_stays_where_lines_end_otherwise(tmp_path: Path) -> None:
    assert lines(write(tmp_path / "a.txt", "a\r\r\nb\rc\n")) == [("a",), ("b\rc",)]
    path = write(tmp_path / "a.csv", 'text\r\n"a\rb\nc"\r\nd\r\n')
    assert [row["text"] for _, row in records(str(path), Silent())] == ["a\rb\nc", "d"]


def test_page_breaks_separate_words(tmp_path: Path) -> None:
    """BERT's normalizer removes them."""
    assert lines(write(tmp_path / "a.txt", "one\ftwo\x85three\x0bfour\n")) == [("one two three four",)]


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("a.csv", "sep=;\nid;text\n1;alpha, beta\n", "alpha, beta"),
        ("a.csv", "id,text\n1,NaN\n2,alpha\n3,nan\n", "alpha"),
    ],
)
def test_tables_of_excel_and_pandas(tmp_path: Path, name: str, content: str, text: str) -> None:
    assert lines(write(tmp_path / name, content)) == [(text,)]


def test_commas_in_the_header_of_a_tsv_are_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a\.tsv, line 1: the header has ',' instead of tabs: name it \.csv"):
        lines(write(tmp_path / "a.tsv", "id,text\n1,alpha\n"))
