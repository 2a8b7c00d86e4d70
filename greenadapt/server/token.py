"""The token that requests have to send, which is in the environment and nowhere else."""

import os

from greenadapt.errors import UsageError

TOKEN = "GREENADAPT_SERVE_TOKEN"
"""Its variable."""
_SHORTEST = 16


def read_token() -> str | None:
    """The token, if any; raises ``UsageError`` for one that can be guessed."""
    token = os.environ.get(TOKEN, "").strip()
    if token and (len(token) < _SHORTEST or not token.isascii()):
        raise UsageError(
            f"{TOKEN} has {len(token)} characters, must have at least {_SHORTEST}, all of ASCII",
            "make one with openssl rand -hex 32",
        )
    return token or None
