"""Docstrings: found without importing anything, in one order, without mark-up."""

import ast
import hashlib
import json
import sys
import warnings
from collections import Counter
from importlib import metadata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenadapt.corpus import pydocs
from greenadapt.corpus.pydocs import (
    docstrings,
    find_packages,
    fingerprint_pydocs,
    paragraphs,
    read_pydocs,
)
from greenadapt.errors import InputError, MissingError

NUMPYDOC = """
Return the ``eigenvalues`` of a :class:`~numpy.ndarray`.

They are *not* ordered. See `the guide <https://a.org/x>`_ and
:func:`scipy.linalg.eig` [1]_::

    code = here()

.. versionadded:: 1.8
   Works on stacks.

.. math:: A v = w v

.. note::

   This is **slow**.

   >>> inside(1)

Parameters
----------
a : (..., M, M) array_like
    The matrix, as
    a square.
*args, **kwargs : tuple, dict
    Passed on.

Examples
--------
A sentence of the examples.

>>> eig(a)
array([1, 2])

References
----------
.. [1] Somebody, A Book.
"""

GOOGLE = """Computes `loss`, see [the paper](https://arxiv.org/abs/1).

# A heading

Args:
    x (`torch.Tensor` of shape `(batch, dim)`, *optional*, defaults to `None`):
        The input &amp; more.
    y (int): The
      [`~models.BertModel`] output.

Example:

    ```python
    >>> loss(x)
    ```

- first item
- second
  item

| a | b |
|---|---|
| 1 | 2 |

:param name: The name.
:returns: Nothing <b>at all</b>.
"""


def test_numpydoc() -> None:
    assert paragraphs(NUMPYDOC) == [
        "Return the eigenvalues of a numpy.ndarray.",
        "They are not ordered. See the guide and scipy.linalg.eig :",
        "Works on stacks.",
        "This is slow.",
        "a : (..., M, M) array_like The matrix, as a square.",
        "*args, **kwargs : tuple, dict Passed on.",
    ]


def test_google_and_markdown() -> None:
    assert paragraphs(GOOGLE) == [
        "Computes loss, see the paper.",
        "A heading",
        "x (torch.Tensor of shape (batch, dim), optional, defaults to None): The input & more.",
        "y (int): The models.BertModel output.",
        "first item",
        "second item",
        "name The name.",
        "Nothing at all .",
    ]


@given(st.text(alphabet="ab .:`*_|<>[]()\n=-#\\\\>é", max_size=80))
def test_any_docstring_gives_clean_lines(text: str) -> None:
    for line in paragraphs(text):
        assert line == " ".join(line.split())
        assert " " in line


SOURCE = '''"""Module text."""
class A:
    """Class text."""
    async def run(self):
        """Async text."""
        def inner():
            "\\d one-quoted text"
match 1:
    case 1:
        def matched(): """Matched text."""
x = """no docstring"""
'''


def test_every_docstring_with_its_name() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        texts = dict(docstrings(SOURCE))
    assert texts == {
        "": "Module text.", "A": "Class text.", "A.run": "Async text.", "A.run.inner": "\\d one-quoted text",
        "matched": "Matched text.",
    }  # fmt: skip


def test_the_walk_agrees_with_ast_walk_on_real_sources() -> None:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for file in (Path(json.__file__), Path(ast.__file__), Path(pytest.__file__)):
        tree = ast.parse(file.read_bytes())
        expected = [ast.get_docstring(node, clean=False) for node in ast.walk(tree) if isinstance(node, kinds)]
        assert Counter(text for _, text in docstrings(file.read_bytes())) == Counter(filter(None, expected))


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A site-packages folder with two packages, and a small standard library."""
    site, stdlib = tmp_path / "site-packages", tmp_path / "stdlib"
    requirements = {
        "Zed_Pkg": [], "greenadapt": ["Zed.Pkg>=1", "not-here", "far; extra == 'train'"], "far": ["farther[x]"],
        "farther": ["greenadapt", "other; extra == 'y'"], "other": [],
    }  # fmt: skip
    metadata = {
        site / f"{name}-1.2.dist-info" / "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n"
        + "".join(f"Requires-Dist: {need}\n" for need in needs)
        for name, needs in requirements.items()
    }
    records = "zed/b.py,,\nzed/deep.py,,\nzed/a.py,,\nzed/tests/test_x.py,,\nzed/gone.py,,\n../../bin/zed.py,,\n"
    files = {
        **metadata,
        site / "Zed_Pkg-1.2.dist-info" / "RECORD": records,
        site / "zed" / "a.py": '"""A text of zed."""\nraise SystemExit("imported!")\n',
        site / "zed" / "b.py": '"""Broken\n',
        site / "zed" / "deep.py": f'"""Text."""\n{"-" * 20_000}1\n',
        site / "zed" / "tests" / "test_x.py": '"""A test of zed."""\n',
        site / "greenadapt-1.2.dist-info" / "RECORD": "greenadapt/__init__.py,,\n",
        site / "greenadapt" / "__init__.py": '"""Our own text."""\n',
        site / "~um_py-1.0.dist-info" / "RECORD": "zed/a.py,,\n",
        stdlib / "os.py": '"""Text of os."""\n',
        stdlib / "test" / "test_os.py": '"""Text of a test."""\n',
        stdlib / "site-packages" / "other.py": '"""Text of another."""\n',
    }
    for path, content in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    paths = {"purelib": str(site), "platlib": str(site), "stdlib": str(stdlib)}
    monkeypatch.setattr(pydocs.sysconfig, "get_path", paths.__getitem__)
    return site


def test_packages_are_read_and_not_imported(installed: Path) -> None:
    counts: Counter[str] = Counter()
    documents = list(read_pydocs(find_packages(), counts=counts))
    assert [(d.name, d.lines) for d in documents] == [
        ("python/os.py:", ("Text of os.",)),
        ("zed-pkg/zed/a.py:", ("A text of zed.",)),
    ]
    assert counts == {"unparsable_files": 2}
    assert "zed" not in sys.modules
    versions = {package.name: package.version for package in find_packages(["python", "zed-pkg"])}
    assert versions == {"python": ".".join(map(str, sys.version_info[:3])), "zed-pkg": "1.2"}
    assert [d.name for d in read_pydocs(find_packages(["zed-pkg"]))] == ["zed-pkg/zed/a.py:"]
    with pytest.raises(MissingError, match="no package nunpy installed for this Python"):
        find_packages(["nunpy"])


def test_what_a_package_needs_is_found_through_all_that_it_needs(installed: Path) -> None:
    def names(*requirements: str) -> list[str]:
        return [package.name for package in find_packages(requirements)]

    assert names() == ["far", "farther", "other", "python", "zed-pkg"]
    assert names("greenadapt[train]") == ["far", "farther", "zed-pkg"]
    assert names("python", "greenadapt[nothing]") == ["python", "zed-pkg"]
    with pytest.raises(MissingError, match="no package nunpy installed for this Python"):
        names("nunpy[train]")
    with pytest.raises(InputError, match=r"'far\[' is no package"):
        names("far[")


def test_fingerprint_follows_the_sources(installed: Path) -> None:
    first = fingerprint_pydocs(find_packages())
    assert first["zed-pkg"] != hashlib.sha256().hexdigest()
    (installed / "zed" / "a.py").write_text('"""B text of zed."""\nraise SystemExit("imported!")\n', encoding="utf-8")
    second = fingerprint_pydocs(find_packages())
    assert first["python"] == second["python"]
    assert first["zed-pkg"] != second["zed-pkg"]


@pytest.mark.slow
def test_several_processes_give_the_same_documents() -> None:
    packages = find_packages(["smart-open"])
    documents = list(read_pydocs(packages))
    assert len(documents) > 20
    assert list(read_pydocs(packages, workers=2)) == documents
    assert packages[0].version == metadata.version("smart-open")
    n_bytes = sum(len(line.encode()) for document in documents for line in document.lines)
    assert n_bytes / 2 < packages[0].text_bytes < 2 * n_bytes
