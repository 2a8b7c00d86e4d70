"""The layout's rules: imports point one way, and the command line loads nothing heavy."""

import ast
import subprocess
import sys
from pathlib import Path

import greenadapt

PACKAGE = Path(greenadapt.__file__).parent
# From the bottom to the top; a module may import its own layer and those below.
LAYERS = [
    ["errors", "json_files", "progress", "names", "bytelevel", "processes", "wording"],
    ["config", "adapter_config", "arrays", "vocabulary", "locks", "publish", "input_paths", "cost"],
    ["store"],
    ["corpus", "outputs", "vectors", "vector_formats"],
    ["sequence_table", "special_tokens", "base_vocabulary", "new_entries", "added_words", "tokenizer", "export"],
    ["checkpoint", "surgery"],
    ["features"],
    ["tasks"],
    ["models"],
    ["training"],
    [
        "engines",
        "w2v",
        "align",
        "diagnostics",
        "neighbours",
        "expand",
        "interpolate",
        "ensemble",
        "fertility",
        "workspace",
        "model",
        "bootstrap",
    ],
    ["pipeline", "report"],
    ["cli", "__main__"],
]
HEAVY = ["torch", "transformers", "gensim", "scipy", "numpy", "tokenizers"]


def _imports(path: Path) -> set[str]:
    """First part after ``greenadapt.`` of every module that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module] if node.module != "greenadapt" else [f"greenadapt.{a.name}" for a in node.names]
        found |= {name.split(".")[1] for name in names if name.startswith("greenadapt.")}
    return found


def test_imports_point_one_way() -> None:
    height = {module: level for level, modules in enumerate(LAYERS) for module in modules}
    wrong = []
    for path in sorted(PACKAGE.rglob("*.py")):
        module = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if module in ("__init__", "corpora"):
            continue
        assert module in height, f"{module} has no place in LAYERS"
        wrong += [
            f"{module} imports {name}" for name in _imports(path) - {"__version__"} if height[name] > height[module]
        ]
    assert wrong == []


def _loaded_by(code: str, tmp_path: Path) -> set[str]:
    script = f"{code}\nimport sys; print(*[m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path)
    return set(done.stdout.split())


def test_the_command_line_loads_nothing_heavy(tmp_path: Path) -> None:
    assert _loaded_by("import greenadapt.cli", tmp_path) == set()


def test_the_cpu_half_never_loads_torch(tmp_path: Path) -> None:
    stages = "import greenadapt.pipeline, greenadapt.w2v, greenadapt.align, greenadapt.expand, greenadapt.tokenizer"
    stages += ", greenadapt.features, greenadapt.tasks, greenadapt.pipeline.finetune, greenadapt.pipeline.predict"
    stages += ", greenadapt.pipeline.evaluate"
    assert not _loaded_by(stages, tmp_path) & {"torch", "transformers"}


def test_help_loads_no_stage(tmp_path: Path) -> None:
    code = (
        "import sys; from greenadapt.cli import app\n"
        "try: app(['w2v', '--help'])\n"
        "except SystemExit: print('', file=sys.stderr)\n"
        "sys.stdout = sys.__stdout__"
    )
    loaded = _loaded_by(code, tmp_path)
    assert not loaded & set(HEAVY)
