"""The corpus ``pydocs``: docstrings of the installed packages and the standard library, parsed and never imported."""

import ast
import hashlib
import platform
import sysconfig
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import TypeVar

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from greenadapt.corpus.decoding import Document
from greenadapt.corpus.markup import paragraphs
from greenadapt.errors import InputError, MissingError, ResourceError
from greenadapt.workers import worker_pool

_SKIPPED_FOLDERS = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"}
_OWN = "greenadapt"
Code = TypeVar("Code")
ReadFile = TypeVar("ReadFile")


UNPARSABLE = (SyntaxError, ValueError, RecursionError, MemoryError)
"""What Python's parser raises for a source; the last for one that is nested too deep."""


@dataclass(frozen=True)
class Package:
    """An installed distribution, or the standard library as ``python``."""

    name: str
    version: str
    root: Path
    listed: Callable[[], Iterable[Path]]
    """Lists its files, relative to ``root``, which takes a while: only where they are wanted."""

    @cached_property
    def files(self) -> tuple[str, ...]:
        """Paths of its Python sources, relative to ``root``, sorted."""
        wanted = {path.as_posix() for path in self.listed() if _is_wanted(path)}
        return tuple(sorted(file for file in wanted if (self.root / file).is_file()))


def find_packages(names: Sequence[str] = ()) -> list[Package]:
    """The packages installed for the running interpreter, sorted by name, optionally limited to ``names``.

    A name with extras, ``package[extra]``, stands for what these need, directly or not, as far as it is installed.
    Tests and greenadapt itself are left out. Raises MissingError for a name that is not installed.
    """
    found, requires = {"python": _standard_library()}, dict[str, list[str]]()
    for root in sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}):
        for distribution in metadata.distributions(path=[root]):
            package = _package(distribution, Path(root))
            if not package.name:  # a removed package can leave behind a folder without metadata
                continue
            requires[canonicalize_name(package.name)] = distribution.requires or []
            if package.name != _OWN:
                found[package.name] = package
    chosen = set(found) if not names else {name for name in names if "[" not in name}
    for asked in names:
        if "[" in asked:
            needed = _needed(_requirement(asked), requires)
            chosen |= {name for name in found if canonicalize_name(name) in needed}
    if unknown := sorted(chosen - set(found)):
        raise MissingError(
            f"no package {', '.join(unknown)} installed for this Python",
            f"install it, or choose among: {', '.join(sorted(found))}",
        )
    return [found[name] for name in sorted(chosen)]


def _requirement(asked: str) -> Requirement:
    try:
        return Requirement(asked)
    except InvalidRequirement:
        raise InputError(f"{asked!r} is no package", "give a name, or a name with extras: package[extra]") from None


def _needed(asked: Requirement, requires: Mapping[str, Sequence[str]]) -> set[str]:
    """The packages that ``asked`` needs, directly or not, as far as they are installed: ``requires`` has them all."""
    if canonicalize_name(asked.name) not in requires:
        raise MissingError(f"no package {asked.name} installed for this Python", "install it")
    seen, waiting = set(), [asked]
    while waiting:
        package = waiting.pop()
        name = canonicalize_name(package.name)
        for extra in {"", *package.extras}:
            if (name, extra) not in seen:
                seen.add((name, extra))
                needs = map(Requirement, requires.get(name, ()))
                waiting += [each for each in needs if not each.marker or each.marker.evaluate({"extra": extra})]
    return {str(name) for name, _ in seen} - {canonicalize_name(asked.name)}


def pydocs_versions(names: Sequence[str] = ()) -> dict[str, str]:
    """Versions of the packages in the corpus, and of Python."""
    return {package.name: package.version for package in find_packages(names)}


def read_pydocs(
    names: Sequence[str] = (), *, counts: Counter[str] | None = None, workers: int = 1
) -> Iterator[Document]:
    """Each docstring as a document named ``package/path.py:qualified.name``, in order of package, path and line.

    The order does not depend on ``workers``, the number of processes. ``counts`` receives ``unparsable_files``.
    """
    counts = Counter() if counts is None else counts
    tasks = [(package.name, package.root, file) for package in find_packages(names) for file in package.files]
    yield from _collect(read_sources(_read_file, tasks, workers), counts)


def read_sources(read: Callable[[Code], ReadFile], sources: Iterable[Code], workers: int) -> Iterator[ReadFile]:
    """The results of ``read`` for ``sources``, in order, computed by ``workers`` processes.

    Raises ``ResourceError`` if one of them was killed.
    """
    if workers == 1:
        yield from map(read, sources)
        return
    with worker_pool(workers) as pool:
        try:
            yield from pool.map(read, sources, chunksize=64)
        except BrokenProcessPool:
            raise ResourceError(
                f"one of the {workers} processes that read sources was killed, perhaps for lack of memory",
                "use fewer --workers",
            ) from None
        finally:
            pool.shutdown(cancel_futures=True)


def _collect(results: Iterable[list[Document] | None], counts: Counter[str]) -> Iterator[Document]:
    for documents in results:
        if documents is None:
            counts["unparsable_files"] += 1
        else:
            yield from documents


def fingerprint_pydocs(names: Sequence[str] = ()) -> dict[str, str]:
    """SHA-256 of each package's name, version and sources."""
    result = {}
    for package in find_packages(names):
        digest = hashlib.sha256(f"{package.name} {package.version}".encode())
        for file in package.files:
            content = (package.root / file).read_bytes()
            digest.update(f"\0{file}\0{len(content)}\0".encode() + content)
        result[package.name] = digest.hexdigest()
    return result


def docstrings(source: str | bytes) -> Iterator[tuple[str, str]]:
    """Qualified name ("" for the module) and raw docstring of every module, class and function, in line order.

    Raises one of ``UNPARSABLE`` for a source that this Python cannot parse.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        tree = ast.parse(source)
    yield from _docstrings(tree, "")


def _docstrings(node: ast.AST, name: str) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and (
        text := ast.get_docstring(node, clean=False)
    ):
        yield name, text
    # Only statements contain definitions: expressions, the bulk of a tree, are not visited.
    for block in ("body", "handlers", "orelse", "finalbody", "cases"):
        children = getattr(node, block, ())
        for child in children if isinstance(children, list) else ():
            inner = getattr(child, "name", None) if isinstance(child, ast.stmt) else None
            yield from _docstrings(child, f"{name}.{inner}".lstrip(".") if inner else name)


def _read_file(task: tuple[str, Path, str]) -> list[Document] | None:
    """The documents of one source; None if it cannot be parsed."""
    package, root, file = task
    content = (root / file).read_bytes()
    if b'"""' not in content and b"'''" not in content:
        return []
    try:
        found = [(name, paragraphs(text)) for name, text in docstrings(content)]
    except UNPARSABLE:
        return None
    return [Document(tuple(lines), f"{package}/{file}:{name}") for name, lines in found if lines]


def _is_wanted(path: Path) -> bool:
    return (
        path.suffix == ".py"
        and _SKIPPED_FOLDERS.isdisjoint(path.parts)
        and ".." not in path.parts
        and not path.name.startswith("test_")
        and path.name != "conftest.py"
    )


def _package(distribution: metadata.Distribution, root: Path) -> Package:
    def listed() -> list[Path]:
        return [Path(file) for file in distribution.files or ()]

    headers = distribution.metadata
    # Protocol PackageMetadata has no get in Python 3.11's types.
    name, version = (headers[key] if key in headers else "" for key in ("Name", "Version"))  # noqa: SIM401
    return Package(name.lower().replace("_", "-"), version, root, listed)


def _standard_library() -> Package:
    root = Path(sysconfig.get_path("stdlib"))
    return Package(
        "python", platform.python_version(), root, lambda: [path.relative_to(root) for path in root.rglob("*.py")]
    )
