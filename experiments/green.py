"""Inexpensive domain adaptation (arXiv 2004.03354): entities (``ner``), and questions on papers (``qa``).

python experiments/green.py ner --download --only NCBI-disease --method base --method green
python experiments/green.py qa --data covid-qa=200423_covidQA.json --method base
"""

import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

if not __package__:  # started as a script
    sys.path[0] = str(Path(__file__).parents[1])

from benchmarks.records import resumable
from experiments.bench import Experiment, Run, model_hash
from experiments.command import parse, parser_of, reproduce
from greenadapt.checkpoints.layout import SCORES, read_described
from greenadapt.config import QaConfig, TextOptions
from greenadapt.errors import UsageError
from greenadapt.inference.qa.answering import QaRequest
from greenadapt.inference.qa.question_set import QuestionSources
from greenadapt.progress import Silent
from greenadapt.stages.align import align
from greenadapt.stages.expand import expand
from greenadapt.stages.finetune.request import FinetuneRequest
from greenadapt.stages.qa import answer
from greenadapt.stages.w2v import w2v
from greenadapt.store.files import Json, hash_file, hash_json, to_plain
from greenadapt.tasks.questions import read_questions

MAPS: dict[str, Json] = {"green": {}, "identity": {"method": "identity"}, "random": {"method": "random"}}
"""Method → what it changes of how the vectors are mapped."""
_GREEDY = "-greedy"


class Adapting(Experiment):
    """An experiment with models that are adapted by the stages of ``adapt``."""

    def adapted(self, role: str, dataset: str, texts: Sequence[str], mapping: Json, splitting: Json) -> str:
        """``base``, adapted to the corpus of ``role``.

        Only words that occur in ``texts`` are added, since others change no prediction there; with the greedy rule,
        which splits words into other words, all are. The vectors are in the workspace, map and model in ``root``.
        """
        recipe, base = self.recipe, self.model("base")
        session = replace(self.session, out=None)
        config = recipe.config("w2v", workers=session.workers)
        vectors = w2v(session, self.corpus(role), base, config, TextOptions())
        fitting = recipe.config("align", **mapping)
        settings: Json = {"vectors": vectors.manifest.digest, "align": asdict(fitting)}
        aligned = align(self.inner("models", f"align-{hash_json(settings)[:8]}"), None, base, fitting, vectors.path)
        rows = recipe.config("expand", **splitting)
        rows = rows if rows.oov == "greedy" else replace(rows, restrict_to=tuple(texts))
        settings |= {"expand": asdict(rows), "texts": [hash_file(Path(text)) for text in texts]}
        inner = self.inner("models", f"{dataset}-{role}-{hash_json(settings)[:8]}")
        return str(expand(inner, None, None, rows, aligned.path).path)


class Ner(Adapting):
    """Entities (section 4): training on training and development sentences together, with one of several models."""

    def record(self, run: Run) -> Json:
        files = self.files(run)
        train = (files.train, *filter(None, [files.dev]))
        request = FinetuneRequest.of_one(
            model=self._model(run, [*train, *filter(None, [files.test])]),
            train=train,
            test=files.test,
            task=self.recipe.config("task", run.set, task="ner"),
            training=self.recipe.config("training", run.set),
            max_tokens=self.recipe.config("run", run.set).max_tokens,
            seeds=(run.seed,),
        )
        return self.trained(run, request)

    def _model(self, run: Run, texts: list[str]) -> str:
        if run.method in ("base", "reference"):
            return self.model(run.method)
        return self.adapted("domain", run.set, texts, run.choose(MAPS), {})


class Qa(Adapting):
    """Questions on whole papers (section 5): a QA model as it is, and adapted, without training.

    A method is ``base``, or the role of the corpus to adapt to, with ``-greedy`` by the tokenizer of the authors' code.
    """

    def record(self, run: Run) -> Json:
        data = self.files(run).test or ""
        model = self.model("base") if run.method == "base" else self._adapted(run, data)
        reading = self.recipe.config("reading", run.set)
        settings = {"model": model_hash(model), "data": hash_file(Path(data)), "reading": to_plain(vars(reading))}
        key = hash_json([run.method, settings])
        if key in self.records.by_key:
            return self.records.by_key[key]
        self.session.progress.note(str(run))
        session = replace(self.inner("runs", run.folder(key)), cluster=self.session.cluster)
        result = answer(session, QaRequest(model, QuestionSources(data=data), config=QaConfig(), reading=reading))
        summary = read_described(result.folder / SCORES)
        scores = {name: value for name, value in summary["scores"].items() if isinstance(value, float)}
        return self.add(run, key, scores, result.manifest.cost, {"asked": settings})

    def trainings(self, run: Run) -> list[Run]:
        return []

    def _adapted(self, run: Run, data: str) -> str:
        questions = read_questions(data, Silent())
        contexts = dict.fromkeys(question.context for question in questions)
        texts = [*contexts, *(question.question for question in questions)]
        file = self.root / "texts" / f"{run.set}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(" ".join(text.split()) + "\n" for text in texts), "utf-8")
        splitting = {"oov": "greedy"} if run.method.endswith(_GREEDY) else {}
        return self.adapted(run.method.removesuffix(_GREEDY), run.set, [str(file)], {}, splitting)


def main(arguments: Sequence[str] | None = None) -> None:
    """Fill the tables of one of the experiments."""
    parser = parser_of(__doc__)
    parser.add_argument("task", choices=["ner", "qa"])
    options = parse(parser, arguments)
    if options.task == "qa" and options.seeds is not None:
        raise UsageError(f"--seeds {options.seeds}, but green-qa trains no model", "leave it out")
    kind: type[Experiment] = Ner if options.task == "ner" else Qa
    reproduce(kind, f"green-{options.task}", options)


if __name__ == "__main__":
    resumable(main)
