"""A corpus from standard input: kept once, named by its content, read as often as need be."""

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from greenadapt.corpus.readers import open_corpus
from greenadapt.corpus.recipes import keep_input, kept_input
from greenadapt.errors import InputError, UsageError
from greenadapt.progress import Silent
from greenadapt.stages.pretrain import PretrainRequest
from tests.conftest import Run

TEXT = "heart rate of the patient\nthe virus was isolated\n"


def test_the_content_is_the_name_and_is_kept(tmp_path: Path) -> None:
    first, again = (keep_input(io.BytesIO(TEXT.encode()), tmp_path, {}, Silent()) for _ in range(2))
    other = keep_input(io.BytesIO(b'{"body": "a"}\n'), tmp_path, {"fields": ("body",)}, Silent())
    assert first == again == kept_input(tmp_path, first.name, {})
    assert (first.format, other.format, other.fields) == ("text", "jsonl", ("body",))
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([first.name, other.name])
    assert [d.lines for d in open_corpus(other, tmp_path).documents()] == [("a",)]
    assert len([*open_corpus(first, tmp_path).documents()]) == len([*open_corpus(first, tmp_path).documents()]) == 2
    assert kept_input(tmp_path, "stdin-00000000", {}) is None
    assert kept_input(tmp_path, "../x", {}) is None
    (tmp_path / "plain").touch()
    assert Path(first.sources[0].url).stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_what_cannot_be_kept_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="standard input is empty"):
        keep_input(io.BytesIO(), tmp_path, {}, Silent())
    with pytest.raises(UsageError, match="'auto' is not a format for standard input"):
        keep_input(io.BytesIO(b"a"), tmp_path, {"format": "auto"}, Silent())
    assert not [*tmp_path.iterdir()]


@pytest.mark.slow
def test_commands_read_it_and_know_it_again(run_alone: Run, tiny_model: Callable[..., Path], tmp_path: Path) -> None:
    model = tiny_model()
    prepare = ["corpus", "prepare", "-", "-m", model, "--json"]
    done = json.loads(run_alone(*prepare, stdin=TEXT).stdout)
    assert done["status"] == "done"
    assert json.loads(run_alone(*prepare, stdin=TEXT).stdout)["status"] == "up to date"
    (tmp_path / "text.txt").write_text(TEXT)
    same = json.loads(run_alone("corpus", "prepare", "text.txt", "-m", model, "--json").stdout)
    for name in ("vocabulary.tsv", "words.safetensors"):
        assert (Path(done["folder"]) / name).read_bytes() == (Path(same["folder"]) / name).read_bytes()
    name = done["facts"]["corpus"]
    known = json.loads(run_alone("corpus", "prepare", name, "-m", model, "--json").stdout)
    assert (known["status"], known["folder"]) == ("up to date", done["folder"])
    assert "read by corpus prepare, w2v and adapt" in run_alone("align", "-c", "-", code=2).stderr
    fetched = run_alone("corpus", "prepare", "-", stdin="another text\n")
    other = fetched.stderr.split("corpus ")[1].split(",")[0]
    assert fetched.stdout.startswith(f"{other} is here")
    quiet = run_alone("corpus", "prepare", "-", "-q", "--json", stdin="another text\n")
    assert json.loads(quiet.stdout)["corpus"] == other
    assert json.loads(run_alone("corpus", "prepare", other, "-m", model, "--json").stdout)["counts"]["words"] == 2


def test_lenient_skips_broken_lines(run_alone: Run, tiny_model: Callable[..., Path]) -> None:
    lines = '{"text": "heart"}\nbroken\n'
    prepare = ["corpus", "prepare", "-", "-m", tiny_model(), "--json"]
    assert "line 2, column 1 is not JSON" in run_alone(*prepare, stdin=lines, code=1).stderr
    result = run_alone(*prepare, "--lenient", stdin=lines)
    assert (
        "stdin-" in result.stderr.split("skipped 1 line that is not a JSON object")[0].splitlines()[-1] in result.stderr
    )
    assert json.loads(result.stdout)["facts"]["read"]["broken_lines"] == 1
    assert json.loads(run_alone(*prepare, stdin=lines).stdout)["config"]["lenient"] is True


def test_it_is_given_once() -> None:
    with pytest.raises(UsageError, match="standard input is given twice"):
        PretrainRequest("m", ("-",), general_text="-")


@pytest.mark.slow
def test_memory_does_not_grow_with_it(tmp_path: Path) -> None:
    script = """
import resource, sys
from pathlib import Path
from greenadapt.corpus.recipes import keep_input
from greenadapt.progress import Silent
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
keep_input(sys.stdin.buffer, Path(sys.argv[1]), {}, Silent())
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    run = subprocess.run([sys.executable, "-c", script, tmp_path], input=b"word " * 20_000_000, capture_output=True)
    assert int(run.stdout) * (1 if sys.platform == "darwin" else 1024) < 10e6
