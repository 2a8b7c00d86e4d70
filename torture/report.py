"""The totals of a campaign, as Markdown: for the terminal and for ``docs/trust.md``."""

from collections import Counter
from collections.abc import Iterable

from greenadapt.errors import byte_size
from torture.outcomes import GOOD, VERDICTS, Log, Record

TITLES = {
    "faults": "Faults",
    "inputs": "Hostile input",
    "downloads": "Downloads",
    "uploads": "Uploads",
    "concurrency": "Concurrency",
    "load": "Load",
}


def totals(log: Log) -> str:
    """A sentence, a table of each part, and what failed."""
    counted = log.last()
    blocks = [_sentence(counted)]
    for part in dict.fromkeys(record.part for record in counted):
        of_part = [record for record in counted if record.part == part]
        blocks.append(
            f"{TITLES.get(part, part.capitalize())}:\n\n{_load(of_part) if part == 'load' else _counts(of_part)}"
        )
    failed = [record for record in counted if not record.outcome.is_good]
    if failed:
        blocks.append("Not as promised:\n\n" + "\n".join(map(describe, failed)))
    return "\n\n".join(blocks)


def describe(record: Record) -> str:
    """A record in a line."""
    last = " ".join(record.outcome.detail.split())[-300:]
    return f"{record.outcome.outcome}: {record.part} {record.case} seed {record.seed}: {last}"


def _sentence(records: list[Record]) -> str:
    def tried(*parts: str) -> tuple[int, int, int]:
        tried_records = [record for record in records if record.part in parts and record.outcome.outcome != "broken"]
        bad = sum(record.outcome.n for record in tried_records if not record.outcome.is_good)
        n = sum(record.outcome.n for record in tried_records)
        return n, n - bad, bad

    refused = sum(
        record.outcome.n for record in records if record.part == "inputs" and record.outcome.outcome == "refused"
    )
    faults, inputs = tried("faults", "downloads", "uploads", "concurrency"), tried("inputs")
    hours = sum({(record.part, record.case, record.seed): record.seconds for record in records}.values()) / 3600
    return (
        f"Faults: {faults[0]:,} tried, {faults[1]:,} survived, {faults[2]:,} not as promised. "
        f"Inputs: {inputs[0]:,} tried, {refused:,} refused clearly, {inputs[2]:,} not as promised. "
        f"{hours:.1f} hours."
    )


def _counts(records: list[Record]) -> str:
    """Case kinds by verdict."""
    count: Counter[tuple[str, str]] = Counter()
    for record in records:
        count[record.kind, record.outcome.outcome] += record.outcome.n
    seen = [verdict for verdict in VERDICTS if verdict in GOOD or any(n for (_, v), n in count.items() if v == verdict)]
    columns = [verdict for verdict in seen if any(count[kind, verdict] for kind, _ in count)]
    rows = []
    for kind in dict.fromkeys(record.kind for record in records):
        n = sum(count[kind, verdict] for verdict in VERDICTS)
        rows.append([kind, f"{n:,}", *(f"{count[kind, verdict]:,}" for verdict in columns)])
    return table(["what", "tried", *columns], rows)


def _load(records: list[Record]) -> str:
    rows = [
        [
            record.case,
            str(record.outcome.facts.get("size", "")),
            f"{record.outcome.facts.get('seconds', record.seconds):,.0f}",
            byte_size(record.outcome.facts["rss"]) if "rss" in record.outcome.facts else "",
            record.outcome.outcome,
        ]
        for record in records
    ]
    return table(["what", "size", "seconds", "peak memory", "outcome"], rows)


def table(head: list[str], rows: Iterable[list[str]]) -> str:
    """A Markdown table; numbers to the right."""
    rule = ["---" if i == 0 else "---:" for i in range(len(head))]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [head, rule, *rows])
