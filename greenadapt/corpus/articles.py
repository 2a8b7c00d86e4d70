"""Articles of PubMed and PubMed Central (both kinds of XML, and PMC's plain text), and of CORD-19."""

import html
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Any

from lxml import etree

from greenadapt.corpus.opening import input_errors, is_tar, open_binary, open_member, squeeze
from greenadapt.corpus.rows import table_rows
from greenadapt.corpus.text import Decoder, Document, tar_members
from greenadapt.errors import InputError, json_kind

_ROOTS = ("PubmedArticleSet", "PubmedBookArticleSet", "PubmedArticle", "PubmedBookArticle", "article", "pmc-articleset")
_ARTICLES = ("PubmedArticle", "PubmedBookArticle", "{*}article")
_SAFE: dict[str, Any] = {"resolve_entities": False, "no_network": True, "load_dtd": False, "huge_tree": False}
_HEAD = 1 << 16
_MARKUP = 8  # bytes of text that need as much memory as a tag in a parsed article
# Elements of a JATS article whose text is not part of a sentence.
_LEFT_OUT = {
    "tex-math", "disp-formula", "disp-formula-group", "table-wrap", "table-wrap-group", "fig", "fig-group", "media",
    "fn", "code", "supplementary-material", "graphic", "inline-graphic", "ref-list", "label", "object-id",
    "preformat", "chem-struct-wrap",
}  # fmt: skip
# Of these, the ones removed without leaving a space.
_INSIDE_A_WORD = {"fn", "tex-math", "inline-graphic"}
# A paragraph inside a paragraph (in a list, say) is a line of its own.
_OWN_LINES = {"list", "def-list", "disp-quote", "boxed-text", "p"}
_SIDE_ABSTRACTS = {"graphical", "teaser", "toc", "editor", "key-points", "highlights", "web-summary", "precis"}
_EMPTY_BRACKETS = re.compile(r"\s*[\[(][\s,;–-]*[\])]")
_ENCODING = re.compile(rb"<\?xml[^>]*encoding\s*=\s*[\"']([\w-]+)")
_MARK = re.compile(r"^==== (\w+)")
_ABSTRACT_HEADINGS = {"abstract", "summary", "background", "objective", "objectives", "purpose"}
_AFTER_ABSTRACT = re.compile(r"^(key ?words?|electronic supplementary material|issue-copyright)\b", re.IGNORECASE)


def read_xml(stream: IO[bytes], name: str, fields: tuple[str, ...], decoder: Decoder) -> Iterator[Document]:
    """PubMed (title, abstracts) or JATS (abstracts, body paragraphs), article by article, entities never expanded.

    Raises InputError if the XML is broken or its root element is of neither kind.
    """
    # Events for articles only: visiting every element would take twice the time.
    parser = etree.XMLPullParser(("end",), tag=_ARTICLES, **_SAFE)
    try:
        size = 0  # of the data since the last article
        for number, block in enumerate(_xml_blocks(stream, name, decoder)):
            if number == 0:
                _check_root(block, name)
            parser.feed(block)
            size += len(block) + _MARKUP * block.count(b"<")
            for _, element in parser.read_events():
                yield _article(element, name)
                _forget(element)
                size = 0
            decoder.check_size(size, f"{name}, a tag counted as {_MARKUP} bytes more")
        parser.close()
    except etree.XMLSyntaxError as error:
        raise InputError(f"{name} is not well-formed XML ({squeeze(str(error))})", "fetch it again") from None


def _xml_blocks(stream: IO[bytes], name: str, decoder: Decoder) -> Iterator[bytes]:
    """The file as UTF-8; unchanged if it declares another encoding, which the parser then decodes."""
    head = stream.read(_HEAD)
    declared = _ENCODING.search(head)
    is_utf8 = head[:2] not in (b"\xff\xfe", b"\xfe\xff") and (
        not declared or declared[1].upper() in (b"UTF-8", b"US-ASCII")
    )
    if is_utf8 and head:
        yield from decoder.blocks(stream, name, head)
    else:
        yield head
        yield from iter(lambda: stream.read(_HEAD), b"")


def _check_root(head: bytes, name: str) -> None:
    """Raise ``InputError`` if the root element, which must be in the head, is not of a known kind of file."""
    parser = etree.XMLPullParser(("start",), **_SAFE)
    parser.feed(head)
    _, root = next(parser.read_events(), ("", None))
    found = "no element" if root is None else f"the root element <{_tag(root)}>"
    if root is None or _tag(root) not in _ROOTS:
        raise InputError(
            f"{name} begins with {found}, not with one of {', '.join(_ROOTS)}",
            "give PubMed or JATS XML, or convert it to JSON lines",
        )


def _tag(element: Any) -> str:
    """The element's name without its namespace; "" for a comment or a processing instruction."""
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""


def _forget(element: Any) -> None:
    """Free an article that has been read, and everything before it."""
    element.clear()
    parent = element.getparent()
    while parent is not None and element.getprevious() is not None:
        del parent[0]


def _article(element: Any, name: str) -> Document:
    if _tag(element) == "article":
        title = element.find("{*}front/{*}article-meta/{*}title-group/{*}article-title")
        return Document(tuple(_jats_lines(element)), name, title="" if title is None else _flat(title))
    name, title = f"{name}:{element.findtext('.//PMID', '')}", _pubmed_title(element)
    return Document(tuple(_pubmed_lines(element, title)), name, title=title)


def _pubmed_title(element: Any) -> str:
    """Without the brackets of a translated one."""
    # A book chapter has a title as well as the book.
    title = next(
        (found for tag in ("ArticleTitle", "BookTitle") if (found := element.find(f".//{tag}")) is not None), None
    )
    if title is None or (text := _flat(title)) == "[Not Available].":
        return ""
    match = re.fullmatch(r"\[(.*?)\.?\]\.?", text)
    return match[1] + "." if match else text


def _pubmed_lines(element: Any, title: str) -> Iterator[str]:
    """The title, and the sections of the abstract in one line.

    ``OtherAbstract`` (another language, or a plain summary) is left out.
    """
    if title:
        yield title
    sections = [_flat(part) for part in element.iterfind(".//Abstract/AbstractText")]
    if abstract := squeeze(" ".join(sections)):
        yield abstract


def _jats_lines(element: Any) -> Iterator[str]:
    """The paragraphs of the abstracts (no graphical or teaser ones, no translations) and of the body.

    Citation marks, headings, display formulas, tables, figures with their captions, footnotes and the
    reference list are left out; the text of lists stays.
    """
    for part in element:
        if _tag(part) == "body":
            yield from _paragraphs(part)
        elif _tag(part) == "front":
            for abstract in part.iter("{*}abstract"):
                if abstract.get("abstract-type", "") not in _SIDE_ABSTRACTS:
                    yield from _paragraphs(abstract)


def _paragraphs(element: Any) -> Iterator[str]:
    for child in element:
        if _tag(child) in _LEFT_OUT:
            continue
        if _tag(child) == "p" and (text := _EMPTY_BRACKETS.sub("", _flat(child))):
            yield text
        yield from _paragraphs(child)


def _flat(element: Any) -> str:
    """The text of an element with nested mark-up flattened: ``H<sub>2</sub>O`` is ``H2O``."""
    return squeeze("".join(_pieces(element)))


def _pieces(element: Any) -> Iterator[str]:
    yield element.text or ""
    for child in element:
        tag = _tag(child)
        if child.tag is etree.Entity:
            # The DTD is not loaded; the entities in articles, such as &alpha;, are also HTML's.
            yield html.unescape(child.text)
        elif not tag:
            pass
        elif tag in _LEFT_OUT or tag in _OWN_LINES:
            yield "" if tag in _INSIDE_A_WORD else " "
        elif not (tag == "xref" and child.get("ref-type") == "bibr"):
            yield from _pieces(child)
        yield child.tail or ""


def read_pmc_text(stream: IO[bytes], name: str, fields: tuple[str, ...], decoder: Decoder) -> Iterator[Document]:
    """PMC's plain text: the abstract, found in ``==== Front``, and ``==== Body``; the references are left out.

    The front matter has no marks of its own: the abstract is what follows a line such as Abstract, up to the key words;
    without one, the lines of 40 words or more that end as a sentence does and state no licence.
    """
    parts: dict[str, list[str]] = {}
    part, size = "", 0
    for _, line in decoder.lines(stream, name):
        size += len(line)
        decoder.check_size(size, name)
        if mark := _MARK.match(line):
            part = mark[1]
        elif text := squeeze(line):
            parts.setdefault(part, []).append(text)
    yield Document((*_front_abstract(parts.get("Front", [])), *parts.get("Body", [])), name)


def _front_abstract(lines: list[str]) -> list[str]:
    for start, line in enumerate(lines):
        if line.lower().rstrip(":") in _ABSTRACT_HEADINGS:
            rest = lines[start + 1 :]
            end = next((position for position, text in enumerate(rest) if _AFTER_ABSTRACT.match(text)), len(rest))
            return [text for text in rest[:end] if " " in text]
    return [line for line in lines if _is_abstract(line)]


def _is_abstract(line: str) -> bool:
    is_licence = re.search(r"creative commons|copyright|open[- ]access|licen[cs]e", line, re.IGNORECASE)
    return len(line.split()) >= 40 and line.endswith((".", "?", "!")) and not is_licence


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
