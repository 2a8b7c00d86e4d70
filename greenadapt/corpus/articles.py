"""Articles of PubMed and PubMed Central: both kinds of XML, detected by root element, and PMC's plain text."""

import html
import re
from collections.abc import Iterator
from typing import IO, Any

from lxml import etree

from greenadapt.corpus.decoding import Decoder, Document
from greenadapt.corpus.opening import squeeze
from greenadapt.errors import InputError

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
