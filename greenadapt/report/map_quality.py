"""How good a map is, and the rows of a recipe, in words; ``figures`` are those of ``diagnostics.HeldOut`` as a manifest
has them.
"""

from greenadapt.errors import as_percent
from greenadapt.storage.files import Json

MAP = "map"
"""The recipe whose rows are the mapped vectors."""
ADVICE = "try more text, a higher --alpha (such as 0.05) or more --epochs of w2v"


def explains_nothing(figures: Json) -> bool:
    """Whether the mean of the held-out words' rows would be closer to these than the mapped vectors are."""
    return bool(figures["r2"] < 0)


def r2(figures: Json) -> str:
    """The share of the variance that is explained, with a remark if it is none."""
    return f"R² {figures['r2']:.3f}{' (under 0: it explains nothing)' if explains_nothing(figures) else ''}"


def figures_of(rows: Json | None, heldout: Json) -> Json | None:
    """The figures of a model's new rows, ``rows`` of its manifest; where that lacks them, those of the map,
    ``heldout``, if the rows are the mapped vectors. ``None`` if nobody measured them.
    """
    known = rows or {}
    recipe = known.get("recipe")
    found: Json | None = known.get("heldout", {}).get(recipe)
    return heldout["figures"] if found is None and recipe == MAP else found


def warning(figures: Json | None, recipe: str = MAP) -> str:
    """What rows that predict nothing mean and what to do; empty for any others, and without figures.

    Least squares makes the mapped vectors as near as it can, so their R² counts. Rows of other recipes have lengths of
    their own; what counts is whether they find words more often than by chance.
    """
    if not figures:
        return ""
    if recipe == MAP:
        return _map_warning(figures) if explains_nothing(figures) else ""
    found, n = figures["base_rows"]["cosine"], figures["n_heldout"]
    if (ten := found["precision_at_10"]) > 10 / found["n_candidates"]:
        return ""
    return (
        f"of {n:,} rows by --rows {recipe} of held-out words {as_percent(ten)} have the word's own row among the ten "
        f"nearest, no more than by chance; {ADVICE}"
    )


def _map_warning(figures: Json) -> str:
    return (
        f"on {figures['n_heldout']:,} held-out words R² is {figures['r2']:.3f}, under 0: the map explains nothing, and "
        f"the mean of their rows would be closer to these than the mapped vectors are; {ADVICE}"
    )


def new_words(found: Json) -> list[str]:
    """What figures of ``assess_rows`` say of the choice of words: how much of the text they are, how many are rare, and
    up to which count they are better left in pieces.
    """
    if (added := found["added"]) is None:
        return []
    n_rare, n_words = added["by_count"][0]["n_words"], sum(band["n_words"] for band in added["by_count"])
    least = [band["min_count"] for band in added["by_count"]]
    said = [
        f"{as_percent(added['share'])} of the words of the corpus have a new row; {as_percent(n_rare / n_words, 0)} of "
        f"the {n_words:,} new rows are of words that occur less than {least[1]} times."
    ]
    if (test := found["substitution"]) is not None and (own := found["rows"].get(found["recipe"])):
        pairs = zip(own["state_by_count"], test["split"]["state_by_count"], strict=True)
        worse = [ours is not None and ours < pieces for ours, pieces in pairs]
        n_worse = worse.index(False) if False in worse else len(worse)  # bands of rare words, from the first on
        if n_worse == len(worse):
            said.append("At every count the model reads words better in pieces than with these rows: try --rows form.")
        elif n_worse:
            said.append(f"Words that occur less than {least[n_worse]} times are read better in pieces than with these "
                        f"rows: expand --min-count {least[n_worse]} leaves them in pieces, --rows form may be "
                        "better.")  # fmt: skip
    return said
