import pytest

from greenadapt.checkpoints.layout import TASK_NAME, set_label


@pytest.mark.parametrize("name", ["a", "ill.1", "_x", "7-b_c", "x" * 100])
def test_names(name: str) -> None:
    assert TASK_NAME.fullmatch(name)


@pytest.mark.parametrize("name", ["", "-a", ".a", "..", "a/b", "a b", "\u00e9", "a\n", "x" * 101])
def test_what_is_no_name(name: str) -> None:
    assert not TASK_NAME.fullmatch(name)


def test_labels_of_sets() -> None:
    assert (set_label("dev", "dev"), set_label("dev", "mm")) == ("dev", "dev mm")
