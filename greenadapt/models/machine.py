"""The machine that training runs on: device, precision and processes, through accelerate."""

import atexit
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch

from greenadapt.config import Precision
from greenadapt.errors import ResourceError, UsageError

Value = TypeVar("Value")

# The fixed cost of a part of a step (starting kernels, adding gradients), in pieces that the model reads.
_OVERHEAD_CPU, _OVERHEAD_GPU = 64, 2048
# The first process alone measures and writes, and the others wait for it.
_PATIENCE = timedelta(days=1)


@dataclass(frozen=True, eq=False)
class Machine:
    """One process of one or many that train together; ``accelerate launch`` starts many."""

    accelerator: Any
    """accelerate's ``Accelerator``; its own mixed precision is off, see ``autocast``."""
    is_bfloat16: bool
    """Whether products of matrices are in bfloat16."""
    trains_in_bfloat16: bool
    """Whether those of training are."""

    @classmethod
    def start(cls, precision: Precision) -> "Machine":
        """Use the device that accelerate chooses; raises ``UsageError`` for a precision that it does not have."""
        with _silence():
            from accelerate import Accelerator, InitProcessGroupKwargs
            from accelerate.state import is_initialized

            accelerator = Accelerator(
                # transformers' Trainer may have chosen another in this process; alone, a process does not use it.
                mixed_precision=None if is_initialized() else "no",
                kwargs_handlers=[InitProcessGroupKwargs(timeout=_PATIENCE)],
            )
        if accelerator.num_processes > 1:
            atexit.register(_end_group)
        device = accelerator.device.type
        has_bfloat16 = _has_bfloat16(device)
        if device == "cuda":
            if precision == "bfloat16" and not has_bfloat16:
                raise UsageError(
                    f"--precision bfloat16: {torch.cuda.get_device_name()} has none", "use --precision float32"
                )
            torch.set_float32_matmul_precision("highest" if precision == "float32" else "high")
        chosen = precision == "bfloat16"
        automatic = precision == "auto" and has_bfloat16
        # On a CPU predictions are in float32, so that they equal those of other CPUs and of compiled models.
        return cls(accelerator, chosen or (automatic and device == "cuda"), chosen or automatic)

    @property
    def device(self) -> torch.device:
        """The device of this process."""
        return self.accelerator.device

    @property
    def rank(self) -> int:
        """The number of this process, from 0."""
        return int(self.accelerator.process_index)

    @property
    def processes(self) -> int:
        """The number of processes that train together."""
        return int(self.accelerator.num_processes)

    @property
    def is_first(self) -> bool:
        """Whether this process writes and reports."""
        return self.rank == 0

    @property
    def overhead(self) -> int:
        """The fixed cost of a part of a step on this device, in pieces."""
        return _OVERHEAD_CPU if self.device.type == "cpu" else _OVERHEAD_GPU

    def prepare(self, model: Any, *, leaves_weights_out: bool = False) -> Any:
        """``model`` on the device, wrapped for training: gradients are the mean over all processes.

        With ``leaves_weights_out`` a step need not use all weights; all processes must use the same ones.
        """
        if not self.accelerator.use_distributed:
            return model.to(self.device)
        with _silence():
            from accelerate import DistributedDataParallelKwargs

            self.accelerator.free_memory()  # of the model that it prepared before
            self.accelerator.ddp_handler = DistributedDataParallelKwargs(find_unused_parameters=leaves_weights_out)
            return self.accelerator.prepare_model(model)

    def seed(self, number: int) -> None:
        """Seed torch's random numbers as ``torch.manual_seed`` does, which takes 0.2 ms or more without a GPU."""
        seed = torch.default_generator.manual_seed if self.device.type == "cpu" else torch.manual_seed
        seed(number)

    def autocast(self, *, is_training: bool = False) -> AbstractContextManager[Any]:
        """The context in which a model runs: products of matrices in bfloat16 if that is the precision."""
        is_bfloat16 = self.trains_in_bfloat16 if is_training else self.is_bfloat16
        # That of accelerate replaces the model's forward, for all later runs of the process.
        return torch.autocast(self.device.type, torch.bfloat16) if is_bfloat16 else nullcontext()

    def no_sync(self, model: Any) -> AbstractContextManager[Any]:
        """The context in which processes do not exchange the gradients of a prepared model."""
        return self.accelerator.no_sync(model) if self.processes > 1 else nullcontext()

    def total(self, tensor: torch.Tensor) -> torch.Tensor:
        """The sum of ``tensor`` over all processes."""
        return self.accelerator.reduce(tensor, "sum") if self.processes > 1 else tensor

    def gather_max(self, number: int) -> int:
        """The largest of all processes' numbers."""
        if self.processes == 1:
            return number
        return int(self.accelerator.gather(torch.tensor([number], device=self.device)).max())

    def broadcast(self, value: Value) -> Value:
        """The ``value`` of the first process, in all processes; sent by pickle."""
        if self.processes == 1:
            return value
        from accelerate.utils import broadcast_object_list

        values: list[Value] = broadcast_object_list([value])
        return values[0]

    def run_on_first(self, work: Callable[[], Value]) -> Value:
        """The result of ``work``, which only the first process calls, in all processes."""
        return self.broadcast(work() if self.is_first else None)  # type: ignore[return-value]

    def wait(self) -> None:
        """Wait until all processes have called this."""
        self.accelerator.wait_for_everyone()


def _has_bfloat16(device: str) -> bool:
    """Whether the GPU, or an x86 CPU by AVX-512 or AMX, has instructions for products of matrices in bfloat16."""
    if device == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    features = torch.cpu.get_capabilities() if device == "cpu" and hasattr(torch.cpu, "get_capabilities") else {}
    return any(features.get(name, False) for name in ("avx512_bf16", "amx_bf16"))


def _end_group() -> None:
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def too_large(n_inputs: int, n_pieces: int, max_tokens: int) -> ResourceError:
    """The error for ``n_inputs`` of ``n_pieces`` each that do not fit into the memory of the GPU."""
    if n_inputs == 1:
        what = f"one input of {n_pieces} pieces does not fit into the GPU's memory"
        return ResourceError(what, "train with a lower maximum length (finetune --max-length)")
    below = min(n_inputs * n_pieces, max_tokens)
    return ResourceError(
        f"a batch of {n_inputs} inputs of {n_pieces} pieces does not fit into the GPU's memory",
        f"use a --max-tokens below {below:,}",
    )


@contextmanager
def _silence() -> Iterator[None]:
    """Suppress the messages of torch and accelerate about kernels, drivers and launchers."""
    logger = logging.getLogger("accelerate")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
