"""What is left of progress where a caller wants none."""

import warnings

from greenadapt.progress import Silent


class OnlyWarnings(Silent):
    """Warnings as Python's own, which ``warnings.simplefilter`` can silence too; no notes and no bars."""

    def warn(self, message: str) -> None:
        """Warn with ``UserWarning``."""
        warnings.warn(message, UserWarning, stacklevel=2)
