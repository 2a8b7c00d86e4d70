"""The experiments of the papers in miniature from local files, what is missing, and how they go on."""

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import f1_score

from experiments import gmap, green, pals
from experiments.command import runs_of
from experiments.recipe import FOLDER, Sets, read_recipe
from greenadapt.errors import GreenadaptError, InputError, MissingError, UsageError
from greenadapt.inference.models import ensemble_logits
from greenadapt.models.task_folder import TaskFolder
from greenadapt.progress import Silent
from greenadapt.training import loop
from greenadapt.training.loop import Training
from tests.conftest import tiny_model_in
from tests.support.small_tasks import TinyModel, expand, lines, ner_file, qa_file, sentences, texts_file

Json = dict[str, Any]
Script = Callable[..., Any]
QUICK = "[w2v]\nepochs = 1\nmin-count = 1\n[task]\nmax-length = 64\n[training]\nepochs = 1\nbatch-size = 8\n"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``base``, ``other`` and ``squad``."""
    folder = tmp_path_factory.mktemp("models")
    tiny_model = partial(tiny_model_in, folder, initializer_range=0.1)
    tiny_model(name="base")
    tiny_model(name="other", num_attention_heads=2)
    tiny_model("BertForQuestionAnswering", name="squad")
    return folder


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    file = tmp_path / "papers.txt"
    file.write_text("\n".join(" ".join(words) for words in sentences(300, 1)))
    return file


def ner_set(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for seed, (name, n) in enumerate((("train", 16), ("devel", 8), ("test", 12))):
        ner_file(folder / f"{name}.tsv", n, seed)
    return folder


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Script:
    """Calls a script's ``main``, with results in the folder of the test; returns the JSON that it prints."""
    monkeypatch.chdir(tmp_path)

    def call(main: Callable[[list[str]], None], *arguments: object) -> Any:
        common = ("--json", "--workers", 1, "--workspace", "ws", "--out", "out")
        main([str(argument) for argument in (*arguments, *common)])
        return json.loads(capsys.readouterr().out)

    return call


def by_cell(printed: Json) -> dict[tuple[str, str, str], Json]:
    """What a script says of each cell, by table, column and method."""
    return {(cell["table"], cell["set"], cell["model"]): cell for cell in printed["cells"]}


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_green_ner_in_miniature(run: Script, models: Path, corpus: Path, tmp_path: Path) -> None:
    ner_set(tmp_path / "data" / "NCBI-disease")
    (tmp_path / "small.toml").write_text(f'extends = "green-ner"\n{QUICK}')
    options = ["--only", "NCBI-disease", "--only", "LINNAEUS", "--seeds", 2, "--data", tmp_path / "data"]
    options += ["--corpus", f"domain={corpus}", "--model", f"base={models / 'base'}"]
    options += ["--model", f"reference={models / 'other'}"]
    options += ["--method", "base", "--method", "green", "--method", "reference"]
    command = (green.main, "ner", "--recipe", "small.toml", *options)

    cells = by_cell(run(*command))
    ours = {method: cell for (table, name, method), cell in cells.items() if name == "NCBI-disease F1" and "2" in table}
    records = lines(tmp_path / "out/small/records.jsonl")
    assert [(row["method"], row["seed"]) for row in records] == [
        (method, seed) for seed in (0, 1) for method in ("base", "green", "reference")
    ]
    f1 = [100 * row["scores"]["f1"] for row in records if row["method"] == "base"]
    assert ours["BERT"]["ours"] == pytest.approx(np.mean(f1))
    for letter, score in (("P", "precision"), ("R", "recall")):
        beside = cells["Table 2 (bottom)", f"NCBI-disease {letter}", "BERT"]
        points = [100 * row["scores"][score] for row in records if row["method"] == "base"]
        assert (beside["ours"], beside["published"]) == (pytest.approx(np.mean(points)), None)
    assert ours["BERT"]["std"] == pytest.approx(np.std(f1, ddof=1))
    assert ours["BERT"]["published"] == 85.63
    assert ours["BERT"]["difference"] == pytest.approx(np.mean(f1) - 85.63)
    assert (ours["GreenBioBERT"]["seeds"], ours["GreenBioBERT"]["published"]) == (2, None)
    missing = cells["Table 2 (bottom)", "LINNAEUS F1", "BERT"]
    assert (missing["ours"], missing["seeds"], missing["published"]) == (None, 0, 87.6)
    assert "--download" in missing["missing"]
    assert len({row["asked"]["model"] for row in records}) == 3
    assert all(len(row["asked"]["files"]) == 3 for row in records)  # training, development and test sentences
    assert not list((tmp_path / "out/small/runs").glob("[!.]*"))

    # All is kept: nothing is trained again, and another setting is another run.
    (tmp_path / "out/small/table.md").unlink()
    name = "-".join([*(str(records[0][part]) for part in ("set", "method", "seed")), records[0]["key"][:8]])
    leftover = tmp_path / "out/small/runs" / name  # by a command that was killed once the record was there
    leftover.mkdir(parents=True)
    assert by_cell(run(*command)) == cells
    assert not leftover.exists()
    page = (tmp_path / "out/small/table.md").read_text()
    assert "| NCBI-disease F1 | BERT         | 85.6 " in page
    assert "base = base" in page
    assert len(lines(tmp_path / "out/small/records.jsonl")) == len(records)


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_green_qa_in_miniature(run: Script, models: Path, corpus: Path, tmp_path: Path) -> None:
    data = qa_file(tmp_path / "questions.json", 6)
    (tmp_path / "small.toml").write_text(f'extends = "green-qa"\n{QUICK.split("[task]")[0]}')
    options = ["--data", f"covid-qa={data}", "--model", f"base={models / 'squad'}", "--corpus", f"cord19={corpus}"]
    command = (green.main, "qa", "--recipe", "small.toml", *options)
    cells = by_cell(run(*command))
    row = "Table 3 (bottom)", "F1"
    figures = {"SQuADBERT": 55.71, "Green, CORD-19 only, greedy": 57.04, "Green, CORD-19 only": None}
    for method, published in figures.items():
        cell = cells[*row, method]
        assert (cell["published"], cell["seeds"], cell["wanted"], cell["missing"]) == (published, 1, 1, "")
    assert "--corpus all=" in cells[*row, "Green, CORD-19, PubMed and PMC"]["missing"]
    folder = tmp_path / "out/small"
    for record in lines(folder / "records.jsonl"):
        (answered,) = folder.glob(f"runs/covid-qa-{record['method']}-0-*/answers.jsonl")
        assert record["scores"]["f1"] == pytest.approx(
            np.mean([row_of_answer["f1"] for row_of_answer in lines(answered)])
        )
    rules = {
        (config["oov"], bool(config["restrict_to"]))
        for facts in folder.glob("models/covid-qa-cord19-*/greenadapt.json")
        for config in [json.loads(facts.read_text())["config"]]
    }
    assert rules == {("base", True), ("greedy", False)}
    assert by_cell(run(*command)) == cells
    assert len(lines(folder / "records.jsonl")) == 3
    assert "greedy" in (folder / "table.md").read_text()


def small_gmap(run: Script, tiny_model: TinyModel, tmp_path: Path, epochs: int = 1) -> Callable[..., Any]:
    """Runs methods of G-MAP on one small set of texts."""
    folder = tmp_path / "data" / "chemprot"
    folder.mkdir(parents=True)
    for seed, part in enumerate(("train", "dev", "test")):
        texts_file(folder / f"{part}.txt", 24 if seed == 0 else 12, seed)
    base = tiny_model("BertForMaskedLM", name="base", initializer_range=0.1)
    domain = expand(base, tmp_path / "domain")
    (tmp_path / "small.toml").write_text(
        'extends = "gmap"\n[tapt]\nepochs = 1\n[own.chemprot]\n'
        f"task = {{ max-length = 32 }}\ntraining = {{ epochs = {epochs}, batch-size = 8, learning-rate = 3e-3 }}\n"
    )
    options = ["--recipe", "small.toml", "--only", "chemprot", "--data", tmp_path / "data", "--seeds", 1]
    options += ["--model", f"general={base}", "--model", f"domain={domain}"]

    def call(*methods: str) -> dict[tuple[str, str, str], Json]:
        return by_cell(run(gmap.main, *options, *(word for method in methods for word in ("--method", method))))

    return call


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_gmap_goes_on_and_its_ensemble_is_that_of_kept_probabilities(
    run: Script, tiny_model: TinyModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = small_gmap(run, tiny_model, tmp_path, epochs=2)
    file = tmp_path / "out/small/records.jsonl"
    steps, numbers = Training.train_steps, []

    def watched(self: Training, last: int) -> Any:
        for step in itertools.islice(steps(self), last):
            numbers.append(step.number)
            yield step
        if last == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(loop, "_SECONDS_BETWEEN_EPOCHS_SAVED", -1)
    monkeypatch.setattr(Training, "train_steps", lambda self: watched(self, 4))
    with pytest.raises(KeyboardInterrupt):
        call("ensemble")
    assert not file.exists()
    monkeypatch.setattr(Training, "train_steps", lambda self: watched(self, 99))
    cells = call("ensemble")
    assert numbers == [1, 2, 3, 4, 4, 5, 6, 1, 2, 3, 4, 5, 6]  # from the end of the first epoch; then the other member
    rows = lines(file)
    assert [row["method"] for row in rows] == ["fine-tuning", "dapt", "ensemble"]

    members = [TaskFolder.open_without_weights(path) for path in sorted((tmp_path / "out/small/kept").iterdir())]
    task = members[0].task
    pairs = zip(*map(gmap.read_logits, members), strict=True)
    labels = [task.labels[ensemble_logits(pair, "probabilities", task.head).argmax()] for pair in pairs]
    gold = [row["label"] for row in lines(tmp_path / "data/chemprot/test.txt")]
    assert rows[-1]["scores"]["micro_f1"] == pytest.approx(f1_score(gold, labels, average="micro"))
    assert rows[-1]["seconds"] == rows[0]["seconds"] + rows[1]["seconds"]
    cell = cells["Table 1", "CP", "Ensemble LMs"]
    assert cell["ours"] == pytest.approx(100 * rows[-1]["scores"]["micro_f1"])
    assert (cell["published"], cell["published_std"]) == (84.6, 0.2)

    whole = file.read_text()
    file.write_text(whole[: len(whole) - 40])  # killed while it wrote the last record
    assert call("ensemble") == cells
    assert len(numbers) == 13


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_pals_in_miniature(run: Script, models: Path, tmp_path: Path) -> None:
    for seed, name in enumerate(("train", "dev", "other", "otherdev")):
        texts_file(tmp_path / f"{name}.jsonl", 16, seed)
    (tmp_path / "tasks.toml").write_text(
        '[defaults]\nkind = "classification"\nmax-length = 32\n'
        '[[task]]\nname = "one"\ntrain = "train.jsonl"\ndev = "dev.jsonl"\nmetric = "accuracy"\n'
        '[[task]]\nname = "two"\ntrain = "other.jsonl"\ndev = "otherdev.jsonl"\nmetric = "accuracy"\n'
    )
    (tmp_path / "two.toml").write_text('title = "two"\nlicence = "none"\nkind = "tasks"\ntasks = "tasks.toml"\n')
    (tmp_path / "small.toml").write_text(
        'extends = "pals"\nsets = ["two.toml"]\nseeds = 1\n[training]\nepochs = 1\nbatch-size = 8\n'
        "[sampling]\nsteps-per-epoch = 4\n"
        '[[tables]]\nname = "mine"\nsource = "nobody"\ncolumns = [\n'
        '{ name = "prop", set = "two", score = "average", variant = "proportional" },\n'
        '{ name = "anneal", set = "two", score = "average", variant = "anneal" }]\n'
        'rows = [{ method = "shared", name = "Shared", published = [80, 70] },\n'
        '{ method = "low-rank", name = "Low rank", published = ["", 60] }]\n'
    )
    cells = by_cell(run(pals.main, "--recipe", "small.toml", "--model", f"base={models / 'base'}"))
    assert {(name, method) for _, name, method in cells} == {
        ("prop", "Shared"), ("anneal", "Shared"), ("anneal", "Low rank")
    }  # fmt: skip
    assert {cell["missing"] for cell in cells.values()} == {""}
    rows = {(row["method"], row["variant"]): row for row in lines(tmp_path / "out/small/records.jsonl")}
    assert rows["shared", "proportional"]["asked"]["config"]["sampling"] == "proportional"
    assert rows["low-rank", "anneal"]["asked"]["config"]["adapter"] == "low-rank"
    scores = rows["low-rank", "anneal"]["scores"]
    accuracy = [task["dev"]["dev"]["mean"] for task in scores["tasks"].values()]
    assert cells["mine", "anneal", "Low rank"]["ours"] == pytest.approx(100 * np.mean(accuracy))


def test_settings_of_gmap_are_those_of_the_paper(tmp_path: Path) -> None:
    """Tables 8 to 10, and of questions the released code."""
    recipe = read_recipe(FOLDER / "gmap.toml")
    for name in ("NCBI-disease", "CoNLL-2003"):
        task = recipe.config("task", name, task="ner")
        assert (task.chunk, task.max_length) == (None, 128)
    layers = {}
    for name in ("chemprot", "rct-20k", "citation_intent", "sciie", "hyperpartisan_news", "ag", "amazon", "imdb"):
        task = recipe.config("task", name, task="classification")
        assert task.head_dropout == 0.5
        layers[name] = task.head_layers
    assert [*layers.values()] == [1, 1, 1, 1, 1, 2, 1, 2]  # table 9
    for name in ("Medication", "NewsQA"):
        task = recipe.config("task", name, task="qa")
        windows = (task.max_length, task.stride, task.max_question, task.max_answer_pieces)
        assert windows == (384, 128, 64, 30)
    folder = tmp_path / "NewsQA"
    folder.mkdir()
    for part in ("train", "dev", "test"):
        (folder / f"{part}.json").write_text("{}")
    files = Sets(tmp_path, {"NewsQA": folder}, False, Silent()).files(recipe.sets["NewsQA"])
    assert (files.train, files.dev) == (str(folder / "train.json"), None)


def test_every_recipe_has_its_sets_and_figures() -> None:
    recipes = {file.stem: read_recipe(file) for file in FOLDER.glob("*.toml")}
    assert set(recipes) == {"green-ner", "green-qa", "gmap", "pals"}
    for recipe in recipes.values():
        for table in recipe.tables:
            assert {column.set for column in table.columns} <= recipe.sets.keys()
        for dataset in recipe.sets.values():
            assert dataset.published or dataset.bring
    assert len(recipes["green-ner"].sets) == 8
    methods = {row.method for recipe in recipes.values() for table in recipe.tables for row in table.rows}
    figures = {
        (table.name, row.name, column.name): row.figures(n)
        for recipe in recipes.values()
        for table, n, column, row in recipe.cells(methods, recipe.sets)
    }
    for key, published in {
        ("Table 2 (bottom)", "BioBERT", "Species-800 F1"): (74.06, None),
        ("Table 3 (bottom)", "Green, CORD-19 only, greedy", "EM"): (32.25, None),
        ("Table 3 (bottom)", "Green, CORD-19 only", "EM"): (None, None),
        ("Table 1", "Fine-Tuning", "CI"): (63.0, 5.8),
        ("Table 1", "G-MAP, gated", "AM"): (68.1, 0.5),
        ("Table 2", "G-MAP*", "CP"): (85.1, 0.3),
        ("Table 3", "G-MAP", "NCBI-Disease"): (88.7, 0.2),
        ("Table 4", "G-MAP w/o frozen", "SE"): (82.4, 1.1),
        ("Table 5", "Cross-attention", "CI"): (73.5, 2.0),
        ("Table 3", "PALs (204)", "annealed"): (81.7, 0.2),
    }.items():
        assert figures[key] == published
    assert ("Table 3", "Low rank (100)", "proportional") not in figures
    assert figures["Sections 3 and 4", "Proj. Attn. on top, 12 layers", "annealed"] == (None, None)
    recipe = recipes["gmap"]
    runs = runs_of(recipe, [*methods], [*recipe.sets], 5)
    assert len(runs) == len(set(runs)) == 5 * (8 * 11 + 4 * 3 + 4 * 3)


def test_glue_is_read_where_it_lies(tmp_path: Path) -> None:
    glue = read_recipe(FOLDER / "pals.toml").sets["glue"]
    sets = Sets(tmp_path / "root", {"glue": tmp_path / "mine"}, download=False, progress=Silent())
    for name in (task.name for task in glue.published):
        (tmp_path / "mine" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "mine" / name).touch()
    with pytest.raises(MissingError, match=r"MRPC/train\.tsv"):
        sets.files(glue)
    for name in ("train", "dev"):
        (tmp_path / "mine/MRPC").mkdir(exist_ok=True)
        (tmp_path / f"mine/MRPC/{name}.tsv").touch()
    tasks = {task.name: task for task in sets.files(glue).tasks}
    assert tasks["MNLI"].dev == {"m": str(tmp_path / "mine/MNLI/dev_matched.tsv")}
    # Table 3 of PALs has averages over eight tasks, table 2 over nine columns.
    assert len(tasks) == sum(len(task.dev) for task in tasks.values()) == 8
    with pytest.raises(InputError, match="MNLI has no development set x"):
        sets.files(replace(glue, development={"MNLI": "x"}))
    assert tasks["MRPC"].train == (str(tmp_path / "mine/MRPC/train.tsv"),)
    assert {name: task.metric for name, task in tasks.items() if task.metric != "accuracy"} == {
        "CoLA": "mcc", "STS-B": "pearson"
    }  # fmt: skip
    assert not (tmp_path / "root").exists()


@pytest.mark.parametrize(
    ("recipe", "named"),
    [
        ('extends = "green-ner"\n[training]\nepochs = 0', "epochs"),
        (
            'extends = "pals"\n[[tables]]\nname = "a"\nsource = "b"\ncolumns = []\n'
            'rows = [{ method = "c", name = "d", published = [1] }]',
            "row 'd' has 1 figures, there are 0 columns",
        ),
        ("kind = ", "TOML"),
    ],
)
def test_a_wrong_recipe_is_named(tmp_path: Path, recipe: str, named: str) -> None:
    (tmp_path / "wrong.toml").write_text(recipe)
    with pytest.raises(GreenadaptError, match=named):
        read_recipe(tmp_path / "wrong.toml")


def test_what_the_recipe_does_not_have_is_refused(run: Script, tmp_path: Path) -> None:
    for arguments, named in (
        (("--only", "BC9"), "BC9"),
        (("--data", "NCBI-disease=nowhere"), "nowhere"),
        (("--seeds", 0), "0"),
        (("--data", ".", "--data", "qa"), r"names \. and qa"),
    ):
        with pytest.raises(UsageError, match=named):
            run(green.main, "ner", *arguments)
    with pytest.raises(UsageError, match="--seeds 3, but green-qa"):
        run(green.main, "qa", "--seeds", 3)
    with pytest.raises(MissingError, match="nothing"):
        run(green.main, "ner", "--recipe", "nothing.toml")
    assert not list(tmp_path.iterdir())
