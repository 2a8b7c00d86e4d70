"""A model of several tasks, opened for what they say of the same entries."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from greenadapt.arrays import Array
from greenadapt.config import Pool
from greenadapt.features import Encoder, Views
from greenadapt.pipeline.memory_choice import MemoryChoice
from greenadapt.pipeline.task_folder import TaskFolder
from greenadapt.pipeline.task_models import ReadingOptions, attached

if TYPE_CHECKING:
    from greenadapt.training.inference import Inference
    from greenadapt.training.multitask_models import TrainedTasks


@dataclass(frozen=True)
class SharedModel:
    """Several tasks of one folder on the encoder that they share, and how each of them reads examples."""

    folders: Mapping[str, TaskFolder]
    """By the task's name."""
    encoders: Mapping[str, Encoder]
    """By the task's name; they differ at most in how many pieces they read."""
    pools: Mapping[str, Pool]
    """By the task's name: whose logits decide."""
    opened: "TrainedTasks"
    run: "Inference"

    @classmethod
    def open(cls, folders: Mapping[str, TaskFolder], options: ReadingOptions) -> "SharedModel":
        """Load the encoder once, with its memory where it has one, and what each task adds to it.

        Raises what ``open_tasks`` and ``MemoryChoice.of_task`` raise.
        """
        from greenadapt.training.inference import Inference
        from greenadapt.training.machine import Machine
        from greenadapt.training.multitask_models import open_tasks

        first = next(iter(folders.values()))
        memory = MemoryChoice.of_task(first, options.memory)
        machine = Machine.start(options.precision, ())
        opened = open_tasks(first.folder, tuple(folders), first.seed)
        encoders = {name: options.encoder_of(folder, opened.checkpoint) for name, folder in folders.items()}
        encoder = next(iter(encoders.values()))
        pools = {name: options.pool_of(folder) for name, folder in folders.items()}
        wanted = {*pools.values()}
        views: Pool = wanted.pop() if len(wanted) == 1 else "mean"  # which computes both views
        run = Inference(options.max_tokens, encoder.special.pad, machine.autocast, views)
        if memory is not None:
            run = replace(run, memory=attached(memory, opened.model.encoder, first.weights, encoder, machine))
        opened.model.to(machine.device)
        return cls(folders, encoders, pools, opened, run)

    def logits(
        self, examples: Sequence[Mapping[str, Any]], cut: Mapping[str, Counter[str]]
    ) -> Iterator[dict[str, Array]]:
        """For each entry, an example a task by its name, the pooled logits by task, (n_units, k) float32.

        ``cut`` counts of each task what was too long, see ``Task.inference``.
        """
        from greenadapt.training.inference import pooled
        from greenadapt.training.shared_inference import shared_outputs

        views = {
            name: folder.task.inference([one[name] for one in examples], self.encoders[name], cut[name])
            for name, folder in self.folders.items()
        }
        entries: Iterator[dict[str, Views]] = (
            dict(zip(views, each, strict=True)) for each in zip(*views.values(), strict=True)
        )
        for outputs in shared_outputs(self.opened.model, self.opened.rows, entries, self.run):
            yield {name: pooled(output, self.pools[name]) for name, output in outputs.items()}
