"""Windows: the worked examples of the method, its alternating loop, and what every set of windows must have."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenadapt.errors import InputError
from greenadapt.tasks.qa import Window, longest_question, merged, strided, windows


@pytest.mark.parametrize(("q", "width"), [(9, 250), (10, 249), (11, 249)])
def test_width_is_half_of_the_room(q: int, width: int) -> None:
    assert windows(1000, q)[0].a_r == width


def test_worked_examples() -> None:
    assert windows(1000, 9) == [
        Window(0, 250, 0, 250),
        Window(250, 500, 125, 125),
        Window(500, 750, 125, 125),
        Window(750, 1000, 250, 0),
    ]
    assert windows(1000, 10)[-1] == Window(996, 1000, 495, 0)
    assert [(window.p_l, window.p_r) for window in windows(400, 11)] == [(0, 151), (249, 0)]


def alternating(m: int, q: int, max_length: int, n_special: int) -> list[Window]:
    """The authors' way: one piece to the right, one to the left, as long as there are any and room for them."""
    room = max_length - n_special - q
    found = []
    for a_l in range(0, m, room // 2):
        a_r = min(m, a_l + room // 2)
        begin, end = a_l, a_r
        while end - begin < min(room, m):
            if end < m:
                end += 1
            if begin > 0 and end - begin < room:
                begin -= 1
        found.append(Window(a_l, a_r, a_l - begin, end - a_r))
    return found


@given(m=st.integers(0, 1500), q=st.integers(0, 507))
def test_windows_are_those_of_the_alternating_loop(m: int, q: int) -> None:
    found = windows(m, q)
    assert found == alternating(m, q, 512, 3)
    assert [place for window in found for place in range(window.a_l, window.a_r)] == list(range(m))
    for window in found:
        assert window.begin >= 0
        assert window.end <= m
        assert window.end - window.begin + q + 3 == 512 or (window.begin, window.end) == (0, m)
        if window.begin > 0 and window.end < m:
            assert window.p_l - window.p_r in (0, -1)


@given(m=st.integers(0, 300), q=st.integers(0, 30), max_length=st.integers(36, 64))
def test_other_lengths_and_special_tokens(m: int, q: int, max_length: int) -> None:
    assert windows(m, q, max_length, 4) == alternating(m, q, max_length, 4)


def test_the_longest_question_leaves_one_piece_each() -> None:
    assert longest_question() == 507
    assert len(windows(40, longest_question())) == 40
    assert len(windows(40, longest_question(64, 4), 64, 4)) == 40
    with pytest.raises(InputError, match="a question of 508 pieces, at most 507"):
        windows(40, 508)


def test_a_window_holds_what_it_reads_beside_its_active_slice_too() -> None:
    window = Window(250, 500, 125, 125)
    assert window.holds(125, 624)
    assert not window.holds(124, 300)
    assert not window.holds(300, 625)


@given(m=st.integers(0, 1500), q=st.integers(0, 507))
def test_windows_that_read_the_same_are_read_once(m: int, q: int) -> None:
    found, all_of_them = merged(windows(m, q)), windows(m, q)
    read = [(window.begin, window.end) for window in found]
    assert read == list(dict.fromkeys((window.begin, window.end) for window in all_of_them))
    assert [place for window in found for place in range(window.a_l, window.a_r)] == list(range(m))
    reader = {place: (w.begin, w.end) for w in all_of_them for place in range(w.a_l, w.a_r)}
    assert all(reader[place] == (w.begin, w.end) for w in found for place in range(w.a_l, w.a_r))
    if 0 < m <= 509 - q:
        assert found == [Window(0, m, 0, 0)]


def as_in_bert(m: int, room: int, stride: int) -> tuple[list[tuple[int, int]], list[int]]:
    """Begin and end of the windows, and which of them each piece has its greatest context in, by the loops of BERT's
    code for SQuAD (doc_spans and _check_is_max_context).
    """
    spans, begin = [], 0
    while begin < m:
        length = min(m - begin, room)
        spans.append((begin, length))
        if begin + length == m:
            break
        begin += min(length, stride)
    owners = []
    for position in range(m):
        best_score, best_index = None, None
        for index, (begin, length) in enumerate(spans):
            end = begin + length - 1
            if position < begin or position > end:
                continue
            score = min(position - begin, end - position) + 0.01 * length
            if best_score is None or score > best_score:
                best_score, best_index = score, index
        assert best_index is not None
        owners.append(best_index)
    return [(begin, begin + length) for begin, length in spans], owners


@given(m=st.integers(0, 900), q=st.integers(0, 64), stride=st.integers(1, 400), max_length=st.integers(80, 384))
def test_strided_windows_are_those_of_berts_code(m: int, q: int, stride: int, max_length: int) -> None:
    found = strided(m, q, stride, max_length, 3)
    spans, owners = as_in_bert(m, max_length - 3 - q, stride)
    assert [(window.begin, window.end) for window in found] == spans
    assert [number for number, window in enumerate(found) for _ in range(window.a_l, window.a_r)] == owners
    assert [place for window in found for place in range(window.a_l, window.a_r)] == list(range(m))


def test_a_question_leaves_room_for_a_strided_window() -> None:
    assert strided(3, 60, 128, 64, 3) == [Window(0, 1, 0, 0), Window(1, 2, 0, 0), Window(2, 3, 0, 0)]
    with pytest.raises(InputError, match="a question of 61 pieces, at most 60"):
        strided(3, 61, 128, 64, 3)
