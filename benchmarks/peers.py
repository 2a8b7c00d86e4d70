"""greenadapt beside other programs, task by task, in turns: CPU seconds and seconds by the clock.

    python benchmarks/peers.py TEXT[.gz] --work DIR [--turns 3] [--tasks predict qa …]
    python benchmarks/peers.py --small --work DIR

TEXT has a document a line. Each side runs in a process of its own, alone, with ``--threads``; the sides take turns, in
another order each time. Opening models, starting servers, compiling and exporting are not timed. A ratio is how many
times the peer's seconds are greenadapt's: its median over turns, with the lowest and highest pair. CPU seconds change
less than those by the clock where other programs run. A peer that is no dependency of greenadapt is installed into an
environment in ``--work``, on top of this one. A side that fails has its error in the table. Any other pair is a line of
``records.jsonl`` in ``--work``, and the same command goes on where it was stopped. ``--small`` makes up a text and a
model of two layers, whose ratios mean nothing. Linux only.

- ``w2v-384``, ``w2v-768``: text to vectors with gensim, an epoch, the words split by the tokenizer in a plain loop
- ``predict``: entities of texts by a pipeline of transformers; ``compile-onnx``: by optimum
- ``finetune``: an epoch of entities with transformers' Trainer, the batches drawn at random
- ``search-bm25s``, ``search-tantivy``: ten paragraphs for each query
- ``qa``: answers from windows of long contexts, in a plain loop (``plain_loop.py``)
- ``serve``: texts over HTTP, beside FastAPI with a pipeline, eight clients; CPU seconds of the server
- ``align``: the map, with numpy; ``expand``: imports and new rows, with ``add_tokens`` and ``resize_token_embeddings``
"""

import argparse
import asyncio
import gzip
import itertools
import json
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from machine import machine_line
from records import Records, resumable
from tables import aligned

from greenadapt.store.files import Json, hash_file, hash_json

SEED, BATCH, RATE, CLIENTS = 0, 32, 5e-5, 8
OWN = "greenadapt"
Work = Callable[[], Any]
"""What is timed; it may return the CPU seconds of another process."""


@dataclass(frozen=True)
class Setting:
    """What both sides of a task read."""

    work: Path
    """Has ``text.txt``, ``model``, ``ner`` (a fine-tuned model), ``train.tsv``, ``questions.json`` and ``index``."""
    small: bool
    threads: int

    def n(self, full: int, small: int) -> int:
        return small if self.small else full

    def lines(self, n: int) -> list[str]:
        with open(self.work / "text.txt", encoding="utf-8") as file:
            return [line.strip() for line in islice(file, n)]

    @property
    def numbers(self) -> Any:
        """What ``expand.py`` reads of its command line."""
        words, pairs, dim = (self.n(*sizes) for sizes in ((100_000, 500), (30_000, 500), (768, 64)))
        return SimpleNamespace(
            model=str(self.work / "model"), words=words, pairs=pairs, dim=dim, work=self.work / "expand"
        )


def w2v_own(setting: Setting, dim: int) -> Iterator[Work]:
    """Prepare the text and train; compiled before."""
    from greenadapt.config import CorpusConfig, W2VConfig
    from greenadapt.corpus.prepared import PreparedCorpus, prepare_corpus
    from greenadapt.corpus.readers import open_corpus
    from greenadapt.corpus.recipes import find_recipe
    from greenadapt.progress import Silent
    from greenadapt.vectors.cbow import train

    folder = setting.work / f"own-{os.getpid()}"
    config, silent = W2VConfig(dim=dim, epochs=1, workers=1), Silent()

    def run(text: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        documents = open_corpus(find_recipe(str(text)), folder).documents()
        options = CorpusConfig(keep_duplicates=True)
        prepare_corpus(
            documents, setting.work / "model", folder, options, workers=1, max_memory=2 << 30, progress=silent
        )
        train(PreparedCorpus(folder), config, folder / "w2v", progress=silent, max_memory=32 << 30)

    run(setting.work / "head.txt")  # compiles
    yield lambda: run(setting.work / "text.txt")
    shutil.rmtree(folder)


def w2v_gensim(setting: Setting, dim: int) -> Iterator[Work]:
    """Split the lines into lists of words and train."""
    from gensim.models import Word2Vec
    from plain_words import plain

    from greenadapt.tokenization.vocabulary import load_tokenizer

    tokenizer = load_tokenizer(setting.work / "model")

    def run() -> None:
        with open(setting.work / "text.txt", encoding="utf-8") as file:
            Word2Vec(list(plain(tokenizer, file)), vector_size=dim, epochs=1, workers=1)

    yield run


def predict_own(setting: Setting, folder: str = "ner") -> Iterator[Work]:
    """Entities of texts by greenadapt's model."""
    import greenadapt

    model, texts = greenadapt.load(setting.work / folder), setting.lines(setting.n(1000, 20))
    model.predict(texts[:BATCH])
    yield lambda: model.predict(texts)


def _pipeline(folder: Path) -> Any:
    import transformers

    transformers.utils.logging.set_verbosity_error()
    return transformers.pipeline(
        "token-classification", str(folder), aggregation_strategy="simple", batch_size=BATCH, device="cpu"
    )


def predict_pipeline(setting: Setting) -> Iterator[Work]:
    """Entities of texts by a pipeline."""
    pipeline, texts = _pipeline(setting.work / "ner"), setting.lines(setting.n(1000, 20))
    pipeline(texts[:BATCH])
    yield lambda: pipeline(texts)


def compile_own(setting: Setting) -> Iterator[Work]:
    """Entities of texts by a compiled model."""
    folder = setting.work / "onnx"
    if not folder.is_dir():
        _greenadapt(setting, "compile", "--model", setting.work / "ner", "-o", folder)
    yield from predict_own(setting, "onnx")


def compile_optimum(setting: Setting) -> Iterator[Work]:
    """Entities of texts by a pipeline whose model optimum exports."""
    import transformers
    from optimum.onnxruntime import ORTModelForTokenClassification

    folder, texts = setting.work / "ner", setting.lines(setting.n(1000, 20))
    model = ORTModelForTokenClassification.from_pretrained(folder, export=True)
    # A transformers that optimum takes need not know the class in tokenizer_config.json.
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"), pad_token="[PAD]", model_max_length=512
    )
    pipeline = transformers.pipeline(
        "token-classification", model, tokenizer=tokenizer, aggregation_strategy="simple", batch_size=BATCH
    )
    pipeline(texts[:BATCH])
    yield lambda: pipeline(texts)


@dataclass(frozen=True)
class Training:
    """The examples of ``train.tsv`` as ``finetune`` cuts them, and the model before its first step."""

    folder: Path
    task: Any
    encoder: Any
    items: list[Any]

    @classmethod
    def read(cls, folder: Path, data: Path) -> "Training":
        from greenadapt.checkpoints.reader import Checkpoint
        from greenadapt.config import TaskConfig
        from greenadapt.progress import Silent
        from greenadapt.tasks.base import Encoder, make_task

        encoder, task, silent = Encoder.of(Checkpoint(folder)), make_task(TaskConfig(task="ner")), Silent()
        sentences = task.read(str(data), silent)
        task = task.fit(sentences, silent)
        return cls(folder, task, encoder, task.training(sentences, encoder, SEED, silent))

    def own(self) -> Any:
        """greenadapt's loop, on a CPU in float32."""
        import torch

        from greenadapt.checkpoints.reader import Checkpoint
        from greenadapt.config import TrainConfig
        from greenadapt.models.machine import Machine
        from greenadapt.models.rows import Rows
        from greenadapt.models.weights import open_model
        from greenadapt.training.batches import TaskDataset
        from greenadapt.training.loop import Training as Loop
        from greenadapt.training.sampling import BatchSampler

        rows = Rows.of(self.items, self.encoder.special)
        model = open_model(Checkpoint(self.folder), self.task.head, self.task.head_config(), rows, SEED)
        train = TrainConfig(mix="base", epochs=1, batch_size=BATCH, learning_rate=RATE)
        table = TaskDataset.of(self.items, rows, self.task.head, self.encoder.special.pad)
        return Loop(
            model,
            BatchSampler([table], train, SEED),
            Machine.start("auto" if torch.cuda.is_available() else "float32"),
        )

    def trainer(self, folder: Path, **options: Any) -> Any:
        """transformers' Trainer, with its defaults."""
        import torch
        import transformers
        from transformers.trainer_callback import PrinterCallback

        features = [item.base[0] for item in self.items]
        data = [
            {"input_ids": f.ids.tolist(), "attention_mask": [1] * len(f), "labels": np.asarray(f.target).tolist()}
            for f in features
        ]
        torch.manual_seed(SEED)
        transformers.utils.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        model = transformers.AutoModelForTokenClassification.from_pretrained(self.folder, **self.task.head_config())
        settings = transformers.TrainingArguments(
            str(folder), num_train_epochs=1, per_device_train_batch_size=BATCH, learning_rate=RATE,
            warmup_steps=0.1, save_strategy="no", report_to="none", disable_tqdm=True, logging_strategy="no",
            dataloader_pin_memory=torch.cuda.is_available(), **options,
        )  # fmt: skip
        collator = transformers.DataCollatorForTokenClassification(
            transformers.AutoTokenizer.from_pretrained(self.folder)
        )
        trainer = transformers.Trainer(model, settings, collator, data)
        trainer.remove_callback(PrinterCallback)
        return trainer


def finetune_own(setting: Setting) -> Iterator[Work]:
    """An epoch of greenadapt's loop."""
    training = Training.read(setting.work / "model", setting.work / "train.tsv").own()

    def run() -> None:
        for _ in training.train_steps():
            pass

    yield run


def finetune_trainer(setting: Setting) -> Iterator[Work]:
    """An epoch of the Trainer."""
    training = Training.read(setting.work / "model", setting.work / "train.tsv")
    trainer = training.trainer(setting.work / "trainer", use_cpu=True)

    def run() -> None:
        trainer.train()

    yield run


def _queries(setting: Setting) -> list[str]:
    return [" ".join(line.split()[3:9]) for line in setting.lines(setting.n(1000, 50))]


def search_own(setting: Setting) -> Iterator[Work]:
    """Ten paragraphs for each query, from an index on disk."""
    from greenadapt.inference.search.index import Index

    index, queries = Index(setting.work / "index"), _queries(setting)
    index.search(queries[0])
    yield lambda: [index.search(query) for query in queries]


def search_bm25s(setting: Setting) -> Iterator[Work]:
    """Ten paragraphs for each query, from an index in memory."""
    import bm25s

    lines, queries = setting.lines(setting.n(50_000, 200)), _queries(setting)
    index = bm25s.BM25(k1=1.2, b=0.75)
    index.index(bm25s.tokenize(lines, show_progress=False), show_progress=False)

    def search(query: str) -> list[str]:
        tokens = bm25s.tokenize(query, show_progress=False)
        return [lines[i] for i in index.retrieve(tokens, k=10, show_progress=False)[0][0]]

    search(queries[0])
    yield lambda: [search(query) for query in queries]


def search_tantivy(setting: Setting) -> Iterator[Work]:
    """Ten paragraphs for each query, from an index in memory."""
    import tantivy

    schema = tantivy.SchemaBuilder().add_text_field("text", stored=True).build()
    index = tantivy.Index(schema)
    writer = index.writer()
    for line in setting.lines(setting.n(50_000, 200)):
        writer.add_document(tantivy.Document(text=line))
    writer.commit()
    index.reload()
    searcher, queries = index.searcher(), _queries(setting)

    def search(query: str) -> list[str]:
        words = index.parse_query(" ".join(re.findall(r"\w+", query.lower())), ["text"])
        return [searcher.doc(address)["text"][0] for _, address in searcher.search(words, 10).hits]

    search(queries[0])
    yield lambda: [search(query) for query in queries]


def qa_own(setting: Setting) -> Iterator[Work]:
    """Answers as ``greenadapt qa`` finds them, in the base tokenization."""
    from greenadapt.config import QaConfig, ReadingOptions
    from greenadapt.inference.models import OpenedModel
    from greenadapt.inference.qa.lookups import QaModel, look_up
    from greenadapt.models.task_folder import TaskFolder
    from greenadapt.progress import Silent
    from greenadapt.tasks.questions import read_questions

    folder = TaskFolder.open(str(setting.work / "qa"))
    opened = OpenedModel.open(folder, ReadingOptions("base", precision="float32"))
    task: Any = opened.task
    models, questions = [QaModel(opened, task, {"answers": "base"})], read_questions(_questions(setting), Silent())
    list(look_up(models, questions[:1], QaConfig()))
    yield lambda: list(look_up(models, questions, QaConfig()))


def qa_loop(setting: Setting) -> Iterator[Work]:
    """Answers of the plain loop."""
    import torch
    from plain_loop import Plain, PlainSetting, quiet

    from greenadapt.checkpoints.reader import Checkpoint
    from greenadapt.progress import Silent
    from greenadapt.tasks.base import Encoder
    from greenadapt.tasks.questions import read_questions

    quiet()
    folder, questions = setting.work / "qa", read_questions(_questions(setting), Silent())
    length = Encoder.of(Checkpoint(folder)).max_length
    plain = Plain.open(PlainSetting(folder, length, torch.device("cpu"), False, setting.threads))
    plain.answer(questions[:1])
    yield lambda: plain.answer(questions)


def _questions(setting: Setting) -> str:
    return str(setting.work / "questions.json")


def serve_own(setting: Setting) -> Iterator[Work]:
    """Texts to ``greenadapt serve``."""
    command = ["-m", "greenadapt", "serve", "--model", str(setting.work / "ner"), "--port", "0", "--workers", "1"]
    yield from _served(setting, command)


def serve_fastapi(setting: Setting) -> Iterator[Work]:
    """Texts to FastAPI."""
    yield from _served(setting, [__file__, "--serve", "--work", str(setting.work)])


def _served(setting: Setting, command: Sequence[str]) -> Iterator[Work]:
    from machine import family
    from serve_load import Clients

    bodies = [json.dumps({"texts": [line]}).encode() for line in setting.lines(setting.n(1000, 10))]
    server = subprocess.Popen([sys.executable, *command], stderr=subprocess.PIPE, text=True)
    assert server.stderr is not None
    try:
        address = next(filter(None, (re.search(r"http://([\d.]+):(\d+)", line) for line in server.stderr)))

        async def ask(n: int) -> None:
            clients = Clients(address[1], int(address[2]), itertools.cycle(bodies))
            tasks = [asyncio.create_task(clients.run()) for _ in range(CLIENTS)]
            while len(clients.answers) < n:
                await asyncio.sleep(0.002)
            clients.is_over = True
            await asyncio.gather(*tasks)
            assert set(clients.outcomes) <= {"200", "refused"}, clients.outcomes

        def cpu() -> float:
            stats = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in family(server.pid)]
            return sum(int(ticks) for stat in stats for ticks in stat[11:13]) / os.sysconf("SC_CLK_TCK")

        def run() -> float:
            before = cpu()
            asyncio.run(ask(len(bodies)))
            return cpu() - before

        asyncio.run(ask(1))
        yield run
    finally:
        server.terminate()
        server.wait(60)


def serve_pipeline(work: Path) -> None:
    """The plain server: FastAPI, and a pipeline in its pool of threads."""
    import fastapi
    import uvicorn

    app, pipeline = fastapi.FastAPI(), _pipeline(work / "ner")

    @app.post("/predict")
    def predict(body: dict[str, list[str]]) -> Any:
        return [
            [{**entity, "score": float(entity["score"])} for entity in entities] for entities in pipeline(body["texts"])
        ]

    uvicorn.run(app, port=0, access_log=False)


def _of_expand(name: str) -> Callable[[Setting], Iterator[Work]]:
    """A case of ``expand.py``, whose own clock leaves out what it reads."""

    def side(setting: Setting) -> Iterator[Work]:
        import expand
        from scipy import linalg  # noqa: F401  (the fit imports it)

        for folder in ("ours", "transformers"):
            shutil.rmtree(setting.work / "expand" / folder, ignore_errors=True)

        def run() -> None:
            getattr(expand, name)(setting.numbers)

        yield run

    return side


@dataclass(frozen=True)
class Task:
    """Two sides, and what they need beyond the dependencies of greenadapt."""

    peer: str
    own_side: Callable[[Setting], Iterator[Work]]
    peer_side: Callable[[Setting], Iterator[Work]]
    packages: tuple[str, ...] = ()
    own_packages: tuple[str, ...] = ()


TASKS = {
    "w2v-384": Task("gensim", lambda s: w2v_own(s, 384), lambda s: w2v_gensim(s, 384), ("gensim",)),
    "w2v-768": Task("gensim", lambda s: w2v_own(s, 768), lambda s: w2v_gensim(s, 768), ("gensim",)),
    "predict": Task("pipeline", predict_own, predict_pipeline),
    "finetune": Task("Trainer", finetune_own, finetune_trainer, ("accelerate",)),
    "compile-onnx": Task(
        "optimum",
        compile_own,
        compile_optimum,
        ("optimum-onnx[onnxruntime]",),
        ("onnxruntime", "onnx", "onnxscript"),
    ),
    "search-bm25s": Task("bm25s", search_own, search_bm25s, ("bm25s",)),
    "search-tantivy": Task("tantivy", search_own, search_tantivy, ("tantivy",)),
    "qa": Task("plain loop", qa_own, qa_loop),
    "serve": Task("FastAPI", serve_own, serve_fastapi, ("fastapi", "uvicorn")),
    "align": Task("numpy", _of_expand("fit_ours"), _of_expand("fit_numpy")),
    "expand": Task("transformers", _of_expand("expand_ours"), _of_expand("expand_transformers")),
}


def _add_head(folder: Path, target: Path) -> None:
    """Write a model that answers questions, with a random head."""
    import torch
    import transformers

    from greenadapt.tokenization.export import copy_tokenizers

    torch.manual_seed(0)
    transformers.AutoModelForQuestionAnswering.from_pretrained(folder).save_pretrained(target)
    copy_tokenizers(folder, target)


def prepare(setting: Setting, text: Path | None, model: str) -> None:
    """Make texts, labels, questions and models, if they are not there."""
    from greenadapt.checkpoints.source import find_model

    work = setting.work
    if (work / "prepared").exists():
        return
    _write_text(setting, text)
    if not (work / "model").exists():
        if setting.small:
            small_model(find_model(model).folder, work / "model")
        else:
            (work / "model").symlink_to(find_model(model).folder.resolve())
    _write_labels(setting)
    _add_head(work / "model", work / "qa")
    options = ["--task", "ner", "--max-steps", "2", "--mix", "base", "--train", work / "train.tsv"]
    _greenadapt(setting, "finetune", "--model", work / "model", *options, "-o", work / "ner")
    (work / "prepared").touch()


def _prepare_others(setting: Setting) -> None:
    """Make an index, and the words and vectors that ``expand.py`` reads."""
    import expand

    if (setting.work / "indexed").exists():
        return
    _greenadapt(setting, "index", "--documents", setting.work / "paragraphs.txt", "-o", setting.work / "index")
    (setting.work / "expand").mkdir(exist_ok=True)
    expand.make_input(setting.numbers)
    (setting.work / "indexed").touch()


def _write_text(setting: Setting, text: Path | None) -> None:
    lines: Iterator[str]
    if text is None:
        words = [
            f"{a}{b}{c}" for a in ("ka", "lo", "mi", "su") for b in ("ren", "tap", "vil") for c in ("ox", "um", "")
        ]
        draw = np.random.default_rng(SEED).zipf(1.3, (setting.n(20_000, 400), 30)) % len(words)
        lines = (" ".join(words[i] for i in row) + ".\n" for row in draw)
    else:
        opener = gzip.open if text.suffix == ".gz" else open
        lines = iter(opener(text, "rt", encoding="utf-8"))  # type: ignore[arg-type]
    with open(setting.work / "text.txt", "w", encoding="utf-8") as file:
        file.writelines(lines)
    for name, n in (("head.txt", 300), ("paragraphs.txt", setting.n(50_000, 200))):
        (setting.work / name).write_text("".join(f"{line}\n" for line in setting.lines(n)), "utf-8")


def _write_labels(setting: Setting) -> None:
    """Entities are long words: what is learned does not matter."""
    lines = [line.split()[:30] for line in setting.lines(setting.n(512, 64))]
    rows = ["".join(f"{word}\t{'B-X' if len(word) > 6 else 'O'}\n" for word in words) for words in lines if words]
    (setting.work / "train.tsv").write_text("\n".join(rows), "utf-8")
    size = setting.n(20, 10)
    contexts = [" ".join(setting.lines((i + 1) * size)[i * size :]) for i in range(setting.n(20, 2))]
    paragraphs = [
        {"context": context, "qas": [{"id": str(i), "question": "What is it?", "answers": []}]}
        for i, context in enumerate(contexts)
    ]
    (setting.work / "questions.json").write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}), "utf-8")


def small_model(source: Path, target: Path, **settings: Any) -> None:
    """Write a model of random weights, of two narrow layers unless ``settings`` say otherwise."""
    import transformers

    from greenadapt.tokenization.export import copy_tokenizers

    sizes = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 2, "intermediate_size": 64, **settings}
    config = transformers.AutoConfig.from_pretrained(source, **sizes)
    transformers.AutoModel.from_config(config).save_pretrained(target)
    copy_tokenizers(source, target)


def _greenadapt(setting: Setting, *arguments: Any) -> None:
    command = [sys.executable, "-m", "greenadapt", *map(str, arguments), "-q"]
    subprocess.run(command, check=True, cwd=setting.work, stdout=subprocess.DEVNULL)  # where the workspace is made


def environment(work: Path, packages: Sequence[str]) -> str | None:
    """The Python of an environment with ``packages`` on top of this one; ``None`` if they do not install."""
    names = {name: re.split(r"[\[=<>]", name)[0] for name in packages}
    missing = [package for package, name in names.items() if not _is_installed(name)]
    if not missing:
        return sys.executable
    folder = work / f"env-{hash_json(missing)[:8]}"
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        venv.create(folder, with_pip=True, clear=True)
        [site] = (folder / "lib").glob("python*/site-packages")
        (site / "parent.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")) + "\n")
        (folder / "constraints.txt").write_text(f"torch=={version('torch')}\n")  # left open, it takes one with CUDA
        command = [python, "-m", "pip", "install", "-q", "-c", folder / "constraints.txt", *missing]
        done = subprocess.run(command, capture_output=True)
        if (site / "torchvision").is_dir():  # of optimum-intel, which needs none; it is for another build of torch
            subprocess.run([python, "-m", "pip", "uninstall", "-q", "-y", "torchvision"], check=True)
        (folder / "ready").write_text("" if done.returncode == 0 else "failed")
    return None if (folder / "ready").read_text() else str(python)


def _is_installed(name: str) -> bool:
    from importlib.metadata import PackageNotFoundError

    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True


def run_side(setting: Setting, task: str, side: str) -> Json:
    """Set up a side in this process, and time it."""
    pair = TASKS[task]
    with contextmanager(pair.own_side if side == OWN else pair.peer_side)(setting) as work:
        wall, cpu = time.perf_counter(), _cpu()
        elsewhere = work()
        wall, cpu = time.perf_counter() - wall, _cpu() - cpu
    return {"wall": wall, "cpu": elsewhere if isinstance(elsewhere, float) else cpu}


def _cpu() -> float:
    usages = [resource.getrusage(process) for process in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def measure(options: argparse.Namespace, python: str, task: str, side: str) -> Json:
    """Run a side in a process of its own; an error is its result."""
    names = ("OMP", "OPENBLAS", "MKL")
    threads = {f"{name}_NUM_THREADS": str(options.threads) for name in names}
    command = [python, __file__, "--work", str(options.work), "--threads", str(options.threads), "--side", task, side]
    command += ["--small"] if options.small else []
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **threads})
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or ["no message"])[-1][:200]}
    return json.loads(done.stdout.splitlines()[-1])


def pair(options: argparse.Namespace, task: str, turn: int) -> Json:
    """A turn of both sides."""
    peer = TASKS[task].peer
    packages = {OWN: TASKS[task].own_packages, peer: TASKS[task].packages}
    pythons = {side: environment(options.work, needed) for side, needed in packages.items()}
    order = [OWN, peer] if turn % 2 == 0 else [peer, OWN]
    return {
        side: {"error": "did not install"}
        if (python := pythons[side]) is None
        else measure(options, python, task, side)
        for side in order
    }


def row(task: str, turns: Sequence[Json]) -> list[str]:
    """A row of the table."""
    peer = TASKS[task].peer
    errors = [side["error"] for turn in turns for side in turn.values() if "error" in side]
    if errors:
        return [task, peer, "; ".join(dict.fromkeys(errors)), *[""] * 3]
    seconds = [f"{statistics.median(turn[side]['cpu'] for turn in turns):.2f}" for side in (OWN, peer)]
    ratios = []
    for kind in ("cpu", "wall"):
        pairs = [turn[peer][kind] / max(turn[OWN][kind], 1e-9) for turn in turns]
        ratios.append(f"{statistics.median(pairs):.2f} ({min(pairs):.2f} to {max(pairs):.2f})")
    return [task, peer, *seconds, *ratios]


def main() -> None:
    """Run the pairs that are not recorded, and print the table."""
    options = _options()
    setting = Setting(options.work, options.small, options.threads)
    if options.serve:
        serve_pipeline(options.work)
    elif options.side:
        print(json.dumps(run_side(setting, *options.side)))
    else:
        _compare(options, setting)


def _compare(options: argparse.Namespace, setting: Setting) -> None:
    options.work.mkdir(parents=True, exist_ok=True)
    prepare(setting, options.text, options.model)
    _prepare_others(setting)
    records = Records(options.work / "records.jsonl")
    made_from = [options.small, options.threads, options.model, hash_file(setting.work / "text.txt")]
    rows = [["task", "peer", f"{OWN}, CPU s", "peer, CPU s", "ratio, CPU", "ratio, clock"]]
    for task in options.tasks:
        turns = []
        for turn in range(options.turns):
            key = hash_json({"task": task, "turn": turn, "from": made_from})
            if key not in records.by_key:
                sides = pair(options, task, turn)
                print(f"{task}, turn {turn + 1}", file=sys.stderr, flush=True)
                if any("error" in side for side in sides.values()):
                    turns.append(sides)
                    break
                records.add({"key": key, "task": task, "turn": turn, "sides": sides})
            turns.append(records.by_key[key]["sides"])
        rows.append(row(task, turns))
    print(machine_line(["torch", "transformers", "numpy"]))
    print(f"{options.threads} threads, {options.turns} turns\n")
    print(aligned(rows), end="")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path, nargs="?", help="a document a line, gzip too")
    parser.add_argument("--work", type=Path, default=Path("build/peers"), help="where all of it is kept")
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS), metavar="TASK")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--small", action="store_true", help="tiny inputs, one turn: only to see that it runs")
    parser.add_argument("--side", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.small:
        options.turns = 1
    elif options.text is None and not (options.side or options.serve):
        parser.error("a text file, or --small")
    options.work = options.work.absolute()
    return options


if __name__ == "__main__":
    resumable(main)
