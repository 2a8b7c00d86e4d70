"""Words of paragraphs in an index of tantivy, ranked by BM25."""

import importlib.util
from collections.abc import Iterable
from typing import TYPE_CHECKING

from greenadapt.errors import MissingError

if TYPE_CHECKING:
    import tantivy

_FIELD, _ANALYZER, _OPTION = "words", "words", "freq"


def require(*packages: str) -> None:
    """Raise ``MissingError`` if one of the packages that a search needs is not installed."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingError(f"a search needs {', '.join(missing)}, not installed", 'pip install "greenadapt[search]"')


def add_words(schema: "tantivy.SchemaBuilder") -> None:
    """A field ``words``: words separated by spaces, with their counts."""
    schema.add_text_field(_FIELD, tokenizer_name=_ANALYZER, index_option=_OPTION)


def prepare(index: "tantivy.Index") -> None:
    """Let ``index`` split the field; it forgets how when it is closed."""
    import tantivy

    index.register_tokenizer(_ANALYZER, tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.whitespace()).build())


def best(
    index: "tantivy.Index", searcher: "tantivy.Searcher", words: Iterable[str], top: int
) -> "list[tuple[float, tantivy.DocAddress]]":
    """The ``top`` best by Okapi BM25 with k1 1.2 and b 0.75, best first; each word counts once.

    What has none of the words is not among them.
    """
    import tantivy

    terms = [tantivy.Query.term_query(index.schema, _FIELD, word, _OPTION) for word in dict.fromkeys(words)]
    query = tantivy.Query.boolean_query([(tantivy.Occur.Should, term) for term in terms])
    most = max(1, searcher.num_docs)  # tantivy has memory ready for all that are asked for
    return searcher.search(query, min(top, most), count=False).hits
