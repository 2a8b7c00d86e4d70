"""Training on prepared words: equal to gensim where it should be, exact schedule, checkpoints, plain refusals."""

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import gensim.models.word2vec_corpusfile as kernel
import numpy as np
import pytest
from gensim.models import Word2Vec
from hypothesis import given
from hypothesis import strategies as st

from greenadapt.config import MIN_ALPHA, ResolvedEngine, W2VConfig
from greenadapt.corpus.prepared import PreparedCorpus, write_vocabulary
from greenadapt.errors import InputError, ResourceError
from greenadapt.progress import Silent
from greenadapt.store.arrays import write_arrays
from greenadapt.vectors import cbow as w2v
from greenadapt.vectors import engines
from greenadapt.vectors.engines import Stream, fast
from greenadapt.vectors.engines import gensim as engine

GIB = 1 << 30
CONFIG = W2VConfig(dim=16, min_count=3, epochs=3, seed=7, sample=1e-2, engine="gensim")
ENGINES: list[ResolvedEngine] = ["gensim", "fast"]
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
    return PreparedCorpus.open(folder)


def train(corpus: PreparedCorpus, config: W2VConfig, work: Path, progress: Any = None, max_memory: int = GIB) -> Any:
    return w2v.train(corpus, config, work, progress=progress or Silent(), max_memory=max_memory)


class Watcher:
    """A ``Progress`` that keeps what it is told, and raises when ``stop_after`` words were trained."""

    def __init__(self, stop_after: float = float("inf")) -> None:
        self.notes: list[str] = []
        self.totals: list[float | None] = []
        self.steps: list[tuple[float, dict[str, str]]] = []
        self._stop_after = stop_after

    def note(self, message: str) -> None:
        self.notes.append(message)

    warn = note

    @contextmanager
    def bar(self, label: str, total: float | None, unit: str) -> Iterator["Watcher"]:
        self.totals.append(total)
        yield self

    def advance(self, amount: float, **facts: str) -> None:
        self.steps.append((amount, facts))
        if sum(words for words, _ in self.steps) > self._stop_after:
            raise KeyboardInterrupt


# -- vocabulary -------------------------------------------------------------------------------------------------------


def test_words_are_the_frequent_ones_in_prepared_order(tmp_path: Path) -> None:
    corpus = prepare([["b", "a", "c", "d"] * 3, ["b", "a"], ["e"]], tmp_path / "corpus")
    assert train(corpus, CONFIG, tmp_path / "all").words == ["a", "b", "c", "d"]
    capped = train(corpus, replace(CONFIG, max_vocab=3), tmp_path / "capped")
    assert capped.words == ["a", "b", "c"]
    assert capped.counts.tolist() == [4, 4, 3]
    assert capped.matrix.shape == (3, 16)
    assert capped.matrix.dtype == np.float32


def test_no_word_is_frequent_enough(tmp_path: Path, corpus: PreparedCorpus) -> None:
    highest = int(corpus.counts[0])
    with pytest.raises(InputError, match=f"occurs {highest} times, and --min-count is 100000: lower --min-count"):
        train(corpus, replace(CONFIG, min_count=100_000), tmp_path / "work")


def test_too_little_memory_is_said_before_starting(tmp_path: Path) -> None:
    corpus = prepare([[f"w{i}" for i in range(500)]], tmp_path / "corpus")
    config = replace(CONFIG, dim=100_000, min_count=1, epochs=1)
    with pytest.raises(ResourceError, match=r"500 words of 100000 dimensions need about \d+ MB.*is 300 MB") as caught:
        train(corpus, config, tmp_path / "work", max_memory=300 << 20)
    assert not (tmp_path / "work").exists()
    fitting = int(caught.value.hint.split("--max-vocab ")[1].split()[0].rstrip(","))
    fits, does_not = (w2v.memory_needed(n, 500, 100_000, "gensim") for n in (fitting, fitting + 1))
    assert fits <= 300 << 20 < does_not
    with pytest.raises(ResourceError, match="MB: use a higher --max-memory"):
        train(corpus, config, tmp_path / "work", max_memory=1 << 20)


_PEAK_SCRIPT = """
import sys
from pathlib import Path
from greenadapt.config import MIN_ALPHA, W2VConfig
from greenadapt.corpus.prepared import PreparedCorpus
from greenadapt.progress import Silent
from greenadapt.vectors.cbow import train
corpus, work = map(Path, sys.argv[1:])
config = W2VConfig(dim=128, min_count=2, epochs=1, engine="gensim")
train(PreparedCorpus.open(corpus), config, work, progress=Silent(), max_memory=1 << 30)
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
    assert peak < w2v.memory_needed(100_000, 200_000, 128, "gensim") < 1.5 * peak


# -- the same as gensim -----------------------------------------------------------------------------------------------


def plain_gensim(corpus: PreparedCorpus, config: W2VConfig, file: Path, total_words: int, words: list[str]) -> Any:
    """gensim's own training loop on ``file``, with its random numbers set as ours at the beginning of each epoch."""
    model = Word2Vec(vector_size=16, min_count=3, seed=7, sample=config.sample, sorted_vocab=0, workers=1)
    model.build_vocab_from_freq(dict(zip(words, corpus.counts.tolist(), strict=False)))
    for epoch in range(config.epochs):
        model.random = np.random.RandomState([7, epoch, 0])
        start, end = (engines.learning_rate(config, epoch, progress) for progress in (0, 1))
        model.train(corpus_file=str(file), total_words=total_words, epochs=1, start_alpha=start, end_alpha=end)
    return model.wv


@pytest.mark.slow
def test_bit_for_bit_gensim_on_raw_text(tmp_path: Path) -> None:
    raw = planted_text(200)
    corpus = prepare(raw, tmp_path / "corpus")
    counts = dict(zip(corpus.words, corpus.counts.tolist(), strict=True))
    text = [[word for word in line if counts[word] >= 3] for line in raw]
    file = tmp_path / "text"
    file.write_text("".join(" ".join(line) + "\n" for line in text if line))
    words = [word for word in corpus.words if counts[word] >= 3]
    total = sum(map(len, text))
    assert 5000 < total < engine.BATCH
    theirs = plain_gensim(corpus, CONFIG, file, total, words)
    ours = train(corpus, CONFIG, tmp_path / "work")
    assert ours.words == theirs.index_to_key
    assert ours.matrix.tobytes() == theirs.vectors.tobytes()


@pytest.mark.slow
def test_bit_for_bit_gensim_over_many_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "_PART", 1_000_000)
    corpus = prepare(planted_text(3000), tmp_path / "corpus")
    config = replace(CONFIG, sample=0)
    ours = train(corpus, config, tmp_path / "work")
    stream = Stream(corpus.ids, corpus.lines, ours.counts)
    (part,) = engine.write_parts(stream, tmp_path)
    assert part.words == stream.total > 8 * engine.BATCH
    numbers = [str(row) for row in range(stream.n_words)]
    theirs = plain_gensim(corpus, config, part.path, part.words + part.filler, numbers)
    assert ours.matrix.tobytes() == theirs.vectors.tobytes()


@pytest.mark.parametrize("sample", [1e-2, 0, 5])
def test_vocabulary_tables_are_gensims_own_from_raw_text(corpus: PreparedCorpus, sample: float) -> None:
    plain = Word2Vec(vector_size=16, min_count=3, sample=sample)
    plain.build_vocab(planted_text())
    n_words = int((corpus.counts >= 3).sum())
    config = replace(CONFIG, sample=sample)
    ours = engine._model(np.asarray(corpus.counts[:n_words]), config)
    assert len(plain.wv) == n_words
    for row, word in enumerate(corpus.words[:n_words]):
        assert ours.wv.expandos["sample_int"][row] == plain.wv.get_vecattr(word, "sample_int")
    assert ours.cum_table.tolist() == plain.cum_table.tolist()  # equal counts have equal shares, in whatever order


def test_initial_weights_are_gensims(tmp_path: Path, corpus: PreparedCorpus) -> None:
    plain = Word2Vec(vector_size=16, min_count=3, seed=7)
    plain.build_vocab(planted_text())
    weights = w2v.initial_weights(len(plain.wv), CONFIG)
    assert weights.input.tobytes() == plain.wv.vectors.tobytes()
    assert weights.output.tobytes() == plain.syn1neg.tobytes()


# -- schedule ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 3])
def test_learning_rate_is_linear_in_words_for_any_number_of_workers(
    tmp_path: Path, corpus: PreparedCorpus, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[float, float, int]] = []
    real = kernel.train_epoch_cbow

    def recorded(model: Any, *args: Any, **kwargs: Any) -> Any:
        result = real(model, *args, **kwargs)
        calls.append((model.alpha, model.min_alpha, result[2]))
        return result

    monkeypatch.setattr(kernel, "train_epoch_cbow", recorded)
    monkeypatch.setattr(engines, "_PART", 1000)
    config = replace(CONFIG, workers=workers)
    watcher = Watcher()
    vectors = train(corpus, config, tmp_path / "work", watcher)
    calls.sort(reverse=True)
    total = int(vectors.counts.sum())
    assert len(calls) > 3 * 5
    assert sum(words for *_, words in calls) == 3 * total == sum(n_trained for n_trained, _ in watcher.steps)
    assert watcher.totals == [3 * total]
    n_trained = 0
    for start, end, words in calls:
        slope = (config.alpha - MIN_ALPHA) / (3 * total)
        assert start == pytest.approx(config.alpha - slope * n_trained)
        n_trained += words
        assert end == pytest.approx(config.alpha - slope * n_trained)
    assert end == pytest.approx(MIN_ALPHA)
    assert watcher.steps[-1][1]["epoch"] == "3/3"
    assert float(watcher.steps[-1][1]["lr"]) < 0.01


# -- text for gensim --------------------------------------------------------------------------------------------------


@pytest.mark.slow
@given(
    lines=st.lists(st.lists(st.integers(0, 12), max_size=30), max_size=40),
    n_words=st.integers(1, 12),
    part=st.integers(1, 60),
)
def test_parts_hold_every_trained_word_once(
    tmp_path_factory: pytest.TempPathFactory, lines: list[list[int]], n_words: int, part: int
) -> None:
    folder = tmp_path_factory.mktemp("text")
    ids = np.array([word for line in lines for word in line], np.int32)
    counts = np.bincount(ids[ids < n_words], minlength=n_words).astype(np.int64)
    stream = Stream(ids, np.cumsum([0, *map(len, lines)], dtype=np.int64), counts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "BATCH", 7)
        patch.setattr(engines, "_LONGEST", 7)
        patch.setattr(engines, "_PART", part)
        written = list(engine.write_parts(stream, folder))
    cut = [line[begin : begin + 7] for line in lines for begin in range(0, len(line), 7)]
    trained_lines = [[str(word) for word in line if word < n_words] for line in cut]
    read: list[list[str]] = []
    for written_part in written:
        text = written_part.path.read_text()
        assert text.endswith("\n")
        split = [line.split() for line in text.splitlines()]
        ours = [line for line in split if "x" not in line]
        assert written_part.before == sum(map(len, read))
        assert written_part.words == sum(map(len, ours))
        assert written_part.words + written_part.filler == len(text.split())
        check_batches(split)
        read += ours
    assert read == [line for line in trained_lines if line]
    assert sum(map(len, read)) == stream.total


def check_batches(lines: list[list[str]]) -> None:
    """As the kernel reads: whole lines until there are more than BATCH + 1 words, at most BATCH of them trained."""
    read = trained = 0
    for line in lines:
        read += len(line)
        trained += len(line) if "x" not in line else 0
        assert trained <= 7
        if read > 8:
            read = trained = 0


def test_text_is_removed(tmp_path: Path, corpus: PreparedCorpus) -> None:
    train(corpus, CONFIG, tmp_path / "work")
    assert [path.name for path in (tmp_path / "work").iterdir()] == ["checkpoint.safetensors"]
    with pytest.raises(KeyboardInterrupt):
        train(corpus, replace(CONFIG, seed=1), tmp_path / "other", Watcher(stop_after=0))
    assert list((tmp_path / "other").iterdir()) == []


# -- determinism and resume -------------------------------------------------------------------------------------------

_SCRIPT = """
import os, signal, sys
from contextlib import contextmanager
from pathlib import Path
from greenadapt.config import MIN_ALPHA, W2VConfig
from greenadapt.corpus.prepared import PreparedCorpus
from greenadapt.progress import Silent
from greenadapt.vectors import cbow, engines
from greenadapt.vectors.cbow import train

cbow.CHECKPOINT_SECONDS = 0

class Deadly(Silent):
    words = 0
    @contextmanager
    def bar(self, *_):
        yield self
    def advance(self, amount, **facts):
        self.words += amount
        if self.words > last:
            os.kill(os.getpid(), signal.SIGKILL)

corpus, work, engine, last = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], float(sys.argv[4])
engines._PART = 1000
config = W2VConfig(dim=16, min_count=3, epochs=3, seed=7, sample=1e-2, engine=engine)
vectors = train(PreparedCorpus.open(corpus), config, work, progress=Deadly(), max_memory=1 << 30)
sys.stdout.buffer.write(vectors.matrix.tobytes())
"""


def run_script(
    tmp_path: Path, work: str, engine_name: str, last: float = float("inf")
) -> "subprocess.CompletedProcess[bytes]":
    """Call ``train`` in another process, which is killed after ``last`` words."""
    command = [sys.executable, "-c", _SCRIPT, str(tmp_path / "corpus"), str(tmp_path / work), engine_name, str(last)]
    return subprocess.run(command, capture_output=True, env={**os.environ, "PYTHONHASHSEED": "5"}, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", ENGINES)
def test_another_process_and_a_killed_one_end_in_the_same_bits(
    tmp_path: Path, corpus: PreparedCorpus, name: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "_PART", 1000)
    config = replace(CONFIG, engine=name)
    expected = train(corpus, config, tmp_path / "here")
    whole = run_script(tmp_path, "whole", name)
    assert (whole.returncode, whole.stderr) == (0, b"")
    assert whole.stdout == expected.matrix.tobytes()
    epoch = int(expected.counts.sum())
    killed = run_script(tmp_path, "killed", name, last=1.5 * epoch)
    assert (killed.returncode, killed.stdout) == (-signal.SIGKILL, b"")
    assert [path.name for path in (tmp_path / "killed").glob("checkpoint*")] == ["checkpoint.safetensors"]
    watcher = Watcher()
    assert train(corpus, config, tmp_path / "killed", watcher).matrix.tobytes() == expected.matrix.tobytes()
    assert (watcher.notes, watcher.totals) == (["resuming after epoch 1"], [2 * epoch])


@pytest.mark.parametrize("name", [pytest.param("gensim", marks=pytest.mark.slow), "fast"])
@pytest.mark.parametrize("epochs_before", [0, 2])
def test_a_run_stopped_after_an_epoch_resumes_to_the_same_bits(
    tmp_path: Path, corpus: PreparedCorpus, epochs_before: int, name: Any
) -> None:
    config = replace(CONFIG, engine=name)
    whole = train(corpus, config, tmp_path / "whole")
    epoch = int(whole.counts.sum())
    with pytest.raises(KeyboardInterrupt):
        train(corpus, config, tmp_path / "work", Watcher(stop_after=epochs_before * epoch))
    assert len(list((tmp_path / "work").glob("checkpoint*"))) == min(epochs_before, 1)
    watcher = Watcher()
    assert train(corpus, config, tmp_path / "work", watcher).matrix.tobytes() == whole.matrix.tobytes()
    assert watcher.totals == [(3 - epochs_before) * epoch]
    assert watcher.notes == ([f"resuming after epoch {epochs_before}"] if epochs_before else [])
    watcher = Watcher()  # nothing remains to be trained
    assert train(corpus, config, tmp_path / "work", watcher).matrix.tobytes() == whole.matrix.tobytes()
    assert watcher.steps == []


@pytest.mark.parametrize("name", ["gensim", pytest.param("fast", marks=pytest.mark.slow)])
def test_a_run_stopped_within_an_epoch_resumes_to_the_same_bits(
    tmp_path: Path, corpus: PreparedCorpus, monkeypatch: pytest.MonkeyPatch, name: Any
) -> None:
    monkeypatch.setattr(engines, "_PART", 200)
    monkeypatch.setattr(w2v, "CHECKPOINT_SECONDS", 3600)  # none is due
    config = replace(CONFIG, engine=name)
    all_parts = Watcher()
    whole = train(corpus, config, tmp_path / "whole", all_parts)
    assert list((tmp_path / "whole").iterdir()) == []

    next_part = threading.Semaphore()  # the fast engine's thread would otherwise end before the signal is seen
    train_part = fast.train_part

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
        patch.setattr(fast, "train_part", train_when_shown)
        with pytest.raises(SystemExit):
            train(corpus, config, tmp_path / "work", stopping)
    assert [path.name for path in (tmp_path / "work").iterdir()] == ["checkpoint.safetensors"]
    watcher = Watcher()
    assert train(corpus, config, tmp_path / "work", watcher).matrix.tobytes() == whole.matrix.tobytes()
    assert watcher.notes == ["resuming in epoch 1"]
    assert stopping.steps + watcher.steps == all_parts.steps


def test_a_checkpoint_that_was_cut_short_is_not_used(tmp_path: Path, corpus: PreparedCorpus) -> None:
    config = replace(CONFIG, engine="fast")
    whole = train(corpus, config, tmp_path / "whole")
    train(corpus, config, tmp_path / "work")
    path = tmp_path / "work" / "checkpoint.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    watcher = Watcher()
    assert train(corpus, config, tmp_path / "work", watcher).matrix.tobytes() == whole.matrix.tobytes()
    assert "is truncated" in watcher.notes[0]
