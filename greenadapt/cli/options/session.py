"""From shared options to a session."""

from pathlib import Path

from greenadapt.cli.options.command_line import GIVEN
from greenadapt.cli.options.shared import parse_bytes
from greenadapt.cli.output.console import make_progress
from greenadapt.config import TextLimits
from greenadapt.errors import UsageError
from greenadapt.stages.corpus import TextOptions
from greenadapt.stages.session import Session
from greenadapt.storage.workspace import Workspace
from greenadapt.workers import usable_cores


def make_session(
    workspace: Path | None,
    *,
    out: Path | None = None,
    variant: str | None = None,
    force: bool = False,
    download: bool = False,
    workers: int | None = None,
    max_memory: str = "4G",
) -> Session:
    """What the stages of one command share; raises ``UsageError`` for no workers at all."""
    if workers is not None and workers < 1:
        raise UsageError(f"--workers is {workers}, must be at least 1")
    return Session(
        Workspace.find(workspace),
        make_progress(),
        out=out,
        variant=variant,
        force=force,
        download=download,
        workers=workers or usable_cores(),
        max_memory=parse_bytes(max_memory),
        command=GIVEN.get(),
    )


def text_options(
    format: str | None,  # noqa: A002  (the option's name)
    field: list[str] | None,
    keep_duplicates: bool | None,
    strict: bool | None,
    heldout: float | None,
    max_document_bytes: str | None,
    max_word_chars: int | None,
) -> TextOptions:
    """How the corpus is read, as far as the user said."""
    longest = None if max_document_bytes is None else parse_bytes(max_document_bytes, "--max-document-bytes")
    if max_word_chars is not None:
        TextLimits(max_word_chars=max_word_chars)
    return TextOptions(
        format,
        tuple(field or ()),
        keep_duplicates,
        strict,
        heldout,
        max_document_bytes=longest,
        max_word_chars=max_word_chars,
    )
