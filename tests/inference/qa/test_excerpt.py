"""Sentences around an answer: what they hold, where they end, and that a long context costs nothing."""

import time
import tracemalloc

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from greenadapt.inference.qa.lookups import sentence_around

WORDS = st.sampled_from(
    [
        "virus",
        "The",
        "e.g.",
        "Fig.",
        "3",
        "al.",
        "2012.",
        "isolated!",
        "A.",
        "\n",
        "\n\n",
        " ",
        "。",
        "“Yes.”",
        "(x)",
        "—",
    ]
)
TEXTS = st.lists(WORDS | st.text(max_size=4), max_size=60).map(" ".join)


def around(text: str, answer: str, max_chars: int = 300) -> str:
    start = text.index(answer)
    return sentence_around(text, start, start + len(answer), max_chars).text


@given(TEXTS, st.data(), st.integers(0, 60))
@example("one two", None, 0)
@example("a" * 30, None, 20)
def test_the_answer_is_always_inside_and_the_rest_within_bounds(
    text: str, data: st.DataObject | None, max_chars: int
) -> None:
    start, end = sorted(data.draw(st.tuples(*[st.integers(0, len(text))] * 2))) if data else (0, 0)
    found = sentence_around(text, start, end, max_chars)
    stop = found.start + len(found.text)
    assert text[found.start : stop] == found.text
    assert found.start <= start <= end <= stop
    assert found.text[start - found.start : end - found.start] == text[start:end]
    assert len(found.text) <= max(max_chars, end - start)
    # Never within a word that the answer does not begin or end in itself.
    assert found.start in (0, start) or text[found.start - 1].isspace() or text[found.start - 1] in "。」”"
    assert stop in (len(text), end) or text[stop].isspace() or text[stop - 1] in "。」”"
    # No white space around it but the answer's own.
    assert found.start == start or not found.text[0].isspace()
    assert stop == end or not found.text[-1].isspace()
    # An empty line on either side of an answer that is no white space itself is never inside.
    if text[start:end] and text[start:end] == text[start:end].strip():
        assert "\n\n" not in found.text[: start - found.start]
        assert "\n\n" not in found.text[end - found.start :]


@given(TEXTS, TEXTS, st.data())
def test_only_what_is_near_decides(text: str, other: str, data: st.DataObject) -> None:
    """The same answer in the same surroundings has the same sentence, whatever the context is beyond them."""
    start, end = sorted(data.draw(st.tuples(*[st.integers(0, len(text))] * 2)))
    far = "x" * 400
    longer = sentence_around(f"{other}{far}\n\n{text}\n\n{far}{other}", *(len(other) + 402 + i for i in (start, end)))
    alone = sentence_around(f"\n\n{text}\n\n", start + 2, end + 2)
    assert longer.text == alone.text
    assert longer.start - alone.start == len(other) + 400


@pytest.mark.parametrize(
    "text",
    [
        "Before it. [It was isolated in 2012 by ANSWER.] After it.",
        "Was it? [ANSWER!] No.",
        "One of 1.5 mg. [Two of 2.5 mg. ANSWER of 3.5 mg.] 4 more.".replace("mg. A", "mg, A"),
        "Shown before. [Bats, e.g. Rousettus, i.e. ANSWER vs. MERS, are known.] Not so.",
        "Some. [As Smith et al. 2020 (Fig. 3; cf. Table 2) say, ANSWER, see ref. 7, vol. 2, no. 5.] More.",
        "Of Smith et al. [The virus is ANSWER.] This is new.",
        "It ended. [Dr. J. R. R. Smith and Prof. Li found ANSWER.] Others did not.",
        "He said: “It is so.” [“ANSWER is not.”] And so on.",
        "A heading\n[The virus of ANSWER\nwhich was isolated\r\nin 2012.] The next.",
        "Abstract\n[ANSWER is the virus]\nMethods",
        "no full stop\n\n[in lower case, ANSWER]\r\n\r\nin lower case",
        "One.   \t[ANSWER here.]  \n Next",
        "Это было. [Вирус ANSWER выделен.] Потом",
        "这是病毒。[它在ANSWER被发现。]然后。",
        "وهذا هو. [هذا ANSWER هنا؟] ثم",
        "[ANSWER]",
    ],
)
def test_where_sentences_end(text: str) -> None:
    assert around(text.replace("[", "").replace("]", ""), "ANSWER") == text[text.index("[") + 1 : text.index("]")]


def test_an_answer_of_several_sentences_has_them_all() -> None:
    text = "None. It was here. It was there. It went away. Gone."
    assert around(text, "here. It was there. It") == "It was here. It was there. It went away."
    assert around(text, "It was there.") == "It was there."


def test_a_long_sentence_is_cut_between_words_on_both_sides() -> None:
    words = [f"word{i}" for i in range(1000)]
    text = " ".join(words)
    found = around(text, "word500", max_chars=100)
    assert found.split() == words[words.index(found.split()[0]) :][: len(found.split())]
    assert 100 - 2 * len(" word500") < len(found) <= 100
    assert abs(found.index("word500") - (100 - 7) // 2) < 10
    assert around(text, "word0", max_chars=30) == "word0 word1 word2 word3 word4"  # what the left leaves is the right's
    assert around(text, "word999", max_chars=31) == "word996 word997 word998 word999"
    assert around(text, "word50 word51 word52", max_chars=10) == "word50 word51 word52"
    assert [sentence_around("x" * 30, place, place, max_chars=20).text for place in (0, 15, 30)] == ["", "", ""]


def test_a_context_of_three_megabytes_is_neither_copied_nor_searched() -> None:
    short = "It came. " + "The virus was isolated in 2012 in Jeddah. " * 100
    long = short + "The virus was isolated in 2012 in Jeddah. " * 75_000
    middle = len(long) // 2
    assert len(long) > 3_000_000

    def seconds(context: str, start: int) -> float:
        begin = time.perf_counter()
        for _ in range(200):
            sentence_around(context, start, start + 10)
        return time.perf_counter() - begin

    assert min(seconds(long, middle) for _ in range(5)) < 5 * min(seconds(short, 2000) for _ in range(5))
    tracemalloc.start()
    sentence_around(long, middle, middle + 10)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 50_000


@pytest.mark.parametrize("gap", ["\n", " ", "\r\n", ". ", "...", ".)", "。"])
def test_runs_of_anything_take_no_longer_than_their_length(gap: str) -> None:
    text = gap * 100_000
    begin = time.perf_counter()
    found = sentence_around(text, len(text) // 2, len(text) // 2 + 1, max_chars=40_000)
    assert len(found.text) <= 40_000
    assert time.perf_counter() - begin < 2  # quadratic, it would be minutes


@pytest.mark.parametrize(("start", "end"), [(-1, 2), (3, 2), (0, 6)])
def test_a_span_that_is_none(start: int, end: int) -> None:
    with pytest.raises(ValueError, match="5"):
        sentence_around("12345", start, end)
