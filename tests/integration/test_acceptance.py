"""The specification's checks that cross modules: the offline model adapted by the whole pipeline."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from greenadapt.config import AlignConfig, ExpandConfig, TextOptions, W2VConfig
from greenadapt.progress import Silent
from greenadapt.stages import adapt as adapt_stage
from greenadapt.stages import expand
from greenadapt.stages.session import Session
from greenadapt.store.arrays import ArrayFile
from greenadapt.store.results import Result, open_result, verify_result
from greenadapt.store.workspace import Workspace
from greenadapt.tokenization.dual_tokenizer import DualTokenizer
from greenadapt.tokenization.vocabulary import load_tokenizer
from greenadapt.vectors.alignment import Alignment
from greenadapt.vectors.word_vectors import WordVectors
from tests.conftest import Run, wordpiece_vocabulary

VECTORS, ROWS = W2VConfig(min_count=1, epochs=1, alpha=0.025), ExpandConfig(rows="map")
ABSTRACTS = """\
Supraventricular tachycardia is a fast heart rhythm: it begins above the ventricles of the heart. Amiodarone stops it.
COVID-19 is caused by SARS-CoV-2, a coronavirus, and myocarditis was seen in patients with COVID-19 and tachycardia.
An EGFR inhibitor slows the growth of lung tumours; erlotinib (an inhibitor of the EGFR kinase) is given once a day.
"""
OLD_WORDS = "The patient was isolated, and the heart of the house was not (in 1998) a virus: “yes”, he said."
NEW_WORDS = "Tachycardia of the coronavirus patient, EGFR and amiodarone."
EMBEDDING = "embeddings.word_embeddings.weight"


@dataclass(frozen=True)
class Adapted:
    """The offline model, and the stages that adapted it."""

    base: Path
    stages: list[Result]

    @property
    def folder(self) -> Path:
        return self.stages[-1].path


def adapt(root: Path, model: Path | str) -> list[Result]:
    root.mkdir(parents=True, exist_ok=True)
    corpus = root / "abstracts.txt"
    corpus.write_text(ABSTRACTS * 3)
    session, text = Session(Workspace(root / "ws"), Silent()), TextOptions(keep_duplicates=True)
    return adapt_stage.adapt(session, str(corpus), str(model), text, VECTORS, AlignConfig(), ROWS)


@pytest.fixture(scope="module")
def adapted(minilm: Path, tmp_path_factory: pytest.TempPathFactory) -> Adapted:
    return Adapted(minilm, adapt(tmp_path_factory.mktemp("adapted"), "minilm"))


@pytest.fixture(scope="module")
def models(adapted: Adapted) -> tuple[Any, Any]:
    """The base model and the adapted one, loaded with no option."""
    base, model = (AutoModel.from_pretrained(folder).eval() for folder in (adapted.base, adapted.folder))
    return base, model


@pytest.fixture(scope="module")
def tokenizers(adapted: Adapted) -> tuple[Any, Any]:
    """The base tokenizer and the adapted one, loaded with no option."""
    base, tokenizer = (AutoTokenizer.from_pretrained(folder) for folder in (adapted.base, adapted.folder))
    return base, tokenizer


def ids(tokenizer: Any, text: str) -> list[int]:
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def test_check_5_old_rows_stay_and_a_new_row_is_the_mapped_vector(adapted: Adapted) -> None:
    """Check 5: first |L_LM| rows bit-equal, ids unchanged, no word twice, new row = W·v to 1e-5."""
    _, trained, aligned, expanded = adapted.stages
    old, new = (ArrayFile(f / "model.safetensors")[EMBEDDING] for f in (adapted.base, expanded.folder))
    assert new[: len(old)].tobytes() == old.tobytes()
    vectors, W = WordVectors.load(trained.folder), Alignment.load(aligned.folder).matrix
    assert W is not None
    dual, base = DualTokenizer.load(adapted.folder), load_tokenizer(adapted.base)
    rows = {word: dual.encode(word).expanded.ids.tolist() for word in vectors.words}
    base_ids = base.get_vocab()
    added = {word: row[0] for word, row in rows.items() if word not in base_ids}
    for word, row in rows.items():
        if word in base_ids:
            assert row == [base_ids[word]]
    assert sorted(added.values()) == list(range(len(old), len(new)))
    for word, row in added.items():
        np.testing.assert_allclose(new[row], W.astype(float) @ vectors.matrix[vectors.index[word]], atol=1e-5)
    by_count = sorted(added, key=lambda word: (-vectors.counts[vectors.index[word]], vectors.index[word]))
    assert [added[word] for word in by_count] == sorted(added.values())


def test_check_6_text_without_new_words_is_as_before(
    adapted: Adapted, models: tuple[Any, Any], tokenizers: tuple[Any, Any]
) -> None:
    """Check 6, for both tokenizers: the same ids, and hidden states equal to 1e-6."""
    (base, model), (base_tokenizer, tokenizer) = models, tokenizers
    expected = ids(base_tokenizer, OLD_WORDS)
    encoding = DualTokenizer.load(adapted.folder).encode(OLD_WORDS)
    assert ids(tokenizer, OLD_WORDS) == encoding.expanded.ids.tolist() == encoding.base.ids.tolist() == expected
    with torch.no_grad():
        ours = model(**tokenizer(OLD_WORDS, return_tensors="pt")).last_hidden_state
        theirs = base(**base_tokenizer(OLD_WORDS, return_tensors="pt")).last_hidden_state
        new = model(**tokenizer(NEW_WORDS, return_tensors="pt")).last_hidden_state
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=0)
    assert new.isfinite().all()
    assert new.shape[1] < len(base_tokenizer(NEW_WORDS)["input_ids"])


def test_checks_7_and_8_on_the_offline_model(adapted: Adapted, tokenizers: tuple[Any, Any]) -> None:
    """Check 7: tachycardia is one piece, tachycardias as before. Check 8: COVID-19 is three words, never one token."""
    base_tokenizer, tokenizer = tokenizers
    dual = DualTokenizer.load(adapted.folder)
    words = WordVectors.load(adapted.stages[1].folder).words
    assert {"covid", "-", "19"} <= set(words)
    assert not [word for word in words if any(c.isalnum() for c in word) and not word.isalnum()]
    for view in (lambda text: dual.encode(text).expanded.ids.tolist(), lambda text: ids(tokenizer, text)):
        assert len(ids(base_tokenizer, "tachycardia")) > 1
        assert len(view("tachycardia")) == len(view("Tachycardia")) == 1
        for text in ("tachycardias", "pretachycardia", "amiodaronetachycardia"):
            assert view(text) == ids(base_tokenizer, text)
        assert len(view("COVID-19")) == 3


def test_check_7_greedy(adapted: Adapted, tmp_path: Path) -> None:
    """Check 7: with ``--oov greedy`` tachycardias is tachycardia ##s, in both tokenizers."""
    session = Session(Workspace(tmp_path), Silent(), out=tmp_path / "greedy")
    config = replace(ROWS, oov="greedy")
    folder = expand.expand(session, None, None, config, adapted.stages[2].path).path
    tokenizer, dual = AutoTokenizer.from_pretrained(folder), DualTokenizer.load(folder)
    expected = [*ids(tokenizer, "tachycardia"), load_tokenizer(adapted.base).token_to_id("##s")]
    assert len(expected) == 2
    assert ids(tokenizer, "tachycardias") == dual.encode("tachycardias").expanded.ids.tolist() == expected


def test_check_9_restricted_to_a_task_is_the_same_model_there(adapted: Adapted, tmp_path: Path) -> None:
    """Check 9: the restricted model's hidden states on the file equal the full model's to 1e-6, in both tokenizers."""
    task = tmp_path / "task.txt"
    task.write_text("Amiodarone stops tachycardia.\nNo tachycardias of EGFR-kinase, COVID-19!\n")
    session = Session(Workspace(tmp_path), Silent(), out=tmp_path / "small")
    small = expand.expand(session, None, None, replace(ROWS, restrict_to=(str(task),)), adapted.stages[2].path)
    assert 0 < small.manifest.counts["words"] < adapted.stages[-1].manifest.counts["words"]
    for text in task.read_text().splitlines():
        outputs = []
        for folder in (adapted.folder, small.path):
            model = AutoModel.from_pretrained(folder).eval()
            views = [ids(AutoTokenizer.from_pretrained(folder), text)]
            views.append(DualTokenizer.load(folder).encode(text).expanded.ids.tolist())
            assert views[0] == views[1]
            assert max(views[0]) >= 30522
            with torch.no_grad():
                outputs.append(model(torch.tensor([views[0]])).last_hidden_state)
        torch.testing.assert_close(*outputs, atol=1e-6, rtol=0)


def test_saving_and_loading_change_nothing(
    models: tuple[Any, Any], tokenizers: tuple[Any, Any], tmp_path: Path
) -> None:
    model, tokenizer = models[1], tokenizers[1]
    model.save_pretrained(tmp_path / "saved")
    tokenizer.save_pretrained(tmp_path / "saved")
    again, tokenizer_again = (auto.from_pretrained(tmp_path / "saved") for auto in (AutoModel, AutoTokenizer))
    assert len(tokenizer_again) == len(tokenizer) == len(again.get_input_embeddings().weight)
    for text in (OLD_WORDS, NEW_WORDS, ABSTRACTS, "tachycardias (tachycardia) Amiodarone\n\u200b EGFR-kinase"):
        assert tokenizer_again(text) == tokenizer(text)
    assert any(i >= len(tokenizer) - 3 for i in ids(tokenizer, ABSTRACTS))
    before, after = model.state_dict(), again.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


GUARD = """
import os, socket, sys

def stop(what):
    os.write(2, f"guard: {what}\\n".encode())
    os._exit(97)

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "transformers", "accelerate", "gensim", "ray", "pynvml", "cupy"}:
            stop(f"import {name}")

def guarded(name):
    real = getattr(socket.socket, name)
    def call(self, *arguments):
        if self.family != socket.AF_UNIX:
            stop(f"socket {name} {arguments}")
        return real(self, *arguments)
    setattr(socket.socket, name, call)

sys.meta_path.insert(0, Finder())
for name in ("connect", "connect_ex", "sendto"):
    guarded(name)
socket.getaddrinfo = lambda *arguments, **options: stop(f"look-up of {arguments}")
"""


@pytest.fixture
def guarded(tmp_path: Path) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """Run Python where no GPU is visible and a use of the network or of an optional package ends the process with 97.

    The guard is a ``sitecustomize``, so that worker processes have it too.
    """
    (tmp_path / "guard").mkdir()
    (tmp_path / "guard" / "sitecustomize.py").write_text(GUARD)
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "TRANSFORMERS_"))}
    path = os.pathsep.join([str(tmp_path / "guard"), *filter(None, sys.path)])
    environment = {**variables, "PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": "", "HOME": str(tmp_path)}

    def run(*arguments: object) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, *map(str, arguments)]
        return subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)

    return run


def test_check_52_w2v_align_expand_without_gpu_and_network(
    guarded: Callable[..., Any], tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    """Check 52: w2v → align → expand with no GPU visible and no network (nor torch, transformers or gensim)."""
    for code in ("import torch", "import socket; socket.create_connection(('127.0.0.1', 9))"):
        assert guarded("-c", code).returncode == 97
    corpus = tmp_path / "abstracts.txt"
    corpus.write_text(ABSTRACTS * 3)
    options = ["--corpus", corpus, "--workspace", tmp_path / "ws"]
    small = ["--model", tiny_model(), "--min-count", 1, "--epochs", 1, "--workers", 2, "--keep-duplicates"]
    completed = guarded("-m", "greenadapt", "adapt", *options, *small)
    assert completed.returncode == 0, completed.stderr
    assert "expand: done in" in completed.stdout
    assert "row → added words" in guarded("-m", "greenadapt", "neighbours", "tachycardia", *options).stdout
    (weights,) = (tmp_path / "ws").glob("names/*/*/expand/model.safetensors")
    assert len(ArrayFile(weights)[EMBEDDING]) > len(wordpiece_vocabulary())


# Ends its own process just before a given file-system operation, so that every step of a stage can be the last one.
KILLED_AT = """
import os, re, signal, sys
from greenadapt.cli import main
from greenadapt.vectors import cbow

cbow.CHECKPOINT_SECONDS = 0

what, where, number, *arguments = sys.argv[1:]
seen = 0

def watch(event, details):
    global seen
    if event == what and any(isinstance(part, (str, os.PathLike)) and re.search(where, str(part)) for part in details):
        seen += 1
        if seen == int(number):
            os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(watch)
sys.argv = ["greenadapt", *arguments]
main()
"""
MOMENTS = [  # in the order of the pipeline: the same workspace goes through both of them
    ("os.rename", r"/\.w2v-[^/]+/training/\.checkpoint\.safetensors\.part$", 2),  # the first epoch is saved
    ("os.rename", r"/\.expand-[^/]+$", 1),
]


def readable(workspace: Path) -> dict[str, str]:
    """The stages that a reader finds now, every byte of them checked, and the hash of each one's content."""
    links = [link for link in workspace.glob("names/*/*/*") if not link.name.startswith(".")]
    return {link.name: verify_result(open_result(link, link.name)).manifest.digest for link in links}


def test_killed_within_a_stage(run_alone: Run, tiny_model: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "abstracts.txt").write_text(ABSTRACTS * 30)
    settings = ("--workers", 1, "--epochs", 3, "--keep-duplicates")
    command = ("adapt", "--corpus", "abstracts.txt", "--model", tiny_model(), *settings, "--workspace")
    run_alone(*command, "whole")
    expected = readable(tmp_path / "whole")
    assert sorted(expected) == ["align", "corpus", "expand", "w2v"]
    messages = ""
    for moment in MOMENTS:
        arguments = [sys.executable, "-c", KILLED_AT, *map(str, (*moment, *command, "killed"))]
        killed = subprocess.run(arguments, capture_output=True, text=True, check=False)
        assert killed.returncode == -signal.SIGKILL, moment
        assert readable(tmp_path / "killed").items() <= expected.items()
        messages += killed.stderr
    run_alone(*command, "killed")
    assert readable(tmp_path / "killed") == expected
    assert messages.count("resuming after epoch 1") == 1
