"""The layout's rules: imports point one way, and the command line loads nothing heavy."""

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import greenadapt

PACKAGE = Path(greenadapt.__file__).parent
# From the bottom to the top: a package imports itself and lower lines; those on one line do not import each other.
LAYERS = [
    ["errors", "progress", "version", "workers"],
    ["cluster", "cost"],
    ["fields", "architectures"],
    ["config", "store"],
    ["tokenization"],
    ["checkpoints", "corpus"],
    ["tasks", "vectors"],
    ["models", "report"],
    ["inference", "training"],
    ["stages", "server"],
    ["cli"],
    ["api"],
    ["__main__"],
]
# Within a package, folders import its loose files; in these it is the loose files that import the folders.
LOOSE_ABOVE = ["vectors", "cli"]
SIBLINGS = [("inference.qa", "inference.search")]
FILES_ABOVE = [("stages.report", "stages.finetune"), ("stages.pretrain", "stages.finetune")]
"""Files that import a folder of their package."""
TORCH_FREE = [
    *(
        "corpus.prepared",
        "stages.adapt",
        "stages.pretrain",
        "stages.qa",
        "stages.evaluate",
        "stages.assess",
        "stages.finetune.train",
        "stages.finetune.compare",
        "stages.finetune.cross_validation",
    ),
    *("inference.predictor", "inference.models", "inference.qa.answering", "report.cards"),
    *("tasks.ner", "tasks.classification", "tasks.qa", "vectors.cbow", "vectors.rows"),
    *("models.task_folder", "models.streaming", "models.adapters.shape"),
    *("models.memory.choice", "checkpoints.writer", "tokenization.dual_tokenizer"),
]
HEAVY = ["torch", "ray", "transformers", "gensim", "numba", "scipy", "numpy", "tokenizers"]


def _modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        if name != "__init__" and not name.startswith("corpora."):
            yield name, path


@cache
def _import_nodes(path: Path) -> list[ast.Import | ast.ImportFrom]:
    nodes = ast.walk(ast.parse(path.read_text("utf-8")))
    return [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]


@cache
def _imports(path: Path) -> set[str]:
    """Every module of the package that a file imports, without ``greenadapt.``."""
    modules = set()
    for node in _import_nodes(path):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif node.module:
            parts = node.module.split(".")[1:]
            for alias in node.names:
                below = PACKAGE.joinpath(*parts, alias.name)
                is_module = below.with_suffix(".py").is_file() or below.is_dir()
                modules.add(f"{node.module}.{alias.name}" if is_module else node.module)
    return {name.removeprefix("greenadapt.") for name in modules if name.startswith("greenadapt.")}


def test_imports_point_one_way() -> None:
    height = {package: level for level, packages in enumerate(LAYERS) for package in packages}
    violations = []
    for module, path in _modules():
        package = module.split(".")[0]
        assert package in height, f"{package} has no place in LAYERS"
        imported = {name for name in _imports(path) if name.split(".")[0] != package}
        violations += [f"{module} imports {name}" for name in imported if height[name.split(".")[0]] >= height[package]]
    assert violations == []


def test_nothing_imports_the_package_itself() -> None:
    """``greenadapt/__init__`` imports the functions of ``api``, which are the highest."""
    for module, path in _modules():
        froms = [node for node in _import_nodes(path) if isinstance(node, ast.ImportFrom)]
        assert not [node for node in froms if node.module == "greenadapt"], module


def _folder(module: str) -> str:
    """``training.finetune`` for a module in that folder, the package for one that lies loose in it."""
    parts = module.split(".")
    folder = parts[:2] if PACKAGE.joinpath(*parts[:2], "__init__.py").is_file() else parts[:1]
    return ".".join(folder)


MODULE_OF = {
    "backports-zstd": "backports",
    "protobuf": "google",
    "pyyaml": "yaml",
    "scikit-learn": "sklearn",
    "vl-convert-python": "vl_convert",
}
"""What a distribution is imported as, where the name is another."""


def test_what_is_imported_is_declared() -> None:
    """Not only something that another package needs today."""
    with open(Path(__file__).parents[1] / "pyproject.toml", "rb") as file:
        project = tomllib.load(file)["project"]
    named = [*project["dependencies"], *chain.from_iterable(project["optional-dependencies"].values())]
    names = {canonicalize_name(Requirement(requirement).name) for requirement in named}
    declared = {MODULE_OF.get(name, name.replace("-", "_")) for name in names}
    imported = set()
    for _, path in _modules():
        for node in _import_nodes(path):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif node.level == 0 and node.module:
                imported.add(node.module.split(".")[0])
    assert {"requests", "torch", "yaml"} <= imported
    undeclared = {"greenadapt", "compression"}  # the second is part of Python since 3.14
    assert sorted(imported - declared - sys.stdlib_module_names - undeclared) == []


def test_folders_within_a_package_import_one_way() -> None:
    violations = []
    for module, path in _modules():
        package, folder = module.split(".")[0], _folder(module)
        for name in _imports(path):
            imported_folder = _folder(name)
            if name.split(".")[0] != package or folder == imported_folder:
                continue
            if folder == package:
                allowed = package in LOOSE_ABOVE
            elif imported_folder == package:
                allowed = package not in LOOSE_ABOVE or name == package
            else:
                allowed = (folder, imported_folder) in SIBLINGS
            allowed = allowed or (module, imported_folder) in FILES_ABOVE
            if not allowed:
                violations.append(f"{module} imports {name}")
    assert violations == []


def _loaded_by(code: str, tmp_path: Path) -> set[str]:
    script = f"{code}\nimport sys; print(*[m for m in {HEAVY} if m in sys.modules])"
    completed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path)
    return set(completed.stdout.split())


def test_the_cpu_half_never_loads_torch_or_ray(tmp_path: Path) -> None:
    modules = ", ".join(f"greenadapt.{module}" for module in TORCH_FREE)
    assert not _loaded_by(f"import {modules}", tmp_path) & {"torch", "transformers", "ray"}


@pytest.mark.slow
def test_help_loads_no_stage(tmp_path: Path) -> None:
    code = (
        "import sys; from greenadapt.cli import app\n"
        "try: app(['w2v', '--help'])\n"
        "except SystemExit: print('', file=sys.stderr)\n"
        "sys.stdout = sys.__stdout__"
    )
    loaded = _loaded_by(code, tmp_path)
    assert not loaded & set(HEAVY)
