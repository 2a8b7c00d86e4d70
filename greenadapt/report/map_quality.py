"""The quality of a map, or of the rows of a recipe, in words.

``figures`` are those of ``vectors.quality.HeldOut`` as a manifest has them.
"""

from greenadapt.errors import as_percent
from greenadapt.storage.files import Json

MAP = "map"
"""The recipe whose rows are the mapped vectors."""
ADVICE = "more text helps most, then more --epochs of w2v"


def explains_nothing(figures: Json) -> bool:
    """Whether the mean of the held-out words' rows is closer to these rows than the mapped vectors are."""
    return bool(figures["r2"] < 0)


def r2(figures: Json) -> str:
    """The explained share of the variance, with a remark if it is below 0."""
    return f"R² {figures['r2']:.3f}{' (under 0: it explains nothing)' if explains_nothing(figures) else ''}"


def figures_of(rows: Json | None, heldout: Json) -> Json | None:
    """The figures of a model's new rows, ``rows`` of its manifest.

    If it lacks them, and the rows are the mapped vectors, the figures of the map, ``heldout``; else ``None``.
    """
    rows = rows or {}
    recipe = rows.get("recipe")
    figures: Json | None = rows.get("heldout", {}).get(recipe)
    return heldout["figures"] if figures is None and recipe == MAP else figures


def warning(figures: Json | None, recipe: str = MAP) -> str:
    """The consequence of rows that predict nothing, and advice; empty for useful rows, and without figures.

    Least squares brings the mapped vectors as near as possible, so their R² counts. Rows of other recipes have other
    lengths, so the criterion is whether they find words more often than by chance.
    """
    if not figures:
        return ""
    n = figures["n_heldout"]
    if recipe == MAP:
        if not explains_nothing(figures):
            return ""
        return (
            f"on {n:,} held-out words R² is {figures['r2']:.3f}, under 0: the map explains nothing, and the mean of "
            f"their rows would be closer to these than the mapped vectors are; {ADVICE}"
        )
    scores = figures["base_rows"]["cosine"]
    if (precision := scores["precision_at_10"]) > 10 / scores["n_candidates"]:
        return ""
    return (
        f"of {n:,} rows by --rows {recipe} of held-out words {as_percent(precision)} have the word's own row among "
        f"the ten nearest, no more than by chance; {ADVICE}"
    )


def new_words(figures: Json) -> list[str]:
    """Sentences on the choice of words, from the figures of ``assess_rows``.

    They say how much of the text the words are, how many are rare, and up to which count they are better in pieces.
    """
    if (added := figures["added"]) is None:
        return []
    n_rare, n_words = added["by_count"][0]["n_words"], sum(band["n_words"] for band in added["by_count"])
    least = [band["min_count"] for band in added["by_count"]]
    sentences = [
        f"{as_percent(added['share'])} of the words of the corpus have a new row; {as_percent(n_rare / n_words, 0)} of "
        f"the {n_words:,} new rows are of words that occur less than {least[1]} times."
    ]
    if (test := figures["substitution"]) is not None and (rows := figures["rows"].get(figures["recipe"])):
        pairs = zip(rows["state_by_count"], test["split"]["state_by_count"], strict=True)
        worse = [row is not None and row < pieces for row, pieces in pairs]
        n_worse = [*worse, False].index(False)  # bands of rare words, from the first on
        if n_worse == len(worse):
            sentences.append(
                "At every count the model reads words better in pieces than with these rows: try --rows form."
            )
        elif n_worse:
            sentences.append(
                f"Words that occur less than {least[n_worse]} times are read better in pieces than with these rows: "
                f"expand --min-count {least[n_worse]} leaves them in pieces, --rows form may be better."
            )
    return sentences
