"""Benchmarks that take long, and go on where they were stopped."""

import sys
from collections.abc import Callable

from greenadapt.errors import GreenadaptError


def resumable(main: Callable[[], None]) -> None:
    """Run a benchmark that goes on where it was stopped."""
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("stopped; the same command goes on from here")
    except GreenadaptError as error:
        sys.exit(str(error))
