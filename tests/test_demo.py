"""The identifiers of docstrings: what is labelled, what is left out, and that nothing leaks."""

import json
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import demo
from examples.demo import MODELS, N_WORDS, TaskPlan, averaged_over_seeds, identifier_set, labelled_sentences
from greenadapt.corpus.pydocs import Package, find_packages
from greenadapt.errors import InputError
from greenadapt.progress import Silent
from greenadapt.store.arrays import write_arrays
from greenadapt.tasks.conll import Sentence
from greenadapt.tasks.ner import NerTask

DOCSTRING = """
Return a new ``numpy.ndarray`` of the given shape. It is the
same as calling ``zeros()`` with ``dtype=float``, e.g. ``coef_`` is
not changed by it.

Heading with ``a`` line below
-----------------------------
>>> a doctest with ``code`` in it, which is no sentence.

=====  =================================
name   a table with ``code`` in its row.
=====  =================================

Parameters
----------
*args : tuple
    Passed on to ``func``. See :class:`~numpy.dtype` beside ``dtype`` here.
"""


def marked(docstring: str) -> list[str]:
    """Each sentence, entities between < and >."""
    result = []
    for sentence in labelled_sentences(docstring):
        assert sentence.tags is not None
        text = ""
        for word, tag, following in zip(sentence.words, sentence.tags, (*sentence.tags[1:], "O"), strict=True):
            text += f" {'<' if tag == 'B-CODE' else ''}{word}{'>' if tag != 'O' and following != 'I-CODE' else ''}"
        result.append(text.strip())
    return result


def test_sentences_of_a_docstring() -> None:
    assert marked(DOCSTRING) == [
        "Return a new <numpy . ndarray> of the given shape .",
        "It is the same as calling <zeros ( )> with <dtype = float> , e . g . <coef _> is not changed by it .",
        "* args : tuple Passed on to <func> .",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "The value of ``a + b`` and ``x`` counts here.",
        "The value of ``<option>`` and ``x`` counts here.",
        "The value of ``x`` and `y` counts here.",
        'The value of "``x``" counts here.',
        "The value of ``axis`` counts where axis is given.",
        "The value of x counts here.",
    ],
)
def test_a_sentence_that_would_teach_something_wrong_is_left_out(text: str) -> None:
    assert marked(text) == []


@given(st.text(st.sampled_from("ab _.`*|:'\"<>~\\\n(=)A"), max_size=80))
def test_no_mark_up_is_left_behind(text: str) -> None:
    for sentence in labelled_sentences(f"The value of ``x`` counts. {text}"):
        assert sentence.tags is not None
        assert "B-CODE" in sentence.tags
        assert not set("`|\ue000\ue001\ue002") & set("".join(sentence.words))


def write_package(root: Path, name: str, docstrings: list[str]) -> None:
    """An installed distribution with one module, and the RECORD that lists it."""
    module, info = root / f"{name}.py", root / f"{name}-1.0.dist-info"
    module.write_text("\n".join(f'def f{i}():\n    """{text}"""' for i, text in enumerate(docstrings)))
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "RECORD").write_text(f"{name}.py,,\n{name}-1.0.dist-info/METADATA,,\n")


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three packages of 60, 40 and 20 sentences; those of the last are also in the first, in capitals."""
    root = tmp_path / "site"
    root.mkdir()
    shared = [f"The value of ``same{i}`` counts here." for i in range(20)]
    texts = {name: [f"The ``{name}{i}`` counts here." for i in range(40)] for name in ("big", "middle")}
    write_package(root, "big", texts["big"] + [text.replace("The", "THE") for text in shared])
    write_package(root, "middle", texts["middle"])
    write_package(root, "small", [*shared, "The last ``one`` is another."])
    paths = {"purelib": str(root), "platlib": str(root), "stdlib": str(tmp_path / "none")}
    monkeypatch.setattr("greenadapt.corpus.pydocs.sysconfig.get_path", paths.__getitem__)
    for user in ("greenadapt.corpus.pydocs", "examples.demo"):
        monkeypatch.setattr(f"{user}.find_packages", find_packages)
    return root


def test_no_package_is_in_both_parts_and_no_sentence_twice(packages: Path) -> None:
    parts = identifier_set(40, 80)
    origins = [
        {
            word.rstrip("0123456789")
            for sentence in part
            for word, tag in zip(sentence.words, sentence.tags or (), strict=True)
            if tag == "B-CODE"
        }
        for part in parts.values()
    ]
    assert not origins[0] & origins[1]
    assert origins[0] | origins[1] >= {"big", "middle", "one"}
    sentences = [" ".join(sentence.words).lower() for part in parts.values() for sentence in part]
    assert len(set(sentences)) == len(sentences)


def test_one_package_is_too_few(packages: Path) -> None:
    with pytest.raises(InputError, match="at least 2"):
        identifier_set(names=["big"])


@pytest.fixture(scope="module", autouse=True)
def installed_once() -> Iterator[None]:
    """What is installed is looked up once, not by every stage."""

    @cache
    def remembered(names: tuple[str, ...]) -> list[Package]:
        return find_packages(names)

    def cached(names: Sequence[str] = ()) -> list[Package]:
        return remembered(tuple(names))

    with pytest.MonkeyPatch.context() as patch:
        for user in ("greenadapt.corpus.pydocs", "examples.demo"):
            patch.setattr(f"{user}.find_packages", cached)
        yield


@pytest.mark.slow
def test_the_demo_on_two_packages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = 'title = "two"\nlicence = "theirs"\nformat = "pydocs"\npackages = ["smart-open", "gensim"]\n'
    (tmp_path / "small.toml").write_text(recipe)
    plan = TaskPlan(train=8, test=12, epochs=1, seeds=(0, 1))
    workspace = tmp_path / "ws"
    result = demo.run(workspace, 1, str(tmp_path / "small.toml"), plan)
    assert 1 < result["fertility"]["after"] < result["fertility"]["before"] < 2
    assert len(result["words"]) == N_WORDS
    assert (workspace / "adapted" / "model.safetensors").is_file()
    assert NerTask().read(str(workspace / "test.tsv"), Silent())
    rows = result["rows"]
    assert tuple(row["model"] for row in rows) == MODELS
    for row in rows[:2]:
        assert row["score"] == json.loads((Path(row["folder"]) / "scores.json").read_text())["mean"]["f1"]
    for row in rows[1:]:
        assert row["difference"] == pytest.approx(rows[0]["score"] - row["score"])
        assert row["low"] <= row["difference"] <= row["high"]
    printed = capsys.readouterr().out
    assert f"base model: F1 {100 * rows[1]['score']:.2f}" in printed
    assert f"adapted model: F1 {100 * rows[0]['score']:.2f}, " in printed
    assert "cost: " in printed


SEED_TASK = NerTask(("O", "B-X", "I-X"))
SEED_SENTENCES = [Sentence(("a", "b")), Sentence(("c",)), Sentence(("d", "e", "f"))]


def test_each_seed_is_averaged_with_the_next_one(tmp_path: Path) -> None:
    n_seeds = 3
    logits = np.random.default_rng(1).normal(size=(n_seeds, 6, 3)).astype(np.float32)
    files = [tmp_path / f"{seed}.safetensors" for seed in range(n_seeds)]
    for file, prediction in zip(files, logits, strict=True):
        # The expanded tokenization's are there too where a model has one, and are no part of it.
        write_arrays(file, {"base": prediction, "expanded": prediction + 9, "offsets": np.array([0, 2, 3, 6])})
    averages = averaged_over_seeds(SEED_TASK, SEED_SENTENCES, files)
    assert len(averages) == n_seeds
    for seed, average in enumerate(averages):
        mean = (logits[seed].astype(float) + logits[(seed + 1) % n_seeds]) / 2
        labels = [SEED_TASK.labels[i] for i in mean.argmax(axis=1)]
        assert [len(prediction["tags"]) for prediction in average] == [2, 1, 3]
        tags = [tag for prediction in average for tag in prediction["tags"]]
        assert [tag[-1] for tag in tags] == [label[-1] for label in labels]  # IOB2 turns some I into B
