"""Documents cut into paragraphs."""

from hypothesis import given
from hypothesis import strategies as st

from greenadapt.inference.search.paragraphs import paragraphs

TEXT = st.text(st.sampled_from("ab. \n\r\t\u2028?A1"), max_size=120)


@given(TEXT, st.integers(1, 40))
def test_they_cover_the_text_in_order_and_none_is_too_long(text: str, most: int) -> None:
    spans = paragraphs(text, most)
    begin = 0
    for start, end in spans:
        assert text[begin:start].strip() == ""
        assert 0 < end - start <= most
        assert text[start:end] == text[start:end].strip()
        begin = end
    assert text[begin:].strip() == ""


def cut(text: str, most: int) -> list[str]:
    return [text[start:end] for start, end in paragraphs(text, most)]


def test_a_heading_stays_with_what_follows_and_blank_lines_come_first() -> None:
    text = "Methods\n\nWe asked. They said.\n\nNobody knows, not even we who did ask them."
    assert cut(text, 45) == ["Methods\n\nWe asked. They said.", "Nobody knows, not even we who did ask them."]


def test_what_is_too_long_is_cut_at_lines_then_sentences_then_words_then_anywhere() -> None:
    assert cut("one two\nthree four", 12) == ["one two", "three four"]
    assert cut("He was ill. She was not ill. Dr. Who was.", 17) == ["He was ill.", "She was not ill.", "Dr. Who was."]
    assert cut("alpha beta gamma delta", 11) == ["alpha beta", "gamma delta"]
    assert cut("abcdefgh", 3) == ["abc", "def", "gh"]
