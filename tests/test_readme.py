"""README.md, docs/ and CONTRIBUTING.md are true: commands run as they stand, options, JSON keys and paths exist."""

import gzip
import json
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from greenadapt.cli import app
from tests.cli.test_commands import text
from tests.conftest import WORDS
from tests.support.small_tasks import known_text, ner_file, qa_file, texts_file, worded_model

ROOT = Path(__file__).parent.parent
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
# In the order in which their examples run.
PAGES = [
    "README.md",
    "docs/install.md",
    *(
        f"docs/guides/{name}.md"
        for name in (
            "your-own-corpus", "rows-and-rates", "pre-training", "fine-tuning", "many-tasks", "memory", "questions",
            "publish",
            "workspace",
            "when-does-it-help",
        )
    ),
    *(f"docs/reference/{name}.md" for name in ("commands", "json", "results", "folders")),
]  # fmt: skip
README = "\n".join((ROOT / page).read_text("utf-8") for page in PAGES)
FENCES = re.findall(r"```(\w*)\n(.*?)```", README, re.DOTALL)
INLINE = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", README, flags=re.DOTALL))
STAND_INS = {"pydocs": "installed.txt.gz", "minilm": "bert-base-uncased"}
COMMANDS = [line for kind, block in FENCES if not kind for line in block.splitlines()]
GROUP: Any = typer.main.get_command(app)


def _command(words: list[str]) -> Any:
    """The command that ``words`` (after ``greenadapt``) name; KeyError where there is none."""
    command = GROUP
    while words and not words[0].startswith("-") and hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    return command


def _options(command: Any) -> set[str]:
    own = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    return own.union({"--help"}, *(_options(each) for each in getattr(command, "commands", {}).values()))


def test_the_commands_and_their_options_exist() -> None:
    lines = [line for line in [*COMMANDS, *INLINE] if line.startswith("greenadapt ")]
    assert len(lines) > 10
    for line in lines:
        words = shlex.split(line)[1:]
        command = _command(words)
        assert {word for word in words if word.startswith("--")} <= _options(command), line


def test_every_option_that_the_text_names_exists() -> None:
    named = {word for code in INLINE for word in code.split() if word.startswith("--")}
    assert {"--json", "--variant", "--force"} <= named
    assert named <= _options(GROUP)


def test_every_command_is_in_the_table() -> None:
    table = {line.split()[1] for line in INLINE if line.startswith("greenadapt ")}
    assert set(GROUP.commands) <= table


def test_the_make_targets_exist_and_make_help_lists_them() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    (phony,) = re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    listed = subprocess.run(["make", "-C", str(ROOT), "help"], capture_output=True, text=True, check=True).stdout
    assert re.findall(r"^  make (\w+) +\S", listed, re.MULTILINE) == phony.split()
    named = re.findall(r"^make (\w+)", "\n".join(COMMANDS) + CONTRIBUTING, re.MULTILINE)
    assert {"demo", "test", "check"} <= {*named} <= {*phony.split()}


def test_every_path_that_contributors_are_sent_to_exists() -> None:
    named = set(re.findall(r"`((?:greenadapt|tests|benchmarks|docs|corpora|examples)/[\w./]*)`", CONTRIBUTING + README))
    assert len(named) > 20
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


def test_the_tree_for_contributors_is_the_package_s() -> None:
    tree = CONTRIBUTING.split("```\ngreenadapt/\n")[1].split("```")[0].split("\ncorpora/")[0]
    package = ROOT / "greenadapt"
    folders = [path for path in package.rglob("*") if (path / "__init__.py").is_file()]
    assert sorted(re.findall(r"(\w+)/", tree)) == sorted(path.name for path in folders)
    assert [path.stem for path in package.glob("*.py") if not re.search(rf"\b{path.stem}\b", tree)] == ["__init__"]


@pytest.mark.slow
def test_the_examples_run_as_they_stand(
    tiny_model: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a folder that holds small files by the names of the examples."""
    import numpy as np

    monkeypatch.setenv("GREENADAPT_HOME", str(tmp_path / "ws"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))  # clean removes unzipped models from it
    monkeypatch.chdir(tmp_path)
    lines = text().replace("virus", "covariance").splitlines() + text().splitlines()
    with gzip.open("papers.jsonl.gz", "wt") as file:
        file.writelines(json.dumps({"abstract": line}) + "\n" for line in lines)
    with gzip.open("installed.txt.gz", "wt") as file:
        file.writelines(f"{line}\n" for line in lines)
    words = [*dict.fromkeys(WORDS), "tachycardia"]
    rows = np.random.default_rng(0).normal(size=(len(words), 32)).tolist()
    with gzip.open("my.vec.gz", "wt") as file:
        file.write(f"{len(words)} 32\n")
        file.writelines(f"{word} {' '.join(map(str, row))}\n" for word, row in zip(words, rows, strict=True))
    tiny_model("BertForMaskedLM", name="bert-base-uncased")
    tiny_model("BertForMaskedLM", name="bert-base-cased")
    for name in ("train.tsv", "devel.tsv", "test.tsv"):
        ner_file(Path(name), 16)
    for name in ("train.jsonl", "test.jsonl"):
        texts_file(Path(name), 16)
    (tasks,) = (block for kind, block in FENCES if kind == "toml")
    Path("tasks.toml").write_text(tasks)
    Path("more.toml").write_text(tasks.split("\n\n")[0].replace('"topics"', '"relations"'))
    for name in ("squad.json", "covid.json"):
        qa_file(Path(name), 4)
    for name in ("papers.txt.gz", "wiki.txt.gz"):
        with gzip.open(name, "wt") as file:
            file.writelines(f"{line}\n" for line in text().splitlines()[:30])
    with gzip.open("text.txt.gz", "wt") as file:
        file.write("virus in the heart\n")
    tiny_model("BertForQuestionAnswering", name="squad-bert")
    Path("paper.txt").write_text("the virus was isolated in the blood")
    Path("papers").mkdir()
    Path("papers/one.txt").write_text("tachycardia of the heart")
    Path("q.jsonl").write_text('{"question": "what virus"}')
    for line in (line for kind, block in FENCES if not kind for line in block.splitlines()):
        words = shlex.split(line)
        if words[:1] == ["greenadapt"]:
            arguments = words[1 : words.index(">")] if ">" in words else words[1:]
            arguments = [STAND_INS.get(word, word) for word in arguments]
            result = CliRunner().invoke(app, arguments)
            assert result.exit_code == 0, (line, result.stderr, result.exception)
            if words[1] in ("expand", "adapt"):
                _run_snippets()
        elif words[:1] == ["python"]:
            exec(words[2], {})


def _run_snippets() -> None:
    """The Python of the text, on the folder ``adapted``."""
    for kind, snippet in FENCES:
        if kind == "python":
            names: dict[str, Any] = {}
            exec(snippet, names)
            assert names["vectors"].shape[-1] == 32
            assert {"tachycardia", "covariance"} & {*names["tokenizer"].tokenize("tachycardia of a covariance")}


def _keys(row: str, *, whole: bool = False) -> set[str]:
    """The keys in a row of the table of JSON keys, without those in brackets: the ones before its remarks, or all."""
    line = next(line for line in README.splitlines() if line.startswith(f"| {row}"))
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
    known = ["--corpus", str(tmp_path / "known.txt")]
    keys("adapt", *known, "--model", str(worded_model(tiny_model)), "--workspace", str(tmp_path / "known"))
    assert keys("assess", *known, "--workspace", str(tmp_path / "known")) == [_keys("`assess`")]
    costs = keys("cost")
    assert costs[:4] == [_keys("`cost`, one line per stage")] * 4
    assert costs[4:] == [_keys("`cost`, lines of the paper")] * 4
    assert keys("export", str(tmp_path / "v.bin"), *corpus) == [_keys("`export`")]
    labelled = ner_file(tmp_path / "train.tsv", 16)
    (tmp_path / "train.tsv.gz").write_bytes(gzip.compress(labelled.read_bytes()))
    tuned = ["--task", "ner", "--model", str(tiny_model()), "--train", str(labelled), "--test", str(labelled)]
    out = str(tmp_path / "tuned")
    assert keys("finetune", *tuned, "--max-steps", "2", "--out", out) == [_keys("`finetune`")]
    validated = [*known, "--workspace", str(tmp_path / "known"), "--task", "ner", "--train", str(labelled)]
    assert keys("assess", *validated, "--folds", "2", "--max-steps", "1") == [_keys("`assess --train`")]
    predicted = keys("predict", "--model", out, "--input", str(tmp_path / "text.txt"))
    assert {frozenset(each) for each in predicted} == {frozenset({*_keys("`predict`"), "entities"})}
    scored = keys("evaluate", "--model", out, "--test", str(labelled), "--test", str(tmp_path / "train.tsv.gz"))
    assert scored == [_keys("`evaluate`")] * 2
    tables = [f'[[task]]\nname = "{name}"\nkind = "ner"\ntrain = "{labelled}"\n' for name in ("a", "b")]
    (tmp_path / "tasks.toml").write_text("".join(tables))
    many = ["--tasks", str(tmp_path / "tasks.toml"), "--model", str(tiny_model()), "--max-steps", "2"]
    out = str(tmp_path / "many")
    assert keys("finetune", *many, "--out", out) == [_keys("`finetune`") - {"comparison"}]
    assert keys("tasks", out) == [_keys("`tasks`")]
    rows = keys("predict", "--model", out, "--task", "a,b", "--input", str(tmp_path / "text.txt"))
    assert {frozenset(each) for each in rows} == {frozenset({*_keys("`predict`"), "tasks"})}
    assert "tasks" in _keys("`predict`", whole=True)
    assert set(map(frozenset, keys("params", "--model", str(tiny_model())))) == {frozenset(_keys("`params`"))}
    asked = qa_file(tmp_path / "qa.json", 2, impossible=True)
    model = str(tiny_model("BertForQuestionAnswering", name="squad"))
    rows = keys("qa", "--model", model, "--data", str(asked), "--no-answer", "--compare", model)
    assert rows[:-1] == [_keys("`qa`, one line per question", whole=True)] * 2
    assert rows[-1] == _keys("`qa`, the last line")
