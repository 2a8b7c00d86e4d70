"""The task files of ``examples/``, on small files written as the data sets are published."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from greenadapt.progress import Silent
from greenadapt.tasks.base import make_task
from greenadapt.tasks.classification import ClassificationTask, Text
from greenadapt.tasks.metrics import choose_metric
from greenadapt.tasks.tasks_file import TaskEntry, read_tasks_file
from tests.conftest import Notes

EXAMPLES = Path(__file__).parent.parent / "examples"
BOM = "\ufeff"
MRPC = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"
MNLI = "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse"
MNLI += "\tsentence2_parse\tsentence1\tsentence2"
STS = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore"
QQP = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate"
PARSES = "( a )\t( b )\t(ROOT (NP a))\t(ROOT (NP b))"


# Columns, order and headers of the published files, and what is odd about them.
GLUE = {
    "CoLA/train.tsv": ["gj04\t1\t\tOne more pseudo generalization and I'm giving up.", 'l-93\t0\t*\tHe said, "Go.'],
    "CoLA/dev.tsv": ["gj04\t1\t\tThe sailors rode the breeze clear of the rocks.", "rhl07\t0\t*\tThe cat had ate."],
    "SST-2/train.tsv": ["sentence\tlabel", "hide new secretions from the parental units \t0", "contains ``wit '' \t1"],
    "SST-2/dev.tsv": ["sentence\tlabel", "it 's a charming journey . \t1", "unflinchingly bleak \t0"],
    "MRPC/train.tsv": [
        BOM + MRPC,
        '1\t702876\t702977\tAmrozi accused his brother , whom he called " the witness "\tReferring to him " .',
        '0\t2108705\t2108831\t" Yucaipa owned Dominick \'s .\tYucaipa bought it " in 1995 .',
    ],
    "MRPC/dev.tsv": [BOM + MRPC, "1\t1355540\t1355592\tHe said it .\tIt was said .", "0\t1\t2\tA .\tB ."],
    "STS-B/train.tsv": [
        STS,
        "0\tmain-captions\tMSRvid\t2012test\t0001\tnone\tnone\tA plane is taking off.\tAn air plane takes off.\t5.000",
        '1\tmain-forums\tdeft-forum\t2014\t7\tnone\tnone\t"What?\tNo.\t0.0',
        "2\tmain-news\theadlines\t2013\t9\tnone\tnone\tFrance says\tFrance said\t3.800",
    ],
    "STS-B/dev.tsv": [STS, "0\tg\tf\t2012\t1\tnone\tnone\tA man.\tA dog.\t1.75", "1\tg\tf\t2012\t2\tn\tn\ta\tb\t4"],
    "QQP/train.tsv": [
        QQP,
        '133273\t213221\t213222\tHow is "life" of a student?\tWhich level is enough for "jlpt5?\t0',
        "402555\t536040\t536041\tHow do I control my",
        " emotions?\tHow do you control yours?\t1",
        "360472\t364011\t490273\tWhat causes stool color?\tWhat can cause stool to come out as balls?\t1",
    ],
    "QQP/dev.tsv": [QQP, "201359\t303345\t303346\tWhy are birds?\tWhy do birds?\t0", "1\t2\t3\ta\ta\t1"],
    "MNLI/train.tsv": [
        f"{MNLI}\tlabel1\tgold_label",
        f'0\t31193\t31193n\tgovernment\t{PARSES}\tConceptually "cream\tProduct and geography\tneutral\tneutral',
        f"1\t101457\t101457e\ttelephone\t{PARSES}\tyou know\tYou lose\tentailment\tentailment",
        f"2\t134793\t134793c\tfiction\t{PARSES}\tOne of our number\tA member\tcontradiction\tcontradiction",
    ],
    "MNLI/dev_matched.tsv": [
        f"{MNLI}\tlabel1\tlabel2\tlabel3\tlabel4\tlabel5\tgold_label",
        f"0\t63735\t63735n\tslate\t{PARSES}\tThe new rights\tEveryone\tneutral\tentailment\tneutral\tneutral\tneutral"
        "\tneutral",
    ],
    "MNLI/dev_mismatched.tsv": [
        f"{MNLI}\tlabel1\tlabel2\tlabel3\tlabel4\tlabel5\tgold_label",
        f"0\t75290\t75290c\tletters\t{PARSES}\tYour contribution\tYour help\tcontradiction\tcontradiction\tneutral"
        "\tcontradiction\tcontradiction\tcontradiction",
    ],
    "QNLI/train.tsv": [
        "index\tquestion\tsentence\tlabel",
        '0\tWhen did the third Digimon series begin?\tUnlike the "two seasons before\tnot_entailment',
        "1\tWhich missile batteries?\tWhen MANPADS is operated\tentailment",
    ],
    "QNLI/dev.tsv": ["index\tquestion\tsentence\tlabel", "0\tWhat came?\tAs of that day\tentailment"],
    "RTE/train.tsv": [
        "index\tsentence1\tsentence2\tlabel",
        "0\tNo Weapons of Mass Destruction Found in Iraq Yet.\tWeapons Found in Iraq.\tnot_entailment",
        '1\tA place of "sorrow\tPope Benedict XVI is the new leader\tentailment',
    ],
    "RTE/dev.tsv": ["index\tsentence1\tsentence2\tlabel", "0\tDana Reeve died.\tReeve had a fall.\tnot_entailment"],
}  # fmt: skip


# The first text of each development set and its label.
EXPECTED = {
    "CoLA": Text("The sailors rode the breeze clear of the rocks.", None, "1"),
    "SST-2": Text("it 's a charming journey . ", None, "1"),
    "MRPC": Text("He said it .", "It was said .", "1"),
    "STS-B": Text("A man.", "A dog.", "1.75"),
    "QQP": Text("Why are birds?", "Why do birds?", "0"),
    "MNLI": Text("The new rights", "Everyone", "neutral"),
    "QNLI": Text("What came?", "As of that day", "entailment"),
    "RTE": Text("Dana Reeve died.", "Reeve had a fall.", "not_entailment"),
}
METRICS = {
    "CoLA": "mcc", "SST-2": "accuracy", "MRPC": "by_class.1.f1", "STS-B": "pearson", "QQP": "by_class.1.f1",
    "MNLI": "accuracy", "QNLI": "accuracy", "RTE": "accuracy",
}  # fmt: skip


@pytest.fixture
def glue(tmp_path: Path) -> dict[str, TaskEntry]:
    for name, rows in GLUE.items():
        path = tmp_path / "glue" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes("".join(f"{row}\n" for row in rows).encode())
    path = Path(shutil.copy(EXAMPLES / "glue.toml", tmp_path))
    return {entry.name: entry for entry in read_tasks_file(path)}


def fitted(entry: TaskEntry, progress: Silent) -> tuple[ClassificationTask, list[Text]]:
    task: Any = make_task(entry.config)
    examples = [example for source in entry.train for example in task.read(source, progress)]
    return task.fit(examples, progress), examples


def test_the_tasks_of_glue(glue: dict[str, TaskEntry]) -> None:
    assert [(name, entry.metric) for name, entry in glue.items()] == list(METRICS.items())
    assert {entry.config.max_length for entry in glue.values()} == {128}
    assert {name: [*entry.dev] for name, entry in glue.items() if len(entry.dev) > 1} == {"MNLI": ["m", "mm"]}
    assert not any(entry.test for entry in glue.values())  # their labels are not public


@pytest.mark.parametrize("name", EXPECTED)
def test_each_task_as_it_is_published(glue: dict[str, TaskEntry], name: str) -> None:
    entry, heard = glue[name], Notes()
    task, train = fitted(entry, heard)
    assert len(train) == (3 if name in ("MNLI", "STS-B") else 2)
    broken = ["left out 2 rows that do not have 6 columns, the first on line 3"] if name == "QQP" else []
    assert [warning.split(": ")[1] for warning in heard.warnings] == broken
    classes = {"MNLI": ("contradiction", "entailment", "neutral"), "STS-B": ()}
    usual = ("entailment", "not_entailment") if name in ("QNLI", "RTE") else ("0", "1")
    assert task.labels == classes.get(name, usual)
    assert choose_metric(entry.metric, task, name) == entry.metric
    heard = Notes()
    read = {data: task.read(source, heard) for data, source in entry.dev.items()}
    assert next(iter(read.values()))[0] == EXPECTED[name]
    assert heard.warnings == []


def test_quotation_marks_numbers_and_two_development_sets(glue: dict[str, TaskEntry]) -> None:
    _, train = fitted(glue["MRPC"], Silent())
    assert train[1] == Text("\" Yucaipa owned Dominick 's .", 'Yucaipa bought it " in 1995 .', "0")
    task, _ = fitted(glue["STS-B"], Silent())
    assert (task.main, task.label_range) == ("pearson", (0.0, 5.0))
    task, _ = fitted(glue["MNLI"], Silent())
    assert [task.read(source, Silent())[0].label for source in glue["MNLI"].dev.values()] == [
        "neutral",
        "contradiction",
    ]


def test_the_mix_of_scientific_tasks(tmp_path: Path) -> None:
    """JSON lines with more fields than are read, as SciBERT's release has them, and a CoNLL file."""
    labels = {
        "chemprot": ("INHIBITOR", "SUBSTRATE"),
        "sci-cite": ("background", "method"),
        "citation_intent": ("Background", "CompareOrContrast"),
    }
    for folder, (first, second) in labels.items():
        for data in ("train", "dev", "test"):
            path = tmp_path / "science/classification" / folder / f"{data}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            rows = [{"text": "<< a >> inhibits [[ b ]]", "label": label, "metadata": []} for label in (first, second)]
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    ner = tmp_path / "science/ner/NCBI-disease"
    ner.mkdir(parents=True)
    for data in ("train", "devel", "test"):
        (ner / f"{data}.tsv").write_text(
            "Identification\tO\nof\tO\nAPC2\tO\n\nadenomatous\tB-Disease\npolyposis\tI-Disease\n"
        )
    entries = read_tasks_file(shutil.copy(EXAMPLES / "science.toml", tmp_path))
    kinds = {entry.name: (entry.config.task, entry.metric) for entry in entries}
    assert kinds == {
        "chemprot": ("classification", "micro_f1"),
        "scicite": ("classification", "macro_f1"),
        "acl-arc": ("classification", "macro_f1"),
        "ncbi-disease": ("ner", "f1"),
    }
    for entry in entries:
        task: Any = make_task(entry.config)
        task = task.fit(task.read(entry.train[0], Silent()), Silent())
        heard = Notes()
        assert [len(task.read(source, heard)) for source in {**entry.dev, **entry.test}.values()] == [2, 2]
        assert heard.lines == []
        assert choose_metric(entry.metric, task, entry.name) == entry.metric
