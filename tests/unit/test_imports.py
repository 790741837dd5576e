"""The direction of imports, and what a light import must not bring in."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import opweld
import opweld.onnxruntime
from tests.patience import PATIENCE_S

SOURCE = Path(opweld.__file__).parent

# Each stage may import from itself and from what stands above it, never from below.
ORDER = (
    ("errors",),
    ("shortage",),
    ("kernels",),
    ("whole",),
    ("table",),
    ("display",),
    ("typed",),
    ("foreign",),
    ("extensions",),
    ("interface",),
    ("groups",),
    ("rules",),
    ("naming",),
    ("option",),
    ("options",),
    ("target",),
    ("schedules_file",),
    ("ledger",),
    ("record",),
    ("explanation",),
    ("collector",),
    ("tensor",),
    ("programs",),
    ("versions",),
    ("ir",),
    ("ops",),
    ("operators",),
    ("frontend",),
    ("rewrite",),
    ("lower",),
    ("schedule",),
    ("stages",),
    ("account",),
    ("fuse",),
    ("place",),
    ("tile",),
    ("codegen",),
    ("build",),
    ("runtime",),
    ("verification",),
    ("analysis",),
    ("backends",),
    ("frontends",),
    ("pipeline",),
    ("tune",),
    ("cached",),
    ("accounts",),
    ("inspection",),
    ("compile",),
    ("report",),
    ("calibration",),
    ("quantize", "compress"),
    ("experiments",),
    ("onnxruntime", "torch"),
    ("llm",),
    ("serve",),
    ("ray",),
    ("backend", "cli", "capi", "shim", "run", "__main__"),
)
RANK = {stage: rank for rank, stages in enumerate(ORDER) for stage in stages}

# Who may know ONNX and PyTorch: what reads, writes, compares with them. Others see a Program, or the graph of `ir.py`.
ONNX_READERS = (
    *("frontend", "rewrite", "verification", "calibration", "quantize", "compress", "experiments"),
    *("torch", "backend", "cli", "kernels"),
)
ONNX_WRITERS = {Path("account/regions.py")}
# Triton's interpreter takes tensors of PyTorch, and so does what runs an artifact in it; nothing else of the runtime.
TORCH_USERS = {Path("runtime/cuda/interpreted.py")}
LIBRARIES = ("onnx", "onnx_ir", "torch", "sklearn", "skl2onnx", "onnxmltools", "xgboost", "lightgbm")

# What front ends share: they are of any graph, and know no format.
SHARED = {
    *("assume", "infer", "interface", "loops", "exploration", "explore", "segment", "environment", "values", "names"),
    *("description", "explored", "output_shapes", "program", "types", "states"),
}

# What running an artifact needs: these import NumPy and the standard library only.
LIGHT = (
    *(
        "errors.py",
        "shortage.py",
        "typed.py",
        "build/artifact.py",
        "runtime",
        "onnxruntime",
        "verification/inputs.py",
        "table.py",
        "display.py",
        "whole.py",
    ),
    *("run.py", "__main__.py", "cli/outputs.py", "cli/show.py", "cli/values.py", "ledger.py", "given.py"),
)

# A package of another name, which only hands on names of ours.
STAND_IN = Path("onnxruntime/site")


def files() -> list[Path]:
    found = (path.relative_to(SOURCE) for path in SOURCE.rglob("*.py"))
    return sorted(path for path in found if not path.is_relative_to(STAND_IN))


def stage_of(path: Path) -> str:
    return path.parts[0].removesuffix(".py")


def imports(path: Path, *, module_level: bool = False) -> list[tuple[int, str]]:
    """Line and name of every module that a file imports, but for type checking."""
    found: list[tuple[int, str]] = []
    todo: list[ast.AST] = [ast.parse((SOURCE / path).read_text(encoding="utf-8"))]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        if module_level and isinstance(node, ast.FunctionDef):
            continue
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module == "opweld":
            found += [(node.lineno, f"opweld.{alias.name}") for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.append((node.lineno, node.module))
        todo += ast.iter_child_nodes(node)
    return found


@pytest.mark.parametrize("path", [p for p in files() if p != Path("__init__.py")], ids=str)
def test_imports_point_backwards_along_the_flow(path: Path) -> None:
    stage = stage_of(path)
    assert stage in RANK, f"{path}: say in ORDER where the stage {stage!r} stands"
    for line, name in imports(path):
        parts = name.split(".")
        if parts[0] == "opweld" and len(parts) > 1 and parts[1] != "__version__":
            backwards = RANK[parts[1]] <= RANK[stage]
            assert backwards, f"{path}:{line} imports {name}, which comes after {stage}"
        if parts[0] in LIBRARIES:
            assert stage in ONNX_READERS or path in ONNX_WRITERS | TORCH_USERS, (
                f"{path}:{line} imports {name}, as readers alone may"
            )


@pytest.mark.parametrize("name", sorted(SHARED))
def test_what_front_ends_share_knows_no_format(name: str) -> None:
    readers = {path.stem for path in files() if path.parent == Path("frontend") and path.stem not in SHARED}
    for line, found in imports(Path(f"frontend/{name}.py"), module_level=True):
        parts = found.split(".")
        assert parts[0] not in LIBRARIES, f"{name}:{line} imports {found}"
        of_frontend = parts[:2] == ["opweld", "frontend"] and len(parts) > 2
        assert not (of_frontend and parts[2] in readers), f"{name}:{line} imports {found}, which reads ONNX"


@pytest.mark.parametrize("path", [p for p in files() if str(p).startswith(LIGHT)], ids=str)
def test_what_runs_artifacts_is_light(path: Path) -> None:
    allowed = {*sys.stdlib_module_names, "numpy", "opweld"}
    for line, name in imports(path, module_level=True):
        assert name.split(".")[0] in allowed, f"{path}:{line} imports {name}"


# `opweld optimize` is a product of its own: who is part of it may know all of `rewrite`, the compiler one module.
REWRITING = ("rewrite", "account/regions.py", "compile.py", "experiments/attempts.py", "cli/optimize.py", "cli/lock.py")
DOORS = {"opweld.rewrite", "opweld.rewrite.hoist"}

# What rewriting may know of the compiler: the values of a graph and of its dims, and how operators are read.
KNOWN_TO_REWRITING = {"errors", "shortage", "extensions", "rules", "naming", "options", "ledger", "ir", "tensor",
                      "ops", "frontend", "rewrite"}  # fmt: skip


@pytest.mark.parametrize("path", [p for p in files() if not str(p).startswith(REWRITING)], ids=str)
def test_the_compiler_knows_one_module_of_rewriting(path: Path) -> None:
    for line, name in imports(path):
        inner = name.startswith("opweld.rewrite") and name not in DOORS
        assert not inner, f"{path}:{line} imports {name}; what compiling needs of rewriting is in rewrite/hoist.py"


@pytest.mark.parametrize("path", [p for p in files() if stage_of(p) == "rewrite"], ids=str)
def test_rewriting_knows_values_of_the_compiler(path: Path) -> None:
    for line, name in imports(path):
        parts = name.split(".")
        if parts[0] == "opweld" and len(parts) > 1:
            assert parts[1] in KNOWN_TO_REWRITING, f"{path}:{line} imports {name}"
            assert not any(part.startswith("_") for part in parts), f"{path}:{line} imports {name}"


def test_compiling_loads_no_rule_that_it_does_not_apply() -> None:
    code = PRELUDE + "import opweld.pipeline, opweld.frontends.onnx, opweld.rewrite.hoist as hoist, opweld.rules\n"
    code += "assert {rule.name for rule in hoist.OWN} == set(opweld.rules.HOISTED)\n"
    code += "print('opweld.rewrite.optimize' in sys.modules, 'opweld.rewrite.rules.attention' in sys.modules)"
    assert python(code) == "False False\n"


def python(code: str) -> str:
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


PRELUDE = f"import sys; sys.path.insert(0, {str(SOURCE.parent)!r})\n"


def test_import_brings_in_nothing() -> None:
    heavy = ("numpy", "onnx", "onnx_ir", "typer", "rich", "ml_dtypes", "importlib.metadata", "inspect", "subprocess")
    code = PRELUDE + "before = set(sys.modules)\nimport opweld\nmade = set(sys.modules) - before\n"
    code += f"print(sorted(made & set({heavy})), sorted(name for name in made if name.startswith('opweld')))"
    assert python(code) == "[] ['opweld']\n"


def test_loading_a_language_model_brings_in_no_operators() -> None:
    """They are for compiling: one that is in the cache opens without."""
    code = PRELUDE + "import opweld.llm.load\n"
    code += "print([name for name in sys.modules if name.startswith(('opweld.ops', 'opweld.frontend.'))])"
    assert python(code) == "[]\n"


def test_sessions_need_neither_onnx_nor_a_compiler() -> None:
    code = PRELUDE + "for name in ('onnx', 'onnx_ir', 'ml_dtypes', 'ziglang', 'typer', 'rich', 'onnxruntime'):\n"
    code += "    sys.modules[name] = None\nimport opweld\nprint(opweld.InferenceSession.__name__, opweld.load.__name__)"
    assert python(code) == "InferenceSession load\n"


@pytest.mark.parametrize(
    "first",
    [
        "import opweld",
        "import opweld.compile",
        "from opweld.compile import load",
        "import importlib; importlib.import_module('opweld.compile')",
        "import opweld.compile as compile; assert not isinstance(compile, type(opweld))",
        "from opweld import compile; from opweld.compile import load",
    ],
)
def test_compile_is_a_function_whatever_is_imported_first(first: str) -> None:
    code = PRELUDE + f"import opweld\n{first}\nimport opweld, types\n"
    code += "assert isinstance(opweld.compile, types.FunctionType), opweld.compile\n"
    code += "assert opweld.compile is sys.modules['opweld.compile'].compile\n"
    code += "assert isinstance(sys.modules['opweld.compile'], types.ModuleType)"
    python(code)


def test_the_names_of_onnxruntime_are_those_of_its_package() -> None:
    """They are written down once more, for `import opweld` imports nothing."""
    there = opweld.onnxruntime.__all__
    assert [name for name in opweld.__all__ if getattr(opweld, name) is getattr(opweld.onnxruntime, name, None)] == [
        "capi",
        *there,
    ]


def test_every_public_name_is_there() -> None:
    for name in opweld.__all__:
        assert getattr(opweld, name) is not None
        assert name in dir(opweld)
    with pytest.raises(AttributeError, match="nothing_of_this_name"):
        _ = opweld.nothing_of_this_name  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(AttributeError, match="cannot be replaced"):
        opweld.load = None  # pyright: ignore[reportAttributeAccessIssue]
