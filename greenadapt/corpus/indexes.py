"""Corpora whose files are found by an index: the files that a web page lists, and the articles of PMC's bucket."""

import re
from collections.abc import Sequence
from html import unescape
from pathlib import Path
from urllib.parse import quote, unquote

from greenadapt.corpus.download import download_session, fetch, get, local_path, refused, unfinished
from greenadapt.corpus.pmc import check_begun, fetch_articles
from greenadapt.corpus.recipes import Recipe
from greenadapt.corpus.sources import LISTING, Source, refuse_same_names
from greenadapt.errors import ConflictError, InputError
from greenadapt.progress import Progress, Silent
from greenadapt.storage.ownership import MARK, is_own, new_folder, note_files, noted_files

_LINK = re.compile(r"""href\s*=\s*["']([^"'?#]+)["']""", re.IGNORECASE)


def fetch_corpus(recipe: Recipe, folder: Path, progress: Progress | None = None) -> None:
    """Download what is missing into ``folder``: files, and for each index a folder of the files that it names.

    Such a folder is called ``NAME.part`` until it is complete; a later run goes on with it. Raises ``InputError`` and
    ``ResourceError`` as ``fetch``, ``InputError`` also if an index names no file.
    """
    progress = progress or Silent()
    _fetch_files([source for source in recipe.sources if not source.index], folder, progress)
    for source in recipe.sources:
        target = local_path(source, folder)
        if not source.index:
            continue
        if target.exists():
            check_begun(source, target)
            continue
        work = target.with_name(f"{target.name}.part")
        if not work.exists():
            new_folder(work)
        (_fetch_listed if source.index == LISTING else fetch_articles)(source, work, progress)
        work.replace(target)


def _fetch_files(sources: Sequence[Source], folder: Path, progress: Progress) -> None:
    """Download what is missing, and note in the folder's mark what it is."""
    files = {path.name: path for source in sources if source.is_remote if (path := local_path(source, folder))}
    begun = {name for name, size in noted_files(folder).items() if size is None}
    begun |= {name for name, path in files.items() if not path.exists()}
    if begun:
        folder.mkdir(parents=True, exist_ok=True)
        note_files(folder, dict.fromkeys(begun))
    fetch(sources, folder, progress)
    if begun:
        note_files(folder, {name: files[name].stat().st_size for name in begun & files.keys()})


def _fetch_listed(source: Source, work: Path, progress: Progress) -> None:
    """The files that the page lists now; those of an earlier list, such as last year's, are removed."""
    with download_session() as session:
        page = get(session, source.url)
    if page is None:
        raise refused(source.url, "404 Not Found")
    links = {unquote(unescape(link)) for link in _LINK.findall(page.decode("utf-8", "replace"))}
    names = sorted(link for link in links if re.fullmatch(source.files, link) and "/" not in link)
    if not names:
        raise InputError(f"{source.url} lists no file called {source.files}", "correct files or url in the recipe")
    files = [Source(source.url + quote(name), md5_beside=source.md5_beside) for name in names]
    refuse_same_names(files, source.url)
    targets = {local_path(file, work) for file in files}
    known = {each for target in targets for each in (target, *unfinished(target))}
    others = [path for path in work.iterdir() if path not in known and path.name != MARK]
    if others and not is_own(work):
        raise ConflictError(
            f"{work} holds {others[0].name}, which {source.url} does not list", "move it away, or remove the folder"
        )
    for path in others:
        path.unlink()
    for target in targets:
        if (before := work.parent / target.name).is_file():  # of a recipe that named each file
            before.replace(target)
    fetch(files, work, progress)
