"""Tagged files and records: what is read, and what is said of those that are wrong."""

import gzip
import re
from collections import Counter
from itertools import chain, product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from seqeval.metrics.sequence_labeling import get_entities, precision_recall_fscore_support

from greenadapt.corpus.text import Decoder
from greenadapt.errors import InputError
from greenadapt.fields import parse_names
from greenadapt.progress import Silent
from greenadapt.tasks.conll import (
    EntitySpan,
    Sentence,
    Split,
    conll_sentences,
    entities,
    entity_counts,
    entity_f1,
    entity_scores,
    find_most_probable,
    guess_split,
    iob2,
    parse_tagged,
    read_conll,
    split_sentence,
    split_text,
)
from tests.conftest import Notes

TWO = [
    Sentence(("Ataxia", "telangiectasia", "is", "rare"), ("B-Disease", "I-Disease", "O", "O")),
    Sentence(("It", "is"), ("O", "O")),
]


def read(tmp_path: Path, content: str | bytes, name: str = "train.tsv") -> list[Sentence]:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_conll(str(path), Decoder(), Silent())


@pytest.mark.parametrize(
    "content",
    [
        "Ataxia\tB-Disease\r\ntelangiectasia\tI-Disease\r\nis\tO\r\nrare\tO\r\n\t\r\n\r\n\r\nIt\tO\r\nis\tO",
        "\ufeff\nAtaxia NN x B-Disease\ntelangiectasia  NN x I-Disease\nis VB x O\nrare J x O \n \nIt x x O\nis x x O",
    ],
)
def test_layouts(tmp_path: Path, content: str) -> None:
    assert read(tmp_path, content) == TWO
    assert read(tmp_path, gzip.compress(content.encode()), "train.tsv.gz") == TWO


# What the formats' own descriptions and released files look like; each holds the sentences of ``TWO``.
WORDS = ("Ataxia", "telangiectasia", "is", "rare"), ("It", "is")


def dialect(
    line: str, before: str = "", first: int = 1, tags: str = "B-Disease I-Disease O O O O", at: str = ""
) -> str:
    """The words of ``TWO``, a ``line`` each with number, word and tag, and ``before`` every sentence."""
    given = iter(tags.split())
    sentences = (
        "".join(f"{line.format(i, word, next(given))}\n" for i, word in enumerate(words, first)) for words in WORDS
    )
    return at + "".join(f"{before}{sentence}\n" for sentence in sentences)


_CONLLU = "{0}\t{1}\t_\t_\t_\t_\t_\t_\t_\t"
DIALECTS = {
    "conll-2003": (
        dialect("{1} NN I-NP {2}", at="-DOCSTART- -X- -X- O\n\n", tags="I-Disease I-Disease O O O O"),
        (1, 4),
    ),
    "germeval-2014": (dialect("{0}\t{1}\t{2}\tB-Part", before="#\thttp://de.wikipedia.org/\t[2009-10-17]\n"), (2, 3)),
    "conll-u": (
        dialect(f"{_CONLLU}SpaceAfter=No|NER={{2}}", before="# text = a b c\n1-2\tof\t_\t_\t_\t_\t_\t_\t_\t_\n")
        + "\n# sent_id = 3\n",
        (2, 10),
    ),
    "stanza": (
        dialect(f"{_CONLLU}start_char=0|ner={{2}}", tags="B-Disease E-Disease O O O O").replace(
            "\n3\t", "\n2.1\tx\n3\t"
        ),
        (2, 10),
    ),
    "universal-ner": (dialect("{0}\t{1}\t{2}\t-\tann", before="# sent_id = 1\n# text = It is x\n"), (2, 3)),
    "wikineural": (dialect("{0}\t{1}\t{2}", first=0), (2, 3)),
    "jnlpba": (dialect("{1}\t{2}", before="###MEDLINE:95369245\n\n"), None),
    "multiconer": (dialect("{1} _ _ {2}", before="# id 5239d808-f300 domain=en\n"), (1, 4)),
    "wnut-17": (dialect("{1}\t{2}").replace("\n\n", "\n\t\n"), None),
    "mtl-bioinformatics": (dialect("{1}\t{2}", tags="B-Disease E-Disease O O O O"), None),
    "i2b2": (dialect("{1}\t0\t7\t{2}", at="-DOCSTART- (12)\tO\n\n"), (1, 4)),
    "with-a-header": (dialect("{1}\tNN\t{2}", at="Word\tPOS\tTag\n"), (1, 3)),
    "bc5cdr": (dialect("{1}\t{2}\tD001260", at="-DOCSTART- 227508\n\n"), (1, 2)),
}


@pytest.mark.parametrize("name", DIALECTS)
def test_dialects(tmp_path: Path, name: str) -> None:
    content, columns = DIALECTS[name]
    (tmp_path / "a.conll").write_text(content)
    notes = Notes()
    assert read_conll(str(tmp_path / "a.conll"), Decoder(), notes) == TWO
    said = columns and f"read column {columns[0]} of N as the word and column {columns[1]} as the tag; --columns"
    assert bool(notes.notes) == bool(said)
    assert not said or said in re.sub(r"of \d+", "of N", notes.notes[0])
    lines = enumerate(content.splitlines(keepends=True), start=1)
    layout, read_rows = conll_sentences(lines, "a")
    read_words = [tuple(row.columns[layout.word] for row in rows) for rows in read_rows]
    assert read_words == [sentence.words for sentence in TWO], "as predict reads it"


@pytest.mark.parametrize(
    ("content", "names", "expected"),
    [
        ("1\tO\n2\tO\n", "", [("1", "O"), ("2", "O")]),  # a list of numbers
        ("1\ta\tO\n\n1\tb\tB-X\n2\tc\tO\n", "", [("a", "O"), ("b", "B-X"), ("c", "O")]),
        ("#a\tB-X\n#\tO\nb\tO\n", "", [("#a", "B-X"), ("#", "O"), ("b", "O")]),
        ("1 a I-NP O x\n2 b I-NP B-X x\n", "_,word,_,tag,_", [("a", "O"), ("b", "B-X")]),
        ("# c d\nB-X 4 a\nO 5 b\n", "tag, start, word", [("a", "B-X"), ("b", "O")]),
    ],
)
def test_columns_that_are_named_or_not(
    tmp_path: Path, content: str, names: str, expected: list[tuple[str, str]]
) -> None:
    (tmp_path / "a.conll").write_text(content)
    columns = parse_names(names, "--columns") if names else ()
    sentences = read_conll(str(tmp_path / "a.conll"), Decoder(), Silent(), columns)
    assert [pair for row in sentences for pair in zip(row.words, row.tags or (), strict=True)] == expected


@pytest.mark.parametrize(
    ("tags", "expected", "said"),
    [
        ("E-mail E-mail O PER", "B-E-mail I-E-mail O B-PER", "the types are E-mail, PER"),
        ("S-Bahn U-Bahn O", "B-S-Bahn B-U-Bahn O", "the types are S-Bahn, U-Bahn"),
        ("S-X S-X O", "B-X B-X O", "the tags are O and S-X: read as entities of a word each"),
        ("B-X E-X O I-E-mail", "B-X I-X O B-E-mail", ""),
    ],
)
def test_the_file_decides_the_scheme(tmp_path: Path, tags: str, expected: str, said: str) -> None:
    (tmp_path / "a.tsv").write_text("".join(f"w\t{tag}\n" for tag in tags.split()))
    notes = Notes()
    [sentence] = read_conll(str(tmp_path / "a.tsv"), Decoder(), notes)
    assert " ".join(sentence.tags or ()) == expected
    assert said in "".join(notes.notes)
    assert bool(said) == bool(notes.notes)


TEXT_OF_SPANS = "Ataxia telangiectasia is rare."
SPAN = {"start": 0, "end": 21}


@pytest.mark.parametrize(
    "record",
    [
        {"label": [[0, 21, "Disease"]]},
        {
            "entities": [{"id": 1, "label": "Disease", "start_offset": 0, "end_offset": 21}],
            "relations": [],
            "Comments": [],
        },
        {"spans": [{**SPAN, "label": "Disease", "token_start": 0}], "tokens": [{"text": "Ataxia"}], "answer": "accept"},
        {"label": [{**SPAN, "text": "Ataxia telangiectasia", "labels": ["Disease"]}]},
    ],
)
def test_entities_by_characters(record: dict[str, object]) -> None:
    sentence = parse_tagged({"id": 7, "text": TEXT_OF_SPANS, **record}, "here")
    assert sentence == Sentence((*WORDS[0], "."), ("B-Disease", "I-Disease", "O", "O", "O"))


def test_entities_within_words_are_counted() -> None:
    counts = Counter[str]()
    record = {"text": "a (mild) rash", "label": [[3, 6, "X"], [9, 13, "Y"]]}
    assert parse_tagged(record, "here", "whitespace", counts).tags == ("O", "B-X", "B-Y")
    assert parse_tagged(record, "here", counts=counts).tags == ("O", "O", "B-X", "O", "B-Y")
    assert counts["widened"] == 2  # (mild) and mild


@pytest.mark.parametrize("line", ["-DOCSTART- -X- O O", "# newdoc id = n2"])
def test_sentences_have_their_document(tmp_path: Path, line: str) -> None:
    sentences = read(tmp_path, f"{line}\n\na\tO\n\nb\tO\n\n{line}\n\nc\tO\n")
    assert [sentence.group.rpartition(" ")[2] for sentence in sentences] == ["1", "1", "2"]
    assert [sentence.group for sentence in read(tmp_path, "a\tO\n\nb\tO\n")] == ["", ""]
    assert parse_tagged({"tokens": ["a"], "tags": ["O"], "doc_id": 7}, "line 1").group == "7"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("rash\tB-X\nis\tFoo\n", "train.tsv, line 2, column 2: 'Foo' is not a tag"),
        ("1 The x O\n2 rash x B-X\n\nmild x x O\n", "line 4: column 1 counted the words before, here it is 'mild'"),
        ("#begin document (a); part 000\na 0 0 The DT * (X*\n", "line 1: this is CoNLL-2012 (OntoNotes)"),
        ("a I-NP B-X y\nb O O z\n", "columns 2 and 3 have tags, and the last column has none"),
    ],
)
def test_wrong_files_name_line_and_column(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, content)
    assert message in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"tokens": ["a", "b"], "tags": ["O"]}, "here: 2 tokens and 1 tags"),
        ({"text": "a rash", "label": [[0, 7, "X"]]}, "entity 1 (X, 0 to 7) is not in the text, which has 6 characters"),
        (
            {"text": "a rash", "spans": [{"start": 0, "end": 1, "type": "X", "text": "rash"}]},
            "is 'a' there, and 'rash' by",
        ),
    ],
)
def test_wrong_records(record: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_tagged(record, "here")
    assert message in caught.value.message
    assert caught.value.hint


TAGS = st.sampled_from(["O", *(f"{prefix}-{kind}" for prefix in "BIES" for kind in ("A", "B-2", "I"))])
LISTS = st.lists(st.lists(st.tuples(TAGS, TAGS), max_size=8), min_size=1, max_size=5)

IOB2 = ["O", "B-A", "I-A", "B-A", "O", "B-C", "B-A", "I-A", "I-A", "B-A", "I-A"]
SCHEMES = {
    "IOB1": ["O", "I-A", "I-A", "B-A", "O", "I-C", "I-A", "I-A", "I-A", "B-A", "I-A"],
    "IOB2": IOB2,
    "BIOES": ["O", "B-A", "E-A", "S-A", "O", "S-C", "B-A", "I-A", "E-A", "B-A", "E-A"],
    "BILOU": ["O", "B-A", "L-A", "U-A", "O", "U-C", "B-A", "I-A", "L-A", "B-A", "L-A"],
}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_is_the_same_iob2(scheme: str) -> None:
    assert iob2(SCHEMES[scheme]) == IOB2
    spans = [(1, 2, "A"), (3, 3, "A"), (5, 5, "C"), (6, 8, "A"), (9, 10, "A")]
    assert entities(SCHEMES[scheme]) == [EntitySpan(*span) for span in spans]


@settings(deadline=None)
@given(st.lists(TAGS, max_size=12))
def test_entities_are_those_of_conlleval(tags: list[str]) -> None:
    assert [(entity.type, entity.first, entity.last) for entity in entities(tags)] == get_entities(tags)
    assert entities(iob2(tags)) == entities(tags)
    # IOB2 proper: no I begins an entity
    assert all(b[2:] == a[2:] for a, b in zip(["O", *iob2(tags)], iob2(tags), strict=False) if b[0] == "I")


@pytest.mark.slow
@settings(deadline=None)
@given(LISTS)
def test_scores_equal_seqeval(sentences: list[list[tuple[str, str]]]) -> None:
    gold = [[true for true, _ in sentence] for sentence in sentences]
    guessed = [[guess for _, guess in sentence] for sentence in sentences]
    scores = entity_scores(gold, guessed)
    p, r, f1, _ = precision_recall_fscore_support(gold, guessed, average="micro", zero_division=0)
    assert [scores[name] for name in ("precision", "recall", "f1")] == pytest.approx([p, r, f1])
    expected = np.stack(precision_recall_fscore_support(gold, guessed, average=None, zero_division=0), axis=1)
    by_type = scores["by_type"]
    assert isinstance(by_type, dict)
    assert list(by_type) == sorted(by_type)
    ours = [[row[name] for name in ("precision", "recall", "f1", "support")] for row in by_type.values()]
    np.testing.assert_allclose(np.reshape(ours, (-1, 4)), expected)
    assert scores["support"] == sum(expected[:, 3])
    counts = entity_counts(gold, guessed)
    assert entity_f1(counts.sum(axis=0)) == pytest.approx(f1)


@pytest.mark.parametrize(("n_types", "n_words"), [(1, 1), (3, 5)])
def test_the_most_probable_labels_are_those_of_a_search_of_all(n_types: int, n_words: int) -> None:
    labels = ("O", *(f"{prefix}-{kind}" for kind in "XYZ"[:n_types] for prefix in "BI"))
    draw = np.random.default_rng(n_types)
    paths = np.array([*product(range(len(labels)), repeat=n_words)])
    is_valid = [iob2(tags) == tags for tags in ([labels[i] for i in path] for path in paths.tolist())]
    paths = paths[is_valid]
    n_changed = 0
    for _ in range(30):
        scores = draw.normal(size=(n_words, len(labels)))
        best = paths[scores[np.arange(n_words), paths].sum(axis=1).argmax()]
        assert find_most_probable(scores, labels).tolist() == best.tolist()
        n_changed += bool((best != scores.argmax(axis=1)).any())
    assert n_changed > 5


TEXT = "  Rash (mild), p<0.05 in\tT\u200bX-1; don't…\u00a0e\u0301té "


def test_every_punctuation_character_is_a_word() -> None:
    words = "Rash|(|mild|)|,|p|<|0|.|05|in|T\u200bX|-|1|;|don|'|t|…|e\u0301té"
    assert "|".join(split_text(TEXT, "punctuation").words) == words


@pytest.mark.slow
@pytest.mark.parametrize("split", ["whitespace", "punctuation"])
@given(text=st.text())
def test_spans_are_the_words_and_nothing_is_lost(split: Split, text: str) -> None:
    sentence = split_text(text, split)
    assert sentence.spans is not None
    assert tuple(text[begin:end] for begin, end in sentence.spans) == sentence.words
    assert "".join(sentence.words) == re.sub(r"\s", "", text)
    assert all(sentence.words)


def test_usual_split() -> None:
    words = ["rash", "was", "p53", ",", "(", "U.S", "x-", "'s"] * 20
    assert guess_split(words) == "punctuation"
    assert guess_split([*words, "rash,"]) == "punctuation"  # 1 of 121
    assert guess_split([*words, "rash,", "(mild"]) == "whitespace"  # 2 of 122
    assert guess_split([*words, ",,", "..."]) == "punctuation"  # no letter in them


SENTENCE_TAGS = st.lists(st.sampled_from(["O", "B-A", "I-A", "I-A", "I-A"]), max_size=40).map(iob2)


def ones(n: int) -> list[np.ndarray]:
    return [np.ones(n, np.int64)]


def lengths(chunks: list[tuple[int, int]]) -> list[int]:
    return [end - begin for begin, end in chunks]


@pytest.mark.slow
@settings(deadline=None)
@given(tags=SENTENCE_TAGS, words=st.integers(1, 9) | st.none(), pieces=st.integers(3, 20), data=st.data())
def test_chunks_restore_the_sentence_and_cut_no_span_that_fits(
    tags: list[str], words: int | None, pieces: int, data: st.DataObject
) -> None:
    size = st.lists(st.integers(1, 3), min_size=len(tags), max_size=len(tags)).map(np.array)
    sizes = [data.draw(size).astype(np.int64), data.draw(size).astype(np.int64)]
    chunks = split_sentence(sizes, tags, words, pieces)
    assert list(chain.from_iterable(range(*chunk) for chunk in chunks)) == list(range(len(tags)))
    assert all(end > begin for begin, end in chunks)
    assert words is None or all(length <= words for length in lengths(chunks))
    assert all(counts[begin:end].sum() <= pieces for counts in sizes for begin, end in chunks)
    begins = {begin for begin, _ in chunks}
    for entity in entities(tags):
        inside = range(entity.first + 1, entity.last + 1)
        fits = words is None or len(inside) < words
        fits &= all(counts[entity.first : entity.last + 1].sum() <= pieces for counts in sizes)
        assert not (fits and begins & set(inside))
        assert not begins & set(inside) or entity.first in begins  # it is cut only after it had a chunk's begin
