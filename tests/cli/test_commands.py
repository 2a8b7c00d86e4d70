"""The command line as scripts and people meet it: output, exit codes, JSON; and every way to fail, in one line."""

import json
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from greenadapt.cli import app
from tests.conftest import WORDS, Run, json_lines, last_line

NEW = ["tachycardia", "coronavirus", "dtypes", "eigenvalues"]


def text(n_lines: int = 300) -> str:
    draw = random.Random(1)
    vocabulary = [*dict.fromkeys(WORDS), *NEW]
    return "".join(" ".join(draw.choices(vocabulary, k=12)) + "\n" for _ in range(n_lines))


@pytest.fixture
def run(run_alone: Run) -> Run:
    return run_alone


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(text())
    return path


QUICK = ("--workers", 1, "--epochs", 1, "--min-count", 1)


@pytest.mark.slow
def test_a_whole_session_by_name(run: Run, corpus: Path, tiny_model: Callable[..., Path], tmp_path: Path) -> None:
    model = tiny_model()
    trained = json.loads(run("w2v", "-c", corpus, "-m", model, *QUICK, "--json").stdout)
    assert (trained["stage"], trained["status"], trained["counts"]["dim"]) == ("w2v", "done", 32)
    again = json.loads(run("w2v", "-c", corpus, *QUICK, "--json").stdout)
    assert (again["status"], again["folder"]) == ("up to date", trained["folder"])
    aligned = json.loads(run("align", "-c", corpus, "--json").stdout)
    assert aligned["counts"]["overlap"] == len(set(WORDS))
    assert "words are in both vocabularies, held-out figures need 50: skipped" in aligned["facts"]["heldout"]["note"]
    expanded = json.loads(run("expand", "-c", corpus, "--json").stdout)
    assert expanded["counts"]["words"] == len(NEW)
    assert (Path(expanded["folder"]) / "README.md").is_file()

    rows = json_lines(run("neighbours", "-c", corpus, "heart", "--json"))
    assert {row["word"] for row in rows} == {"heart"}
    n_near = {row["view"]: len(row["neighbours"]) for row in rows}
    assert n_near.pop("row → added words") == len(NEW)
    assert set(n_near.values()) == {5}
    costs = json_lines(run("cost", "--json"))
    assert [row["stage"] for row in costs if "stage" in row] == ["corpus", "w2v", "align", "expand"]
    exported = json.loads(run("export", tmp_path / "v.bin", "-c", corpus, "--json").stdout)
    assert exported["words"] == trained["counts"]["words"]


@pytest.mark.slow
def test_adapt_prints_the_stages(run: Run, corpus: Path, tiny_model: Callable[..., Path], tmp_path: Path) -> None:
    result = run("adapt", "-c", corpus, "-m", tiny_model(), *QUICK, "-o", tmp_path / "adapted")
    n = len(set(WORDS))
    too_few = f"{n} words are in both vocabularies, fewer than the 32 dimensions of the word vectors (rank {n})"
    assert too_few in result.stderr
    assert [line.split(":")[0] for line in result.stdout.splitlines() if "done in" in line] == [
        "corpus", "w2v", "align", "expand",
    ]  # fmt: skip
    assert str(tmp_path / "adapted") in result.stdout
    as_json = json.loads(
        run("adapt", "-c", corpus, "-m", tmp_path / "bertmodel", *QUICK, "-o", tmp_path / "adapted", "--json").stdout
    )
    assert [stage["status"] for stage in as_json["stages"]] == ["up to date"] * 3
    card = (tmp_path / "adapted" / "README.md").read_text()
    options = "--corpus text.txt --model bertmodel --min-count 1 --epochs 1 --workers 1"
    assert f"```sh\ngreenadapt adapt {options} --out FOLDER\n```\n" in card
    assert str(tmp_path) not in card


def test_the_corpus_is_an_argument(run: Run, corpus: Path, tiny_model: Callable[..., Path]) -> None:
    """Relative, and with the same result as --corpus; also by the name that it has in the workspace."""
    run("w2v", corpus.name, "-m", tiny_model(), *QUICK)
    [row] = [row for row in json_lines(run("corpus", "list", "--json")) if row["name"].startswith("text-")]
    assert row["sources"] == [str(corpus)]
    for name in (corpus, row["name"]):
        assert json.loads(run("w2v", "-c", name, *QUICK, "--json").stdout)["status"] == "up to date"


def test_a_corpus_that_is_given_twice_is_wrong_usage(run: Run, corpus: Path) -> None:
    [line] = run("adapt", "one.txt", "--corpus", "two.txt", code=2).stderr.splitlines()
    assert "one.txt" in line
    assert "two.txt" in line


@pytest.mark.parametrize(
    ("words", "word"), [(["adapt", "text.txt", "more.txt"], "more.txt"), (["w2v", "--windwo", "3"], "--windwo")]
)
def test_unknown_words_are_wrong_usage(words: list[str], word: str) -> None:
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2
    assert word in result.stderr


def test_wrong_usage_is_exit_code_2(run: Run, corpus: Path, tiny_model: Callable[..., Path]) -> None:
    assert "no corpus" in run("w2v", code=2).stderr
    assert run("neighbours", code=2).stderr.splitlines()[-1] == "greenadapt: Missing argument 'words'."
    assert "--window is 0, must be greater than or equal to 1" in run("w2v", "-c", corpus, "--window", 0, code=2).stderr
    assert "--max-memory is 'lots'" in run("w2v", "-c", corpus, "--max-memory", "lots", code=2).stderr
    assert "--vectors needs --model" in run("align", "--vectors", corpus, code=2).stderr
    run("adapt", "-c", corpus, "-m", tiny_model(), *QUICK)
    assert "--top is -1, must be at least 1" in run("neighbours", "-c", corpus, "heart", "--top", -1, code=2).stderr
    error = run("neighbours", "-c", corpus, "heart-rate", code=2).stderr
    assert "'heart-rate' is 3 words as the model's tokenizer splits it (heart - rate)" in error
    assert "v.npy has an unknown suffix" in run("export", "v.npy", "-c", corpus, code=2).stderr


def test_the_list_says_how_large_corpora_are(run: Run) -> None:
    rows = {row["name"]: row for row in map(json.loads, run("corpus", "list", "--json").stdout.splitlines())}
    assert rows["pmc"]["stated"]["at_most"]
    assert rows["pydocs"]["stated"] is None
    assert rows["cord19"]["sources"][0].startswith("https://")
    table = run("corpus", "list").stdout
    assert "up to 8,000,000 documents (2026-11-22)" in table


def test_a_corpus_that_is_not_here_is_not_called_here(run: Run, tmp_path: Path) -> None:
    recipe = tmp_path / "my own.toml"
    recipe.write_text('title = "T"\nlicence = "L"\nformat = "text"\n[[sources]]\nurl = "gone.txt"\n')
    assert "gone.txt does not exist" in run("corpus", "prepare", recipe, code=1).stderr
    recipe.write_text(recipe.read_text().replace("gone.txt", "https://example.org/a.txt"))
    assert f"greenadapt corpus prepare '{recipe}' --download" in run("corpus", "prepare", recipe, code=1).stderr


@pytest.mark.slow
def test_neighbours_of_many_words_and_of_any_number(run: Run, corpus: Path, tiny_model: Callable[..., Path]) -> None:
    run("adapt", "-c", corpus, "-m", tiny_model(), *QUICK)
    ask = ("neighbours", "-c", corpus)
    result = run(*ask, "tachycardia", "tachycardai", "heart-rate", "heart", "--json")
    rows = json_lines(result)
    assert {row["word"] for row in rows} == {"tachycardia", "heart"}
    first, second = result.stderr.splitlines()
    assert first.startswith("warning: no row and no vector for 'tachycardai'")
    assert ": near: tachycardia; it is not in the corpus" in first
    assert second.startswith("warning: 'heart-rate' is 3 words")
    assert "no row and no vector for 'xyzzy'" in last_line(run(*ask, "xyzzy", "heart-rate", code=1))
    all_rows = json_lines(run(*ask, "heart", "--top", 10**8, "--json"))
    assert max(len(row["neighbours"]) for row in all_rows) < 1000
    table = run(*ask, "heart", "--top", 50).stdout
    assert f"heart, {all_rows[0]['count']} times\n nearest  {all_rows[0]['view']} " in table
    neighbour = all_rows[0]["neighbours"][1]
    assert re.search(rf"^ 2 +{neighbour['word']} {neighbour['cosine']:.2f} ", table, re.M)


@pytest.mark.slow
def test_the_only_results_need_no_name_and_several_are_listed(
    run: Run, corpus: Path, tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    """Commands name the corpus and the model whose results they use."""
    commands: list[tuple[object, ...]] = [("neighbours", "tachycardia"), ("export", tmp_path / "v.vec"), ("align",)]
    commands += [("expand",)]
    model = tiny_model()
    for command in commands:
        assert f"in {tmp_path / 'ws'}: run greenadapt" in last_line(run(*command, code=1))
    run("adapt", corpus, "-m", model, *QUICK)
    [folder] = (tmp_path / "ws").glob("names/text-*/*")
    for command in commands:
        messages = run(*command).stderr
        assert folder.parent.name in messages
        assert folder.name in messages
    notes = tmp_path / "notes.txt"
    notes.write_text(text())
    run("corpus", "prepare", notes, "-m", model)
    assert "tachycardia" in run("neighbours", "tachycardia").stdout  # the other corpus has no map
    run("adapt", notes, "-m", model, *QUICK)
    (tmp_path / "v.vec").unlink()
    for command in commands:
        refused = last_line(run(*command, code=2))
        assert folder.parent.name in refused
        assert "notes-" in refused
        assert "--corpus" in refused


@pytest.mark.slow
def test_quiet_says_nothing_but_warnings(run: Run, corpus: Path, tiny_model: Callable[..., Path]) -> None:
    (corpus.parent / "twice.txt").write_bytes(b"the heart\nthe heart\nb\xffd the heart\n")
    adapt = ("adapt", "-c", corpus, "-m", tiny_model(), *QUICK, "--quiet")
    result = run(*adapt)
    assert result.stdout == ""
    assert all(line.startswith("warning: ") for line in result.stderr.splitlines())
    again = run(*adapt)
    assert (again.stdout, again.stderr) == ("", "")
    assert json.loads(run(*adapt, "--json").stdout)["status"] == "up to date"
    twice = corpus.parent / "twice.txt"
    [warning] = run("corpus", "prepare", twice, "-q", "-m", tiny_model()).stderr.splitlines()
    assert warning.startswith(f"warning: {twice}: replaced 1 broken UTF-8 sequence")


@pytest.mark.slow
def test_cost_of_a_folder_is_that_of_all_it_was_made_from(
    run: Run, corpus: Path, tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    adapt = ("adapt", "-c", corpus, "-m", tiny_model(), *QUICK, "-o")
    run(*adapt, tmp_path / "one")
    run(*adapt, tmp_path / "two", "--max-words", 1)
    assert "greenadapt cost FOLDER" in run("cost").stdout
    lines = run("cost", tmp_path / "one", tmp_path / "two", "--json").stdout.splitlines()
    rows = [json.loads(line) for line in lines if "folder" in line]
    assert [row["stage"] for row in rows] == ["corpus", "w2v", "align", "expand", "expand"]
    assert [row["folder"] for row in rows[-2:]] == [str(tmp_path / "one"), str(tmp_path / "two")]
    for row in rows:
        assert json.loads((Path(row["folder"]) / "manifest.json").read_text())["cost"].items() <= row.items()
    table = run("cost", tmp_path / "one").stdout
    assert re.search(r"^ expand one .*s ", table, re.M)
    assert "FOLDER" not in table
    assert "holds no greenadapt result" in last_line(run("cost", tmp_path, code=1))
    assert "leave out one of the two" in run("cost", tmp_path, "-c", corpus, code=2).stderr
