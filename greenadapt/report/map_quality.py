"""How good a map is, and the rows of a recipe, in words; ``figures`` are those of ``diagnostics.HeldOut`` as a manifest
has them.
"""

from greenadapt.errors import as_percent
from greenadapt.storage.files import Json

MAP = "map"
"""The recipe whose rows are the mapped vectors."""
_TRY = "try more text, a higher --alpha (such as 0.05) or more --epochs of w2v"


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
        f"of {n:,} rows by --rows {recipe} of held-out words {ten:.1%} have the word's own row among the ten nearest, "
        f"no more than by chance; {_TRY}"
    )


def _map_warning(figures: Json) -> str:
    return (
        f"on {figures['n_heldout']:,} held-out words R² is {figures['r2']:.3f}, under 0: the map explains nothing, and "
        f"the mean of their rows would be closer to these than the mapped vectors are; {_TRY}"
    )


def sentences(figures: Json) -> str:
    """The figures in running text, lines broken as in a model card."""
    found = figures["base_rows"]["cosine"]
    first, ten = found["precision_at_1"], found["precision_at_10"]
    explained = "none" if explains_nothing(figures) else as_percent(figures["r2"])
    text = (
        f"On {figures['n_heldout']:,} words held out of the fit, the map explains {explained} of the variance\nof the "
        f"model's rows (R² {figures['r2']:.3f}, mean cosine {figures['cosine']:.2f}). Among all of the model's rows it "
        f"finds\nthe word's own first for {as_percent(first)} of them, and among the ten nearest for "
        f"{as_percent(ten)}."
    )
    if explains_nothing(figures):
        text += f"\n\nR² under 0 means that the mean row would be closer than the mapped vectors are:\n{_TRY}."
    return text


def recipes(rows: Json) -> str:
    """The figures of recipes of rows as a table in Markdown; ``rows`` is as the manifest of an adapted model has it."""
    counts = [str(band["min_count"]) for band in next(iter(rows["heldout"].values()))["by_count"]]
    head = ["recipe", "mean cosine", "own row first", "among ten", *(f"of words from {count}" for count in counts)]
    table = [head, ["---"] * len(head)]
    for name, figures in rows["heldout"].items():
        found = figures["base_rows"]["cosine"]
        shares = [band["precision_at_10"] for band in figures["by_count"]]
        bands = ["–" if share is None else as_percent(share, 0) for share in shares]
        share = as_percent(found["precision_at_1"]), as_percent(found["precision_at_10"])
        table.append([name, f"{figures['cosine']:.3f}", *share, *bands])
    explained = "; the last columns are the share among ten of words that occur so often" if counts else ""
    return (
        f"The new rows are `--rows {rows['recipe']}`. On words held out of the fit, with the pieces they would be\n"
        f"cut into without their rows{explained}:\n\n" + "\n".join(f"| {' | '.join(row)} |" for row in table)
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
