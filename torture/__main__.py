"""Does greenadapt keep what it promises? A campaign that tries to break it, for as long as it is given.

    python torture --budget 120 --work DIR --seed 1 --only faults inputs

``faults``: stages are killed, disks are full, clocks jump. ``inputs``: hostile files. ``downloads`` and ``uploads``: a
server that breaks, and one that lies. ``concurrency``: many processes at once. ``load``: large inputs. Parts take
turns, each gets the same time. Every outcome is a line of ``outcomes.jsonl`` in ``--work``, with the seed that draws it
again. The same command goes on from there: first with what failed before, then with new seeds; the totals that it
prints are those of all runs. What failed once counts as it ended the last time it was tried. The exit code is 1 if
something is not as promised.

    python torture --work DIR --report          # only the totals
"""

import argparse
import sys
from pathlib import Path

if not __package__:  # started as a folder; the installed greenadapt comes first, as users have it
    sys.path[:] = [*sys.path[1:], str(Path(__file__).parents[1])]

from greenadapt.storage.locks import lock
from torture.campaign import PARTS, Campaign, make_part
from torture.outcomes import Log, Record
from torture.report import describe, totals
from torture.trials import preload


def main() -> int:
    """Run a campaign, and print its totals."""
    options = _options()
    options.work.mkdir(parents=True, exist_ok=True)
    if options.report:
        return _tell_totals(Log(options.work / "outcomes.jsonl"))
    with lock(options.work / ".lock", options.work):
        log = Log(options.work / "outcomes.jsonl")
        preload(options.work)
        parts = {name: make_part(name, options.work.absolute(), options.scale) for name in options.only}
        try:
            Campaign(log, parts, options.seed, _tell).run(60 * options.budget)
        except KeyboardInterrupt:
            pass
        finally:
            for part in parts.values():
                part.close()
    return _tell_totals(log)


def _tell_totals(log: Log) -> int:
    print(totals(log))
    return int(any(not record.outcome.is_good for record in log.last()))


def _tell(record: Record) -> None:
    if not record.outcome.is_good:
        print(describe(record), file=sys.stderr, flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python torture", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--budget", type=float, default=10, help="minutes")
    parser.add_argument("--work", type=Path, required=True, help="folder of all files; on a disk, load cases are large")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=[*PARTS], help="parts")
    parser.add_argument("--scale", type=float, default=1.0, help="size of load cases")
    parser.add_argument("--report", action="store_true", help="only print the totals")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
