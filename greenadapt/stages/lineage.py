"""What results were made from."""

from collections.abc import Sequence
from pathlib import Path

from greenadapt.progress import Progress
from greenadapt.storage.results import Manifest, Result, read_manifest, result_behind


def with_sources(folders: Sequence[Path], progress: Progress) -> list[Result]:
    """The results in ``folders``, each after those it was made from.

    Warns of inputs that were made again since, and leaves them out. Raises ``MissingError`` for a folder that holds no
    result.
    """
    found: dict[Path, Result] = {}

    def add(folder: Path, manifest: Manifest) -> None:
        if folder.resolve() in found:
            return
        for entry in manifest.inputs.values():
            source = result_behind(entry, folder)
            if source is None:
                continue
            before = read_manifest(source)
            if "path" in entry and before.digest != entry["sha256"]:
                progress.warn(f"{source} was made again since {folder} was made from it: left out")
            else:
                add(source, before)
        found[folder.resolve()] = Result(folder.resolve(), manifest, folder)

    for folder in folders:
        add(folder, read_manifest(folder))
    return list(found.values())
