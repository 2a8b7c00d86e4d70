"""The corpus ``pydocs``: docstrings of installed packages and the standard library, without importing them.

Paragraphs are plain text, without mark-up (reStructuredText, Markdown, HTML), code and tables.
"""

import ast
import hashlib
import html
import inspect
import platform
import re
import sysconfig
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from greenadapt.corpus.splitting import map_in_processes
from greenadapt.corpus.text import Document
from greenadapt.errors import InputError, MissingError

_UNDERLINE = re.compile(r"^\s*([=\-~^\"'`*+#.:_])\1{2,}\s*$")
_TABLE = re.compile(r"^\s*(\||\+[-=+]+\+)|^\s*[=\-]{2,}(\s+[=\-]{2,})+\s*$")
_DIRECTIVE = re.compile(r"^\.\.\s+(?:[\w-]+:)?([\w-]+)::\s*(.*)$")
_COMMENT = re.compile(r"^\.\.(\s|$)")
_OPTION = re.compile(r"^:[\w -]+:(\s|$)")
_FIELD = re.compile(
    r"^:(?:param|parameter|arg|argument|key|keyword|var|ivar|cvar|type|vartype|rtype|raises|returns?|yields?)\b([^:]*):\s*"
)
_BULLET = re.compile(r"^(?:[-*+•]|\(?\d{1,2}[.)]|#\.)\s+(?=\S)")
# Begins a paragraph without an empty line before it: a list item, a field, or "name (type): description".
_ITEM = re.compile(
    r"""^\s*(?:[-*+•]|\(?\d{1,2}[.)]|\#\.|@\w+|\\[a-z]+)\s+\S
    | ^\s*:[\w\ -]+:(?:\s|$)
    | ^\s*\*{0,2}[\w.]+(?:\s*,\s*\*{0,2}[\w.]+)*\s*(?:\([^)]*\))?\s?:(?:\s|$)""",
    re.VERBOSE,
)
_FENCE = re.compile(r"^\s*(?:```|~~~)")
_HEADING = re.compile(r"^\s{0,3}#{1,6}\s+(.*?)\s*#*$")
_LABEL = re.compile(
    r"""(?:args?|arguments?|params?|parameters?|other\ parameters|returns?|yields?|raises?|warns?|receives?|attributes?
    |methods?|notes?|examples?|see\ also|references|warnings?|keyword\ arg(?:ument)?s?|todo|usage|inputs?|outputs?
    )\s*:{0,2}$""",
    re.IGNORECASE | re.VERBOSE,
)
_LEFT_OUT_SECTION = re.compile(r"^\s*(?:examples?|references)\s*:{0,2}\s*$", re.IGNORECASE)

# Directives whose body is prose; the body of any other (code, maths, tables, figures) is left out.
_PROSE = {
    "note", "warning", "tip", "hint", "caution", "important", "attention", "danger", "error", "seealso",
    "admonition", "topic", "versionadded", "versionchanged", "deprecated", "legacy", "rubric", "function",
    "method", "class", "data", "attribute",
}  # fmt: skip
_WITHOUT_ARGUMENT = {
    "versionadded", "versionchanged", "deprecated", "function", "method", "class", "data", "attribute", "legacy",
}  # fmt: skip

_INLINE: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"<!--.*?-->"), " "),
    (re.compile(r"!\[([^\]]*)\]\([^)\s]*\)"), r"\1"),  # Markdown image
    (re.compile(r"\[([^\]]+)\]\((?:https?:|/|\.|#|\w+/)[^)\s]*\)"), r"\1"),  # Markdown link
    (re.compile(r"\[`~?\.?([^`\]]+)`\]"), r"\1"),  # the link of Hugging Face's doc-builder
    (re.compile(r":[\w:+-]+:`[!~.]*([^`<]*?)\s*<[^`>]*>`"), r"\1"),  # role with a title
    (re.compile(r":[\w:+-]+:`[!~.]*([^`]*)`"), r"\1"),  # role
    (re.compile(r"`([^`<]+?)\s*<[^`>]+>`__?"), r"\1"),  # link with a title
    (re.compile(r"``(.+?)``"), r"\1"),
    (re.compile(r"`([^`]+)`_{0,2}"), r"\1"),
    (re.compile(r"\|(\w[\w-]*)\|"), r"\1"),  # substitution
    (re.compile(r"(?<!\w)\*\*(?=\S)([^*]+?)(?<=\S)\*\*(?!\w)"), r"\1"),
    (re.compile(r"(?<![\w*])\*(?=[^\s*,)])([^*]+?)(?<=[^\s*(,])\*(?![\w*])"), r"\1"),
    (re.compile(r"(?<!\w)\[[\d#*]+\]_"), ""),  # footnote mark
    (re.compile(r"\b(?:https?|ftp)://[^\s<>)\]]+"), " "),
    (re.compile(r"\s*\((?:see)?\s+\)"), ""),  # the rest of a link
    (re.compile(r"</?[A-Za-z][A-Za-z0-9]*(?:\s+[\w-]+=(?:\"[^\"]*\"|'[^']*'))*\s*/?>"), " "),
    (re.compile(r"\\([*_`|<>\\ ])"), r"\1"),
    (re.compile(r"\b(\w+)_(?=[\s.,;:)]|$)(?<!__)"), r"\1"),  # reference
)
_MARKED = re.compile(r"[`*|<\[\\]|_\b|://")


def strip_inline(text: str) -> str:
    """Remove inline mark-up from a paragraph: roles, literals, emphasis, links, HTML tags and entities."""
    if _MARKED.search(text):
        for pattern, replacement in _INLINE:
            text = pattern.sub(replacement, text)
    return " ".join(html.unescape(text).split())


def paragraphs(docstring: str) -> list[str]:
    """The prose of a docstring, one paragraph (or list item, or parameter's description) per line.

    Skips doctests, literal and fenced blocks, tables, underlines, comments, directives without prose, section headings
    in numpydoc and Google style, and whole Examples and References sections.
    """
    lines = [line.expandtabs() for line in inspect.cleandoc(docstring).splitlines()]
    result: list[str] = []
    current: list[str] = []
    for line in [*_prose_lines(lines), ""]:
        if current and (not line or _ITEM.match(line)):
            result.append(strip_inline(" ".join(current)))
            current = []
        if line:
            current.append(_BULLET.sub("", _FIELD.sub(r"\1 ", line.strip())).strip())
    return [text for text in result if _is_prose(text)]


def _is_prose(text: str) -> bool:
    """Whether a paragraph has two words or more and is mostly letters."""
    spaces = text.count(" ")
    letters = spaces + sum(map(str.isalpha, text))
    return spaces > 0 and 3 * letters >= 2 * len(text)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _prose_lines(lines: list[str]) -> list[str]:
    """The lines that are prose; an empty line ends a paragraph."""
    result: list[str] = []
    position = 0
    while position < len(lines):
        line = lines[position]
        following = lines[position + 1] if position + 1 < len(lines) else ""
        if _FENCE.match(line):
            position = _after(lines, position + 1, _FENCE.match)
            result.append("")
        elif line.lstrip().startswith((">>>", "In [")):
            position = _after(lines, position, lambda line: not line.strip())
            result.append("")
        elif _LEFT_OUT_SECTION.match(line) and (_UNDERLINE.match(following) or line.rstrip().endswith(":")):
            position = _after_section(lines, position)
            result.append("")
        elif _COMMENT.match(line.lstrip()):
            prose, position = _directive(lines, position)
            result.extend(["", *prose, ""])
        elif _UNDERLINE.match(line) or _TABLE.match(line) or _LABEL.match(line.strip()):
            position += 1
            result.append("")
        elif heading := _HEADING.match(line):
            position += 1
            result.extend(["", heading[1], ""])
        elif line.rstrip().endswith("::"):
            result.append(line.rstrip()[:-1])
            position = _after_indented(lines, position)
            result.append("")
        else:
            is_title = bool(_UNDERLINE.match(following))
            result.extend(["", line, ""] if is_title else [line])
            position += 1
    return [line.rstrip() for line in result]


def _after(lines: list[str], start: int, is_end: Callable[[str], object]) -> int:
    """The position after the first line from ``start`` on that is an end."""
    return next((position + 1 for position in range(start, len(lines)) if is_end(lines[position])), len(lines))


def _after_indented(lines: list[str], start: int) -> int:
    """The first line after ``start`` that is indented no deeper than it."""
    for position in range(start + 1, len(lines)):
        if lines[position].strip() and _indent(lines[position]) <= _indent(lines[start]):
            return position
    return len(lines)


def _after_section(lines: list[str], start: int) -> int:
    """The first line after a section: the next underlined heading (numpydoc), or the end of the block (Google)."""
    if not _UNDERLINE.match(lines[start + 1] if start + 1 < len(lines) else ""):
        return _after_indented(lines, start)
    for position in range(start + 2, len(lines) - 1):
        if lines[position].strip() and _UNDERLINE.match(lines[position + 1]) and not _UNDERLINE.match(lines[position]):
            return position
    return len(lines)


def _directive(lines: list[str], start: int) -> tuple[list[str], int]:
    """The prose of a directive and the position after it."""
    end = _after_indented(lines, start)
    match = _DIRECTIVE.match(lines[start].strip())
    if not match or match[1] not in _PROSE:
        return [], end
    body = [line for line in lines[start + 1 : end] if not _OPTION.match(line.strip())]
    argument = "" if match[1] in _WITHOUT_ARGUMENT else match[2]
    return [argument, *_prose_lines(inspect.cleandoc("\n" + "\n".join(body)).splitlines())], end


_SKIPPED_FOLDERS = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"}
_OWN = "greenadapt"
_TEXT_SHARE = 0.14  # of all bytes of installed packages; of a single one 0.02 to 0.32
UNPARSABLE = (SyntaxError, ValueError, RecursionError, MemoryError)
"""Errors of Python's parser; ``MemoryError`` for a source that is nested too deep."""


@dataclass(frozen=True)
class Package:
    """An installed distribution, or the standard library as ``python``."""

    name: str
    version: str
    root: Path
    list_files: Callable[[], Iterable[Path]]
    """Lists the files, relative to ``root``; slow, so called only if they are needed."""

    @cached_property
    def files(self) -> tuple[str, ...]:
        """Paths of the Python sources, relative to ``root``, sorted."""
        sources = {path.as_posix() for path in self.list_files() if _is_library_file(path)}
        return tuple(sorted(file for file in sources if (self.root / file).is_file()))

    @property
    def text_bytes(self) -> int:
        """About how many bytes of text the docstrings have."""
        return int(_TEXT_SHARE * sum((self.root / file).stat().st_size for file in self.files))


def find_packages(names: Sequence[str] = ()) -> list[Package]:
    """Find the packages installed for the running interpreter, sorted by name, optionally limited to ``names``.

    A name with extras, ``package[extra]``, stands for their installed dependencies, direct and indirect.
    Excludes tests and greenadapt itself. Raises MissingError for a name that is not installed.
    """
    packages, requirements = {"python": _standard_library()}, dict[str, list[str]]()
    for root in sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}):
        for distribution in metadata.distributions(path=[root]):
            package = _package(distribution, Path(root))
            if not package.name:  # pip can leave a folder without metadata
                continue
            requirements[canonicalize_name(package.name)] = distribution.requires or []
            if package.name != _OWN:
                packages[package.name] = package
    chosen = set(packages) if not names else {name for name in names if "[" not in name}
    for requirement in names:
        if "[" in requirement:
            needed = _collect_needed(_parse_requirement(requirement), requirements)
            chosen |= {name for name in packages if canonicalize_name(name) in needed}
    if unknown := sorted(chosen - set(packages)):
        raise MissingError(
            f"no package {', '.join(unknown)} installed for this Python",
            f"install it, or choose among: {', '.join(sorted(packages))}",
        )
    return [packages[name] for name in sorted(chosen)]


def _parse_requirement(text: str) -> Requirement:
    try:
        return Requirement(text)
    except InvalidRequirement:
        raise InputError(f"{text!r} is no package", "give a name, or a name with extras: package[extra]") from None


def _collect_needed(requirement: Requirement, requirements: Mapping[str, Sequence[str]]) -> set[str]:
    """The direct and indirect dependencies of ``requirement`` among the installed packages of ``requirements``."""
    if canonicalize_name(requirement.name) not in requirements:
        raise MissingError(f"no package {requirement.name} installed for this Python", "install it")
    visited, pending = set(), [requirement]
    while pending:
        package = pending.pop()
        name = canonicalize_name(package.name)
        for extra in {"", *package.extras}:
            if (name, extra) not in visited:
                visited.add((name, extra))
                needs = map(Requirement, requirements.get(name, ()))
                pending += [need for need in needs if not need.marker or need.marker.evaluate({"extra": extra})]
    return {str(name) for name, _ in visited} - {canonicalize_name(requirement.name)}


def read_pydocs(
    packages: Iterable[Package], *, counts: Counter[str] | None = None, workers: int = 1
) -> Iterator[Document]:
    """Yield each docstring as a document ``package/path.py:qualified.name``, in order of package, path and line.

    The order does not depend on ``workers``, the number of processes. ``counts`` receives ``unparsable_files``.
    """
    counts = Counter() if counts is None else counts
    tasks = [(package.name, package.root, file) for package in packages for file in package.files]
    for documents in map(_read_file, tasks) if workers == 1 else map_in_processes(_read_file, tasks, workers):
        if documents is None:
            counts["unparsable_files"] += 1
        else:
            yield from documents


def fingerprint_pydocs(packages: Iterable[Package]) -> dict[str, str]:
    """SHA-256 of each package's name, version and sources."""
    result = {}
    for package in packages:
        digest = hashlib.sha256(f"{package.name} {package.version}".encode())
        for file in package.files:
            content = (package.root / file).read_bytes()
            digest.update(f"\0{file}\0{len(content)}\0".encode() + content)
        result[package.name] = digest.hexdigest()
    return result


def docstrings(source: str | bytes) -> Iterator[tuple[str, str]]:
    """Yield qualified name ("" for the module) and raw docstring of every module, class and function, in line order.

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
    # Only statements contain definitions; skipping expressions saves most of the time.
    for block in ("body", "handlers", "orelse", "finalbody", "cases"):
        children = getattr(node, block, ())
        for child in children if isinstance(children, list) else ():
            inner = getattr(child, "name", None) if isinstance(child, ast.stmt) else None
            yield from _docstrings(child, f"{name}.{inner}".lstrip(".") if inner else name)


def _read_file(task: tuple[str, Path, str]) -> list[Document] | None:
    """Read the documents of one source; None if it cannot be parsed."""
    package, root, file = task
    content = (root / file).read_bytes()
    if b'"""' not in content and b"'''" not in content:
        return []
    try:
        texts = [(name, paragraphs(text)) for name, text in docstrings(content)]
    except UNPARSABLE:
        return None
    return [Document(tuple(lines), f"{package}/{file}:{name}") for name, lines in texts if lines]


def _is_library_file(path: Path) -> bool:
    return (
        path.suffix == ".py"
        and _SKIPPED_FOLDERS.isdisjoint(path.parts)
        and ".." not in path.parts
        and not path.name.startswith("test_")
        and path.name != "conftest.py"
    )


def _package(distribution: metadata.Distribution, root: Path) -> Package:
    headers = distribution.metadata
    # The type PackageMetadata has no method get in Python 3.11.
    name, version = (headers[key] if key in headers else "" for key in ("Name", "Version"))  # noqa: SIM401
    return Package(name.lower().replace("_", "-"), version, root, lambda: map(Path, distribution.files or ()))


def _standard_library() -> Package:
    root = Path(sysconfig.get_path("stdlib"))
    return Package(
        "python", platform.python_version(), root, lambda: [path.relative_to(root) for path in root.rglob("*.py")]
    )
