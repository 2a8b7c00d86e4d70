"""Training in two processes."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from greenadapt.training.feed import Feed
from tests.support.processes import together

_SCRIPT = """
import json
import sys
from pathlib import Path
import torch
sys.path.insert(0, sys.argv[1])
from safetensors.torch import save_file
from greenadapt.models.machine import Machine
from greenadapt.training.loop import Training
from tests.support.small_inputs import SteadyAdamW

torch.set_num_threads(1)
torch.optim.AdamW = SteadyAdamW
model, feed = torch.load("training.pt", weights_only=False)
machine = Machine.start("float32")
assert machine.processes == 2
training = Training(model, feed, machine)
losses = []
for step in training.train_steps():
    losses.append(step.loss)
    for name, weight in model.named_parameters():
        is_of_step = not name.startswith("parts.") or name.startswith(f"parts.task_{step.task}.")
        assert is_of_step or weight.grad is None, name
assert machine.first(lambda: machine.rank) == 0
assert machine.shared(machine.rank) == 0
assert machine.largest(machine.rank) == 1
training.save(Path("state"))
assert Path("state").is_dir()
if machine.is_first:
    save_file({name: weight.detach() for name, weight in model.named_parameters()}, "weights.safetensors")
    Path("losses.json").write_text(json.dumps(losses))
machine.wait()
"""


def train_in_two_processes(model: Any, feed: Feed, folder: Path) -> tuple[list[float], dict[str, torch.Tensor]]:
    """The loss of each step, and the trained weights by name; ``model`` itself does not change."""
    torch.save((model, feed), folder / "training.pt")
    (folder / "two.py").write_text(_SCRIPT)
    result = together(["two.py", Path(__file__).parents[2]], folder)
    assert "Warning" not in result.stderr
    return json.loads((folder / "losses.json").read_text()), load_file(folder / "weights.safetensors")
