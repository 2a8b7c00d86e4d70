"""The choice of an engine, in Python and on the command line; where numba is missing it says so."""

import importlib.util
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gensim.models.word2vec_corpusfile as kernel
import pytest
from typer.testing import CliRunner, Result

from greenadapt.cli import app
from greenadapt.config import ResolvedEngine, W2VConfig
from greenadapt.corpus.prepared import PreparedCorpus
from greenadapt.vectors import cbow as w2v
from greenadapt.vectors import engines
from tests.conftest import Notes
from tests.vectors.test_cbow import CONFIG, train


def without_numba(patch: pytest.MonkeyPatch) -> None:
    """As where numba is not installed: it is not found, and importing it fails."""
    real = importlib.util.find_spec
    patch.setattr(
        importlib.util, "find_spec", lambda name, *arguments: None if name == "numba" else real(name, *arguments)
    )
    patch.setitem(sys.modules, "numba", None)
    for name in ("chunks", "fast"):
        patch.delitem(sys.modules, f"greenadapt.vectors.engines.{name}", raising=False)


@pytest.fixture
def no_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    without_numba(monkeypatch)


@pytest.fixture
def no_gensim(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where gensim is not installed, on Python 3.14."""
    for name in [name for name in sys.modules if name.split(".")[0] == "gensim"]:
        monkeypatch.setitem(sys.modules, name, None)


SLOWER = 'numba is not installed, so gensim\'s slower engine is used: pip install "greenadapt[fast]"'


def config_in(folder: Path) -> Any:
    """The configuration of the vectors in the workspace in ``folder``."""
    (manifest,) = (folder / "ws").glob("names/*/*/w2v/manifest.json")
    return json.loads(manifest.read_text())["config"]


NO_GENSIM = (
    "greenadapt: --engine gensim needs gensim, not installed: "
    "install gensim, which has wheels for Python 3.11 to 3.13, or use --engine fast"
)


@pytest.mark.usefixtures("no_gensim")
def test_without_gensim_the_fast_engine_trains(tmp_path: Path, tiny_model: Callable[..., Path]) -> None:
    command, model = "w2v", tiny_model()
    refused = invoke(tmp_path, command, "--model", model, "--engine", "gensim")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert " ".join(refused.stderr.split()) == NO_GENSIM
    assert not (tmp_path / "ws").exists()
    result = invoke(tmp_path, command, "--model", model)
    assert (result.exit_code, "gensim's" in result.stderr) == (0, False), result.stderr
    assert config_in(tmp_path)["engine"] == "fast"


@pytest.mark.usefixtures("no_numba", "no_gensim")
def test_without_any_engine(tmp_path: Path, tiny_model: Callable[..., Path]) -> None:
    result = invoke(tmp_path, "w2v", "--model", tiny_model())
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        'greenadapt: training word vectors needs numba, not installed: pip install "greenadapt[fast]"\n'
    )


@pytest.mark.parametrize("engine", ["fast", "gensim"])
@pytest.mark.parametrize("has_numba", [True, False])
def test_what_auto_stands_for(request: pytest.FixtureRequest, engine: ResolvedEngine, has_numba: bool) -> None:
    if not has_numba:
        request.getfixturevalue("no_numba")
    notes = Notes()
    assert w2v.resolve_engine(W2VConfig(engine=engine), notes) == W2VConfig(engine=engine)
    assert notes.lines == []
    resolved = w2v.resolve_engine(W2VConfig(window=3), notes)
    assert resolved == W2VConfig(window=3, engine="fast" if has_numba else "gensim")
    assert notes.lines == ([] if has_numba else [SLOWER])


def test_the_engine_that_is_named_is_used(
    tmp_path: Path, corpus: PreparedCorpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel, "train_epoch_cbow", None)
    train(corpus, replace(CONFIG, engine="fast"), tmp_path / "fast")
    with pytest.raises(TypeError, match="NoneType"):
        train(corpus, CONFIG, tmp_path / "gensim")


@pytest.fixture
def broken_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "greenadapt.vectors.engines.lanes", None)
    monkeypatch.delattr(engines, "lanes", raising=False)
    for name in ("chunks", "fast"):
        monkeypatch.delitem(sys.modules, f"greenadapt.vectors.engines.{name}", raising=False)


@pytest.mark.usefixtures("broken_numba")
def test_a_broken_engine_ends_a_command_before_the_text_is_prepared(
    tmp_path: Path, tiny_model: Callable[..., Path]
) -> None:
    result = invoke(tmp_path, "adapt", "--model", tiny_model())
    assert (result.exit_code, result.stdout) == (1, "")
    assert "does not work with the installed numba" in result.stderr
    assert "--engine gensim" in result.stderr
    assert not [*(tmp_path / "ws").rglob("manifest.json")]


TEXT = "the coronavirus of a patient with tachycardia\n"


def invoke(folder: Path, *arguments: object, text: str = TEXT) -> Result:
    """A command with its workspace in ``folder`` and a text of a few words."""
    (folder / "text.txt").write_text(text * 20)
    options = ["--corpus", folder / "text.txt", "--workspace", folder / "ws", "--workers", 1, "--min-count", 1]
    return CliRunner().invoke(app, [str(argument) for argument in [*arguments, *options]])


@pytest.mark.usefixtures("no_numba")
def test_a_missing_numba_is_an_error_before_anything_is_prepared(
    tmp_path: Path, tiny_model: Callable[..., Path]
) -> None:
    result = invoke(tmp_path, "adapt", "--model", tiny_model(), "--engine", "fast")
    assert (result.exit_code, result.stdout) == (1, "")
    assert " ".join(result.stderr.split()) == (
        'greenadapt: --engine fast needs numba, not installed: pip install "greenadapt[fast]", or use --engine gensim'
    )
    assert not list((tmp_path / "ws").glob("results/corpus*"))


@pytest.mark.usefixtures("no_numba")
def test_without_numba_gensim_is_used_and_one_line_says_so(tmp_path: Path, tiny_model: Callable[..., Path]) -> None:
    result = invoke(tmp_path, "adapt", "--model", tiny_model())
    assert result.exit_code == 0, result.stderr
    assert result.stderr.splitlines().count(SLOWER) == 1
    assert config_in(tmp_path)["engine"] == "gensim"
