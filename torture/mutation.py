"""Broken and hostile variants of valid files."""

import bz2
import copy
import gzip
import json
import lzma
import random
from collections.abc import Callable
from typing import Any

from backports import zstd

_TEXTS: tuple[Any, ...] = (
    "",
    " ",
    "\0",
    "\x1b[31m\x1b]0;owned\x07",
    "\u202egnp.exe",
    "\u2066x\u2069",
    "\ud800",
    "\ufeff",
    "</script><script>alert(1)",
    "../../etc/passwd",
    "/etc/passwd",
    "..",
    ".",
    "C:\\x",
    "a/b",
    "a" * 300,
    "é" * 5,
    "\U0001f600",
    "%s%n{0}",
    "nan",
    "None",
    "|x|`y`*z*",
    "=1+1",
    "-0",
    "1e999",
    "os.system",
)
_NUMBERS: tuple[Any, ...] = (
    0,
    -1,
    1,
    2,
    255,
    2**31 - 1,
    2**31,
    -(2**31),
    2**32,
    2**53 + 1,
    2**63 - 1,
    2**63,
    -(2**63),
    10**12,
    2**64,
    10**400,
    0.5,
    -0.0,
    1e308,
    float("inf"),
    float("-inf"),
    float("nan"),
)
_OTHERS: tuple[Any, ...] = (None, True, False, [], {}, [[]], [None], {"": None}, [[[[]]]], {"a": {"b": {}}})
_BYTES = (
    b"",
    b"\0",
    b"\xff",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"\n",
    b"\r",
    b"\r\n\r\n",
    b'"',
    b"'",
    b",",
    b"\t",
    b"{",
    b"}",
    b"[",
    b"]",
    b"<",
    b">",
    b"&",
    b"</",
    b"]]>",
    b"<!--",
    b"<![CDATA[",
    b"<!DOCTYPE a [<!ENTITY b SYSTEM 'file:///etc/passwd'>]>",
    b"&b;",
    b"&#0;",
    b"&#xD800;",
    b"\\ud800",
    b"\\u0000",
    b"-1",
    b"1e999",
    b"NaN",
    b"99999999999999999999",
    b"9" * 5000,
    b"[" * 3000,
    b"{" * 3000,
    b'{"a":' * 3000,
    b"\x1b[2J",
    b"\xe2\x80\xae",
    b"\xed\xa0\x80",
    b"\xc0\x80",
    b"\xf5\x80\x80\x80",
    b"\x80\x04\x95",
    b"../",
    b"/etc/passwd",
    b"\x00" * 100,
    b"\x7f" * 8,
    b"\xff" * 8,
    b"\x00\x00\x00\x80",
    b"</s> ",
    b"====",
    b"-DOCSTART-",
)
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": lambda data: gzip.compress(data, mtime=0),
    ".bz2": bz2.compress,
    ".xz": lambda data: lzma.compress(data, preset=0),
    ".zst": zstd.compress,
}
UNPACKERS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.decompress,
    ".bz2": bz2.decompress,
    ".xz": lzma.decompress,
    ".zst": zstd.decompress,
}


def mutated(data: bytes, draw: random.Random) -> bytes:
    """``data`` with a few changes: of its values if it is JSON or JSON lines, else, or now and then, of its bytes."""
    if draw.random() < 0.6:
        changed = _in_json(data, draw)
        if changed is not None:
            return changed
    return in_bytes(data, draw)


def in_bytes(data: bytes, draw: random.Random) -> bytes:
    """``data`` cut, with bytes flipped, or with some put in, left out, repeated or moved."""
    changed = bytearray(data)
    for _ in range(draw.choice((1, 1, 1, 2, 3, 6))):
        at, end = sorted((draw.randrange(len(changed) + 1), draw.randrange(len(changed) + 1)))
        how = draw.randrange(9)
        if how == 0 and changed:
            changed[min(at, len(changed) - 1)] = draw.randrange(256)
        elif how == 1 and changed:
            changed[min(at, len(changed) - 1)] ^= 1 << draw.randrange(8)
        elif how == 2:
            del changed[at:]
        elif how == 3:
            del changed[at : min(end, at + draw.choice((1, 2, 8, 64)))]
        elif how == 4:
            changed[at:at] = changed[at : min(end, at + 200)] * draw.choice((1, 1, 2, 50))
        elif how == 5:
            changed[at : min(end, at + draw.choice((0, 1, 4)))] = draw.choice(_BYTES)
        elif how == 6:
            number = draw.choice([n for n in _NUMBERS if isinstance(n, int) and abs(n) < 2**63])
            changed[at : at + 8] = (number % 2**64).to_bytes(8, draw.choice(("little", "big")))
        elif how == 7:
            changed[at:at] = draw.choice(_BYTES)
        else:
            lines = bytes(changed).split(b"\n")
            draw.shuffle(lines)
            changed = bytearray(b"\n".join(lines))
    return bytes(changed)


def _in_json(data: bytes, draw: random.Random) -> bytes | None:
    """One JSON value, or one a line; ``None`` if it is neither."""
    try:
        return _dumped(changed_value(json.loads(data), draw), draw)
    except (ValueError, RecursionError):
        lines = data.split(b"\n")
    at = draw.randrange(len(lines))
    try:
        lines[at] = _dumped(changed_value(json.loads(lines[at]), draw), draw)
    except (ValueError, RecursionError):
        return None
    return b"\n".join(lines)


def _dumped(value: Any, draw: random.Random) -> bytes:
    text = json.dumps(value, ensure_ascii=draw.random() < 0.5)
    if draw.random() < 0.05:
        text = text.replace("}", ', "a": 1, "a": 2}', 1) if draw.random() < 0.5 else text.replace("[", "[" * 2000, 1)
    return text.encode("utf-8", "surrogatepass")


def changed_value(value: Any, draw: random.Random) -> Any:
    """A JSON value with one to three parts replaced, left out, added, repeated or nested."""
    whole = {"": copy.deepcopy(value)}
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        parent, key = draw.choice(list(_places(whole)))
        how = draw.randrange(8)
        if how < 4:
            parent[key] = _other_value(parent[key], draw)
        elif how == 4 and parent is not whole:
            del parent[key]
        elif how == 5 and isinstance(parent, dict) and parent is not whole:
            parent[draw.choice(_TEXTS)] = parent.pop(key)
        elif how == 6:
            parent[key] = [parent[key]] * draw.choice((1, 2, 100)) if draw.random() < 0.5 else {"a": parent[key]}
        elif isinstance(parent[key], dict):
            parent[key][draw.choice(_TEXTS)] = draw.choice((*_TEXTS, *_NUMBERS, *_OTHERS))
        elif isinstance(parent[key], list):
            parent[key].insert(draw.randrange(len(parent[key]) + 1), draw.choice((*_TEXTS, *_NUMBERS, *_OTHERS)))
    return whole[""]


def _places(value: Any) -> Any:
    """Every place in a value: what holds it, and the key."""
    for key, part in list(value.items() if isinstance(value, dict) else enumerate(value)):
        yield value, key
        if isinstance(part, dict | list):
            yield from _places(part)


def _other_value(value: Any, draw: random.Random) -> Any:
    """A replacement for a value: often of its type, and close to it."""
    if isinstance(value, bool) or value is None or draw.random() < 0.3:
        return draw.choice((*_TEXTS, *_NUMBERS, *_OTHERS))
    if isinstance(value, int):
        return value + draw.choice((-1, 1, 1000)) if draw.random() < 0.4 else draw.choice(_NUMBERS)
    if isinstance(value, str):
        text = draw.choice(_TEXTS)
        return value + text if draw.random() < 0.4 else text
    return draw.choice((*_NUMBERS, *_OTHERS))
