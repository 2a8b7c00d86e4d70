"""Tables for people."""

import pytest

from greenadapt.cli.output.printing import print_neighbours
from greenadapt.vectors.neighbours import Neighbours


@pytest.mark.parametrize(("count", "title"), [(19, "tuple, 19 times, rare"), (20, "tuple, 20 times")])
def test_neighbours_of_a_rare_word_are_marked(count: int, title: str, capsys: pytest.CaptureFixture[str]) -> None:
    print_neighbours([Neighbours("tuple", "mapped", (("list", 0.5),), count)])
    assert capsys.readouterr().out.splitlines()[0].strip() == title
