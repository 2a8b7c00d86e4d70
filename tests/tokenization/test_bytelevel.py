import pytest
from tokenizers import pre_tokenizers

from greenadapt.tokenization.words import SPACE_MARK, from_byte_characters, to_byte_characters


def test_the_alphabet_is_the_tokenizers_library_s() -> None:
    pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    text = "".join(map(chr, [*range(1, 0x250), 0x4E00, 0x1F600]))
    ((theirs, _),) = pre_tokenizer.pre_tokenize_str(text)
    assert to_byte_characters(text) == theirs
    assert from_byte_characters(theirs) == text
    assert to_byte_characters(" ") == SPACE_MARK


def test_half_a_character_is_an_error_or_replaced() -> None:
    half = to_byte_characters("é")[:1]
    with pytest.raises(UnicodeError):
        from_byte_characters(half)
    assert from_byte_characters(half, "replace") == "\ufffd"
