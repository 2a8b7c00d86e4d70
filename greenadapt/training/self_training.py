"""Self-training for NER: a first model labels sentences of a text, and a fresh model learns from these too.

The second model makes as many steps as the first, on the labelled sentences, repeated, and on predicted ones. As in the
noisy student (Xie et al., arXiv 1911.04252) it starts from the pretrained model again, sentences of which the first
model is not sure are left out, and the predicted sentences have the labels of the training set in the same shares.
"""

import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from greenadapt.errors import InputError, counted
from greenadapt.storage.files import Json, read_own, replace_json
from greenadapt.tasks.conll import Sentence
from greenadapt.training.feed import Purpose, random_bits
from greenadapt.training.finetune import FinetuneRun, FinetuneSetup
from greenadapt.training.loop import STATE_HINT

_PREDICTED_PER_LABELLED = 10
_MIN_SCORE = 0.8
_FIRST, _LABELS = ".first", ".self-labelled.json"


@dataclass(frozen=True)
class _Labels:
    """What the second model is trained with: the steps of the first, and words and tags that it predicted."""

    steps: int
    sentences: list[tuple[tuple[str, ...], tuple[str, ...]]]


def second_setup(setup: FinetuneSetup, seed: int, folder: Path, steps_before: int = 0) -> FinetuneSetup:
    """Train the first model under ``seed`` in ``folder``, and label sentences with it; the setup of the second model.

    Resumes a killed run. Raises ``InputError`` if the first model is sure of no sentence with an entity.
    """
    file = folder / _LABELS
    if file.is_file():
        return _second(setup, read_own(file, _Labels, "labels of the first model", STATE_HINT))
    [data] = setup.tasks
    measured = replace(data, test={"test": setup.unlabelled})
    first = replace(setup, tasks=(measured,), unlabelled=(), save_logits=False)
    run = FinetuneRun(first, seed, folder / _FIRST, steps_before)
    run.train()
    predictions = setup.machine.first(run.label)
    sentences = confident_sentences(data.train, setup.unlabelled, predictions, seed)
    if not sentences:
        raise InputError(
            f"the model is sure of the entities of none of {counted(len(predictions), 'sentence')} of --unlabelled",
            "give text that resembles the labelled sentences, or leave it out",
        )
    labels = _Labels(run.training.n_steps, [(sentence.words, sentence.tags or ()) for sentence in sentences])
    if setup.machine.is_first:
        replace_json(file, asdict(labels))
        shutil.rmtree(folder / _FIRST)
    setup.progress.note(f"seed {seed}: training again, with {counted(len(sentences), 'sentence')} that were predicted")
    return _second(setup, labels)


def _second(setup: FinetuneSetup, labels: _Labels) -> FinetuneSetup:
    sentences = [Sentence(words, tags) for words, tags in labels.sentences]
    return replace(setup, unlabelled=(), self_labelled=sentences, train=replace(setup.train, max_steps=labels.steps))


def confident_sentences(
    labelled: Sequence[Sentence], sentences: Sequence[Sentence], predictions: Sequence[Json], seed: int
) -> list[Sentence]:
    """At most ten predicted sentences for each labelled one, in random order, with the predicted tags.

    The share of sentences with entities is that of ``labelled``, which have some; each of their entities has a score of
    0.8 or more.
    """
    share = sum(any(tag != "O" for tag in sentence.tags or ()) for sentence in labelled) / len(labelled)
    order = np.argsort(random_bits(len(sentences), seed, Purpose.SELF_TRAINING), kind="stable").tolist()
    sure = [
        i
        for i in order
        if predictions[i]["entities"] and min(entity["score"] for entity in predictions[i]["entities"]) >= _MIN_SCORE
    ]
    sure = sure[: round(_PREDICTED_PER_LABELLED * len(labelled) * share)]
    empty = [i for i in order if not predictions[i]["entities"]]
    empty = empty[: round(len(sure) * (1 - share) / share)]
    return [Sentence(sentences[i].words, tuple(predictions[i]["tags"])) for i in [*sure, *empty]]
