"""Docstrings as plain paragraphs, without reStructuredText, Markdown and HTML mark-up, code and tables."""

import html
import inspect
import re

_UNDERLINE = re.compile(r"^\s*([=\-~^\"'`*+#.:_])\1{2,}\s*$")
_TABLE = re.compile(r"^\s*(\||\+[-=+]+\+)|^\s*[=\-]{2,}(\s+[=\-]{2,})+\s*$")
_DIRECTIVE = re.compile(r"^\.\.\s+(?:[\w-]+:)?([\w-]+)::\s*(.*)$")
_COMMENT = re.compile(r"^\.\.(\s|$)")
_OPTION = re.compile(r"^:[\w -]+:(\s|$)")
_FIELD = re.compile(
    r"^:(?:param|parameter|arg|argument|key|keyword|var|ivar|cvar|type|vartype|rtype|raises|returns?|yields?)\b([^:]*):\s*"
)
_BULLET = re.compile(r"^(?:[-*+•]|\(?\d{1,2}[.)]|#\.)\s+(?=\S)")
# What begins a paragraph without an empty line before it: a list item, a field, or "name (type): description".
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
    "versionadded",
    "versionchanged",
    "deprecated",
    "function",
    "method",
    "class",
    "data",
    "attribute",
    "legacy",
}

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
    (re.compile(r"\s*\((?:see)?\s+\)"), ""),  # left over from a link
    (re.compile(r"</?[A-Za-z][A-Za-z0-9]*(?:\s+[\w-]+=(?:\"[^\"]*\"|'[^']*'))*\s*/?>"), " "),
    (re.compile(r"\\([*_`|<>\\ ])"), r"\1"),
    (re.compile(r"\b(\w+)_(?=[\s.,;:)]|$)(?<!__)"), r"\1"),  # reference
)
_MARKED = re.compile(r"[`*|<\[\\]|_\b|://")


def strip_inline(text: str) -> str:
    """One paragraph without inline mark-up: roles, literals, emphasis, links, HTML tags and entities."""
    if _MARKED.search(text):
        for pattern, replacement in _INLINE:
            text = pattern.sub(replacement, text)
    return " ".join(html.unescape(text).split())


def paragraphs(docstring: str) -> list[str]:
    """The prose of a docstring, one paragraph (or list item, or parameter's description) per line.

    Left out: doctests, literal and fenced blocks, tables, underlines, comments, directives that are not prose,
    section headings of the numpydoc and Google styles, and whole Examples and References sections under them.
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
            position = _after_fence(lines, position)
            result.append("")
        elif line.lstrip().startswith((">>>", "In [")):
            position = _after_blank(lines, position)
            result.append("")
        elif _LEFT_OUT_SECTION.match(line) and (_UNDERLINE.match(following) or line.rstrip().endswith(":")):
            position = _after_section(lines, position)
            result.append("")
        elif _COMMENT.match(line.lstrip()):
            kept, position = _directive(lines, position)
            result.extend(["", *kept, ""])
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


def _after_fence(lines: list[str], start: int) -> int:
    for position in range(start + 1, len(lines)):
        if _FENCE.match(lines[position]):
            return position + 1
    return len(lines)


def _after_blank(lines: list[str], start: int) -> int:
    for position in range(start, len(lines)):
        if not lines[position].strip():
            return position + 1
    return len(lines)


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
