"""Training on prepared words: vocabulary, memory, first weights as gensim's, checkpoints, plain refusals."""

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gensim.models import Word2Vec
from typer.testing import CliRunner

from greenadapt.cli import app
from greenadapt.config import W2VConfig
from greenadapt.corpus.prepared import PreparedCorpus, write_vocabulary
from greenadapt.errors import InputError, ResourceError
from greenadapt.progress import Silent
from greenadapt.store.arrays import write_arrays
from greenadapt.vectors import cbow as w2v
from greenadapt.vectors.engine import local, stream
from tests.conftest import Watcher

GIB = 1 << 30
CONFIG = W2VConfig(dim=16, min_count=3, epochs=3, seed=7, sample=1e-2)
TOPICS = 4


def planted_text(lines: int = 400, seed: int = 0) -> list[list[str]]:
    """Lines whose words all belong to one of four topics, plus common words and some that are rare."""
    rng = np.random.default_rng(seed)
    text = []
    for number in range(lines):
        topic = number % TOPICS
        words = [f"topic{topic}_{rank}" for rank in rng.integers(0, 12, size=rng.integers(5, 40))]
        common = [f"common{rank}" for rank in rng.integers(0, 5, size=len(words) // 2)]
        line = [*words, *common, *([f"rare{number // 2}"] if number % 7 == 0 else [])]
        rng.shuffle(line)
        text.append(line)
    return text


def prepare(text: list[list[str]], folder: Path) -> PreparedCorpus:
    """``text`` as the corpus stage would leave it in ``folder``."""
    counts = Counter(word for line in text for word in line)
    words = sorted(counts, key=lambda word: (-counts[word], word))
    number = {word: i for i, word in enumerate(words)}
    folder.mkdir(parents=True, exist_ok=True)
    ids = np.array([number[word] for line in text for word in line], np.int32)
    lines = np.cumsum([0, *map(len, text)], dtype=np.int64)
    write_arrays(folder / "words.safetensors", {"ids": ids, "lines": lines})
    write_vocabulary(folder / "vocabulary.tsv", words, np.array([counts[word] for word in words], np.int64))
    return PreparedCorpus(folder)


def train(corpus: PreparedCorpus, config: W2VConfig, work: Path, progress: Any = None, max_memory: int = GIB) -> Any:
    return w2v.train(corpus, config, work, progress=progress or Silent(), max_memory=max_memory)


# -- vocabulary -------------------------------------------------------------------------------------------------------


def test_words_are_the_frequent_ones_in_prepared_order(tmp_path: Path) -> None:
    corpus = prepare([["b", "a", "c", "d"] * 3, ["b", "a"], ["e"]], tmp_path / "corpus")
    assert train(corpus, CONFIG, tmp_path / "all").words == ["a", "b", "c", "d"]
    capped = train(corpus, replace(CONFIG, max_vocab=3), tmp_path / "capped")
    assert capped.words == ["a", "b", "c"]
    assert capped.counts.tolist() == [4, 4, 3]
    assert (capped.matrix.shape, capped.matrix.dtype) == ((3, 16), np.float32)


def test_no_word_is_frequent_enough(tmp_path: Path, corpus: PreparedCorpus) -> None:
    with pytest.raises(InputError, match=f"occurs {corpus.counts[0]} times, and --min-count is 100000: lower"):
        train(corpus, replace(CONFIG, min_count=100_000), tmp_path / "work")


def test_too_little_memory_is_said_before_starting(tmp_path: Path) -> None:
    corpus = prepare([[f"w{i}" for i in range(500)]], tmp_path / "corpus")
    config = replace(CONFIG, dim=100_000, min_count=1, epochs=1)
    with pytest.raises(ResourceError, match=r"500 words of 100000 dimensions need about \d+ MB.*is 300 MB") as caught:
        train(corpus, config, tmp_path / "work", max_memory=300 << 20)
    assert not (tmp_path / "work").exists()
    fitting = int(caught.value.hint.split("--max-vocab ")[1].split()[0].rstrip(","))
    assert w2v.memory_needed(fitting, 500, 100_000) <= 300 << 20 < w2v.memory_needed(fitting + 1, 500, 100_000)


_PEAK_SCRIPT = """
import sys
from pathlib import Path
from greenadapt.config import W2VConfig
from greenadapt.corpus.prepared import PreparedCorpus
from greenadapt.progress import Silent
from greenadapt.vectors.cbow import train
corpus, work = map(Path, sys.argv[1:])
config = W2VConfig(dim=128, min_count=2, epochs=1)
train(PreparedCorpus(corpus), config, work, progress=Silent(), max_memory=1 << 30)
(line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
print(line.split()[1])  # ru_maxrss would be that of the process that started this one, if larger
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.long
def test_the_estimate_of_memory_holds_and_is_not_far_off(tmp_path: Path) -> None:
    words = [f"word{i}" for i in range(100_000)]
    prepare([words, words, [f"rare{i}" for i in range(100_000)]], tmp_path / "corpus")
    command = [sys.executable, "-c", _PEAK_SCRIPT, str(tmp_path / "corpus"), str(tmp_path / "work")]
    peak = 1024 * int(subprocess.run(command, capture_output=True, check=True).stdout)
    assert peak < w2v.memory_needed(100_000, 200_000, 128) < 1.5 * peak


def test_initial_weights_are_gensims(tmp_path: Path, corpus: PreparedCorpus) -> None:
    plain = Word2Vec(vector_size=16, min_count=3, seed=7)
    plain.build_vocab(planted_text())
    weights = w2v.initial_weights(len(plain.wv), CONFIG)
    assert weights.input.tobytes() == plain.wv.vectors.tobytes()
    assert weights.output.tobytes() == plain.syn1neg.tobytes()


# -- determinism and resume -------------------------------------------------------------------------------------------


def test_a_run_stopped_after_an_epoch_resumes_to_the_same_bits(tmp_path: Path, corpus: PreparedCorpus) -> None:
    whole = train(corpus, CONFIG, tmp_path / "whole")
    epoch = int(whole.counts.sum())
    with pytest.raises(KeyboardInterrupt):
        train(corpus, CONFIG, tmp_path / "work", Watcher(stop_after=2 * epoch))
    watcher = Watcher()
    assert train(corpus, CONFIG, tmp_path / "work", watcher).matrix.tobytes() == whole.matrix.tobytes()
    assert (watcher.notes, watcher.totals) == (["resuming after epoch 2"], [epoch])
    watcher = Watcher()  # nothing remains to be trained
    assert train(corpus, CONFIG, tmp_path / "work", watcher).matrix.tobytes() == whole.matrix.tobytes()
    assert watcher.steps == []


def test_a_run_stopped_within_an_epoch_resumes_to_the_same_bits(
    tmp_path: Path, corpus: PreparedCorpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "_PART", 200)
    monkeypatch.setattr(w2v, "CHECKPOINT_SECONDS", 3600)  # none is due
    all_parts = Watcher()
    whole = train(corpus, CONFIG, tmp_path / "whole", all_parts)
    assert list((tmp_path / "whole").iterdir()) == []

    next_part = threading.Semaphore()  # the thread would otherwise end before the signal is seen
    train_part = local.train_part

    def train_when_shown(*arguments: Any) -> tuple[int, int]:
        next_part.acquire()
        return train_part(*arguments)

    class Stopping(Watcher):
        def advance(self, amount: float, **facts: str) -> None:
            super().advance(amount, **facts)
            if len(self.steps) == 2:
                os.kill(os.getpid(), signal.SIGTERM)
            next_part.release()

    stopping = Stopping()
    with monkeypatch.context() as patch:
        patch.setattr(local, "train_part", train_when_shown)
        with pytest.raises(SystemExit):
            train(corpus, CONFIG, tmp_path / "work", stopping)
    assert [path.name for path in (tmp_path / "work").iterdir()] == ["checkpoint.safetensors"]
    watcher = Watcher()
    assert train(corpus, CONFIG, tmp_path / "work", watcher).matrix.tobytes() == whole.matrix.tobytes()
    assert watcher.notes == ["resuming in epoch 1"]
    assert stopping.steps + watcher.steps == all_parts.steps


def test_a_checkpoint_that_was_cut_short_is_not_used(tmp_path: Path, corpus: PreparedCorpus) -> None:
    whole = train(corpus, CONFIG, tmp_path / "whole")
    train(corpus, CONFIG, tmp_path / "work")
    path = tmp_path / "work" / "checkpoint.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    watcher = Watcher()
    assert train(corpus, CONFIG, tmp_path / "work", watcher).matrix.tobytes() == whole.matrix.tobytes()
    assert "is truncated" in watcher.warnings[0]


def test_a_broken_numba_ends_a_command_before_the_text_is_prepared(
    tmp_path: Path, tiny_model: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "greenadapt.vectors.engine.local", None)
    (tmp_path / "text.txt").write_text("the coronavirus of a patient with tachycardia\n" * 20)
    command = ["adapt", "--corpus", tmp_path / "text.txt", "--workspace", tmp_path / "ws", "--model", tiny_model()]
    result = CliRunner().invoke(app, list(map(str, command)))
    assert (result.exit_code, result.stdout) == (1, "")
    assert "cannot be trained with the installed numba" in result.stderr
    assert not [*(tmp_path / "ws").rglob("manifest.json")]
