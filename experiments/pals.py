"""BERT and PALs (arXiv 1902.02671): the tasks of GLUE on one encoder, by what each task adds and how they are sampled.

python experiments/pals.py --data glue=GLUE --method shared --method pals --seeds 1
"""

import sys
from collections.abc import Sequence
from pathlib import Path

if not __package__:  # started as a script
    sys.path[0] = str(Path(__file__).parents[1])

from benchmarks.records import resumable
from experiments.bench import Experiment, Run
from experiments.command import parse, parser_of, reproduce
from greenadapt.stages.finetune.request import FinetuneRequest
from greenadapt.store.files import Json


class Pals(Experiment):
    """A method is an adapter, a variant a way of sampling; the epoch with the best average on the dev sets counts."""

    def record(self, run: Run) -> Json:
        run.choose(self.recipe.adapters)
        request = FinetuneRequest(
            model=self.model("base"),
            tasks=self.files(run).tasks,
            adapter=self.recipe.adapter(run.method),
            sampling=self.recipe.config("sampling", sampling=run.variant),
            training=self.recipe.config("training", keep="best"),
            max_tokens=self.recipe.config("run").max_tokens,
            seeds=(run.seed,),
        )
        return self.trained(run, request)


def main(arguments: Sequence[str] | None = None) -> None:
    """Fill the tables of the paper."""
    reproduce(Pals, "pals", parse(parser_of(__doc__), arguments))


if __name__ == "__main__":
    resumable(main)
