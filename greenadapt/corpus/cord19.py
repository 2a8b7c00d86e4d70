"""CORD-19: the abstracts of ``metadata.csv`` and the body paragraphs of ``document_parses``."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Any

from greenadapt.corpus.decoding import Decoder, Document
from greenadapt.corpus.opening import input_errors, is_tar, open_binary, open_member, squeeze
from greenadapt.corpus.rows import table_rows
from greenadapt.corpus.unpacking import tar_members
from greenadapt.errors import InputError, json_kind

_COLUMNS = ("cord_uid", "abstract", "pdf_json_files", "pmc_json_files")
_MARKS = ("metadata.csv", "document_parses", "document_parses.tar.gz", "cord_19_embeddings.tar.gz")


@dataclass
class _Papers:
    """From the metadata: which parse to use for each paper, and which papers have their abstract."""

    with_abstract: set[str] = field(default_factory=set)
    parses: dict[str, tuple[bool, str]] = field(default_factory=dict)
    """cord_uid → (whether it is only the PDF's, file name)."""


def is_release(path: str, kind: str) -> bool:
    """Whether ``path`` is a whole release: its extracted folder, or the one-file archive."""
    if kind not in ("cord19", "auto"):
        return False
    if Path(path).is_dir():
        return kind == "cord19" or all((Path(path) / mark).exists() for mark in _MARKS[:2])
    return is_tar(path) and (kind == "cord19" or _looks_like_release(path))


def _looks_like_release(path: str) -> bool:
    """Whether one of the first members has a name of the release (without reading a whole archive)."""
    with input_errors(path), open_binary(path) as stream:
        for position, (name, _) in enumerate(tar_members(stream, path)):
            if position == 3:
                break
            if not set(_MARKS).isdisjoint(PurePosixPath(name).parts):
                return True
    return False


def read_release(path: str, decoder: Decoder) -> Iterator[Document]:
    """A release in two streaming passes, since an archive may hold the parses before the metadata.

    The first pass yields each paper's abstract and notes the file name of its parse: PMC's if it has one, since it is
    cleaner, else the first of the PDF's; several rows with one ``cord_uid`` are one paper. The second yields the body
    paragraphs of those parses, and the parse's own abstract if the metadata had none. So a paper may be two documents,
    and only file names are kept in memory. ``repeated_parses`` counts the parses left out, ``missing_parses`` those
    listed but missing.
    Raises InputError if there is no ``metadata.csv`` or it lacks a column.
    """
    papers = _Papers()
    for name, stream in _release_files(path, decoder, parses=False):
        if PurePosixPath(name).name == "metadata.csv":
            with input_errors(f"{path}:{name}"):
                yield from _read_metadata(stream, f"{path}:{name}", papers, decoder)
            break
    else:
        raise InputError(f"{path} has no metadata.csv", "give the folder or the archive of a CORD-19 release")
    wanted = {file: uid not in papers.with_abstract for uid, (_, file) in papers.parses.items()}
    for name, stream in _release_files(path, decoder, parses=True):
        file = PurePosixPath(name)
        if file.suffix != ".json":
            continue
        if file.name in wanted:
            with_abstract = wanted.pop(file.name)
            with input_errors(f"{path}:{name}"):
                parsed = _parsed(stream, f"{path}:{name}", file.name, decoder, with_abstract=with_abstract)
            yield parsed
        else:
            decoder.counts["repeated_parses"] += 1
    decoder.counts["missing_parses"] += len(wanted)


def read_parse(stream: IO[bytes], name: str, fields: tuple[str, ...], decoder: Decoder) -> Iterator[Document]:
    """A single parse as JSON: its abstract, if any, and its body paragraphs."""
    yield _parsed(stream, name, name, decoder, with_abstract=True)


def _release_files(path: str, decoder: Decoder, *, parses: bool) -> Iterator[tuple[str, IO[bytes]]]:
    """Name and stream of the files in the folder or the archive; those of the inner archive if ``parses``."""
    if not Path(path).is_dir():
        with open_binary(path, decoder.limits) as stream:
            for name, member in tar_members(stream, path):
                yield from _with_inner(path, name, member, decoder, parses=parses)
        return
    for file in sorted(Path(path).rglob("document_parses/**/*" if parses else "metadata.csv")):
        if file.is_file():
            with open_binary(str(file), decoder.limits) as stream:
                yield file.relative_to(path).as_posix(), stream
    for file in sorted(Path(path).rglob("document_parses.tar.gz")) if parses else ():
        if not (file.parent / "document_parses").is_dir():
            with open_binary(str(file), decoder.limits) as stream:
                yield from tar_members(stream, str(file))


def _with_inner(
    path: str, name: str, member: IO[bytes], decoder: Decoder, *, parses: bool
) -> Iterator[tuple[str, IO[bytes]]]:
    if PurePosixPath(name).name != "document_parses.tar.gz":
        yield name, member
    elif parses:
        with open_member(member, f"{path}:{name}", decoder.limits) as inner:
            yield from tar_members(inner, f"{path}:{name}")


def _read_metadata(stream: IO[bytes], name: str, papers: _Papers, decoder: Decoder) -> Iterator[Document]:
    rows = table_rows(decoder.lines(stream, name), name, ",", decoder, hint="fetch it again")
    header = next(rows, None)
    names = header.fields if header else []
    if missing := [column for column in _COLUMNS if column not in names]:
        raise InputError(
            f"{name} has no column {', '.join(missing)}, it has: {', '.join(names)}",
            "use a release of 2020-05-26 or later",
        )
    for _, _, fields in rows:
        if not fields:
            continue
        row = dict(zip(names, [*fields, *[""] * len(names)], strict=False))
        uid = row["cord_uid"]
        for is_pdf, column in enumerate(("pmc_json_files", "pdf_json_files")):
            if files := row[column].split(";")[0].strip():
                choice = (bool(is_pdf), PurePosixPath(files).name)
                # A later row of the same paper only replaces a PDF's parse by PMC's.
                if uid not in papers.parses or choice[0] < papers.parses[uid][0]:
                    papers.parses[uid] = choice
                break
        if uid not in papers.with_abstract and (abstract := squeeze(row["abstract"])):
            papers.with_abstract.add(uid)
            yield Document((abstract,), uid, title=squeeze(row.get("title", "")))


def _parsed(stream: IO[bytes], where: str, name: str, decoder: Decoder, *, with_abstract: bool) -> Document:
    parse = _read_parse(stream, where, decoder)
    facts = parse.get("metadata")
    title = facts.get("title") if isinstance(facts, dict) else None
    lines = tuple(_parse_lines(parse, where, with_abstract))
    return Document(lines, name, title=squeeze(title) if isinstance(title, str) else "")


def _read_parse(stream: IO[bytes], name: str, decoder: Decoder) -> dict[str, Any]:
    try:
        content = stream.read(decoder.limits.max_document_bytes + 1)
        decoder.check_size(len(content), name)
        parse: Any = json.loads(decoder.decode(content, name))
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{name} is not JSON ({error})", "give a CORD-19 parse; for JSON lines add --format jsonl"
        ) from None
    if not isinstance(parse, dict) or not {"body_text", "abstract"} & set(parse):
        found = f"it has: {', '.join(parse)}" if isinstance(parse, dict) else f"it is {json_kind(parse)}"
        raise InputError(f"{name} is not a CORD-19 parse: no body_text, {found}", "for JSON lines add --format jsonl")
    return parse


def _parse_lines(parse: dict[str, Any], name: str, with_abstract: bool) -> Iterator[str]:
    """The paragraphs of one parse; a body that is missing gives none."""
    parts = ("abstract", "body_text") if with_abstract else ("body_text",)
    for part in parts:
        paragraphs = parse.get(part) or []
        if not isinstance(paragraphs, list) or not all(map(_is_paragraph, paragraphs)):
            raise InputError(
                f"{name} is not a CORD-19 parse: {part} is not a list of paragraphs",
                "for JSON lines add --format jsonl",
            )
        yield from (text for each in paragraphs if (text := squeeze(each.get("text") or "")))


def _is_paragraph(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("text") or "", str)
