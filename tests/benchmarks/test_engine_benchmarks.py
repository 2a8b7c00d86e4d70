"""``benchmarks/engines.py`` and what it is made of: what is trained on which text."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from gensim.models import KeyedVectors, Word2Vec
from gensim.models.word2vec import LineSentence

from greenadapt.config import W2VConfig
from greenadapt.corpus.prepared import PreparedCorpus
from greenadapt.progress import Silent
from greenadapt.vectors.cbow import train
from greenadapt.vectors.engines import chunks
from tests.benchmarks.conftest import Benchmarks

# -- texts and sides --------------------------------------------------------------------------------------------------


def test_random_text_is_made_once_and_its_words_are_in_order(benchmarks: Benchmarks, corpus: PreparedCorpus) -> None:
    assert np.bincount(corpus.ids, minlength=50).tolist() == corpus.counts.tolist()  # all 50 were drawn
    assert (np.diff(corpus.counts) <= 0).all()
    before = (corpus.folder / "words.safetensors").stat().st_ino
    again = benchmarks["engine_texts"].made({"zipf": 50, "tokens": 4000}, corpus.folder.parent, is_written=True)
    assert again == corpus.folder
    assert (again / "words.safetensors").stat().st_ino == before


def test_words_that_were_not_drawn_follow_the_text_once(benchmarks: Benchmarks, tmp_path: Path) -> None:
    folder = benchmarks["engine_texts"].made({"zipf": 500, "tokens": 100}, tmp_path, is_written=True)
    corpus = PreparedCorpus.open(folder)
    drawn = len(set(corpus.ids[:100].tolist()))
    assert drawn < 100
    assert np.bincount(corpus.ids, minlength=500).tolist() == corpus.counts.tolist()
    assert corpus.counts.min() == 1
    assert len(corpus.ids) == 100 + 500 - drawn
    assert set(benchmarks["engine_texts"].text_file(folder).read_text().split()) == set(map(str, range(500)))
    assert corpus.lines.tolist() == [*range(0, len(corpus.ids), 25), len(corpus.ids)]


@pytest.mark.parametrize("engine", ["gensim", "fast"])
def test_own_engines_train_what_greenadapt_does(
    benchmarks: Benchmarks, corpus: PreparedCorpus, tmp_path: Path, engine: Any
) -> None:
    config = W2VConfig(dim=8, epochs=2, min_count=40, engine=engine)
    sides = benchmarks["engine_sides"]
    vectors = sides.trained(sides.Job(engine, corpus, config, tmp_path / "run")).vectors()
    expected = train(corpus, config, tmp_path / "train", progress=Silent(), max_memory=1 << 40)
    assert vectors.words == expected.words
    assert vectors.matrix.tobytes() == expected.matrix.tobytes()


def test_warming_up_compiles_what_is_timed(
    benchmarks: Benchmarks, corpus: PreparedCorpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, real = [], chunks.train_lines

    def recorded(*arguments: Any) -> Any:
        calls.append(tuple(map(numba.typeof, arguments)))
        return real(*arguments)

    monkeypatch.setattr(chunks, "train_lines", recorded)
    sides = benchmarks["engine_sides"]
    job = sides.Job("fast", corpus, W2VConfig(dim=8, epochs=1, engine="fast"), tmp_path / "run")
    sides._warm_up(job)
    warm, compiled = len(calls), len(real.signatures)
    sides._greenadapt(job)
    assert 0 < warm < len(calls)
    assert len(set(calls)) == 1
    assert len(real.signatures) == compiled


def test_lists_and_written_text_are_the_lines_as_gensim_reads_them(
    benchmarks: Benchmarks, corpus: PreparedCorpus, tmp_path: Path
) -> None:
    corpus.lines = np.array([0, 20, 3000, 3001, 4000])
    file, numbers = tmp_path / "words.txt", tmp_path / "numbers.txt"
    pieces = np.split(corpus.ids, corpus.lines[1:-1])
    lines = [[corpus.words[word] for word in piece] for piece in pieces]
    file.write_text("".join(" ".join(line) + "\n" for line in lines))
    sides = benchmarks["engine_sides"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sides, "_LONGEST", 1000)
        assert list(sides._Lists(corpus)) == list(LineSentence(str(file), max_sentence_length=1000))
    benchmarks["word2vec_c"].write_text(corpus, numbers)
    read = [[corpus.words[int(word)] for word in line] for line in LineSentence(str(numbers))]
    assert read == lines


def test_lists_leave_gensim_the_same_words(
    benchmarks: Benchmarks, corpus: PreparedCorpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models, real = [], Word2Vec.train

    def recorded(self: Word2Vec, *arguments: Any, **options: Any) -> Any:
        models.append(self)
        return real(self, *arguments, **options)

    monkeypatch.setattr(Word2Vec, "train", recorded)
    sides = benchmarks["engine_sides"]
    config = W2VConfig(dim=8, epochs=1, min_count=40, engine="gensim")
    job = sides.Job("gensim-lists", corpus, config, tmp_path)
    trained = sides.trained(job)
    (model,), vectors = models, trained.vectors()
    assert sorted(model.wv.index_to_key) == sorted(vectors.words)
    assert vectors.matrix.tobytes() == np.stack([model.wv[word] for word in vectors.words]).tobytes()
    assert vectors.words == [word for word, n in zip(corpus.words, corpus.counts, strict=True) if n >= 40]
    assert job.total == corpus.counts[corpus.counts >= 40].sum()
    assert trained.words > 0
    assert 10 < trained.memory < 1e5


# -- word2vec.c -------------------------------------------------------------------------------------------------------

PROGRAM = """#!{python}
import sys, time
given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
assert open(given["-train"]).read(), given
print("Words in train file: 4000")
for share in (20, 60, 99.5):
    print(f"\\rAlpha: 0.01  Progress: {{share:.2f}}%  Words/thread/sec: 1.00k  ", end="", flush=True)
    time.sleep(0.1)
open(given["-output"], "w").write(given["-min-count"])
"""


def test_time_of_word2vec_c_is_between_its_lines_of_progress(
    benchmarks: Benchmarks, corpus: PreparedCorpus, tmp_path: Path
) -> None:
    module, program = benchmarks["word2vec_c"], tmp_path / "program"
    program.write_text(PROGRAM.format(python=sys.executable))
    program.chmod(0o755)
    text, output = corpus.folder / "text.txt", tmp_path / "out"
    span = module.train(module.built(program, tmp_path), text, output, W2VConfig(dim=8, min_count=40))
    assert output.read_text() == "40"
    assert span.share == pytest.approx(0.795)
    assert 0.1 <= span.seconds < 1
    assert span.memory > 1


@pytest.mark.parametrize(("workers", "epochs"), [(1, 5), (2, 5), (2, 2), (16, 5), (64, 3)])
def test_a_thread_that_stops_after_one_epoch_is_refused(benchmarks: Benchmarks, workers: int, epochs: int) -> None:
    module, config = benchmarks["word2vec_c"], W2VConfig(dim=8, workers=workers, epochs=epochs)
    trained = (workers - 1 + 1 / epochs) / workers  # as much as all threads but one, and one epoch of that
    module.check_complete(module.Span(0.999, 1, 1), 10**9, config)
    with pytest.raises(SystemExit, match=f"{trained:.0%}"):
        module.check_complete(module.Span(trained, 1, 1), 10**9, config)


def test_a_text_too_short_to_tell_is_refused(benchmarks: Benchmarks) -> None:
    module = benchmarks["word2vec_c"]
    with pytest.raises(SystemExit, match=r"1,000,000 words .*16 threads"):
        module.check_complete(module.Span(1, 1, 1), 10**6, W2VConfig(dim=8, workers=16))
    module.check_complete(module.Span(0.9, 1, 1), 10**6, W2VConfig(dim=8, workers=16, epochs=1))


def test_memory_of_a_program_that_has_ended(benchmarks: Benchmarks) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert benchmarks["machine"].peak_memory(process.pid) == 0
    assert benchmarks["machine"].peak_memory() > 10


def test_vectors_of_word2vec_c_are_put_in_the_order_of_the_words(benchmarks: Benchmarks, tmp_path: Path) -> None:
    rows, keyed = np.random.default_rng(0).normal(size=(4, 8)).astype(np.float32), KeyedVectors(8)
    keyed.add_vectors(["</s>", "2", "0", "1"], rows)
    keyed.save_word2vec_format(str(tmp_path / "vectors.bin"), binary=True)
    matrix = benchmarks["word2vec_c"].read_matrix(tmp_path / "vectors.bin", 3)
    assert matrix.tobytes() == rows[[2, 3, 1]].tobytes()
