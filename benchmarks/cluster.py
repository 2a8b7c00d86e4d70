"""What a cluster costs and gives.

    python benchmarks/cluster.py corpus --corpus biomedical.txt.gz
    python benchmarks/cluster.py w2v --corpus biomedical.txt.gz --measure quality --dim 128 --work DIR
    python benchmarks/cluster.py w2v --corpus biomedical.txt.gz --measure sync --work DIR
    python benchmarks/cluster.py w2v --corpus biomedical.txt.gz --measure overhead --nodes 1 2 3 --work DIR
    python benchmarks/cluster.py w2v --corpus biomedical.txt.gz --measure model --work DIR

``corpus`` is described in ``cluster_corpus.py``, ``w2v`` in ``cluster_w2v.py``. Linux only.
"""

import argparse
import sys

import cluster_corpus
import cluster_w2v

from greenadapt.errors import GreenadaptError


def main() -> None:
    """Run one part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(required=True)
    for name, module in (("corpus", cluster_corpus), ("w2v", cluster_w2v)):
        part = parts.add_parser(name, description=module.__doc__)
        module.add_options(part)
        part.set_defaults(main=module.main)
    options = parser.parse_args()
    options.main(options)


if __name__ == "__main__":
    try:
        main()
    except GreenadaptError as error:
        sys.exit(str(error))
