"""Both views of an example in a step: which of their outputs are compared, what is learnt, and at which cost."""

from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from safetensors.torch import load_file
from scipy.special import log_softmax, softmax

from greenadapt.checkpoints.reader import Checkpoint
from greenadapt.config import RunConfig, TaskConfig, TrainConfig
from greenadapt.errors import ConflictError, InputError, UsageError
from greenadapt.models.machine import Machine
from greenadapt.models.rows import Rows
from greenadapt.models.weights import open_model
from greenadapt.progress import Silent
from greenadapt.stages.finetune.compare import compare, finetune
from greenadapt.stages.finetune.train import read_scores
from greenadapt.tasks.base import Encoder, Feature, flattened, make_task
from greenadapt.tasks.conll import Sentence
from greenadapt.tasks.ner import NerTask
from greenadapt.tasks.qa import QuestionTask
from greenadapt.tasks.questions import GoldAnswer, Question
from greenadapt.tasks.spans import find_units, word_units
from greenadapt.training.batches import TaskDataset
from greenadapt.training.feed import Feed, Plan
from greenadapt.training.loop import Training
from greenadapt.training.views import PairedDataset, shared_unit_pieces
from tests.conftest import WORDS, tiny_model_in
from tests.support.small_inputs import ROUNDING, assert_same, weights_of
from tests.support.small_multitask import request as request_of_many
from tests.support.small_tasks import (
    NEW,
    TinyModel,
    adapted,
    ner_file,
    ner_request,
    qa_file,
    read_json,
    session,
    texts_file,
)

pytestmark = pytest.mark.usefixtures("one_thread")
NO_DROPOUT = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
LAMBDA = 0.7
BOTH = TrainConfig(mix="both", epochs=2, batch_size=4, learning_rate=1e-3)
AGREEING = replace(BOTH, agreement=LAMBDA)
KINDS: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "ner": (ner_file, "ner", {}),
    "classes": (texts_file, "classification", {}),
    "numbers": (texts_file, "classification", {"numbers": True}),
    "qa": (qa_file, "qa", {}),
    "qa without answers": (qa_file, "qa", {"impossible": True}),
}


class Prepared:
    """A model, and the training inputs of a task in both views."""

    def __init__(self, kind: str, folder: Path, n: int = 7, **config: Any) -> None:
        write, name, options = KINDS[kind]
        self.checkpoint = Checkpoint.open(adapted(partial(tiny_model_in, folder), **config))
        encoder = Encoder.of(self.checkpoint, 64)
        task = make_task(TaskConfig(task=name))
        suffix = {"ner": "tsv", "qa": "json"}.get(name, "jsonl")
        examples = task.read(str(write(folder / f"examples.{suffix}", n, **options)), Silent())
        self.task = task.fit(examples, Silent())
        self.items = self.task.training(examples, encoder, 0, Silent())
        self.rows = Rows.seen(self.items, encoder.special)

    def model(self) -> Any:
        return open_model(self.checkpoint, self.task.head, self.task.head_config(), self.rows, seed=5)

    def training(self, train: TrainConfig, max_tokens: int = 4096) -> Training:
        dataset: Any = TaskDataset.of(self.items, self.rows, self.task.head, 0)
        if train.agreement:
            dataset = PairedDataset.of(dataset, self.items, train.agreement)
        feed = Feed([dataset], Plan(train, RunConfig(max_tokens=max_tokens), 5))
        return Training(self.model(), feed, Machine.start("float32"))

    def logits(self, model: Any, feature: Feature) -> dict[str, np.ndarray]:
        """The model's outputs for a single input."""
        ids = torch.from_numpy(self.rows.compact(feature.ids))[None]
        types = torch.from_numpy(feature.types.astype(np.int64))[None]
        with torch.no_grad():
            output = model(input_ids=ids, token_type_ids=types)
        return {name: logits[0].double().numpy() for name, logits in output.items()}


def symmetric_kl(first: np.ndarray, second: np.ndarray) -> float:
    """½ Σ p log (p / q) + ½ Σ q log (q / p) over the last axis, summed over the others."""
    (p, q), (log_p, log_q) = ([f(x, axis=-1) for x in (first, second)] for f in (softmax, log_softmax))
    return float((p * (log_p - log_q)).sum() + (q * (log_q - log_p)).sum()) / 2


def by_hand(prepared: Prepared, model: Any) -> tuple[float, float]:
    """The mean cross-entropy of both views, and the mean divergence of what is compared in an example, 0 where its
    views are the same; from the model's logits for one input at a time.
    """
    model.eval()
    losses, distances = [], []
    for item in prepared.items:
        assert len(item.base) == len(item.expanded) == 1
        features = (item.base[0], item.expanded[0])
        outputs = [prepared.logits(model, feature) for feature in features]
        targets = [np.asarray(feature.target) for feature in features]
        if "logits" not in outputs[0]:
            for output, target in zip(outputs, targets, strict=True):
                ends = (output["start_logits"], output["end_logits"])
                losses.append(-np.mean([log_softmax(logits)[t] for logits, t in zip(ends, target, strict=True)]))
            # Words of a context are what its spaces separate here; [CLS] is the further choice.
            n_words = max(features[0].units)
            pieces = [[np.flatnonzero(feature.units == u) for u in range(n_words + 1)] for feature in features]
            starts, ends = ([[places[i] for places in view] for view in pieces] for i in (0, -1))
            start = symmetric_kl(*(output["start_logits"][i] for output, i in zip(outputs, starts, strict=True)))
            end = symmetric_kl(*(output["end_logits"][i] for output, i in zip(outputs, ends, strict=True)))
            distances.append((start + end) / 2)
        elif targets[0].ndim:
            logits = [output["logits"][target >= 0] for output, target in zip(outputs, targets, strict=True)]
            labels = targets[0][targets[0] >= 0]
            losses += [-log_softmax(view, -1)[np.arange(len(labels)), labels] for view in logits]
            distances += [symmetric_kl(a, b) for a, b in zip(*logits, strict=True)]
        elif targets[0].dtype.kind == "f":
            values = [output["logits"][0] for output in outputs]
            losses += [(value - target) ** 2 for value, target in zip(values, targets, strict=True)]
            distances.append((values[0] - values[1]) ** 2)
        else:
            losses += [-log_softmax(output["logits"])[target] for output, target in zip(outputs, targets, strict=True)]
            distances.append(symmetric_kl(outputs[0]["logits"], outputs[1]["logits"]))
    return float(np.mean(np.hstack(losses))), float(np.mean(distances))


@pytest.mark.slow
@pytest.mark.parametrize("max_tokens", [4096, 40])
@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_is_cross_entropy_and_divergence_by_hand(kind: str, max_tokens: int, tmp_path: Path) -> None:
    prepared = Prepared(kind, tmp_path, **NO_DROPOUT)
    likelihood, divergence = by_hand(prepared, prepared.model())
    for weight in (0.0, 0.5 * likelihood / divergence):  # neither part is small beside the other
        whole_step = replace(BOTH, agreement=weight, batch_size=2 * len(prepared.items))
        step = next(prepared.training(whole_step, max_tokens).train_steps())
        assert step.loss == pytest.approx(likelihood + weight * divergence, rel=1e-4)


@pytest.mark.slow
def test_no_agreement_is_mix_both_bit_for_bit(tmp_path: Path) -> None:
    prepared = Prepared("ner", tmp_path)
    learnt = []
    for train in (BOTH, replace(BOTH, agreement=0.0), AGREEING):
        training = prepared.training(train)
        assert training.n_steps == 2 * -(-2 * len(prepared.items) // 4)
        list(training.train_steps())
        learnt.append(weights_of(training.model))
    both_views, off, agreeing = learnt
    assert_same(both_views, off)
    assert not torch.equal(both_views["classifier.weight"], agreeing["classifier.weight"])
    assert replace(BOTH, agreement=0.0).settings() == BOTH.settings()
    assert "agreement" not in BOTH.settings()  # results without it stay valid


@pytest.mark.slow
def test_agreement_brings_the_views_together(tmp_path: Path) -> None:
    prepared = Prepared("classes", tmp_path, 12, **NO_DROPOUT)
    distances = []
    for weight in (0.0, 5.0):
        training = prepared.training(replace(BOTH, epochs=8, agreement=weight))
        list(training.train_steps())
        distances.append(by_hand(prepared, training.model)[1])
    assert distances[1] < 0.5 * distances[0]


def test_what_is_the_same_in_both_views_is_read_once(tmp_path: Path) -> None:
    prepared = Prepared("ner", tmp_path, 20)
    equal = [item for item in prepared.items if np.array_equal(item.base[0].ids, item.expanded[0].ids)]
    assert 0 < len(equal) < len(prepared.items)
    pieces = {
        train.agreement: sum(step.pieces for step in prepared.training(replace(train, epochs=1)).train_steps())
        for train in (BOTH, AGREEING)
    }
    assert pieces[0.0] == sum(len(item.base[0]) + len(item.expanded[0]) for item in prepared.items)
    assert pieces[LAMBDA] == pieces[0.0] - sum(len(item.base[0]) for item in equal)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ner", "qa"])
def test_the_gradient_does_not_depend_on_the_cut(kind: str, tmp_path: Path) -> None:
    prepared = Prepared(kind, tmp_path, **NO_DROPOUT)
    gradients = []
    for max_tokens in (4096, 1, 60):
        training = prepared.training(replace(AGREEING, batch_size=2 * len(prepared.items), clip=1e9), max_tokens)
        next(training.train_steps())
        gradients.append({name: weight.grad for name, weight in training.model.named_parameters()})
    for gradient in gradients[1:]:
        assert_same(gradients[0], gradient, atol=ROUNDING)


def test_a_batch_has_no_more_pieces_than_it_may(tmp_path: Path) -> None:
    prepared = Prepared("ner", tmp_path, 30)
    dataset = PairedDataset.of(TaskDataset.of(prepared.items, prepared.rows, prepared.task.head, 0), prepared.items, 1)
    numbers = dataset.inputs_of(
        np.repeat(np.arange(len(prepared.items)), 2), np.tile([False, True], len(prepared.items))
    )
    lengths = dataset.lengths(numbers)
    assert (np.diff(lengths) >= 0).all()
    for n in (1, 7, len(numbers)):
        assert dataset.batch(numbers[:n]).ids.numel() <= n * lengths[:n].max()


@pytest.mark.slow
def test_a_resumed_run_has_the_same_bits_and_refuses_other_settings(tmp_path: Path) -> None:
    options = {"train": AGREEING, "max_tokens": 60}
    prepared = Prepared("qa", tmp_path)
    whole = prepared.training(**options)
    expected = list(whole.train_steps())
    interrupted = prepared.training(**options)
    steps = interrupted.train_steps()
    first = [next(steps) for _ in range(len(expected) - 2)]
    interrupted.save(tmp_path / "state")
    resumed = prepared.training(**options)
    assert resumed.restore(tmp_path / "state")
    assert first + list(resumed.train_steps()) == expected
    assert_same(weights_of(whole.model), weights_of(resumed.model))
    for agreement in (0.0, 0.6):
        with pytest.raises(ConflictError):
            prepared.training(replace(AGREEING, agreement=agreement), 60).restore(tmp_path / "state")


@pytest.fixture(scope="session")
def encoders(tmp_path_factory: pytest.TempPathFactory) -> list[Encoder]:
    """Expanded WordPiece and byte-level BPE."""
    builds = (partial(tiny_model_in, tmp_path_factory.mktemp(name), f"{name}Model") for name in ("Bert", "Roberta"))
    return [Encoder.of(Checkpoint.open(adapted(build)), 24) for build in builds]


WORD = st.one_of(st.sampled_from([*NEW, *WORDS, "Tachycardia,", "(virus)"]), st.text(min_size=1, max_size=5))


@pytest.mark.slow
@given(words=st.lists(WORD.filter(lambda word: bool(word.strip())), min_size=1, max_size=25), family=st.integers(0, 1))
def test_the_words_of_a_sentence_are_compared(encoders: list[Encoder], words: list[str], family: int) -> None:
    encoder = encoders[family]
    task = NerTask(labels=("O", "B-Disease"), chunk=10)
    encoding = encoder.tokenizer.encode_batch([words])[0]
    n_words = 0
    for item in task.training([Sentence(tuple(words), ("O",) * len(words))], encoder, 0, Silent()):
        features, pieces_of_view = (*item.base, *item.expanded), (encoding.base, encoding.expanded)
        unit_pieces = shared_unit_pieces(*features)
        assert unit_pieces.shape == (2, 2, item.n_units)
        for feature, pieces, (begins, ends) in zip(features, pieces_of_view, unit_pieces, strict=True):
            assert begins.tolist() == ends.tolist() == np.flatnonzero(feature.target != -100).tolist()
            for word, begin in enumerate(begins.tolist(), n_words):
                assert feature.ids[begin] == pieces.ids[np.searchsorted(pieces.input_words, word)]
        n_words += item.n_units
    assert n_words == len(words)


@given(words=st.lists(WORD, min_size=1, max_size=40), family=st.integers(0, 1), answer=st.integers(0, 39))
def test_windows_are_compared_at_the_words_that_both_have_whole(
    encoders: list[Encoder], words: list[str], family: int, answer: int
) -> None:
    encoder, context = encoders[family], " ".join(words)
    spans = word_units(context)
    assume(len(spans))
    start, end = spans[answer % len(spans)].tolist()
    question = Question("q", "what", context, (GoldAnswer(context[start:end], start),))
    try:
        [item] = QuestionTask(negatives=99).training([question], encoder, 0, Silent())
    except InputError:  # a piece of the tokenizer covers more than the answer
        assume(False)
    encoding = encoder.tokenizer.encode(context)
    views = [(pieces.ids, find_units(pieces.spans[:, 0], spans)) for pieces in (encoding.base, encoding.expanded)]
    for features in product(item.base, item.expanded):
        unit_pieces = shared_unit_pieces(*features)
        shared = [feature.units[begins].tolist() for feature, (begins, _) in zip(features, unit_pieces, strict=True)]
        assert shared[0] == shared[1]
        assert shared[0][-1] == len(spans)
        assert unit_pieces[:, :, -1].tolist() == [[0, 0], [0, 0]]  # [CLS]
        for feature, (ids, units), (begins, ends) in zip(features, views, unit_pieces, strict=True):
            for unit, begin, end in zip(shared[0][:-1], begins.tolist(), ends.tolist(), strict=False):
                assert feature.ids[begin : end + 1].tolist() == ids[units == unit].tolist()
        if len(item.base) == len(item.expanded) == 1:
            in_both = set(views[0][1].tolist()) & set(views[1][1].tolist())
            assert {*shared[0]} == in_both - {-1} | {len(spans)}
    dataset = PairedDataset.of(TaskDataset.of([item], Rows.all(10_000), "QuestionAnswering", 0), [item], 1.0)
    inputs, _, _ = flattened([item])
    assert {*dataset.pairs.ravel().tolist()} - {-1} <= {*range(len(inputs))}
    for i, j in dataset.pairs.tolist():
        if j >= 0:
            assert np.any(inputs[i].target) == np.any(inputs[j].target)
    assert dataset.n_terms(np.arange(len(dataset.pairs))) == len(item.base) + len(item.expanded)


def test_what_cannot_agree_is_refused(tiny_model: TinyModel, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--mix both"):
        TrainConfig(agreement=1.0)
    with pytest.raises(UsageError, match="--batch-size 7 must be even"):
        TrainConfig(agreement=1.0, mix="both", batch_size=7)
    with pytest.raises(UsageError, match="--agreement is"):
        TrainConfig(agreement=-1.0, mix="both")
    request = ner_request(tmp_path, tiny_model(), training=AGREEING)
    with pytest.raises(UsageError, match="has no added words"):
        finetune(session(tmp_path), request)
    with pytest.raises(UsageError, match="has no added words"):
        finetune(session(tmp_path), request_of_many(tmp_path, tmp_path / "bertmodel", training=AGREEING))
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_base_model_to_compare_with_is_trained_on_its_only_view(tiny_model: TinyModel, tmp_path: Path) -> None:
    model = adapted(tiny_model)
    request = ner_request(tmp_path, model, training=AGREEING)
    ours, base = compare(session(tmp_path), request, [str(model.parent / "base")]).results
    assert ours.manifest.config == {**base.manifest.config, "agreement": LAMBDA}
    assert [read_scores(result.folder)["seeds"][0]["steps"] for result in (ours, base)] == [40, 40]
    assert "0.7 times the divergence" in (ours.path / "README.md").read_text("utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("memory", [None, "base"])
def test_many_tasks_and_a_memory_agree(memory: str | None, tiny_model: TinyModel, tmp_path: Path) -> None:
    model = adapted(tiny_model)
    weights = []
    for weight in (0.0, LAMBDA):
        training = replace(AGREEING, agreement=weight, epochs=1)
        options = {} if memory is None else {"memory": str(model.parent / memory)}
        names = ("ner", "ill.1", "number", "qa")
        request = request_of_many(tmp_path, model, names, training=training, seeds=(0,), **options)
        result = finetune(session(tmp_path, f"run{weight}"), request)
        weights.append(load_file(result.path / "model.safetensors"))
        assert read_json(result.path / "multitask.json")["mix"] == "both"
    assert any(not torch.equal(weight, weights[1][name]) for name, weight in weights[0].items())
