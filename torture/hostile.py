"""Commands on hostile files, and the outcomes that they must have."""

import io
import json
import os
import pickle
import re
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from torture.material import tar_of
from torture.mutation import PACKERS
from torture.outcomes import Outcome

_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_SECRET = b"swordfish"
_PREPARE = ("corpus", "prepare", "--workers", "1", "-m", "models/base")
_QUICK = ("--workers", "1", "--epochs", "1")
_GENSIM = ("--engine", "gensim", "--min-count", "1")
Command = list[str]


@dataclass(frozen=True)
class Hostile:
    """One or several commands on hostile files."""

    prepare: Callable[[Path], list[Command]]
    """Makes the files in a folder of valid ones, and gives the commands to run there."""
    message: str = ""
    """A regular expression that the message has to match."""
    codes: tuple[int, ...] = (1,)
    seconds: float = 100
    marks: tuple[str, ...] = field(default=("owned",))
    """Files that only code of the input would make."""
    stays: tuple[str, ...] = ()
    """Folders of which no file may change or go."""

    def held(self, work: Path) -> dict[Path, bytes]:
        files = (path for folder in self.stays for path in (work / folder).rglob("*") if path.is_file())
        return {path: path.read_bytes() for path in files}

    def judged(self, arguments: Command, code: int | None, work: Path, held: dict[Path, bytes]) -> Outcome:
        """Whether a command ended as it must; ``held`` is the state of the folders before it ran."""
        out, error = ((work / name).read_bytes() for name in ("out", "error"))
        command = f"greenadapt {' '.join(arguments)}: "[:200]
        text = error.decode("utf-8", "replace")
        if code is None:
            return Outcome("hung", f"{command}over {self.seconds:.0f} s")
        if "Traceback" in text:
            return Outcome("traceback", command + text[-600:])
        lost = [path for path, content in held.items() if not path.is_file() or path.read_bytes() != content]
        if lost:
            return Outcome("lost", f"{command}{', '.join(str(path.relative_to(work)) for path in lost)}")
        if code not in (*self.codes, 0, 1, 2):
            return Outcome("crashed", f"{command}exit code {code}: {text[-600:]}")
        seen = json.loads((work / "seen").read_text("utf-8"))
        seen += [f"makes {path}" for mark in self.marks for path in work.rglob(mark)]
        holding = [path for path in work.joinpath("ws").rglob("*") if path.is_file()]
        seen += [f"shows a secret in {path.name}" for path in holding if _SECRET in path.read_bytes()]
        if _SECRET in out + error:
            seen.append("shows a secret")
        if seen:
            return Outcome("leaked", command + "; ".join(seen))
        if code not in self.codes:
            return Outcome("unclear", f"{command}exit code {code}, not {self.codes}: {text[-600:]}")
        return self._worded(command, code, out.decode("utf-8", "replace"), text)

    def _worded(self, command: str, code: int, out: str, error: str) -> Outcome:
        if _CONTROLS.search(out + error):
            return Outcome("unclear", f"{command}control characters: {(out + error)[-600:]!r}")
        lines = [line for line in error.splitlines() if line.startswith("greenadapt: ")]
        if code == 0:
            return Outcome("accepted")
        if code == 2 and not self.message:  # wrong usage, which typer words
            return Outcome("refused")
        if len(lines) != 1 or error.strip().splitlines()[-1] != lines[0]:
            return Outcome("unclear", f"{command}not one line at the end: {error[-600:]}")
        if not re.search(self.message, lines[0]):
            return Outcome("unclear", f"{command}does not say {self.message!r}: {lines[0]}")
        return Outcome("refused")


def _bombs(folder: Path) -> list[Command]:
    files = {f"bomb.txt{suffix}": pack(b"the same line again\n" * (4 << 20)) for suffix, pack in PACKERS.items()}
    files["bomb.tar"] = tar_of({"a.txt.gz": files["bomb.txt.gz"]})
    files["bomb.tgz"] = PACKERS[".gz"](files["bomb.tar"])
    files["bomb.json.gz"] = PACKERS[".gz"](b'{"body_text": "' + b"a" * (140 << 20))
    for name, content in files.items():
        (folder / name).write_bytes(content)
    (folder / "bomb.vec.gz").write_bytes(PACKERS[".gz"](b"the 1 2 3\n" * (8 << 20)))
    labels = ["finetune", "--train", "bomb.txt.gz", "--task", "ner", "-m", "models/base"]
    return [*([*_PREPARE, name] for name in files), labels, ["align", "-m", "models/base", "--vectors", "bomb.vec.gz"]]


def _long_header(folder: Path) -> list[Command]:
    member = tarfile.TarInfo("a.txt")
    member.type, member.size = tarfile.GNUTYPE_LONGNAME, 1 << 30
    content = member.tobuf(tarfile.GNU_FORMAT) + b"a" * (1 << 28)
    (folder / "a.tar.gz").write_bytes(PACKERS[".gz"](content))
    return [[*_PREPARE, "a.tar.gz"]]


def _deep(folder: Path) -> list[Command]:
    for name in ("deep.jsonl", "deep.json"):
        (folder / name).write_text('{"text": ' + "[" * 200_000)
    (folder / "deep.toml").write_text("a = " + "[" * 200_000)
    (folder / "models" / "shards" / "config.json").write_text('{"a":' * 200_000)
    (folder / "models" / "run" / "task.json").write_text("[" * 200_000)
    return [
        *([*_PREPARE, name] for name in ("deep.jsonl", "deep.json", "deep.toml")),
        ["finetune", "--train", "deep.json", "--task", "qa", "-m", "models/base"],
        ["finetune", "--tasks", "deep.toml", "-m", "models/base"],
        ["corpus", "prepare", "a.txt", "-m", "models/shards"],
        ["predict", "-m", "models/run", "-i", "a.txt"],
    ]


def _entities(folder: Path) -> list[Command]:
    laughs = "".join(f'<!ENTITY a{i + 1} "{f"&a{i};" * 10}">' for i in range(12))
    for name, entities, used in (
        ("laughs.xml", f'<!ENTITY a0 "ha">{laughs}', "&a12;"),
        ("file.xml", '<!ENTITY x SYSTEM "../secret.txt">', "&x;"),
        ("net.xml", '<!ENTITY x SYSTEM "http://127.0.0.1:9/x">', "&x;"),
    ):
        title = f"<ArticleTitle>The heart {used} rate of a patient.</ArticleTitle>"
        article = f"<PubmedArticle><MedlineCitation><Article>{title}</Article></MedlineCitation></PubmedArticle>"
        text = f"<!DOCTYPE PubmedArticleSet [{entities}]><PubmedArticleSet>{article}</PubmedArticleSet>"
        (folder / name).write_text(text)
    (folder / "parameter.xml").write_text(
        '<!DOCTYPE PubmedArticleSet [<!ENTITY % x SYSTEM "../secret.txt">%x;]><PubmedArticleSet/>'
    )
    return [[*_PREPARE, name] for name in ("laughs.xml", "file.xml", "net.xml", "parameter.xml")]


def _archives(folder: Path) -> list[Command]:
    kinds = {
        "absolute": ("/tmp/evil.txt", tarfile.REGTYPE, ""), "parent": ("../../evil.txt", tarfile.REGTYPE, ""),
        "symlink": ("a.txt", tarfile.SYMTYPE, "../secret.txt"), "hardlink": ("a.txt", tarfile.LNKTYPE, "../secret.txt"),
        "device": ("a.txt", tarfile.CHRTYPE, ""), "block": ("a.txt", tarfile.BLKTYPE, ""),
        "pipe": ("a.txt", tarfile.FIFOTYPE, ""),
    }  # fmt: skip
    for name, (member, kind, target) in kinds.items():
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w") as archive:
            info = tarfile.TarInfo(member)
            info.type, info.linkname = kind, target
            info.size = 4 if kind == tarfile.REGTYPE else 0
            archive.addfile(info, io.BytesIO(b"evil"))
        (folder / f"{name}.tar").write_bytes(stream.getvalue())
    return [[*_PREPARE, f"{name}.tar"] for name in kinds]


def _claims(folder: Path) -> list[Command]:
    (folder / "many.vec").write_bytes(b"1000000000000 300\nthe 1 2 3\n")
    (folder / "many.bin").write_bytes(b"1000000000000 300\nthe " + bytes(1200))
    (folder / "wide.vec").write_bytes(b"5 1000000000000\nthe 1 2 3\n")
    (folder / "digits.vec").write_bytes(b"9" * 5000 + b" 3\nthe 1 2 3\n")
    content = bytearray((folder / "fast.bin").read_bytes())
    content[-200:-192] = (10**12).to_bytes(8, "little")
    content[64:68] = (2**31 - 1).to_bytes(4, "little")
    (folder / "many-fast.bin").write_bytes(content)
    names = ("many.vec", "many.bin", "wide.vec", "digits.vec", "many-fast.bin")
    return [["align", "-m", "models/base", "--vectors", name] for name in names]


class _Payload:
    def __reduce__(self) -> Any:
        import os

        return os.system, ("touch owned",)


def _pickles(folder: Path) -> list[Command]:
    payload = pickle.dumps({"bert.embeddings.word_embeddings.weight": _Payload()})
    for name in ("v.kv", "v.bin", "v.vec", "t.npy", "t.pt", "t.pkl", "t.jsonl", "t.txt"):
        (folder / name).write_bytes(payload)
    np.save(folder / "objects.npy", np.array([_Payload()], object), allow_pickle=True)
    model = folder / "models" / "base"
    (model / "model.safetensors").unlink()
    (model / "pytorch_model.bin").write_bytes(payload)
    (folder / "models" / "run" / "scores.pkl").write_bytes(payload)
    texts = ([*_PREPARE, name, "--format", "text"] for name in ("t.npy", "t.pt", "t.pkl", "t.txt", "objects.npy"))
    vectors = (
        ["align", "-m", "models/encoder", "--vectors", name] for name in ("v.kv", "v.bin", "v.vec", "objects.npy")
    )
    return [
        ["corpus", "prepare", "a.txt", "-m", "models/base"], ["corpus", "prepare", "t.jsonl", "-m", "models/encoder"],
        ["finetune", "--train", "t.txt", "--task", "ner", "-m", "models/encoder"],
        ["predict", "-m", "models/ner", "-i", "t.txt"],
        *texts, *vectors,
    ]  # fmt: skip


_CODE = "import pathlib; pathlib.Path('owned').touch()\nclass X: pass\n"


def _remote_code(folder: Path) -> list[Command]:
    for name in ("ner", "base", "adapted"):
        model = folder / "models" / name
        for file, settings in (
            ("config.json", {"auto_map": {"AutoConfig": "evil.X", "AutoModel": "evil.X"}, "trust_remote_code": True}),
            ("tokenizer_config.json", {"auto_map": {"AutoTokenizer": ["evil.X", None]}, "tokenizer_class": "evil.X"}),
        ):
            values = json.loads((model / file).read_text())
            (model / file).write_text(json.dumps({**values, **settings}))
        (model / "evil.py").write_text(_CODE)
        (model / "conftest.py").write_text(_CODE)
    (folder / "sitecustomize.py").write_text(_CODE)
    (folder / "numpy.py").write_text(_CODE)
    (folder / "words.txt").write_text("the tachycardia of a patient with coronavirus\n" * 200)
    return [
        ["predict", "-m", "models/ner", "-i", "a.txt"],
        ["adapt", "-c", "words.txt", "-m", "models/base", "--dim", "8", *_GENSIM, *_QUICK],
        ["finetune", "--train", "train.tsv", "--task", "ner", "-m", "models/adapted", "--epochs", "1", "-o", "../ws/a"],
    ]  # fmt: skip


def _attention(folder: Path) -> list[Command]:
    for name, settings in (
        ("ner", {"_attn_implementation": "evil/kernels", "attn_implementation": "evil/kernels"}),
        ("encoder", {"attn_implementation": "evil/kernels:X", "_attn_implementation_internal": "evil/kernels"}),
        ("base", {"quantization_config": {"quant_method": "gptq", "bits": 4}}),
        (
            "labels",
            {"_experts_implementation": "evil/kernels", "torch_dtype": "os.system", "base_model_tp_plan": {"*": "x"}},
        ),
    ):
        config = folder / "models" / name / "config.json"
        config.write_text(json.dumps({**json.loads(config.read_text()), **settings}))
    return [
        ["predict", "-m", "models/ner", "-i", "a.txt"], ["predict", "-m", "models/labels", "-i", "a.txt"],
        ["finetune", "--train", "train.tsv", "--task", "ner", "-m", "models/encoder", "--epochs", "1", "-o", "../ws/a"],
        ["finetune", "--train", "train.tsv", "--task", "ner", "-m", "models/base", "--epochs", "1", "-o", "../ws/b"],
    ]  # fmt: skip


def _names(folder: Path) -> list[Command]:
    facts = folder / "models" / "adapted" / "greenadapt.json"
    facts.write_text(json.dumps({"corpus": "x", "model": {"name": "../../../elsewhere", "source": "y"}}))
    (folder / "tasks.toml").write_text('[[task]]\nname = "../x"\nkind = "ner"\ntrain = "train.tsv"\n')
    index = folder / "models" / "shards" / "model.safetensors.index.json"
    names = json.loads(index.read_text())
    names["weight_map"] = dict.fromkeys(names["weight_map"], "../base/model.safetensors")
    index.write_text(json.dumps(names))
    manifest = folder / "models" / "run" / "manifest.json"
    values = json.loads(manifest.read_text())
    values["files"]["../../../secret.txt"] = {"sha256": "0" * 64, "bytes": 30}
    manifest.write_text(json.dumps(values))
    several = folder / "models" / "many" / "multitask.json"
    several.write_text(json.dumps({**json.loads(several.read_text()), "tasks": ["../../run", "ner"]}))
    return [
        ["cost", "-c", "../in"], ["w2v", "-c", "../x"], ["w2v", "-c", ".."], ["neighbours", "-c", "../..", "heart"],
        ["corpus", "prepare", "a.txt", "-m", "models/adapted"], ["pretrain", "-c", "a.txt", "-m", "models/adapted"],
        ["corpus", "prepare", "a.txt", "-m", "models/shards"],
        ["finetune", "--tasks", "tasks.toml", "-m", "models/base"],
        ["predict", "-m", "models/run", "-i", "a.txt"], ["push", "models/run", "a/b", "--dry-run"],
        ["predict", "-m", "models/many", "--task", "../../run", "-i", "a.txt"],
    ]  # fmt: skip


def _index(folder: Path) -> list[Command]:
    (folder / "index" / "vectors" / "00000099.usearch").write_bytes(b"\xff" * 5000)  # not in the index
    for file in (folder / "old-index" / "vectors").iterdir():
        content = bytearray(file.read_bytes())
        content[-4000:] = b"\xff" * 4000
        file.write_bytes(content)
    adapted = folder / "models" / "adapted" / "greenadapt.json"
    adapted.write_text(json.dumps({"corpus": "x", "model": {"name": "y", "source": "attacker/evil"}}))
    return [
        *(["search", "index", "heart", "--by", by] for by in ("dense", "hybrid")),
        ["qa", "-m", "models/base", "--index", "index", "-q", "heart", "--by", "dense"],
        ["search", "old-index", "heart", "--by", "dense"],
        ["finetune", "--train", "train.tsv", "--task", "ner", "-m", "models/adapted", "--memory", "base", "-o", "runs"],
    ]  # fmt: skip


def _variants(folder: Path) -> list[Command]:
    return [
        ["adapt", "-c", "a.txt", "-m", "models/base", "--variant", name] for name in ("../x", "/tmp/x", "a/b", "..")
    ]


def _controls(folder: Path) -> list[Command]:
    name = "a\x1b]0;owned\x07\x9b2J\u202egnp"
    (folder / f"{name}.jsonl").write_text('{"\x1b[31m\u202e": 1}\n')
    (folder / f"{name}.csv").write_text("\x1b[31mid,\u202ename\n1,2\n")
    (folder / f"{name}.conll").write_text("word\t\x1b[31m\u202eX\n")
    (folder / f"{name}.vec").write_text("\x1b[31m\u202ew 1 nan\n")
    return [
        [*_PREPARE, f"{name}.jsonl"], [*_PREPARE, f"{name}.csv"], [*_PREPARE, f"{name}.none"],
        ["finetune", "--train", f"{name}.conll", "--task", "ner", "-m", "models/base"],
        ["align", "-m", "models/base", "--vectors", f"{name}.vec"], ["predict", "-m", name, "-i", "a.txt"],
    ]  # fmt: skip


def _infinite(folder: Path) -> list[Command]:
    for name, value in (("base", np.nan), ("ner", np.inf)):
        path = folder / "models" / name / "model.safetensors"
        content = bytearray(path.read_bytes())
        length = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + length])
        weight = next(key for key in header if key.endswith("layer.1.output.dense.weight"))
        begin = 8 + length + header[weight]["data_offsets"][0]
        content[begin : begin + 4] = np.float32(value).tobytes()
        path.write_bytes(content)
    (folder / "words.txt").write_text("the tachycardia of a patient with coronavirus\n" * 200)
    return [
        ["finetune", "--train", "train.tsv", "--task", "ner", "-m", "models/base", "--epochs", "1", "-o", "../ws/out"],
        ["pretrain", "--text", "words.txt", "-m", "models/base", "--max-steps", "2"],
        ["adapt", "-c", "words.txt", "-m", "models/ner", "--dim", "8", "--min-count", "1", *_QUICK],
    ]  # fmt: skip


def _special_files(folder: Path) -> list[Command]:
    os.mkfifo(folder / "pipe.txt")
    with open(folder / "models" / "shards" / "config.json", "wb") as file:
        file.truncate(100 << 30)
    (folder / "link.txt").symlink_to("link.txt")
    return [
        [*_PREPARE, "pipe.txt"], [*_PREPARE, "link.txt"], [*_PREPARE, "/dev/zero"], [*_PREPARE, "/proc/self/mem"],
        ["corpus", "prepare", "a.txt", "-m", "models/shards"],
    ]  # fmt: skip


def _places(folder: Path) -> list[Command]:
    (folder / "runs" / "docs").mkdir(parents=True)
    (folder / "runs" / "docs" / "a.txt").write_text("The heart rate of a patient was normal.\n" * 20)
    task, base, docs = "models/run", "models/base", "runs/docs"
    qa = ["qa", "-m", task, "--documents", docs, "-q", "What?"]
    return [
        *(["predict", "-m", task, "-i", "a.txt", "--out", path] for path in (f"{task}/config.json", f"{task}/new")),
        ["predict", "-m", task, "-i", f"{docs}/a.txt", "--out", f"{docs}/a.txt"],
        ["evaluate", "-m", task, "--test", "train.tsv", "--logits", f"{task}/out"],
        ["evaluate", "-m", task, "--test", "train.tsv", "--predictions", "train.tsv"],
        *([*qa, *option] for option in (["--out", f"{docs}/qa"], ["--predictions", f"{task}/task.json"])),
        ["export", "w2v.vec", "--vectors", "w2v.vec"],
        ["adapt", "-c", docs, "-m", base, "--out", f"{docs}/adapted"],
        ["adapt", "-c", docs, "-m", base, "--workspace", f"{docs}/ws"],
        ["finetune", "--train", "train.tsv", "--task", "ner", "-m", base, "--out", f"{base}/run", "--force"],
        ["compile", "-m", base, "--out", f"{base}/served"],
        *(["index", "--documents", docs, "-m", base, "--out", f"{parent}/px", "--force"] for parent in (docs, base)),
    ]  # fmt: skip


def _lookalikes(folder: Path) -> list[Command]:
    files = {
        "index.json": '{"my": "site"}', "manifest.json": '{"greenadapt": 1, "stage": "expand"}',
        "greenadapt.json": "{}", ".greenadapt": "mine",
    }  # fmt: skip
    commands: list[Command] = []
    for number, (name, content) in enumerate(files.items()):
        site = folder / "runs" / f"site{number}"
        site.mkdir(parents=True)
        (site / name).write_text(content)
        (site / "thesis.txt").write_text("mine")
        out = ["--out", f"runs/{site.name}", "--force"]
        commands += [["index", "--documents", "a.txt", *out], ["compile", "-m", "models/base", *out]]
    return commands


def _neighbours(folder: Path) -> list[Command]:
    index, model = ["index", "--documents", "a.txt"], ["compile", "-m", "models/base"]
    commands: list[Command] = []
    for command, name in ((index, "new"), (index, "old"), (model, "work"), (model, "old")):
        theirs = folder / "runs" / f".{len(commands)}.{name}"
        theirs.mkdir(parents=True)
        (theirs / "thesis.txt").write_text("mine")
        commands.append([*command, "--out", f"runs/{len(commands)}"])
    for content in ("mine", "process of thought", "\xff\0" * 5000):
        (folder / "runs" / f".{len(commands)}.lock").write_text(content)
        commands.append([*index, "--out", f"runs/{len(commands)}"])
    return commands


def _leftovers(folder: Path) -> list[Command]:
    ws = folder.parent / "ws"
    for name in (
        "text/model/.versions/v1/thesis", "text/model/.work/task/thesis", ".memory/mine.safetensors",
        ".assess/mine.part", ".assess/running/mine/thesis", ".stdin-mine", ".records-mine/thesis",
        "text/.sources/thesis", "stdin-00000000/.sources/stdin", "../home/greenadapt/models/mine/thesis",
    ):  # fmt: skip
        (ws / name).parent.mkdir(parents=True, exist_ok=True)
        (ws / name).write_text("mine")
        os.utime(ws / name, (1, 1))
    clean = ["clean", "--yes"]
    return [[*clean, "--downloads"], [*clean, "--only", "unfinished"], [*clean, "--downloads", "--older-than", "1s"]]


CASES = {
    "long-header": Hostile(_long_header, "a header of"),
    "deep": Hostile(_deep, r"JSON|TOML|column|broken", codes=(0, 1)),
    "entities": Hostile(_entities, codes=(0, 1)),
    "archives": Hostile(_archives, "pack"),
    "claims": Hostile(_claims, "rows of|numbers, need|table of|NaN or infinity|truncated|entries"),
    "pickles": Hostile(_pickles, codes=(0, 1)),
    "remote-code": Hostile(_remote_code, codes=(0,), seconds=200),
    "attention": Hostile(_attention, codes=(0, 1), seconds=200),
    "names": Hostile(_names, codes=(0, 1, 2)),
    "index": Hostile(_index, "not on this machine|than it says|question answering"),
    "variants": Hostile(_variants, "variant", codes=(2,)),
    "controls": Hostile(_controls),
    "infinite": Hostile(_infinite, "NaN or infinity", seconds=100),
    "special-files": Hostile(_special_files, codes=(0, 1)),
    "places": Hostile(_places, "which is an input", codes=(2,), stays=("in",)),
    "look-alikes": Hostile(_lookalikes, "is no index|holds no greenadapt result", stays=("in",)),
    "neighbours": Hostile(_neighbours, "is in the way", stays=("in",)),
    "leftovers": Hostile(_leftovers, codes=(0,), stays=("ws", "home")),
    "bombs": Hostile(_bombs, "max-compression|unpack it yourself", seconds=200),
}
