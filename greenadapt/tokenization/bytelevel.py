"""The printable alphabet in which byte-level BPE writes bytes (Radford et al. 2019, ``bytes_to_unicode``)."""

SPACE_MARK = "Ġ"
"""The mark for the space before a word."""


def _alphabet() -> dict[int, str]:
    """Byte → character: printable Latin-1 as it is, the rest from U+0100 on."""
    kept = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in kept]
    return {**{byte: chr(byte) for byte in kept}, **{byte: chr(0x100 + i) for i, byte in enumerate(rest)}}


_CHARACTERS = _alphabet()
_BYTES = {ord(character): chr(byte) for byte, character in _CHARACTERS.items()}


def to_byte_characters(text: str) -> str:
    """``text`` as byte-level BPE writes it, one character for each UTF-8 byte."""
    return text.encode().decode("latin-1").translate(_CHARACTERS)


def from_byte_characters(entry: str, errors: str = "strict") -> str:
    """The text of a byte-level string; raises ``UnicodeError`` where its bytes are not whole characters.

    ``errors="replace"`` puts U+FFFD in their place.
    """
    return entry.translate(_BYTES).encode("latin-1").decode(errors=errors)
