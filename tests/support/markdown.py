"""Markdown as other programs read it."""

from markdown_it import MarkdownIt
from markdown_it.token import Token


def tokens_of(markdown: str) -> list[Token]:
    """What CommonMark with tables makes of a text, the parts of a line among them."""
    tokens = MarkdownIt("commonmark").enable("table").parse(markdown)
    return [part for token in tokens for part in (token, *(token.children or ()))]
