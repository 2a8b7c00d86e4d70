"""What corpora there are."""

from pathlib import Path

from greenadapt.corpus.download import is_fetched
from greenadapt.corpus.readers import require_local
from greenadapt.corpus.recipes import Recipe, find_recipe, list_recipes
from greenadapt.errors import GreenadaptError
from greenadapt.pipeline.session import CORPUS, Session
from greenadapt.store import Json


def list_corpora(session: Session) -> list[Json]:
    """The named corpora, then the others that the workspace holds; keys as ``show_corpus``, shorter."""
    recipes = list_recipes()
    rows = [_row(session, recipe) for recipe in recipes]
    named = {recipe.name for recipe in recipes}
    others = [name for name in session.workspace.corpora() if name not in named and session.workspace.models(name)]
    return rows + [_known(session, name) for name in others]


def show_corpus(session: Session, name: str) -> Json:
    """``name``, ``title``, ``licence``, ``format``, ``fields``, ``sources``, ``network``, ``about``, ``models``.

    ``network`` is ``no``, ``yes``, ``fetched``, or ``missing`` where a local source is not there; ``models`` lists the
    models that have results in the workspace.
    """
    if name in session.workspace.corpora() and name not in {recipe.name for recipe in list_recipes()}:
        return _known(session, name)
    recipe = find_recipe(name)
    return {
        **_row(session, recipe),
        "format": recipe.format,
        "fields": list(recipe.fields),
        "about": recipe.about,
        "sources": [source.url for source in recipe.sources] or ["the Python packages installed beside greenadapt"],
    }


def _row(session: Session, recipe: Recipe) -> Json:
    fetched = is_fetched(recipe, session.workspace.downloads(recipe.name))
    return {
        "name": recipe.name,
        "title": recipe.title,
        "licence": recipe.licence,
        "network": _network(recipe, fetched),
        "models": session.workspace.models(recipe.name),
    }


def _network(recipe: Recipe, fetched: bool) -> str:
    try:
        require_local(recipe)
    except GreenadaptError:
        return "missing"
    return "no" if recipe.is_local else "fetched" if fetched else "yes"


def _known(session: Session, name: str) -> Json:
    """A corpus that only the workspace knows: what the newest result says of it."""
    models = session.workspace.models(name)
    row = {"name": name, "title": name, "licence": "unknown", "network": "no", "models": models}
    for model in models:
        for result in session.workspace.results(name, model):
            facts = result.manifest.facts  # of a fine-tuned model they do not tell the corpus
            row |= {key: facts[key] for key in ("title", "licence") if key in facts}
            if result.manifest.stage == CORPUS:
                row["sources"] = sources = list(result.manifest.inputs["text"]["sources"])
                if any(Path(source).is_absolute() and not Path(source).exists() for source in sources):
                    row["network"] = "missing"
    return row
