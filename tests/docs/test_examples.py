"""The commands and the Python of README.md and docs/ run as they stand, in folders with small files of their names."""

import gzip
import json
import re
import runpy
import shlex
from contextlib import redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from greenadapt.cli import app
from greenadapt.stages.finetune import request
from tests.cli.test_commands import text
from tests.conftest import WORDS, tiny_model_in
from tests.support.pages import PAGES, Page, module_of
from tests.support.small_tasks import known_text, ner_file, qa_file, texts_file, worded_model

# The named corpus and model would take minutes.
STAND_INS = {"pydocs": "installed.txt.gz", "minilm": "bert-base-uncased"}
TUTORIAL = ["README.md", "docs/install.md", "docs/tutorial.md"]
"""Pages that adapt the offline model; all others adapt a model to papers, under the same names."""
ELSEWHERE = ["docs/guides/python.md"]
"""Pages that tests of their own run."""
OUTPUTS = module_of("docs/site/outputs.py")
NOT_RUN = {"pip", "make", "source", "cd", "mkdir", "python3.11"}


def write_files() -> None:
    """Write small files with the names that the examples read."""
    lines = [*text().splitlines(), *known_text().splitlines()]
    Path("papers.txt").write_text("\n".join(lines))
    all_lines = [line.replace("virus", "covariance") for line in lines] + lines
    compressed = {
        "papers.jsonl.gz": [json.dumps({"abstract": line}) for line in lines],
        "installed.txt.gz": all_lines,
        "papers.txt.gz": lines[:30],
        "wiki.txt.gz": lines[:30],
        "text.txt.gz": ["virus in the heart"],
    }
    words = [*dict.fromkeys(WORDS), "tachycardia"]
    rows = np.random.default_rng(0).normal(size=(len(words), 32)).tolist()
    vectors = [f"{word} {' '.join(map(str, row))}" for word, row in zip(words, rows, strict=True)]
    compressed["my.vec.gz"] = [f"{len(words)} 32", *vectors]
    for name, content in compressed.items():
        with gzip.open(name, "wt") as file:
            file.writelines(f"{line}\n" for line in content)
    for name in ("train.tsv", "devel.tsv", "test.tsv"):
        ner_file(Path(name), 16)
    for name in ("train.jsonl", "test.jsonl"):
        texts_file(Path(name), 16)
    Path("more.toml").write_text('[[task]]\nname = "relations"\nkind = "classification"\ntrain = "train.jsonl"\n')
    for name in ("squad.json", "covid.json"):
        qa_file(Path(name), 4)
    Path("paper.txt").write_text("the virus was isolated in the blood")
    Path("papers").mkdir()
    Path("papers/one.txt").write_text("tachycardia of the heart")
    Path("q.jsonl").write_text('{"question": "what virus"}')
    tiny_model = partial(tiny_model_in, Path())
    worded_model(partial(tiny_model, "BertForMaskedLM")).rename("bert-base-uncased")
    tiny_model("BertForMaskedLM", name="bert-base-cased")
    tiny_model("BertForQuestionAnswering", name="squad-bert")


def run_page(page: Page, outputs: dict[str, str]) -> None:
    """Run its blocks in order; a command that was run before is left out.

    In the tutorial each line of a block of text begins as a line that the block above printed.
    """
    printed = ""
    for block in page.blocks:
        named = re.match(r"# (\S+\.(?:py|toml))\n", block.text)
        if named:
            Path(named[1]).write_text(block.text)
        elif block.kind == "python":
            with redirect_stdout(StringIO()) as output:
                exec(compile(block.text, page.name, "exec"), {"__name__": "__main__"})
            printed = output.getvalue()
        elif not block.kind:
            for line in block.text.splitlines():
                if line not in outputs:
                    outputs[line] = run_line(line)
            printed = "".join(outputs[line] for line in block.text.splitlines())
        elif block.kind == "text" and page.path == OUTPUTS.TUTORIAL:
            OUTPUTS.refreshed(block.text, printed)


def run_line(line: str) -> str:
    """What the command prints, under the names that the page has; then the files that its output goes to."""
    words = shlex.split(line, comments=True)
    program, arguments = words[0], [STAND_INS.get(word, word) for word in words[1:]]
    if program == "greenadapt":
        if arguments[0] == "assess" and "--train" in arguments:
            arguments += ["--folds", "2"]
        to = arguments.index(">") if ">" in arguments else len(arguments)
        result = CliRunner().invoke(app, arguments[:to])
        assert result.exit_code == 0, (line, result.stderr, result.exception)
        for file in arguments[to + 1 :]:
            Path(file).write_text(result.stdout)
        printed = re.sub(r"-[0-9a-f]{8}\b", "", result.stderr + result.stdout)  # such a part tells files apart
        for name, stand_in in STAND_INS.items():
            printed = printed.replace(stand_in.partition(".")[0], name)
        return printed
    if program == "python" and arguments[0] == "-c":
        exec(arguments[1], {})
    elif program == "python":
        runpy.run_path(arguments[0], run_name="__main__")
        for path in Path().glob("*.jsonl"):  # the first few are enough
            path.write_text("".join(path.read_text().splitlines(keepends=True)[:24]))
    else:
        assert program in NOT_RUN, line
    return ""


@pytest.mark.slow
@pytest.mark.parametrize("in_tutorial", [True, False], ids=["tutorial", "guides"])
@pytest.mark.usefixtures("one_thread")
def test_the_examples_run_as_they_stand(in_tutorial: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GREENADAPT_HOME", str(tmp_path / "ws"))
    # Where the page leaves it open.
    monkeypatch.setattr(request, "_MIN_STEPS", 4)
    monkeypatch.setenv("GREENADAPT_PRETRAIN_EPOCHS", "1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))  # clean removes unzipped models from it
    monkeypatch.chdir(tmp_path)
    write_files()
    outputs: dict[str, str] = {}
    for page in PAGES:
        if (page.name in TUTORIAL) == in_tutorial and page.name not in ELSEWHERE:
            run_page(page, outputs)
    folders = Page(Path(__file__).parents[2] / "docs/reference/folders.md").text
    results = [path.parent for path in tmp_path.rglob("manifest.json")]
    assert results
    paths = {path for folder in results for path in folder.rglob("*") if path.is_file()}
    written = {path.name for path in paths if path.parent.name != "words"}  # tantivy's
    assert sorted(name for name in written if name not in folders) == []
