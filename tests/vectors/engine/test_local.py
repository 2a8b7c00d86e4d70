"""The training as ``train`` drives it: schedule, threads, the same bits again, divergence, what it learns."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gensim.models import Word2Vec

from greenadapt.config import MIN_ALPHA, W2VConfig
from greenadapt.corpus.prepared import PreparedCorpus
from greenadapt.errors import InputError
from greenadapt.store.arrays import ArrayFile, write_arrays
from greenadapt.vectors import cbow as w2v
from greenadapt.vectors.engine import local
from greenadapt.vectors.engine import stream as text
from greenadapt.vectors.engine.local import LocalEngine
from greenadapt.vectors.engine.stream import Stream, Weights
from greenadapt.vectors.word_vectors import WordVectors
from tests.conftest import Watcher
from tests.vectors.test_cbow import prepare, train

CONFIG = W2VConfig(dim=16, min_count=3, epochs=3, seed=7, sample=1e-2)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several parts of a small corpus."""
    monkeypatch.setattr(text, "_PART", 1000)


def stream_of(corpus: PreparedCorpus, min_count: int = 3) -> Stream:
    counts = np.array(corpus.counts)
    return Stream(corpus.ids, corpus.lines, counts[counts >= min_count])


def start(n_words: int, config: W2VConfig = CONFIG) -> Weights:
    return w2v.initial_weights(n_words, config)


# -- schedule and threads ---------------------------------------------------------------------------------------------


def test_every_word_once_an_epoch_and_a_rate_that_falls_to_the_end(
    corpus: PreparedCorpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[list[int], tuple[float, float], int]] = []
    real = local.train_part

    def recorded(part: Any, tables: Any, noise: Any, settings: Any, rates: Any, seed: Any) -> Any:
        calls.append((part.borders.tolist(), rates, int(seed)))
        return real(part, tables, noise, settings, rates, seed)

    monkeypatch.setattr(local, "train_part", recorded)
    stream = stream_of(corpus)
    config = replace(CONFIG, workers=3)
    engine, weights = LocalEngine(stream, config), start(stream.n_words)
    progress: list[tuple[int, float]] = []
    for epoch in range(config.epochs):
        engine.train(engine.parts, weights, epoch, lambda words, rate: progress.append((words, rate)))
        assert sum(words for words, _ in progress) == (epoch + 1) * stream.total
    assert len(progress) == len(calls) > 3 * 5
    assert len({seed for *_, seed in calls}) == len(calls)  # no part has another one's random numbers
    slope = (config.alpha - MIN_ALPHA) / (3 * stream.total)
    met, position = 0, 0
    calls.sort(key=lambda part: -part[1][0])
    for (words, rate), (borders, rates, _) in zip(sorted(progress, key=lambda part: -part[1]), calls, strict=True):
        assert borders[0] == position
        position = borders[-1] % len(stream.ids)  # of the next epoch after the last
        assert rates[0] == pytest.approx(config.alpha - slope * met, rel=1e-9)
        met += words
        assert rates[1] == rate == pytest.approx(config.alpha - slope * met, rel=1e-9)
    assert position == 0
    assert rate == pytest.approx(MIN_ALPHA, rel=1e-9)


def test_the_width_is_no_matter(corpus: PreparedCorpus) -> None:
    """Columns of zeros are as none: rows of 16 numbers, which are copied, learn what they learn in rows of 64."""
    stream = stream_of(corpus)
    narrow, wide = start(stream.n_words), start(stream.n_words, replace(CONFIG, dim=64))
    wide.input[:, :16], wide.input[:, 16:] = narrow.input, 0
    for weights, dim in ((narrow, 16), (wide, 64)):
        engine = LocalEngine(stream, replace(CONFIG, dim=dim))
        engine.train(engine.parts, weights, 0, lambda words, rate: None)
    for narrow_table, wide_table in ((narrow.input, wide.input), (narrow.output, wide.output)):
        assert narrow_table.any()
        assert narrow_table.tobytes() == wide_table[:, :16].tobytes()
        assert not wide_table[:, 16:].any()


def test_the_settings_matter(tmp_path: Path, corpus: PreparedCorpus) -> None:
    changes: list[dict[str, Any]] = [{"window": 2}, {"negative": 2}, {"sample": 1e-3}, {"alpha": 0.05}, {"seed": 8}]
    results = {train(corpus, CONFIG, tmp_path / "plain").matrix.tobytes()}
    for number, change in enumerate(changes):
        results.add(train(corpus, replace(CONFIG, **change), tmp_path / str(number)).matrix.tobytes())
    assert len(results) == 6


# -- divergence -------------------------------------------------------------------------------------------------------


def test_divergence_keeps_the_checkpoint(tmp_path: Path, corpus: PreparedCorpus) -> None:
    """The tables of the first epoch are made so large that the second one cannot be trained."""
    epoch = int(stream_of(corpus).total)
    with pytest.raises(KeyboardInterrupt):
        train(corpus, CONFIG, tmp_path / "work", Watcher(stop_after=epoch))
    path = tmp_path / "work" / "checkpoint.safetensors"
    file = ArrayFile(path)
    tables = {name: np.array(file[name]) for name in file.names}
    tables["input"] *= np.float32(1e35)
    tables["output"] *= np.float32(1e35)
    write_arrays(path, tables, file.metadata)
    before = path.read_bytes()
    with pytest.raises(InputError, match=r"diverged in epoch 2: [\d,]+ of "):
        train(corpus, CONFIG, tmp_path / "work")
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    assert path.read_bytes() == before


# -- what it learns ---------------------------------------------------------------------------------------------------

PAIRS = 40


def paired_text(lines: int = 3000) -> list[list[str]]:
    """Lines of a word, of which each has two forms, in the middle of words that come with it."""
    rng = np.random.default_rng(0)
    text = []
    for number in range(lines):
        pair = number % PAIRS
        around = [f"near{pair}_{rank}" for rank in rng.integers(0, 6, 6)]
        common = [f"common{rank}" for rank in rng.integers(0, 20, 4)]
        line = [*around, *common]
        rng.shuffle(line)
        text.append([*line[:5], f"{'ab'[rng.integers(2)]}{pair}", *line[5:]])
    return text


def pairs_found(vectors: WordVectors) -> float:
    """Share of the paired words whose nearest one is the other form."""
    number = {word: row for row, word in enumerate(vectors.words)}
    unit = vectors.matrix / np.linalg.norm(vectors.matrix, axis=1, keepdims=True)
    forms = [unit[[number[f"{form}{pair}"] for pair in range(PAIRS)]] for form in "ab"]
    rows = np.concatenate(forms)
    scores = rows @ rows.T
    np.fill_diagonal(scores, -2)
    return float((scores.argmax(axis=1) == np.roll(np.arange(2 * PAIRS), PAIRS)).mean())


@pytest.mark.slow
def test_words_in_the_same_contexts_are_neighbours_as_by_gensim(tmp_path: Path) -> None:
    lines, settings = paired_text(), {"min_count": 3, "epochs": 8, "alpha": 0.05, "sample": 1e-3, "seed": 7}
    model = Word2Vec(lines, vector_size=32, workers=1, **settings)  # CBOW is its default
    theirs = pairs_found(WordVectors(model.wv.index_to_key, np.ones(len(model.wv), np.int64), model.wv.vectors))
    corpus, config = prepare(lines, tmp_path / "corpus"), W2VConfig(dim=32, workers=3, **settings)
    assert theirs > 0.9
    assert pairs_found(train(corpus, config, tmp_path / "work")) >= theirs - 0.05
