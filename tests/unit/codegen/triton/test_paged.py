"""Machine code of attention over block tables: no spills, and tensor cores where keys have 16 bits."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.codegen.triton.compiling import run_compiling

AHEAD = """
import json, sys, tempfile
from pathlib import Path
from opweld.backends.cuda import module_of
from opweld.codegen.triton.binary import compile_kernel
from opweld.codegen.triton.module import Texts
from opweld.codegen.triton.paged import attend
from opweld.place.storage import dense
from opweld.tensor.dim import Symbol, as_dim
from opweld.tensor.dtype import DType
from opweld.tensor.intern import compilation
from opweld.tensor.paged import POOLS, WORK, padded_size, part_size
from opweld.tensor.program import Extern, Result

kv, group, block = 2, 4, 32
found = []
with compilation(), tempfile.TemporaryDirectory() as folder:
    tokens, blocks, entries, count, rows = (Symbol(name, 1).dim for name in "TBEPW")
    for pool in (DType.BF16, DType.F32):
        for size in (64, 128, 256):
            parts = (count, as_dim(kv * group), as_dim(part_size(size)))
            numbers = (tokens, blocks, entries, count, *map(as_dim, (kv, group, size, block, 0, 0, 1)))
            names = ("work", "q", "k", "v", "tables", "owners")
            extern = Extern(POOLS[pool], names, (Result("parts", DType.F32, parts),), numbers, rows)
            own = as_dim(kv), as_dim(block)
            shapes = {
                "work": (DType.I64, (rows, as_dim(WORK))), "q": (DType.F32, (tokens, as_dim(kv * group * size))),
                "k": (pool, (blocks, own[0], as_dim(size), own[1])),
                "v": (pool, (blocks, *own, as_dim(padded_size(size)))),
                "tables": (DType.I64, (entries,)), "owners": (DType.I64, (count,)), "parts": (DType.F32, parts),
            }
            kernel = attend(extern, {name: dense(name, *shape) for name, shape in shapes.items()}, False)
            texts = Texts()
            name = texts.add(kernel)
            path = Path(folder) / f"{pool.short}{size}.py"
            path.write_text(texts.text())
            made = compile_kernel(
                getattr(module_of(path), name), kernel.signature, {}, warps=kernel.launched.warps,
                stages=kernel.launched.stages, arch=int(sys.argv[1]), divisible=[p for p, _, _, _ in kernel.pointers],
            )
            found.append((repr(pool), size, made.spills, sum(made.tensor_core_instructions.values())))
print(json.dumps(found))
"""


@pytest.mark.parametrize("architecture", [80, 90])
def test_attention_keeps_its_tiles_in_registers(architecture: int, tmp_path: Path) -> None:
    found = run_compiling(AHEAD, tmp_path, str(architecture))
    assert len(found) == 6
    for pool, size, spills, products in found:
        assert spills == 0, (pool, size)
        assert bool(products) == ("BF16" in pool.upper())
