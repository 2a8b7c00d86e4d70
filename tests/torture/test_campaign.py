"""A campaign records what it tries, and a second one adds to it."""

from collections.abc import Iterable
from pathlib import Path

from torture import campaign, outcomes, report


class Trials:
    """Two cases, of which one need be tried only once; ``kill/b`` fails until it is mended."""

    def __init__(self, is_mended: bool, most: int = 6) -> None:
        self.is_mended, self.left = is_mended, most

    def cases(self) -> list[str]:
        return ["kill/a", "kill/b", "load/c"]

    def once(self, case: str) -> bool:
        return case == "load/c" or not self.left

    def attempt(self, case: str, seed: int) -> Iterable[object]:
        self.left = max(self.left - 1, 0)
        if case == "kill/a":
            raise ValueError("a bug of the campaign itself")
        yield outcomes.Outcome("survived" if self.is_mended or case != "kill/b" else "lost", n=2)

    def close(self) -> None:
        pass


def test_a_campaign_goes_on_and_repeats_what_failed(tmp_path: Path) -> None:
    file = tmp_path / "outcomes.jsonl"
    lines: list[object] = []
    campaign.Campaign(outcomes.Log(file), {"faults": Trials(False)}, 1, lines.append).run(60)
    first = outcomes.Log(file)
    assert lines == first.records
    assert [record.case for record in first.records] == ["kill/a", "kill/b", "load/c", *["kill/a", "kill/b"], "kill/a"]
    assert len({record.seed for record in first.of("faults", "kill/b")}) == 2
    assert "Faults: 6 tried, 2 survived, 4 not as promised" in report.totals(first)
    with open(file, "a") as cut:
        cut.write('{"part": "faul')
    again = outcomes.Log(file)
    campaign.Campaign(again, {"faults": Trials(True, 0)}, 1, lines.append).run(60)
    repeated = outcomes.Log(file)
    assert again.records == repeated.records
    assert [(record.case, record.attempt, record.seed) for record in repeated.of("faults", "kill/b")] == [
        ("kill/b", attempt, record.seed) for attempt in (0, 1) for record in first.of("faults", "kill/b")
    ]
    assert "Faults: 6 tried, 6 survived, 0 not as promised" in report.totals(repeated)
    assert "ValueError: a bug of the campaign itself" in report.totals(repeated)
