"""The choice of an engine and its gradient, in Python and on the command line; where numba is missing it says so."""

import importlib.util
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import gensim.models.word2vec_corpusfile as kernel
import pytest
from typer.testing import CliRunner, Result

from greenadapt import w2v
from greenadapt.cli import app
from greenadapt.corpus.words import PreparedCorpus
from greenadapt.errors import MissingError
from tests.test_w2v import CONFIG, planted_text, prepare, train


@pytest.fixture
def corpus(tmp_path: Path) -> PreparedCorpus:
    return prepare(planted_text(), tmp_path / "corpus")


@pytest.fixture
def no_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where numba is not installed: it is not found, and importing it fails."""
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *given: None if name == "numba" else real(name, *given)
    )
    monkeypatch.setitem(sys.modules, "numba", None)
    for name in ("chunks", "fast"):
        monkeypatch.delitem(sys.modules, f"greenadapt.engines.{name}", raising=False)


NO_NUMBA = "--engine fast needs numba, which is not installed"


@pytest.mark.usefixtures("no_numba")
def test_the_fast_engine_needs_numba(tmp_path: Path, corpus: PreparedCorpus) -> None:
    w2v.require_engine(CONFIG)
    with pytest.raises(MissingError, match=NO_NUMBA) as caught:
        w2v.require_engine(replace(CONFIG, engine="fast"))
    assert caught.value.hint == 'pip install "greenadapt[fast]", or use --engine gensim'
    with pytest.raises(MissingError, match=NO_NUMBA):
        train(corpus, replace(CONFIG, engine="fast"), tmp_path / "work")
    assert not (tmp_path / "work").exists()
    train(corpus, CONFIG, tmp_path / "work")


def test_gensim_is_used_unless_asked_otherwise(
    tmp_path: Path, corpus: PreparedCorpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    w2v.require_engine(replace(CONFIG, engine="fast"))
    monkeypatch.setattr(kernel, "train_epoch_cbow", None)
    train(corpus, replace(CONFIG, engine="fast"), tmp_path / "fast")
    with pytest.raises(TypeError, match="NoneType"):
        train(corpus, CONFIG, tmp_path / "gensim")


def invoke(folder: Path, *arguments: object) -> Result:
    """A command with its workspace in ``folder`` and a text of a few words."""
    (folder / "text.txt").write_text("the coronavirus of a patient with tachycardia\n" * 20)
    given = ["--corpus", folder / "text.txt", "--workspace", folder / "ws", "--workers", 1, "--min-count", 1]
    return CliRunner().invoke(app, [str(argument) for argument in [*arguments, *given]])


@pytest.mark.usefixtures("no_numba")
@pytest.mark.parametrize("command", ["w2v", "adapt"])
def test_a_missing_numba_is_said_before_anything_is_prepared(
    tmp_path: Path, tiny_model: Callable[..., Path], command: str
) -> None:
    done = invoke(tmp_path, command, "--model", tiny_model(), "--engine", "fast")
    assert (done.exit_code, done.stdout) == (1, "")
    assert f"greenadapt: {NO_NUMBA}" in done.stderr
    assert not list((tmp_path / "ws").glob("*/*/corpus*"))


@pytest.mark.parametrize("command", ["w2v", "adapt"])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--gradient", "corrected"], "--gradient corrected needs --engine fast, this is gensim"),
        (["--engine", "gensim", "--gradient", "corrected"], "--gradient corrected needs --engine fast"),
        (["--engine", "fast", "--gradient", "corrected", "--cbow-sum"], "there is --cbow-sum"),
        (["--engine", "faster"], "'faster' is not one of"),
        (["--gradient", "true"], "'true' is not one of"),
    ],
)
def test_engines_and_gradients_that_do_not_fit_are_refused(
    tmp_path: Path, command: str, options: list[str], message: str
) -> None:
    done = invoke(tmp_path, command, "--model", tmp_path, *options)
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in " ".join(done.stderr.split())
    assert not (tmp_path / "ws").exists()


def test_both_commands_pass_engine_and_gradient_on(tmp_path: Path, tiny_model: Callable[..., Path]) -> None:
    model = tiny_model()
    fast = ["--engine", "fast", "--gradient", "corrected"]
    for command in ["w2v", "adapt"]:
        folder = tmp_path / command
        folder.mkdir()
        done = invoke(folder, command, "--model", model, *fast)
        assert done.exit_code == 0, done.stderr
        (manifest,) = (folder / "ws").glob("*/*/w2v/manifest.json")
        config = json.loads(manifest.read_text())["config"]
        assert (config["engine"], config["gradient"]) == ("fast", "corrected")
