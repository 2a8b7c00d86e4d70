"""The paragraphs of translated manual pages, as a text in another language than English.

    python benchmarks/man_pages.py FOLDER > text.txt

FOLDER is that of a language, such as ``usr/share/man/de`` of the unpacked Debian packages manpages-de and
manpages-de-dev (``apt-get download``, ``dpkg-deb -x``). One paragraph a line, each once; examples, tables and comments
are left out.
"""

import argparse
import gzip
import re
from collections.abc import Iterator
from pathlib import Path

_LEFT_OUT = {"nf": "fi", "EX": "EE", "TS": "TE", "ig": "."}  # what begins it → what ends it
_IN_TEXT = re.compile(r"(?:B|I|BI|BR|IB|IR|RB|RI|SM|SB|UR|MT)\s+(.*)")
_ESCAPES = [
    (re.compile(r"\\\".*"), ""),
    (re.compile(r"\\f(?:\[[^]]*\]|\(..|.)|\\s[+-]?\d|\\\*(?:\[[^]]*\]|\(..|.)|\\[&,/:%|^c)]"), ""),
    (re.compile(r"\\\(?:[lr]q|\\\[[lr]q\]|\\\([lr]q"), '"'),
    (re.compile(r"\\\(aq|\\\[aq\]|\\\(cq|\\'"), "'"),
    (re.compile(r"\\\((?:en|em|hy|mi)|\\\[(?:en|em|hy|mi)\]|\\-"), "-"),
    (re.compile(r"\\(?:~|0| )"), " "),
    (re.compile(r"\\e|\\\(rs"), r"\\"),
    (re.compile(r"\\\[[^]]*\]|\\\(.."), " "),
]
_WIDE = r"[\u3000-\u30ff\u4e00-\u9fff\uff00-\uffef]"
_BREAK_IN_WIDE = re.compile(f"(?<={_WIDE}) (?={_WIDE})")  # where the source has a line break


def paragraphs(source: str) -> Iterator[str]:
    """The paragraphs of a page in roff."""
    lines: list[str] = []
    until = ""
    for line in source.splitlines():
        name, _, remainder = line[1:].strip().partition(" ")
        if until:
            until = "" if line.startswith(".") and name == until else until
        elif not line.startswith((".", "'")):
            lines.append(line)
        elif name in _LEFT_OUT:
            until = _LEFT_OUT[name]
        elif inline := _IN_TEXT.match(f"{name} {remainder}"):
            lines.append(inline[1].replace('"', ""))
        elif not name.startswith('\\"'):
            yield _text(lines)
            lines = []
    yield _text(lines)


def _text(lines: list[str]) -> str:
    text = " ".join(lines)
    for escape, plain in _ESCAPES:
        text = escape.sub(plain, text)
    return _BREAK_IN_WIDE.sub("", " ".join(text.split()))


def main() -> None:
    """Print the paragraphs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    pages = sorted(
        path for path in parser.parse_args().folder.rglob("*.gz") if path.is_file() and not path.is_symlink()
    )
    texts = (
        text for page in pages for text in paragraphs(gzip.decompress(page.read_bytes()).decode("utf-8", "replace"))
    )
    for text in dict.fromkeys(text for text in texts if len(text) > 30):
        print(text)


if __name__ == "__main__":
    main()
