"""CONTRIBUTING.md, the targets of make and the table of JSON keys are true."""

import gzip
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from greenadapt.cli import app
from tests.cli.test_commands import text
from tests.support.pages import PAGES, ROOT
from tests.support.small_tasks import known_text, ner_file, qa_file, worded_model

CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
JSON_PAGE = (ROOT / "docs" / "reference" / "json.md").read_text("utf-8")


def test_the_make_targets_exist_and_make_help_lists_them() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    (phony,) = re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    listed = subprocess.run(["make", "-C", str(ROOT), "help"], capture_output=True, text=True, check=True).stdout
    assert re.findall(r"^  make (\w+) +\S", listed, re.MULTILINE) == phony.split()
    named = re.findall(r"^make (\w+)", "\n".join(PAGES[0].commands) + CONTRIBUTING, re.MULTILINE)
    assert {"demo", "test", "check"} <= {*named} <= {*phony.split()}


def test_every_path_that_contributors_are_sent_to_exists() -> None:
    named = set(re.findall(r"`((?:greenadapt|tests|benchmarks|docs|corpora|examples)/[\w./]*)`", CONTRIBUTING))
    assert len(named) > 20
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


def test_the_tree_for_contributors_is_the_package_s() -> None:
    tree = CONTRIBUTING.split("```\ngreenadapt/\n")[1].split("```")[0].split("\ncorpora/")[0]
    package = ROOT / "greenadapt"
    folders = [path for path in package.rglob("*") if (path / "__init__.py").is_file()]
    assert sorted(re.findall(r"(\w+)/", tree)) == sorted(path.name for path in folders)
    assert [path.stem for path in package.glob("*.py") if not re.search(rf"\b{path.stem}\b", tree)] == ["__init__"]


def _keys(row: str, *, whole: bool = False) -> set[str]:
    """The keys in a row of the table of JSON keys, without those in brackets: the ones before its remarks, or all."""
    line = next(line for line in JSON_PAGE.splitlines() if line.startswith(f"| {row}"))
    keys = re.sub(r"\([^)]*\)", "", line.split("|")[2])
    keys = keys if whole else keys.split(";")[0]
    return set(re.findall(r"`(\w+)`", keys))


@pytest.mark.slow
def test_the_json_keys_are_those_of_the_table(
    tiny_model: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GREENADAPT_HOME", str(tmp_path / "ws"))
    (tmp_path / "text.txt").write_text(text())
    corpus = ["--corpus", str(tmp_path / "text.txt")]

    def keys(*words: str) -> list[set[str]]:
        result = CliRunner().invoke(app, [*words, "--json"])
        assert result.exit_code == 0, (words, result.stderr, result.exception)
        return [set(json.loads(line)) for line in result.stdout.splitlines()]

    stage = _keys("`corpus prepare`")
    assert keys("adapt", *corpus, "--model", str(tiny_model())) == [stage | {"stages"}]
    for command in ("w2v", "align", "expand"):
        assert keys(command, *corpus) == [stage]
    assert keys("corpus", "prepare", corpus[1]) == [stage]
    *named, last = keys("corpus", "list")
    assert named == [_keys("`corpus list`")] * len(named)
    assert last == _keys("`corpus list`") | {"sources"}
    assert keys("corpus", "show", "pydocs") == [_keys("`corpus list`") | _keys("`corpus show`")]
    assert set().union(*keys("neighbours", *corpus, "heart")) == _keys("`neighbours`")
    (tmp_path / "known.txt").write_text(known_text())
    of_known = ["--corpus", str(tmp_path / "known.txt"), "--workspace", str(tmp_path / "known")]
    keys("adapt", *of_known, "--model", str(worded_model(tiny_model)))
    assert keys("assess", *of_known) == [_keys("`assess`")]
    costs = keys("cost")
    assert costs[:4] == [_keys("`cost`, one line per stage")] * 4
    assert costs[4:] == [_keys("`cost`, lines of the paper")] * 4
    assert keys("export", str(tmp_path / "v.bin"), *corpus) == [_keys("`export`")]
    labelled = ner_file(tmp_path / "train.tsv", 16)
    (tmp_path / "train.tsv.gz").write_bytes(gzip.compress(labelled.read_bytes()))
    tuned = ["--task", "ner", "--model", str(tiny_model()), "--train", str(labelled), "--test", str(labelled)]
    out = str(tmp_path / "tuned")
    assert keys("finetune", *tuned, "--max-steps", "2", "--out", out) == [_keys("`finetune`")]
    validated = [*of_known, "--task", "ner", "--train", str(labelled)]
    assert keys("assess", *validated, "--folds", "2", "--max-steps", "1") == [_keys("`assess --train`")]
    predicted = keys("predict", "--model", out, "--input", str(tmp_path / "text.txt"))
    assert {frozenset(row) for row in predicted} == {frozenset({*_keys("`predict`"), "entities"})}
    scored = keys("evaluate", "--model", out, "--test", str(labelled), "--test", str(tmp_path / "train.tsv.gz"))
    assert scored == [_keys("`evaluate`")] * 2
    tables = [f'[[task]]\nname = "{name}"\nkind = "ner"\ntrain = "{labelled}"\n' for name in ("a", "b")]
    (tmp_path / "tasks.toml").write_text("".join(tables))
    tasks = ["--tasks", str(tmp_path / "tasks.toml"), "--model", str(tiny_model()), "--max-steps", "2"]
    out = str(tmp_path / "many")
    assert keys("finetune", *tasks, "--out", out) == [_keys("`finetune`") - {"comparison"}]
    assert keys("tasks", out) == [_keys("`tasks`")]
    rows = keys("predict", "--model", out, "--task", "a,b", "--input", str(tmp_path / "text.txt"))
    assert {frozenset(row) for row in rows} == {frozenset({*_keys("`predict`"), "tasks"})}
    assert "tasks" in _keys("`predict`", whole=True)
    questions = qa_file(tmp_path / "qa.json", 2, impossible=True)
    model = str(tiny_model("BertForQuestionAnswering", name="squad"))
    rows = keys("qa", "--model", model, "--data", str(questions), "--no-answer", "--compare", model)
    assert rows[:-1] == [_keys("`qa`, one line per question", whole=True)] * 2
    assert rows[-1] == _keys("`qa`, the last line")
