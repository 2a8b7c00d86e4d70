"""What a cluster costs and gives.

    python benchmarks/cluster.py w2v --corpus biomedical.txt.gz --measure quality --dim 128 --work DIR
    python benchmarks/cluster.py w2v --corpus biomedical.txt.gz --measure sync --work DIR
    python benchmarks/cluster.py w2v --corpus biomedical.txt.gz --measure overhead --nodes 1 2 3 --work DIR
    python benchmarks/cluster.py w2v --corpus biomedical.txt.gz --measure model --work DIR

``w2v`` is described in ``cluster_w2v.py``. Linux only.
"""

import argparse
import sys

import cluster_w2v

from greenadapt.errors import GreenadaptError


def main() -> None:
    """Run one part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(required=True)
    part = parts.add_parser("w2v", description=cluster_w2v.__doc__)
    cluster_w2v.add_options(part)
    part.set_defaults(main=cluster_w2v.main)
    options = parser.parse_args()
    options.main(options)


if __name__ == "__main__":
    try:
        main()
    except GreenadaptError as error:
        sys.exit(str(error))
