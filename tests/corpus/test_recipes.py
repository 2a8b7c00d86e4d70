"""Named corpora, recipes of one's own, and what a path means."""

import gzip
import io
import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from greenadapt.corpus.readers import open_corpus
from greenadapt.corpus.recipes import (
    file_name,
    find_kept_input,
    find_recipe,
    format_of,
    keep_input,
    list_recipes,
    read_recipe,
)
from greenadapt.errors import InputError, MissingError, UsageError
from greenadapt.progress import Silent
from tests.conftest import Run

MINIMAL = 'title = "T"\nlicence = "L"\nformat = "text"\n'
SOURCE = '[[sources]]\nurl = "texts/a.txt"\n'
LISTED = '[[sources]]\nurl = "https://a.org/b"\n'


def write(path: Path, content: str) -> Path:
    path.write_text(content, encoding="utf-8")
    return path


def test_the_named_corpora() -> None:
    recipes = {recipe.name: recipe for recipe in list_recipes()}
    assert set(recipes) == {"pydocs", "demo", "cord19", "pubmed", "pmc", "pubmed-pmc"}
    assert [name for name, recipe in recipes.items() if recipe.is_local] == ["demo", "pydocs"]
    assert recipes["cord19"].sources[0].url.endswith("/historical_releases/cord-19_2022-06-02.tar.gz")
    (pubmed,) = recipes["pubmed"].sources
    assert re.fullmatch(pubmed.files, "pubmed27n0001.xml.gz")
    assert not re.fullmatch(pubmed.files, "pubmed27n0001.xml.gz.md5")
    assert pubmed.md5_beside
    assert recipes["pubmed-pmc"].sources == (pubmed, *recipes["pmc"].sources)


def test_unknown_names_get_the_near_ones(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="no corpus or file is called pubmd: did you mean pubmed"):
        find_recipe("pubmd")
    with pytest.raises(MissingError, match="choose among cord19, demo, pmc, pubmed-pmc, pubmed, pydocs"):
        find_recipe(str(tmp_path / "zzzz.txt"))


def test_a_recipe_of_ones_own(tmp_path: Path) -> None:
    download = '[[sources]]\nurl = "https://example.org/f.gz"\n'
    path = write(tmp_path / "mine.toml", MINIMAL + 'fields = ["a", "b"]\n' + SOURCE + download)
    recipe = find_recipe(str(path))
    assert [source.url for source in recipe.sources] == [str(tmp_path / "texts" / "a.txt"), "https://example.org/f.gz"]
    assert recipe.fields == ("a", "b")
    assert not recipe.is_local
    assert recipe.name.startswith("mine-")
    assert read_recipe(path).name == "mine"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (MINIMAL + 'colour = "red"\n' + SOURCE, r'mine\.toml: colour is "red", Unexpected keyword argument: see'),
        (MINIMAL, "format text with 0 sources"),
        (MINIMAL + LISTED + LISTED.replace("a.org", "c.org"), "file name b"),
        ("title = ", "is not TOML"),
        (MINIMAL + LISTED + 'files = "("\n', r"files of https://a.org/b is no regular expression"),
        (MINIMAL + "[stated]\ndocuments = 5\n" + SOURCE, r"has no stated\.on"),
    ],
)
def test_a_wrong_recipe_is_refused_by_name(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        find_recipe(str(write(tmp_path / "mine.toml", content)))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.JSONL.GZ", "jsonl"), ("a.tar.gz", "auto"), ("a.docx", ""),
        ("https://example.org/a.jsonl.gz?version=1", "jsonl"),
    ],
)  # fmt: skip
def test_the_format_is_told_from_the_suffix(name: str, expected: str) -> None:
    assert format_of(name) == expected


def test_paths_and_overrides(tmp_path: Path) -> None:
    path = write(tmp_path / "notes.md", "x")
    with pytest.raises(InputError, match=r"notes\.md: the format cannot be inferred from the name: give --format"):
        find_recipe(str(path))
    recipe = find_recipe(str(path), {"format": "text"})
    assert (recipe.format, recipe.sources[0].url, recipe.is_local) == ("text", str(path), True)
    with pytest.raises(InputError, match="unknown format doc"):
        find_recipe(str(path), {"format": "doc"})
    assert find_recipe(str(tmp_path)).format == "auto"
    assert not find_recipe("https://example.org/a.txt").is_local
    assert find_recipe("pydocs", {"packages": ("python",)}).packages == ("python",)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://a.org/x/y.tar.gz?z=/../q#f", "y.tar.gz"),
        ("https://a.org/..", "download"),
        ("https://a.org/a b\\..\\c", "a-b-..-c"),
    ],
)
def test_file_names_of_downloads(url: str, expected: str) -> None:
    assert file_name(url) == expected


def test_every_key_of_a_recipe_is_described() -> None:
    folder = Path(__file__).parents[2] / "corpora"
    keys = {key for path in folder.glob("*.toml") for key in tomllib.loads(path.read_text(encoding="utf-8"))}
    readme = (folder / "README.md").read_text(encoding="utf-8")
    assert all(f"`{key}`" in readme or f"`[{key}]`" in readme or f"`[[{key}]]`" in readme for key in keys)


@pytest.mark.parametrize("content", ['{"text": "a", "label": 1}\n', '[\n  {\n    "text": "a"\n  }\n]'])
def test_json_in_a_text_file_s_clothes_is_noticed(tmp_path: Path, content: str) -> None:
    path = tmp_path / "train.txt.gz"
    path.write_bytes(gzip.compress(content.encode()))
    with pytest.raises(InputError, match="looks like JSON, not text: give --format jsonl"):
        find_recipe(str(path))
    assert find_recipe(str(path), {"format": "jsonl"}).format == "jsonl"
    assert find_recipe(str(path), {"format": "text"}).format == "text"


def test_an_address_holds_no_password(tmp_path: Path) -> None:
    url = "https://me:swordfish@a.org/b.txt"
    recipe = write(tmp_path / "a.toml", f'{MINIMAL}[[sources]]\nurl = "{url}"\n')
    for find in (lambda: find_recipe(url), lambda: read_recipe(recipe)):
        with pytest.raises(InputError, match=r"the address at a\.org holds .*netrc") as caught:
            find()
        assert "swordfish" not in str(caught.value)
    write(recipe, f'{MINIMAL}[[sources]]\nurl = "https://[a.org/b.txt"\n')
    with pytest.raises(InputError, match=r"a\.toml: an address is not valid"):
        read_recipe(recipe)


TEXT = "heart rate of the patient\nthe virus was isolated\n"


def test_the_content_is_the_name_and_is_kept(tmp_path: Path) -> None:
    first, again = (keep_input(io.BytesIO(TEXT.encode()), tmp_path, {}, Silent()) for _ in range(2))
    second = keep_input(io.BytesIO(b'{"body": "a"}\n'), tmp_path, {"fields": ("body",)}, Silent())
    assert first == again == find_kept_input(tmp_path, first.name, {})
    assert (first.format, second.format, second.fields) == ("text", "jsonl", ("body",))
    assert sorted(path.name for path in (tmp_path / "inputs").iterdir()) == sorted([first.name, second.name])
    assert [d.lines for d in open_corpus(second, tmp_path).documents()] == [("a",)]
    assert len([*open_corpus(first, tmp_path).documents()]) == len([*open_corpus(first, tmp_path).documents()]) == 2
    assert find_kept_input(tmp_path, "stdin-00000000", {}) is None
    for name in ("../x", str(tmp_path / "text.txt")):
        assert find_kept_input(tmp_path, name, {}) is None
    (tmp_path / "plain").touch()
    assert Path(first.sources[0].url).stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_what_cannot_be_kept_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="standard input is empty"):
        keep_input(io.BytesIO(), tmp_path, {}, Silent())
    with pytest.raises(UsageError, match="'auto' is not a format for standard input"):
        keep_input(io.BytesIO(b"a"), tmp_path, {"format": "auto"}, Silent())
    assert not any(path.is_file() for path in tmp_path.rglob("*"))


@pytest.mark.slow
def test_commands_read_it_and_know_it_again(run_alone: Run, tiny_model: Callable[..., Path]) -> None:
    def prepare(corpus: str, stdin: str | None = None) -> dict[str, Any]:
        result = run_alone("corpus", "prepare", corpus, "-m", model, "--json", stdin=stdin)
        return cast("dict[str, Any]", json.loads(result.stdout))

    model = tiny_model()
    first = prepare("-", TEXT)
    assert first["status"] == "done"
    for again in (prepare("-", TEXT), prepare(first["facts"]["corpus"])):
        assert (again["status"], again["folder"]) == ("up to date", first["folder"])
    assert "only corpus prepare, w2v and adapt read" in run_alone("align", "-c", "-", code=2).stderr


def test_lenient_skips_broken_lines(run_alone: Run, tiny_model: Callable[..., Path]) -> None:
    lines = '{"text": "heart"}\n{"title": "x"}\n[1]\n{"text": 3}\nbroken\n'
    prepare = ["corpus", "prepare", "-", "-m", tiny_model(), "--json"]
    result = run_alone(*prepare, "--lenient", stdin=lines)
    [warning] = [line for line in result.stderr.splitlines() if "skipped 4 lines or rows that are broken" in line]
    assert "stdin-" in warning
    facts = json.loads(result.stdout)["facts"]["read"]
    assert (facts["broken_lines"], facts["documents"]) == (4, 1)
