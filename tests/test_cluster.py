"""Work on the nodes of a cluster, which this process plays; tests/cluster has real ones."""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any

import pytest

from greenadapt.cluster import ClusterPool
from greenadapt.errors import InputError
from tests.conftest import Run
from tests.support.played_cluster import PlayedRay
from tests.support.small_tasks import TinyModel, adapted, ner_file, qa_file, sentences

Play = Callable[..., PlayedRay]
ANYWHERE = ClusterPool("played")


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Play:
    """``play(room=3)``: the cluster that is found from now on."""

    def start(**how: Any) -> PlayedRay:
        cluster = PlayedRay(**how)
        monkeypatch.setattr("greenadapt.cluster.connect", cluster.connected)
        return cluster

    return start


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a short input has several."""
    monkeypatch.setattr("greenadapt.inference.entries._BLOCK", 8)
    monkeypatch.setattr("greenadapt.inference.qa.lookups._BLOCK", 4)


@pytest.mark.parametrize("room", [1, 3])
def test_results_come_in_order_each_once(play: Play, room: int) -> None:
    play(room=room)
    calls = Counter[int]()

    def opening(factor: int) -> Callable[[int], int]:
        def double(item: int) -> int:
            calls[item] += 1
            return factor * item

        return double

    assert [*ANYWHERE.map(opening, range(40), 2)] == [*range(0, 80, 2)]
    assert calls == Counter(range(40))
    assert [*islice(ANYWHERE.map(opening, count(), 1), 40)] == [*range(40)]  # an input without an end


def test_what_fails_comes_after_all_before_it(play: Play) -> None:
    def items() -> Iterator[int]:
        yield from range(7)
        raise InputError("line 8 is broken", "mend it")

    answers = []
    ray = play()
    with pytest.raises(InputError, match="line 8"):  # noqa: PT012
        for answer in ANYWHERE.map(lambda: str, items()):
            answers.append(answer)
    assert answers == [*map(str, range(7))]
    stopped = ANYWHERE.map(lambda: str, count())
    assert next(stopped) == "0"
    stopped.close()
    assert ray.n_cancelled == 5  # of two for each core


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread", "small_blocks")
def test_predictions_are_those_of_one_machine_also_after_a_stop(
    play: Play, run_alone: Run, tiny_model: TinyModel, tmp_path: Path
) -> None:
    (tmp_path / "texts.txt").write_text("\n".join(" ".join(words) for words in sentences(100, 0)))
    ner_file(tmp_path / "train.tsv", 20)
    run_alone("finetune", "--task", "ner", "-m", adapted(tiny_model), "--train", "train.tsv", "--epochs", 1)
    [model] = (tmp_path / "runs").iterdir()
    command = ["predict", "-m", model, "-i", "texts.txt"]
    run_alone(*command, "-o", "alone.jsonl")
    spread = [*command, "-o", "spread.jsonl", "--cluster", "played"]
    play(stops=12)
    run_alone(*spread, code=130)
    assert not (tmp_path / "spread.jsonl").exists()
    play()
    run_alone(*spread)
    assert (tmp_path / "spread.jsonl").read_bytes() == (tmp_path / "alone.jsonl").read_bytes()
    assert [path.name for path in tmp_path.glob(".spread*")] == []


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread", "small_blocks")
def test_answers_are_those_of_one_machine(play: Play, run_alone: Run, tiny_model: TinyModel, tmp_path: Path) -> None:
    qa_file(tmp_path / "squad.json", 30)
    command = ["qa", "-m", tiny_model("BertForQuestionAnswering"), "--data", "squad.json"]
    alone = run_alone(*command).stdout
    play()
    assert run_alone(*command, "--cluster", "played").stdout == alone
