"""Which options of the commands name files and folders that are read, so that nothing is written onto or into them."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from greenadapt.cli.options.command_line import command_words
from greenadapt.storage.files import expanded, own_folder, require_utf8

READ = frozenset({
    "add_to", "alignment", "base", "compare", "config", "context", "corpus", "corpus_argument", "data", "dev",
    "documents", "folder", "folders", "general", "general_text", "index", "memory", "model", "name", "questions",
    "reference", "restrict_to", "source", "tasks", "test", "text", "train", "unlabelled", "vectors",
})  # fmt: skip
"""Parameters of commands that are files or folders, or may be."""
WRITTEN = frozenset({
    "file", "logits", "null_odds", "out", "png", "predictions", "svg", "workspace",
})  # fmt: skip
"""Those that a command writes or adds to."""
OTHER = frozenset({
    "address", "allow_host", "cluster", "command", "exclude", "experiment", "field", "format", "host", "label_field",
    "larger_than", "layers", "max_body", "max_cache", "max_document_bytes", "max_memory", "max_time",
    "memory_layers", "memory_source", "message", "methods", "older_than", "only", "query", "question", "remove",
    "report_to", "repo", "revision", "search", "task", "text_field", "variant", "words",
})  # fmt: skip
"""Those whose values are texts."""
_JOINED = {"finetune": "add_to", "tasks": "folder"}
"""Where the purpose of a command is to change a folder that it reads."""
_KEYWORDS = {"memory": "base"}


def require_names(ctx: Any) -> None:
    """Raise ``InputError`` for a path, or another value, whose bytes are not UTF-8, before any work."""
    for name, given in ctx.params.items():
        for value in given if isinstance(given, list | tuple) else [given]:
            if isinstance(value, str | Path):
                require_utf8(value)
            if isinstance(value, Path) or (isinstance(value, str) and name in READ | WRITTEN):
                with suppress(ValueError):  # of a null byte
                    require_utf8(os.path.realpath(expanded(value)))


def read_by(ctx: Any) -> dict[str, str]:
    """The files and folders that a command was given to read, by option; those that are not there do not count."""
    command = " ".join(command_words(ctx))
    found: dict[str, str] = {}
    for parameter in ctx.command.params:
        name, given = parameter.name, ctx.params.get(parameter.name)
        if name not in READ or given is None or _JOINED.get(command) == name:
            continue
        is_corpus = name == "corpus" or (name == "name" and command.startswith("corpus"))
        option = parameter.opts[0] if parameter.opts[0].startswith("-") else parameter.opts[0].upper()
        for value in map(str, given if isinstance(given, list | tuple) else [given]):
            path = value.partition("=")[2] if command == "reproduce" and "=" in value else value
            is_name = value == _KEYWORDS.get(name) or (
                is_corpus and (own_folder("corpora") / f"{value}.toml").is_file()
            )
            if path and not is_name and expanded(path).exists():
                found[f"{option} {path}" if option in found else option] = str(Path(path))
    return found
