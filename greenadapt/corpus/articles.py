"""Articles of PubMed and PubMed Central (both kinds of XML), and of CORD-19."""

import html
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Any, TypeGuard

from lxml import etree

from greenadapt.corpus.opening import input_errors, open_binary, open_member, squeeze
from greenadapt.corpus.rows import parse_json, table_rows
from greenadapt.corpus.text import Decoder, Document, tar_members
from greenadapt.errors import InputError, json_kind, list_names
from greenadapt.store.files import Json

_ROOTS = ("PubmedArticleSet", "PubmedBookArticleSet", "pmc-articleset")
_ARTICLES = ("PubmedArticle", "PubmedBookArticle", "{*}article")
_SAFE: dict[str, Any] = {"resolve_entities": False, "no_network": True, "load_dtd": False, "huge_tree": False}
_HEAD = 1 << 16
_MARKUP = 8  # bytes of text that need as much memory as a tag in a parsed article
# Elements of a JATS article whose text is not part of a sentence.
_LEFT_OUT = {
    "tex-math", "disp-formula", "disp-formula-group", "table-wrap", "table-wrap-group", "fig", "fig-group", "media",
    "fn", "code", "supplementary-material", "graphic", "inline-graphic", "ref-list", "label", "object-id",
    "preformat", "chem-struct-wrap", "element-citation", "nlm-citation", "index-term", "private-char", "rt",
    "annotation",
}  # fmt: skip
# Of these, and of _OWN_LINES, the ones removed without leaving a space.
_INSIDE_A_WORD = {"fn", "tex-math", "inline-graphic", "index-term", "private-char", "rt", "annotation", "def"}
# A paragraph inside a paragraph (in a list, say) is a line of its own.
_OWN_LINES = {"list", "def-list", "disp-quote", "boxed-text", "p", "def"}
_PARAGRAPHS = {"p", "term"}
# Elements of JATS, its tables, MathML and PubMed that stand apart from the words before and after.
_APART = {
    "break", "hr", "title", "subtitle", "speech", "speaker", "statement", "verse-group", "verse-line", "attrib",
    "array", "tr", "td", "th", "caption", "address", "addr-line", "sig", "sig-block", "question", "answer",
    "mtr", "mlabeledtr", "mtd", "mspace", "DispFormula",
}  # fmt: skip
# References by a mark, mostly in superscript.
_MARKS_OF = {"bibr", "fn", "table-fn", "author-notes", "aff", "corresp", "contrib"}
_SIDE_ABSTRACTS = {"graphical", "teaser", "toc", "editor", "key-points", "highlights", "web-summary", "precis"}
_PUNCTUATION = re.compile(r"[\W_]*")
_EMPTY_BRACKETS = re.compile(r"\s*[\[(][\s,;–-]*[\])]")
_ENCODING = re.compile(rb"<\?xml[^>]*encoding\s*=\s*[\"']([\w-]+)")


def read_xml(stream: IO[bytes], name: str, fields: tuple[str, ...], decoder: Decoder) -> Iterator[Document]:
    """Yield the articles of PubMed XML (title, abstract) or JATS XML (abstracts, body paragraphs), below any root.

    Entities are not expanded. Raises InputError if the XML is broken or has no article.
    """
    # Events for articles only: visiting every element would take twice the time.
    parser = etree.XMLPullParser(("end",), tag=_ARTICLES, **_SAFE)
    try:
        size, has_articles = 0, False  # bytes read since the last article
        for block in _xml_blocks(stream, name, decoder):
            parser.feed(block)
            size += len(block) + _MARKUP * block.count(b"<")
            for _, element in parser.read_events():
                yield _article(element, name)
                _free(element)
                size, has_articles = 0, True
            decoder.check_size(size, f"{name}, a tag counted as {_MARKUP} bytes more")
        root = _tag(parser.close())
        if not has_articles and root not in _ROOTS:
            raise InputError(
                f"{name} has the root element <{root}>, and no article, PubmedArticle or PubmedBookArticle",
                "give PubMed or JATS XML, or convert it to JSON lines",
            )
    except etree.XMLSyntaxError as error:
        raise InputError(f"{name} is not well-formed XML ({squeeze(str(error))})", "fetch it again") from None


def _xml_blocks(stream: IO[bytes], name: str, decoder: Decoder) -> Iterator[bytes]:
    """Yield the file as UTF-8; unchanged if it declares another encoding, which the parser decodes."""
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


def _tag(element: Any) -> str:
    """The element's name without its namespace; "" for a comment or a processing instruction."""
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""


def _free(element: Any) -> None:
    """Free the memory of ``element`` and of everything before it."""
    element.clear()
    while (parent := element.getparent()) is not None:
        while element.getprevious() is not None:
            del parent[0]
        element = parent


def _article(element: Any, name: str) -> Document:
    if _tag(element) == "article":
        title = element.find("{*}front/{*}article-meta/{*}title-group/{*}article-title")
        return Document(tuple(_jats_lines(element)), name, title="" if title is None else _flatten(title))
    title = _pubmed_title(element)
    # The sections of the abstract are one line; ``OtherAbstract`` is a translation.
    abstract = squeeze(" ".join(_flatten(part) for part in element.iterfind(".//Abstract/AbstractText")))
    lines = tuple(line for line in (title, abstract) if line)
    return Document(lines, f"{name}:{element.findtext('.//PMID', '')}", title=title)


def _pubmed_title(element: Any) -> str:
    """The title, without the brackets that mark a translation."""
    # A book chapter has a title as well as the book.
    title = next(
        (node for tag in ("ArticleTitle", "BookTitle") if (node := element.find(f".//{tag}")) is not None), None
    )
    if title is None or (text := _flatten(title)) == "[Not Available].":
        return ""
    match = re.fullmatch(r"\[(.*?)\.?\]\.?", text)
    return match[1] + "." if match else text


def _jats_lines(element: Any) -> Iterator[str]:
    """Yield the paragraphs of the abstracts and the body, including lists.

    Skips translations, graphical and teaser abstracts, citation marks, headings, display formulas, tables, figures,
    footnotes and the reference list.
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
        if _tag(child) in _PARAGRAPHS and (text := _EMPTY_BRACKETS.sub("", _flatten(child))):
            yield text
        yield from _paragraphs(child)


def _flatten(element: Any) -> str:
    """The text of an element without nested mark-up: ``H<sub>2</sub>O`` becomes ``H2O``."""
    return squeeze("".join(_pieces(element)))


def _pieces(element: Any) -> Iterator[str]:
    yield element.text or ""
    is_fraction = _tag(element) == "mfrac"
    for number, child in enumerate(element):
        tag = _tag(child)
        if is_fraction and number:
            yield "/"
        if child.tag is etree.Entity:
            # The DTD is not loaded; HTML defines the same entities, such as &alpha;.
            yield html.unescape(child.text)
        elif not tag:
            pass
        elif tag in _LEFT_OUT or tag in _OWN_LINES:
            yield "" if tag in _INSIDE_A_WORD else " "
        elif not _is_mark(child, tag):
            space = " " if tag in _APART else ""
            yield space
            yield from _pieces(child)
            yield space
        yield child.tail or ""


def _is_mark(element: Any, tag: str) -> bool:
    """Whether an element is the mark of a citation or a footnote, or a superscript of such marks and punctuation."""
    if tag == "xref":
        return element.get("ref-type") in _MARKS_OF or [_tag(child) for child in element] == ["sup"]
    is_of_marks = tag == "sup" and any(_is_mark(child, _tag(child)) for child in element)
    return is_of_marks and _PUNCTUATION.fullmatch(_flatten(element)) is not None


_GIVE_PARSE = "give a CORD-19 parse; for other JSON, --format json"
_COLUMNS = ("cord_uid", "abstract", "pdf_json_files", "pmc_json_files")


def read_release(path: str, decoder: Decoder) -> Iterator[Document]:
    """Read a release in two streaming passes, since an archive may hold the parses before the metadata.

    The first pass yields the abstracts in the metadata and selects a parse of each ``cord_uid``: PMC's, which is
    cleaner, or else the first of the PDF. The second pass yields the body of each selected parse, with its abstract if
    the metadata has none. A paper can thus be two documents; only file names stay in memory. Counts
    ``repeated_parses`` (not selected) and ``missing_parses`` (selected but not in the release).
    Raises InputError if ``metadata.csv`` is missing or lacks a column.
    """
    abstract_ids: set[str] = set()
    parses: dict[str, tuple[bool, str]] = {}
    for name, stream in _release_files(path, decoder, parses=False):
        if PurePosixPath(name).name == "metadata.csv":
            with input_errors(f"{path}:{name}"):
                yield from _read_metadata(stream, f"{path}:{name}", abstract_ids, parses, decoder)
            break
    else:
        raise InputError(f"{path} has no metadata.csv", "give the folder or the archive of a CORD-19 release")
    needs_abstract = {file: uid not in abstract_ids for uid, (_, file) in parses.items()}
    for name, stream in _release_files(path, decoder, parses=True):
        file = PurePosixPath(name)
        if file.suffix != ".json":
            continue
        if file.name in needs_abstract:
            include_abstract = needs_abstract.pop(file.name)
            with input_errors(f"{path}:{name}"):
                parse = _read_parse(stream, f"{path}:{name}", decoder)
                document = parse_document(parse, f"{path}:{name}", file.name, with_abstract=include_abstract)
            yield document
        else:
            decoder.counts["repeated_parses"] += 1
    decoder.counts["missing_parses"] += len(needs_abstract)


def read_parse(stream: IO[bytes], name: str, fields: tuple[str, ...], decoder: Decoder) -> Iterator[Document]:
    """Read one parse in JSON: its abstract, if any, and its body paragraphs."""
    yield parse_document(_read_parse(stream, name, decoder), name, name, with_abstract=True)


def _release_files(path: str, decoder: Decoder, *, parses: bool) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield name and stream of the files in the folder or the archive; with ``parses`` those of the inner archive."""
    if not Path(path).is_dir():
        with open_binary(path) as stream:
            for name, member in tar_members(stream, path):
                if PurePosixPath(name).name != "document_parses.tar.gz":
                    yield name, member
                elif parses:
                    with open_member(member, f"{path}:{name}") as inner:
                        yield from tar_members(inner, f"{path}:{name}")
        return
    for file in sorted(Path(path).rglob("document_parses/**/*" if parses else "metadata.csv")):
        if file.is_file():
            with open_binary(str(file)) as stream:
                yield file.relative_to(path).as_posix(), stream
    for file in sorted(Path(path).rglob("document_parses.tar.gz")) if parses else ():
        if not (file.parent / "document_parses").is_dir():
            with open_binary(str(file)) as stream:
                yield from tar_members(stream, str(file))


def _read_metadata(
    stream: IO[bytes], name: str, abstract_ids: set[str], parses: dict[str, tuple[bool, str]], decoder: Decoder
) -> Iterator[Document]:
    """Yield the abstracts; add the ids of their papers to ``abstract_ids``, and the parse of each paper to ``parses``:
    whether it is of the PDF, and its file.
    """
    names, rows = table_rows(decoder.lines(stream, name), name, ",", decoder, hint="fetch it again")
    if missing := [column for column in _COLUMNS if column not in names]:
        raise InputError(
            f"{name} has no column {', '.join(missing)}, it has: {list_names(names)}",
            "use a release of 2020-05-26 or later",
        )
    for _, _, cells in rows:
        row = dict(zip(names, cells, strict=True))
        uid = row["cord_uid"]
        for from_pdf, column in enumerate(("pmc_json_files", "pdf_json_files")):
            if files := row[column].split(";")[0].strip():
                choice = (bool(from_pdf), PurePosixPath(files).name)
                # A later row of the same paper only replaces the PDF's parse with PMC's.
                if uid not in parses or choice[0] < parses[uid][0]:
                    parses[uid] = choice
                break
        if uid not in abstract_ids and (abstract := squeeze(row["abstract"])):
            abstract_ids.add(uid)
            yield Document((abstract,), uid, title=squeeze(row.get("title", "")))


def is_parse(value: Any) -> TypeGuard[Json]:
    """Whether a value from JSON is a parse of CORD-19: an object with lists of paragraphs."""
    return isinstance(value, dict) and any(isinstance(value.get(part), list) for part in ("abstract", "body_text"))


def parse_document(parse: Json, location: str, name: str, *, with_abstract: bool) -> Document:
    """The document ``name`` with the paragraphs of a parse.

    Raises ``InputError``, which names the ``location``, if the parse has anything else in place of paragraphs.
    """
    facts = parse.get("metadata")
    title = facts.get("title") if isinstance(facts, dict) else None
    lines = tuple(_parse_lines(parse, location, with_abstract))
    return Document(lines, name, title=squeeze(title) if isinstance(title, str) else "")


def _read_parse(stream: IO[bytes], name: str, decoder: Decoder) -> Json:
    content = stream.read(decoder.max_bytes + 1)
    decoder.check_size(len(content), name)
    parse = parse_json(decoder.decode(content, name), name, hint=_GIVE_PARSE)
    if not isinstance(parse, dict) or not {"body_text", "abstract"} & set(parse):
        actual = f"it has: {list_names(parse)}" if isinstance(parse, dict) else f"it is {json_kind(parse)}"
        raise InputError(f"{name} is not a CORD-19 parse: no body_text, {actual}", _GIVE_PARSE)
    return parse


def _parse_lines(parse: Json, name: str, include_abstract: bool) -> Iterator[str]:
    """Yield the paragraphs of a parse."""
    for part in ("abstract", "body_text") if include_abstract else ("body_text",):
        try:
            texts = [squeeze(paragraph.get("text") or "") for paragraph in parse.get(part) or []]
        except (AttributeError, TypeError):
            raise InputError(
                f"{name} is not a CORD-19 parse: {part} is not a list of paragraphs", _GIVE_PARSE
            ) from None
        yield from filter(None, texts)
