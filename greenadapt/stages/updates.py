"""``adapt --update``: what of the former results is kept, and when word vectors are trained afresh.

Every result of an update lists in its manifest, as ``facts["updates"]``, the updates since the last full run, oldest
first: the digest of the result that it was made from (``from``), the size of the corpus then (``lines``, ``tokens``,
``words``), and what was new.
"""

from greenadapt.config import W2VConfig
from greenadapt.corpus.prepared import SEEN_FILE, PreparedCorpus, added_positions
from greenadapt.errors import counted
from greenadapt.stages.session import Session
from greenadapt.storage.files import Json
from greenadapt.storage.results import Result, verified
from greenadapt.vectors.cbow import EarlierVectors, vocabulary_size
from greenadapt.vectors.word_vectors import WordVectors, read_output

MAX_NEW_WORDS = 0.1
"""Share of the trained words that may be new; with more, vectors are trained afresh."""
MAX_NEW_TEXT = 0.2
"""Words that may be added by all updates since vectors were last trained afresh, as a share of the text then."""


def former_corpus(session: Session, earlier: Result | None, inputs: dict[str, Json]) -> Result | None:
    """The prepared corpus that new documents can be added to; without one, a note says why all text is prepared."""
    if earlier is None:
        return None
    if earlier.manifest.inputs["tokenizer"]["sha256"] != inputs["tokenizer"]["sha256"]:
        why = "the tokenizer changed"
    elif not (earlier.folder / SEEN_FILE).is_file():
        why = f"{earlier.path} was made by an earlier version, which kept no list of documents"
    else:
        return earlier
    session.progress.note(f"corpus: all text is prepared: {why}")
    return None


def count_update(session: Session, former: Result, counts: dict[str, int]) -> list[Json]:
    """The updates that led to a corpus, the last one added; makes ``counts`` those of the whole corpus."""
    before, gone, heldout = former.manifest.counts, counts.pop("gone"), counts.pop("heldout")
    new = counts["documents"] - counts["duplicates"]
    for name in ("documents", "duplicates", "text_bytes"):
        counts[name] += before[name]
    session.progress.note(f"{counted(new, 'new document')}, {counted(counts['words'] - before['words'], 'new word')}")
    if gone:
        session.progress.note(
            f"{counted(gone, 'document')} of earlier runs, no longer in the text, "
            f"{'stays' if gone == 1 else 'stay'} counted (--force counts from scratch)"
        )
    entry = {"from": former.manifest.digest, "new_documents": new, "gone_documents": gone}
    entry |= {name: before[name] for name in ("lines", "tokens", "words")}
    return [*former.manifest.facts.get("updates", []), *([entry] if new or heldout else [])]


def earlier_vectors(
    former: Result, prepared: Result, corpus: PreparedCorpus, config: W2VConfig
) -> EarlierVectors | str:
    """The vectors to train on from, or why vectors are trained afresh."""
    counts, facts = prepared.manifest.counts, prepared.manifest.facts
    trained_on = former.manifest.inputs["corpus"]["sha256"]
    before = next((entry for entry in facts.get("updates", []) if entry["from"] == trained_on), None)
    if before is None:
        return "the corpus was prepared from scratch since they were trained"
    output = read_output(former.folder)
    if output is None:
        return f"{former.path} was made by an earlier version, which kept too little to train on"
    began = [*former.manifest.facts.get("updates", []), before][0]["tokens"]
    if counts["tokens"] > (1 + MAX_NEW_TEXT) * began:
        grown = counts["tokens"] / began - 1
        return f"the text grew by {grown:.1%} since they last were (limit {MAX_NEW_TEXT:.0%})"
    vectors = WordVectors.load(verified(former).folder)
    words = corpus.words[: vocabulary_size(corpus.counts, config)]
    share = sum(word not in vectors.index for word in words) / len(words)
    if share > MAX_NEW_WORDS:
        return f"{share:.1%} of the words are new (limit {MAX_NEW_WORDS:.0%})"
    positions = added_positions(before["lines"], corpus.n_lines, prepared.manifest.config["seed"])
    return EarlierVectors(vectors, output, positions, former.manifest.digest)


def vectors_update(former: Result, prepared: Result, earlier: EarlierVectors, n_words: int) -> list[Json]:
    """The updates that led to vectors of ``n_words`` words, the last one added."""
    trained_on = former.manifest.inputs["corpus"]["sha256"]
    before = next(entry for entry in prepared.manifest.facts["updates"] if entry["from"] == trained_on)
    entry = {"from": earlier.digest, **{name: before[name] for name in ("lines", "tokens")}}
    entry |= {"words": len(earlier.vectors.words), "new_words": n_words - len(earlier.vectors.words)}
    return [*former.manifest.facts.get("updates", []), entry]
