"""Self-training: does a model learn from sentences of the text that a first model has labelled?

    python benchmarks/self_training.py --data DATA --work DIR [--sets AnnoCTR NCBI-disease] [--seeds 1]

For each set, seed and arm, ``base`` or ``both`` (adapted, both tokenizations): a first model is trained on ``--budget``
labelled sentences, and labels ``--pool`` sentences drawn from the unlabelled text of the set's domain. A fresh model is
trained on the labelled sentences, five times, and on ``--pseudo`` of the others: as large a share with entities as
among the labelled ones, and all of these with a score of 0.8 or more. Both models make as many steps.

Finished runs are lines of ``self-training.jsonl`` in ``--results``, and are not made again.
"""

import argparse
import random
import re
from collections.abc import Sequence
from pathlib import Path

from gain.sets import LabelledSet, domain_of, find_set, texts_in
from records import Records, resumable
from smart_open import open as smart_open

import greenadapt
from greenadapt.stages.demo import write_conll
from greenadapt.storage.files import Json
from greenadapt.tasks.conll import Sentence

RESULTS = Path(__file__).parent / "results"
ARMS = ("base", "both")
_REPEATED, _MIN_SCORE = 5, 0.8
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9])")
_WORD, _TECHNICAL_WORD = re.compile(r"\w+|[^\w\s]"), re.compile(r"\w+(?:[.'_/-]\w+)*|[^\w\s]")
"""Words as the labelled sets of biomedicine have them, and as those of other domains do."""
_FEWEST, _MOST = 5, 60  # words of a sentence


def sentences_of(text: Path, word: re.Pattern[str], n: int, seed: int) -> list[list[str]]:
    """At least ``n`` sentences, as words, from lines of ``text`` in random order; all of them if there are fewer."""
    with smart_open(str(text), "rt", encoding="utf-8", errors="replace") as stream:
        lines = stream.readlines()
    random.Random(seed).shuffle(lines)
    sentences: list[list[str]] = []
    for line in lines:
        words = map(word.findall, _SENTENCE_END.split(line.strip()))
        sentences += [sentence for sentence in words if _FEWEST <= len(sentence) <= _MOST]
        if len(sentences) >= n:
            break
    return sentences


def chosen(labelled: Sequence[Sentence], predictions: Sequence[Json], n: int, seed: int) -> list[Sentence]:
    """About ``n`` predicted sentences, as large a share with entities as of ``labelled``, all of these sure."""
    share = sum(any(tag != "O" for tag in sentence.tags or ()) for sentence in labelled) / len(labelled)
    sure = [row for row in predictions if row["entities"] and min(e["score"] for e in row["entities"]) >= _MIN_SCORE]
    empty = [row for row in predictions if not row["entities"]]
    draw = random.Random(seed)
    draw.shuffle(sure)
    draw.shuffle(empty)
    with_entities = sure[: round(n * share)]
    rows = with_entities + empty[: round(len(with_entities) * (1 - share) / share) if share else n]
    return [Sentence(tuple(row["words"]), tuple(row["tags"])) for row in rows]


class SelfTraining:
    """The folder of the runs, and their records."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        options.results.mkdir(parents=True, exist_ok=True)
        self.records = Records(options.results / "self-training.jsonl")

    def run(self, dataset: LabelledSet, arm: str, seed: int) -> list[Json]:
        """The records of the first and of the second model, made if they are missing."""
        options = self.options
        settings = [dataset.name, arm, seed, options.budget, options.pool, options.pseudo, options.steps]
        keys = ["-".join(map(str, [*settings, number])) for number in (1, 2)]
        if all(key in self.records.by_key for key in keys):
            return [self.records.by_key[key] for key in keys]
        work = options.work / f"{dataset.name}-{arm}-{seed}"
        text = texts_in(options.data)[dataset.name]
        model = "minilm"
        if arm == "both":
            adapted = greenadapt.adapt(text, model, out=options.work / text.name.split(".")[0], workers=1)
            model = str(adapted.folder)
        train = dataset.drawn("train", options.budget, options.work / "sets", seed)
        first = self._train(model, train, work / "first", seed)
        word = _WORD if domain_of(dataset.name) == "biomedicine" else _TECHNICAL_WORD
        pool = [{"tokens": words} for words in sentences_of(text, word, options.pool, seed)]
        labelled = dataset.read(train)
        predicted = chosen(labelled, first.predict(pool, tags=True), options.pseudo, seed)
        both = work / "labelled-and-predicted.tsv"
        write_conll(both, [*labelled * _REPEATED, *predicted])
        second = self._train(model, both, work / "second", seed)
        return [
            self.records.add({
                "key": key, "set": dataset.name, "arm": arm, "seed": seed, "steps": options.steps,
                **{part: self._score(fitted, dataset, part) for part in ("dev", "test")},
            })
            for key, fitted in zip(keys, (first, second), strict=True)
        ]  # fmt: skip

    def _train(self, model: str, train: Path, out: Path, seed: int) -> greenadapt.TaskModel:
        steps = self.options.steps
        return greenadapt.finetune(
            model, "ner", train, epochs=steps, max_steps=steps, seed=seed, precision="bfloat16", out=out
        )

    def _score(self, model: greenadapt.TaskModel, dataset: LabelledSet, part: str) -> float:
        file = dataset.drawn(part, {"dev": 500, "test": 1000}[part], self.options.work / "sets")
        return float(model.evaluate(file)["mean"]["f1"])


def main(arguments: list[str] | None = None) -> None:
    """Do the missing runs, and print the F1 of both models of each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="labelled sets, and texts in corpora")
    parser.add_argument("--work", type=Path, required=True, help="where models and examples are kept")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where records are kept")
    parser.add_argument("--sets", nargs="+", default=["AnnoCTR", "NCBI-disease", "BC5CDR-disease"])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--budget", type=int, default=300, help="labelled sentences")
    parser.add_argument("--pool", type=int, default=12_000, help="sentences that the first model labels")
    parser.add_argument("--pseudo", type=int, default=3_000, help="sentences of these to learn from")
    parser.add_argument("--steps", type=int, default=600)
    options = parser.parse_args(arguments)
    training = SelfTraining(options)
    for seed in range(options.seeds):
        for name in options.sets:
            dataset = find_set(options.data, name)
            if not isinstance(dataset, LabelledSet) or dataset.kind != "ner":
                parser.error(f"{name} is no set of entities")
            for arm in ARMS:
                first, second = training.run(dataset, arm, seed)
                print(
                    f"{name}, {arm}, seed {seed}: F1 {100 * first['test']:.2f} → {100 * second['test']:.2f}", flush=True
                )


if __name__ == "__main__":
    resumable(main)
