"""Self-training for NER: a first model labels sentences of a text, and a fresh model learns from these too.

The second model makes as many steps as the first, on the labelled sentences, repeated, and on predicted ones. As in the
noisy student (Xie et al., arXiv 1911.04252) it starts from the pretrained model again, sentences of which the first
model is not sure are left out, and the predicted sentences have the labels of the training set in the same shares.
"""

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from greenadapt.errors import InputError, pluralize
from greenadapt.store.files import Json, read_own, replacing, write_json
from greenadapt.tasks.conll import Sentence
from greenadapt.training.finetune import FinetuneRun, FinetuneSetup
from greenadapt.training.loop import STATE_HINT
from greenadapt.training.sampling import Purpose, random_bits

_PREDICTED_PER_LABELLED = 10
_MIN_SCORE = 0.8
_FIRST, _LABELS = ".first", ".self-labelled.json"


@dataclass(frozen=True)
class _Labels:
    """What the second model is trained with: the steps of the first, and words and tags that it predicted."""

    steps: int
    sentences: list[tuple[tuple[str, ...], tuple[str, ...]]]


def second_setup(setup: FinetuneSetup, seed: int, folder: Path) -> FinetuneSetup:
    """Train the first model under ``seed`` in ``folder``, and label sentences with it; the setup of the second model.

    Resumes a killed run. Raises ``InputError`` if the first model is sure of no sentence with an entity.
    """
    file = folder / _LABELS
    if file.is_file():
        return _second(setup, read_own(file, _Labels, "labels of the first model", STATE_HINT))
    [data] = setup.tasks
    bits = random_bits(len(setup.unlabelled), seed, Purpose.SELF_TRAINING)
    texts = [setup.unlabelled[i] for i in np.argsort(bits, kind="stable").tolist()]
    measured = replace(data, test={"test": texts})
    first = replace(setup, tasks=(measured,), unlabelled=(), save_logits=False, hint_seed=None)
    run = FinetuneRun(first, seed, folder / _FIRST)
    run.train()

    def label() -> list[Sentence]:
        with setup.progress.bar(f"seed {seed}, sentences without labels", len(texts), "examples") as bar:
            return confident_sentences(data.train, texts, run.predictions(bar))

    sentences = setup.machine.run_on_first(label)
    if not sentences:
        raise InputError(
            f"the model is sure of the entities of none of {pluralize(len(texts), 'sentence')} of --unlabelled",
            "give text that resembles the labelled sentences, or leave it out",
        )
    labels = _Labels(run.training.n_steps, [(sentence.words, sentence.tags or ()) for sentence in sentences])
    if setup.machine.is_first:
        with replacing(file) as part:
            write_json(part, asdict(labels))
        shutil.rmtree(folder / _FIRST)
    setup.progress.note(
        f"seed {seed}: training again, with {pluralize(len(sentences), 'sentence')} that were predicted"
    )
    return _second(setup, labels)


def _second(setup: FinetuneSetup, labels: _Labels) -> FinetuneSetup:
    sentences = [Sentence(words, tags) for words, tags in labels.sentences]
    return replace(setup, unlabelled=(), self_labelled=sentences, train=replace(setup.train, max_steps=labels.steps))


def confident_sentences(
    labelled: Sequence[Sentence], sentences: Iterable[Sentence], predictions: Iterable[Json]
) -> list[Sentence]:
    """At most ten predicted sentences for each labelled one, the first of ``sentences``, with the predicted tags.

    The share of sentences with entities is that of ``labelled``, which have some; each of their entities has a score of
    0.8 or more. Reads no more predictions than it needs.
    """
    share = sum(any(tag != "O" for tag in sentence.tags or ()) for sentence in labelled) / len(labelled)
    limit = round(_PREDICTED_PER_LABELLED * len(labelled) * share)
    sure, empty = list[Sentence](), list[Sentence]()
    for sentence, prediction in zip(sentences, predictions, strict=False):
        predicted = Sentence(sentence.words, tuple(prediction["tags"]))
        if not prediction["entities"]:
            empty.append(predicted)
        elif len(sure) < limit and min(entity["score"] for entity in prediction["entities"]) >= _MIN_SCORE:
            sure.append(predicted)
        if len(sure) == limit and len(empty) >= _n_empty(limit, share):
            break
    return [*sure, *empty[: _n_empty(len(sure), share)]]


def _n_empty(n_sure: int, share: float) -> int:
    """The number of sentences without entities beside ``n_sure`` with some, which are a ``share`` of all."""
    return round(n_sure * (1 - share) / share)
