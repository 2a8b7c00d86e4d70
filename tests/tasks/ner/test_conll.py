"""Tagged files and records: what is read, and what is said of those that are wrong."""

import gzip
from pathlib import Path

import pytest

from greenadapt.corpus.text import Decoder
from greenadapt.errors import InputError, MissingError
from greenadapt.tasks.conll import Sentence, read_conll, tagged_record, tokens_of
from tests.support.endless import write_endless

TWO = [
    Sentence(("Ataxia", "telangiectasia", "is", "rare"), ("B-Disease", "I-Disease", "O", "O")),
    Sentence(("It", "is"), ("O", "O")),
]


def read(tmp_path: Path, content: str | bytes, name: str = "train.tsv") -> list[Sentence]:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return list(read_conll(str(path), Decoder()))


@pytest.mark.parametrize(
    "content",
    [
        "Ataxia\tB-Disease\ntelangiectasia\tI-Disease\nis\tO\nrare\tO\n\nIt\tO\nis\tO\n",
        "Ataxia\tB-Disease\r\ntelangiectasia\tI-Disease\r\nis\tO\r\nrare\tO\r\n\t\r\n\r\n\r\nIt\tO\r\nis\tO",
        "\ufeff\nAtaxia NN x B-Disease\ntelangiectasia  NN I-Disease\nis VB x O\nrare JJ x O \n \nIt x O\nis x O\n",
        "-DOCSTART- -X- O O\n\nAtaxia I-Disease\ntelangiectasia I-Disease\nis O\nrare O\n-DOCSTART-\tO\nIt O\nis O\n",
        "Ataxia\tB-Disease\ntelangiectasia\tE-Disease\nis\tO\nrare\tO\n\nIt\tO\nis\tO\n",
        "Ataxia\tO\tB-Disease\t\ntelangiectasia\tO\tL-Disease\nis\tO\tO\nrare\tO\tO\n\nIt\tO\tO\nis\tO\tO\n\n\n",
    ],
)
def test_layouts(tmp_path: Path, content: str) -> None:
    assert read(tmp_path, content) == TWO


def test_compressed(tmp_path: Path) -> None:
    content = "Ataxia\tB-Disease\ntelangiectasia\tI-Disease\nis\tO\nrare\tO\n\nIt\tO\nis\tO\n"
    assert read(tmp_path, gzip.compress(content.encode()), "train.tsv.gz") == TWO


def test_odd_words_stay(tmp_path: Path) -> None:
    (sentence,) = read(tmp_path, "\u200b\tO\nNew York\tB-X\n#\tO\n\u00a0\tO\n")
    assert sentence.words == ("\u200b", "New York", "#", "\u00a0")


def test_white_space_of_other_kinds_ends_no_word_but_parts_sentences(tmp_path: Path) -> None:
    assert read(tmp_path, "a\u00a0\tO\u00a0\r\n\u00a0\r\nb \tO \n") == [
        Sentence(("a\u00a0",), ("O",)),
        Sentence(("b ",), ("O",)),
    ]


def test_no_sentences(tmp_path: Path) -> None:
    assert read(tmp_path, "\n\n-DOCSTART- O\n\n") == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("rash\tB-X\nis\tFoo\n", "train.tsv, line 2, column 2: 'Foo' is not a tag"),
        ("rash\tB-X\n\nis NN X-Y\n", "train.tsv, line 3, column 3: 'X-Y' is not a tag"),
        ("rash\tB-X\n\tO\n", "train.tsv, line 2: the word is empty"),
        ("rash\tB-X\nis\n", "train.tsv, line 2: one column, need a word and its tag"),
        ("The rash was mild.\n", "train.tsv, line 1, column 4: 'mild.' is not a tag"),
    ],
)
def test_wrong_files_name_line_and_column(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, content)
    assert message in caught.value.message
    assert caught.value.hint


def test_not_there_and_not_text(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match=r"none.tsv does not exist"):
        list(read_conll(str(tmp_path / "none.tsv"), Decoder()))
    with pytest.raises(InputError, match="NUL bytes"):
        read(tmp_path, b"\0\1\2")
    with pytest.raises(InputError, match="truncated or damaged"):
        read(tmp_path, gzip.compress(b"rash\tO\n" * 99)[:-9], "train.tsv.gz")


@pytest.mark.parametrize("field", ["tags", "ner_tags"])
def test_records(field: str) -> None:
    record = {"tokens": ["Ataxia", "telangiectasia", "is", "rare"], field: ["I-Disease", "I-Disease", "O", "O"]}
    assert tagged_record(record, "here") == TWO[0]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"tokens": ["a", "b"], "tags": ["O"]}, "here: 2 tokens and 1 tags"),
        ({"tokens": ["a", "b"], "tags": ["O", "X-Y"]}, "here: 'X-Y' (tag 2) is not a tag"),
        ({"tokens": ["a", "b"], "tags": ["O", None]}, "here: None (tag 2) is not a tag"),
        ({"tokens": ["a", "b"], "tags": [0, 1]}, "here: tag 1 is the number 0, which has no name"),
        ({"tokens": ["a"], "tags": "O"}, "here: tags is not a list"),
        ({"tokens": ["a"]}, "here has no tags"),
        ({"tags": ["O"]}, "here has no tokens"),
        ({"tokens": "a b", "tags": ["O", "O"]}, "here has tokens that are not a list of strings"),
        ({"tokens": ["a", 2], "tags": ["O", "O"]}, "here has tokens that are not a list of strings"),
    ],
)
def test_wrong_records(record: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as caught:
        tagged_record(record, "here")
    assert message in caught.value.message
    assert caught.value.hint


def test_lone_surrogates_become_what_can_be_written() -> None:
    assert tokens_of({"tokens": ["a\ud800b", "é"]}, "here") == ("a\ufffdb", "é")


@pytest.mark.slow
def test_an_endless_line_is_refused_before_it_fills_the_memory(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a\.tsv\.gz, line 1: a document of over 134\.2 MB"):
        list(read_conll(write_endless(tmp_path / "a.tsv.gz"), Decoder()))
