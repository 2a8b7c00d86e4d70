"""Models as they were published from 2019 to 2022, from text to predictions, beside the same models of today."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file

from greenadapt.checkpoints.source import find_model
from tests.conftest import WORDS, Run, json_lines, tiny_model_in
from tests.support.old_models import LAYOUTS, old_twin
from tests.support.references import states
from tests.support.small_tasks import known_text, ner_file, qa_file, worded_model

FAST = ("--epochs", 1, "--max-steps", 2, "--batch-size", 4, "--max-length", 64)
VECTORS = ("--min-count", 3, "--epochs", 1, "--workers", 1, "--engine", "gensim")
OLD = [
    ("BertForPreTraining", "pytorch-pretrained-bert"),
    ("BertModel", "pytorch-pretrained-bert"),
    ("BertForMaskedLM", "transformers 2"),
    ("RobertaForMaskedLM", "transformers 2"),
    ("BertModel", "transformers 3"),
    ("RobertaModel", "transformers 3"),
    ("BertForTokenClassification", "transformers 4"),
    ("RobertaForMaskedLM", "transformers 4"),
]


def texts(folder: Path) -> tuple[Path, Path]:
    """Lines of text with new words, and labelled sentences."""
    text, labelled = folder / "text.txt", folder / "labelled.tsv"
    lines = (f"{word} tachycardia of the heart in coronavirus patients {i}" for i, word in enumerate(WORDS * 3))
    text.write_text("\n".join(lines), "utf-8")
    sentences = ("the\tO\ntachycardia\tB-D\n", "coronavirus\tB-D\nof\tO\nheart\tO\n")
    labelled.write_text("\n".join(sentences * 8), "utf-8")
    return text, labelled


@pytest.fixture(params=OLD, ids=lambda old: " ".join(old))
def twins(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Path]:
    """A model of today, and the same as an old release wrote it."""
    architecture, layout = request.param
    modern = tiny_model_in(tmp_path, architecture, name="modern", initializer_range=0.1)
    return modern, old_twin(modern, tmp_path / "old", layout)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    """Those of a folder but for the buffer of positions, which old releases wrote."""
    tensors = load_file(folder / "model.safetensors")
    return {name: weight for name, weight in tensors.items() if not name.endswith("position_ids")}


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_an_old_folder_gives_what_a_new_one_gives(run_alone: Run, twins: tuple[Path, Path], tmp_path: Path) -> None:
    text, labelled = texts(tmp_path)
    modern, old = twins
    assert not (old / "tokenizer.json").exists()
    assert not list(old.glob("*.safetensors"))
    predicted = []
    for base in twins:
        run_alone("adapt", "-c", text, "-m", base, "-o", f"{base.name}-adapted", *VECTORS)
        training = ("--train", labelled, "--dev", labelled, *FAST)
        run_alone("finetune", "--task", "ner", "-m", f"{base.name}-adapted", "-o", f"{base.name}-ner", *training)
        run_alone("finetune", "--task", "ner", "-m", base, "-o", f"{base.name}-plain", *training)
        predicted += [run_alone("predict", "-m", f"{base.name}-{kind}", "-i", text).stdout for kind in ("ner", "plain")]
    assert predicted[:2] == predicted[2:]
    for kind in ("adapted", "ner", "plain"):
        expected, weights_of_old = (weights(tmp_path / f"{base.name}-{kind}") for base in twins)
        assert weights_of_old.keys() == expected.keys()
        assert all(torch.equal(weights_of_old[name], weight) for name, weight in expected.items())
        for name in ("tokenizer.json", "base_tokenizer/tokenizer.json"):
            files = [tmp_path / f"{base.name}-{kind}" / name for base in twins]
            if files[0].is_file():
                assert json.loads(files[0].read_text()) == json.loads(files[1].read_text())
    sentence = "the heart of patient dtype"
    torch.testing.assert_close(states(tmp_path / "old-adapted", sentence), states(modern, sentence), rtol=0, atol=0)
    base = transformers.AutoTokenizer.from_pretrained(tmp_path / "old-adapted" / "base_tokenizer")
    assert (
        base("Tachycardia!").input_ids == transformers.AutoTokenizer.from_pretrained(modern)("Tachycardia!").input_ids
    )


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_model_without_tokenizer_json_is_found(tmp_path: Path, layout: str) -> None:
    old = old_twin(tiny_model_in(tmp_path, "BertModel", name="modern"), tmp_path / "old", layout)
    assert find_model(str(old)).folder == old


@pytest.mark.slow
def test_other_commands_read_old_folders(run_alone: Run, tmp_path: Path) -> None:
    text, _ = texts(tmp_path)
    modern = tiny_model_in(tmp_path, "BertForMaskedLM", name="modern", initializer_range=0.1)
    old = old_twin(modern, tmp_path / "old", "pytorch-pretrained-bert")
    run_alone("pretrain", "--text", text, "-m", old, "-o", "pretrained", "--max-steps", 2, "--batch-size", 4)
    transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "pretrained")
    assert transformers.AutoTokenizer.from_pretrained(tmp_path / "pretrained")("Virus").input_ids
    ner_file(tmp_path / "a.tsv", 8)
    (tmp_path / "tasks.toml").write_text('[[task]]\nname = "a"\nkind = "ner"\ntrain = "a.tsv"\n')
    shared = ("finetune", "--tasks", "tasks.toml", "--layers", "1", "--dry-run", "--json", "-m")
    counts = [json_lines(run_alone(*shared, base))[0]["adapter"] for base in (modern, old)]
    assert counts[0] == counts[1]
    run_alone("corpus", "prepare", text, "-m", old)
    status = json_lines(run_alone("status", "--json"))
    (old / "vocab.txt").write_text((old / "vocab.txt").read_text("utf-8").replace("tachy", "tacho"), "utf-8")
    assert json_lines(run_alone("status", "--json")) == status  # nothing changed
    (old / "vocab.txt").write_text((old / "vocab.txt").read_text("utf-8").replace("virus", "viral"), "utf-8")
    assert "changed" in run_alone("status", "--verify").stdout


ADAPT = ("adapt", "-c", "text.txt", "-m", "MODEL", *map(str, VECTORS), "--rows", "pieces")
TRAIN = ("--train", "ner.tsv", *map(str, FAST))
STEPS: dict[str, list[tuple[str, ...]]] = {
    "evaluate": [("evaluate", "-m", "MODEL", "--test", "qa.json", "--json")],
    "qa": [("qa", "-m", "MODEL", "--context", "text.txt", "--sample-by", "document", "-q", "what virus", "--json")],
    "compile": [
        ("compile", "-m", "old", "-o", "compiled-old"),
        ("qa", "-m", "compiled-MODEL", "--data", "qa.json", "--json"),
    ],
    "index and search": [
        ("index", "--documents", "text.txt", "-m", "MODEL", "--vectors", "-o", "MODEL-index"),
        ("search", "MODEL-index", "tachycardia", "--by", "hybrid", "--json"),
    ],
    "assess": [(*ADAPT, "-o", "MODEL-adapted"), ("assess", "-m", "MODEL-adapted", "--json")],
    "neighbours": [ADAPT, ("neighbours", "tachycardia", "-m", "MODEL", "--json")],
    "memory": [
        ("finetune", "--task", "ner", "-m", "modern", "--memory", "MODEL", "-o", "MODEL-ner", *TRAIN),
        ("predict", "-m", "MODEL-ner", "-i", "text.txt"),
    ],
}
"""Commands with a model, of which the last prints a result."""


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("name", STEPS)
def test_each_command_reads_an_old_folder_as_the_same_model(run_alone: Run, tmp_path: Path, name: str) -> None:
    (tmp_path / "text.txt").write_text(known_text())
    ner_file(tmp_path / "ner.tsv", 8)
    qa_file(tmp_path / "qa.json", 4)
    worded = worded_model(partial(tiny_model_in, tmp_path, "BertForQuestionAnswering"))
    modern = worded.rename(tmp_path / "modern")
    old_twin(modern, tmp_path / "old", "transformers 2")
    (tmp_path / "compiled-modern").symlink_to(modern)  # the compiled model is compared with one that is not
    results = []
    for model in ("modern", "old"):
        *steps, last = [[part.replace("MODEL", model) for part in step] for step in STEPS[name]]
        for step in steps:
            run_alone(*step)
        results.append(comparable(json_lines(run_alone(*last))))
    assert results[0] == results[1] != []


def comparable(value: Any) -> Any:
    """JSON without what differs between two runs: places and costs; numbers to five digits."""
    if isinstance(value, dict):
        return {
            key: comparable(entry) for key, entry in value.items() if key not in ("base", "folder", "facts", "cost")
        }
    if isinstance(value, list):
        return [comparable(entry) for entry in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


@pytest.mark.slow
def test_a_vocabulary_with_capitals_is_told(run_alone: Run, tmp_path: Path) -> None:
    text, _ = texts(tmp_path)
    old = old_twin(tiny_model_in(tmp_path, "BertModel", name="modern"), tmp_path / "old", "pytorch-pretrained-bert")
    warning = "vocab.txt of .* has capitals, but no tokenizer_config.json says do_lower_case"
    assert warning.split(".*")[1] in run_alone("corpus", "prepare", text, "-m", old).stderr
    (old / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    assert "has capitals" not in run_alone("corpus", "prepare", text, "-m", old, "--force").stderr
