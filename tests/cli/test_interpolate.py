"""``greenadapt interpolate`` as a person meets it: a folder that loads and trains, what is said, what is refused."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file

from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.config import TrainConfig
from greenadapt.stages.finetune.train import finetune
from greenadapt.tokenization.dual_tokenizer import DualTokenizer
from tests.conftest import Run, last_line
from tests.support.small_tasks import (
    NEW,
    TinyModel,
    adapted,
    facts_file,
    lines,
    ner_request,
    read_json,
    session,
    trained,
)

COPIED = ("tokenizer.json", "tokenizer_config.json", "words.safetensors", "base_tokenizer/tokenizer.json")


@pytest.fixture
def folders(tiny_model: TinyModel) -> tuple[Path, Path]:
    """An expanded and trained model, and the one that it was made from."""
    domain = trained(adapted(tiny_model))
    facts_file(domain)
    (domain / "generation_config.json").write_text("{}")
    (domain / "modeling_evil.py").write_text("raise SystemExit")
    config = read_json(domain / "config.json")
    (domain / "config.json").write_text(json.dumps({**config, "auto_map": {"AutoModel": "modeling_evil.Model"}}))
    return domain, domain.parent / "base"


@pytest.mark.slow
def test_the_folder_is_the_domain_models_but_for_its_weights(
    run_alone: Run, folders: tuple[Path, Path], tmp_path: Path
) -> None:
    domain, general = folders
    out = tmp_path / "out"
    told = json.loads(
        run_alone("interpolate", "-m", domain, "--with", general, "--weight", 0.3, "-o", out, "--json").stdout
    )
    assert (told["stage"], told["status"], told["folder"]) == ("interpolate", "done", str(out))
    n_base = Checkpoint.open(general).n_rows
    assert told["counts"] == {"weights": 39, "kept": 0, "base_rows": n_base, "rows": len(NEW)}
    assert told["config"] == {"weight": 0.3}
    assert (told["facts"]["model"]["name"], told["facts"]["general"]["source"]) == ("tiny-medicine", str(general))
    for name in (*COPIED, "greenadapt.json", "generation_config.json"):
        assert (out / name).read_bytes() == (domain / name).read_bytes(), name
    assert not list(out.glob("*.py"))
    assert "auto_map" not in read_json(out / "config.json")
    assert "0.3 times that of base and 0.7 times that of adapted" in (out / "README.md").read_text("utf-8")
    assert len(DualTokenizer.load(out).encode("tachycardia").expanded.ids) == 1
    first, second, found = (load_file(folder / "model.safetensors") for folder in (domain, general, out))
    for name, tensor in found.items():
        n = len(second[name])
        torch.testing.assert_close(tensor[:n], 0.3 * second[name] + 0.7 * first[name][:n], msg=name)
        assert torch.equal(tensor[n:], first[name][n:])
    model = transformers.AutoModel.from_pretrained(out)
    assert len(model.get_input_embeddings().weight) == n_base + len(NEW)


@pytest.mark.slow
def test_a_second_run_does_nothing(run_alone: Run, folders: tuple[Path, Path], tmp_path: Path) -> None:
    domain, general = folders
    command = ("interpolate", "--model", domain, "--with", general, "--out", tmp_path / "out", "--weight")
    assert run_alone(*command, 0.3).stdout.startswith("interpolate: done in")
    assert run_alone(*command, 0.3).stdout.startswith("interpolate: up to date; weights 39")
    assert "(weight: 0.3 → 0.5): keep both with another --out" in last_line(run_alone(*command, 0.5, code=1))
    assert json.loads(run_alone(*command, 0.5, "--force", "--json").stdout)["config"] == {"weight": 0.5}
    trained(general, seed=3)
    again = run_alone(*command, 0.5)
    assert "general changed since" in again.stderr
    assert again.stdout.startswith("interpolate: done in")


@pytest.mark.slow
def test_fine_tuning_takes_it_as_it_takes_the_domain_model(
    run_alone: Run, folders: tuple[Path, Path], tmp_path: Path
) -> None:
    """Where the general model counts for nothing, both come to the same."""
    domain, general = folders
    run_alone("interpolate", "-m", domain, "--with", general, "--weight", 0, "--out", tmp_path / "out")
    training = TrainConfig(epochs=1, learning_rate=1e-3)
    first, second = (
        finetune(session(tmp_path, name), ner_request(tmp_path, folder, training=training)).folder
        for name, folder in (("first", domain), ("second", tmp_path / "out"))
    )
    assert lines(first / "seeds/0/predictions.jsonl") == lines(second / "seeds/0/predictions.jsonl")
    assert (first / "model.safetensors").read_bytes() == (second / "model.safetensors").read_bytes()


@pytest.mark.slow
def test_a_fine_tuned_model_stays_one(run_alone: Run, folders: tuple[Path, Path], tmp_path: Path) -> None:
    """Interpolated with what it was trained from, it predicts with the head that it had."""
    domain, _ = folders
    done = finetune(session(tmp_path), ner_request(tmp_path, domain))
    out = tmp_path / "out"
    told = json.loads(
        run_alone("interpolate", "-m", done.folder, "--with", domain, "--weight", 0.2, "-o", out, "--json").stdout
    )
    assert told["counts"]["kept"] == 2
    found, trained_head = (
        load_file(folder / "model.safetensors")["classifier.weight"] for folder in (out, done.folder)
    )
    np.testing.assert_array_equal(found, trained_head)
    rows = run_alone("predict", "-m", out, stdin="patient with tachycardia\n").stdout.splitlines()
    assert [json.loads(row)["line"] for row in rows] == [1]


@pytest.mark.slow
def test_what_is_refused(run_alone: Run, folders: tuple[Path, Path], tiny_model: TinyModel, tmp_path: Path) -> None:
    domain, general = folders
    command = ("interpolate", "--model", domain, "--out", tmp_path / "out", "--with")
    for weight in (-0.1, 1.5, "nan"):
        error = last_line(run_alone(*command, general, "--weight", weight, code=2))
        assert error.startswith(f"greenadapt: --weight is {weight}, must be ")
    assert "--weight" in last_line(run_alone(*command, general, code=2))
    other = last_line(run_alone(*command, tiny_model("RobertaModel"), "--weight", 0.5, code=1))
    assert "is of type bert" in other
    assert "of type roberta: give models of one architecture" in other
    assert "no model folder" in last_line(run_alone(*command, tmp_path / "none", "--weight", 0.5, code=1))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("x")
    assert "is not empty" in last_line(run_alone(*command, general, "--weight", 0.5, code=1))
