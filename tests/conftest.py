"""Real two-layer models with real tokenizers, built in milliseconds, and the offline model where installed."""

import atexit
import gc
import importlib.util
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest
import typer.testing
from hypothesis import settings
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from typer.testing import CliRunner, Result

import greenadapt
from greenadapt.cli import app
from greenadapt.progress import Silent
from tests.support.json_schema import check_json

if TYPE_CHECKING:
    from tests.support.hub import Hub

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT))  # of benchmarks and experiments; last, since the installed greenadapt is what is tested
Run = Callable[..., Result]

# A busy machine is no failure; fewer examples than usual, so that the suite stays short.
settings.register_profile("untimed", deadline=None, max_examples=25)
settings.load_profile("untimed")

# In the background a shell has SIGINT ignored, also by what tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Ray reads it when it is imported; commands set it before, but tests may import Ray first.
os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")

# The workspace of tests that name none: it keeps in mind what they write elsewhere.
os.environ["XDG_DATA_HOME"] = tempfile.mkdtemp(prefix="greenadapt-data-")
atexit.register(shutil.rmtree, os.environ["XDG_DATA_HOME"], ignore_errors=True)

N_FORGOTTEN: list[int] = []
"""How many modules were imported when garbage collection left them out."""
gc.disable()  # while tests are collected: they import half of Python


def pytest_configure(config: pytest.Config) -> None:
    """Test one version: the source tree, in child processes too, or an installed package of the same code."""
    tested, tree = Path(greenadapt.__file__).parent, ROOT / "greenadapt"
    if hasattr(config, "workerinput"):  # of xdist, which was looked at already
        return
    if tested == tree:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    elif _code(tested) != _code(tree):
        pytest.exit(f"{tested} is not the code of {tree}: run make .venv/installed, or set PYTHONPATH={ROOT}", 2)


def _code(package: Path) -> dict[Path, bytes]:
    return {path.relative_to(package): path.read_bytes() for path in package.rglob("*.py")}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests that are too long for every day."""
    if "GREENADAPT_LONG_TESTS" not in os.environ:
        for item in items:
            if "long" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="GREENADAPT_LONG_TESTS is not set"))


def pytest_collection_finish() -> None:
    forget_imported()


def pytest_runtest_teardown() -> None:
    if len(sys.modules) > N_FORGOTTEN[-1] + 50:
        forget_imported()


def forget_imported() -> None:
    """Freeze imported objects: training collects garbage first, and would visit all of them each time."""
    N_FORGOTTEN.append(len(sys.modules))
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000)  # collections of 700 objects, as by default, take 4 % of the time
    gc.enable()


WORDS = [
    *("the", "a", "of", "in", "patient", "heart", "rate", "with", "virus", "was", "isolated", "from", "sample", "and"),
    *("is", "not", "cell", "protein", "dtype", "array"),
]
SUFFIXES = ["##chy", "##card", "##ia", "##s", "##ine", "##in", "##om", "##a", "##1", "##2", "##e", "##x", "##t"]
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
SPECIALS_OF_ROBERTA = dict(
    bos_token="<s>", eos_token="</s>", cls_token="<s>", sep_token="</s>", pad_token="<pad>",
    unk_token="<unk>", mask_token="<mask>",
)  # fmt: skip
DEBERTA: dict[str, Any] = dict(
    relative_attention=True, position_buckets=8, pos_att_type=["p2c", "c2p"], share_att_key=True,
    norm_rel_ebd="layer_norm", type_vocab_size=0, position_biased_input=False,
)  # fmt: skip
"""What the published models of DeBERTa-v2 have in their configuration, but for the size."""


class Notes(Silent):
    """Progress that remembers notes and warnings."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.warnings: list[str] = []

    def note(self, message: str) -> None:
        self.notes.append(message)

    def warn(self, message: str) -> None:
        self.warnings.append(message)

    @property
    def lines(self) -> list[str]:
        """The notes, then the warnings."""
        return [*self.notes, *self.warnings]


class Watcher(Notes):
    """Progress that remembers the totals and steps of its bars, too, and raises when ``stop_after`` units are done."""

    def __init__(self, stop_after: float = float("inf")) -> None:
        super().__init__()
        self.totals: list[float | None] = []
        self.steps: list[tuple[float, dict[str, str]]] = []
        self._stop_after = stop_after

    @property
    def amount(self) -> float:
        """The units that are done."""
        return sum(units for units, _ in self.steps)

    @contextmanager
    def bar(self, label: str, total: float | None, unit: str) -> Iterator["Watcher"]:
        self.totals.append(total)
        yield self

    def advance(self, amount: float, **facts: str) -> None:
        self.steps.append((amount, facts))
        if self.amount > self._stop_after:
            raise KeyboardInterrupt


def wordpiece_vocabulary() -> list[str]:
    """Specials, punctuation, single characters and their continuations, some words and suffixes."""
    characters = [chr(c) for c in range(33, 127)]
    continuations = [f"##{c}" for c in "abcdefghijklmnopqrstuvwxyz0123456789"]
    pieces = [*SPECIALS, *characters, *continuations, *WORDS, "ta", "Patient", "é", *SUFFIXES]
    return list(dict.fromkeys(pieces))


def wordpiece_tokenizer(lowercase: bool = True) -> Tokenizer:
    """A BERT tokenizer over ``wordpiece_vocabulary``, with truncation and padding set as the offline model's."""
    vocabulary = {piece: i for i, piece in enumerate(wordpiece_vocabulary())}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=100))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in SPECIALS])
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", vocabulary["[SEP]"]), ("[CLS]", vocabulary["[CLS]"]))
    tokenizer.enable_truncation(128)
    tokenizer.enable_padding(length=128)
    return tokenizer


def bytelevel_tokenizer() -> Tokenizer:
    """A RoBERTa tokenizer trained on a few sentences: every byte, some merges, RoBERTa's special tokens."""
    from tokenizers import trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    specials = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trainer = trainers.BpeTrainer(
        vocab_size=500,
        special_tokens=specials,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([" ".join(WORDS) * 3, "heart rates of patients with viruses"] * 20, trainer)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    return tokenizer


def unigram_tokenizer() -> Tokenizer:
    """An XLM-RoBERTa tokenizer trained on a few sentences: printable ASCII, some longer pieces, its special tokens."""
    return Tokenizer.from_str(_trained_unigram())


@cache
def _trained_unigram() -> str:
    import json

    from tokenizers import trainers

    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    tokenizer.decoder = decoders.Metaspace()
    specials = ["<s>", "<pad>", "</s>", "<unk>"]
    trainer = trainers.UnigramTrainer(
        vocab_size=200,
        special_tokens=specials,
        unk_token="<unk>",
        initial_alphabet=[chr(c) for c in range(33, 127)],
        show_progress=False,
    )
    tokenizer.train_from_iterator([" ".join(WORDS) * 3, "heart rates of patients with viruses"] * 20, trainer)
    # The trainer's order of equally likely pieces differs from one run to the next.
    trained = json.loads(tokenizer.model.__getstate__())["vocab"]
    pieces = sorted((piece, score) for piece, score in trained if piece not in specials)
    tokenizer.model = models.Unigram([(name, 0.0) for name in specials] + pieces, unk_id=3)
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in specials])
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True, normalized=False)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return tokenizer.to_str()


def save_tokenizer(tokenizer: Tokenizer, folder: Path, tokenizer_class: str, **config: Any) -> None:
    """Write ``tokenizer.json`` and a ``tokenizer_config.json`` as a model folder has them."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": tokenizer_class, **config}))


def tiny_model_in(
    parent: Path,
    architecture: str = "BertModel",
    *,
    name: str = "",
    width: int = 32,
    lowercase: bool = True,
    max_shard_size: str = "5GB",
    **config: Any,
) -> Path:
    """A real two-layer model of the named transformers class with seeded random weights, saved by ``save_pretrained``
    beside its tokenizer.

    Keyword arguments other than ``name``, ``width``, ``lowercase`` and ``max_shard_size`` go to the model's
    configuration.
    """
    import torch

    source, random_state = _tiny_model(
        architecture, width, lowercase, max_shard_size, json.dumps(config, sort_keys=True)
    )
    torch.set_rng_state(random_state)
    folder = parent / (name or architecture.lower())
    folder.mkdir(parents=True, exist_ok=True)
    for file in source.iterdir():
        (folder / file.name).unlink(missing_ok=True)  # a model may have mapped the file that is there
        shutil.copyfile(file, folder / file.name)
    return folder


@cache
def _tiny_model(architecture: str, width: int, lowercase: bool, max_shard_size: str, settings: str) -> tuple[Path, Any]:
    """The model, cached, and torch's random state after it was made."""
    import torch
    import transformers

    bytelevel = architecture.startswith(("Roberta", "ModernBert"))
    unigram = architecture.startswith(("XLMRoberta", "Camembert", "DebertaV2", "Albert", "Gte"))
    if bytelevel or unigram:
        tokenizer = bytelevel_tokenizer() if bytelevel else unigram_tokenizer()
    else:
        tokenizer = wordpiece_tokenizer(lowercase)
    folder = Path(tempfile.mkdtemp(prefix=f"{architecture.lower()}-", dir=_models()))
    model_class = getattr(transformers, architecture)
    sizes = dict(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=width,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=160,
    )
    if architecture.startswith("ModernBert"):  # its defaults lie outside a tiny vocabulary
        sizes |= dict(bos_token_id=0, cls_token_id=0, pad_token_id=1, eos_token_id=2, sep_token_id=2)
    if architecture.startswith("DebertaV2"):
        sizes |= DEBERTA
    if architecture.startswith("Albert"):
        sizes |= dict(embedding_size=width // 2)
    torch.manual_seed(0)
    model = model_class(model_class.config_class(**{**sizes, **json.loads(settings)})).eval()
    model.save_pretrained(folder, max_shard_size=max_shard_size)
    if bytelevel or unigram:
        name = "RobertaTokenizer" if bytelevel else "XLMRobertaTokenizer"
        save_tokenizer(
            tokenizer, folder, "PreTrainedTokenizerFast" if architecture[0] in "DA" else name, **SPECIALS_OF_ROBERTA
        )
    else:
        save_tokenizer(tokenizer, folder, "BertTokenizer", do_lower_case=lowercase)
    return folder, torch.get_rng_state()


@cache
def _models() -> Path:
    """A temporary folder of this process, in memory in ``make test``."""
    folder = tempfile.mkdtemp(prefix="greenadapt-models-", dir=os.environ.get("PYTEST_DEBUG_TEMPROOT"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def pytest_sessionfinish() -> None:
    shutil.rmtree(_models(), ignore_errors=True)  # processes of xdist end without their last functions


@pytest.fixture
def tiny_model(tmp_path: Path) -> Callable[..., Path]:
    """``tiny_model("BertForMaskedLM", width=32, lowercase=True, tie_word_embeddings=True, …)`` → its folder.

    See ``tiny_model_in``.
    """
    return partial(tiny_model_in, tmp_path)


@pytest.fixture(scope="session")
def trained_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``base``, ``adapted`` and, trained on that, two tasks on one encoder in ``many``; to be copied."""
    from greenadapt.stages.finetune.compare import finetune
    from tests.support.small_multitask import request
    from tests.support.small_tasks import adapted, session

    folder = tmp_path_factory.mktemp("trained")
    finetune(session(folder, "many"), request(folder, adapted(partial(tiny_model_in, folder))))
    return folder


@pytest.fixture
def two_tasks(trained_once: Path, tmp_path: Path) -> Path:
    """Two tasks on an expanded encoder, with the files they were trained on beside it."""
    shutil.copytree(trained_once, tmp_path, dirs_exist_ok=True)
    return tmp_path / "many"


@pytest.fixture(scope="session", autouse=True)
def json_is_valid() -> Iterator[None]:
    """Check every line that commands in this process print with ``--json`` against its schema."""
    invoke = CliRunner.invoke

    def checked(self: CliRunner, called: Any, args: Any = None, **how: Any) -> Result:
        result = invoke(self, called, args, **how)
        if called is app and args:
            check_json(args, result.stdout)
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CliRunner, "invoke", checked)
        # Typer makes all commands from their functions, which takes longer than most of them run.
        patch.setattr(typer.testing, "_get_command", cache(typer.testing._get_command))
        yield


@pytest.fixture
def run_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in a temporary folder and workspace; with exit code 1 or 2 it prints one line, on stderr."""
    monkeypatch.setenv("GREENADAPT_HOME", str(tmp_path / "ws"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)

    def invoke(*arguments: object, code: int = 0, stdin: str | None = None) -> Result:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)
        assert result.exit_code == code, (result.stdout, result.stderr, result.exception)
        if code:
            assert result.stdout == ""
            assert "Traceback" not in result.stderr
            assert len([line for line in result.stderr.splitlines() if line.startswith("greenadapt: ")]) == 1
        return result

    return invoke


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator["Hub"]:
    """A stand-in for the model hub."""
    from huggingface_hub import HfApi, constants

    from tests.support.file_server import answering
    from tests.support.hub import TOKEN, Hub

    hub = Hub()
    monkeypatch.setattr(HfApi, "create_repo", lambda api, *args, **named: hub.create_repo(*args, **named))
    monkeypatch.setattr(HfApi, "create_commit", lambda api, **named: hub.create_commit(**named))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)  # a commit for the whole folder
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    with answering(200, b'{"errors": [], "warnings": []}', {"Content-Type": "application/json"}) as address:
        monkeypatch.setattr(constants, "ENDPOINT", address)  # checks the front matter of cards
        yield hub


def last_line(result: Result) -> str:
    """The last line on stderr."""
    return result.stderr.strip().splitlines()[-1]


def json_lines(result: Result) -> list[Any]:
    """The JSON values on stdout, one a line."""
    return [json.loads(line) for line in result.stdout.splitlines()]


def contents(folder: Path) -> dict[str, bytes]:
    """All files below a folder, by their paths in it."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def benchmark_module(name: str) -> ModuleType:
    """A script of ``benchmarks/``, or a module of a package there."""
    folder = str(ROOT / "benchmarks")
    if folder not in sys.path:
        sys.path.append(folder)
    return importlib.import_module(name)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Let torch compute in one thread, which is faster for tiny models."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def steady_adam(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let trainings that differ in rounding end in nearly the same weights."""
    import torch

    from tests.support.small_inputs import SteadyAdamW

    monkeypatch.setattr(torch.optim, "AdamW", SteadyAdamW)


@pytest.fixture(scope="session")
def minilm() -> Path:
    """The folder of the offline model, which ``make test`` installs."""
    from greenadapt.checkpoints.source import find_model

    return find_model("minilm").folder
