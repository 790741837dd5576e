"""Compiled kernels are found again by what they are made of."""

from __future__ import annotations

from pathlib import Path

from tests.unit.codegen.triton.compiling import run_compiling

CODE = """
import json, sys
from opweld.build import binaries
from opweld.build.cache import Cache
from tests.unit.codegen.triton import sample

cache = Cache.open()
compile_kernel, compiled = binaries.compile_kernel, []

def counted(*arguments, **options):
    compiled.append(arguments)
    return compile_kernel(*arguments, **options)

binaries.compile_kernel = counted
signature = {"x_ptr": "*bf16", "y_ptr": "*bf16", "n": "i32"}

def count(kernel=sample.made_descriptor, signature=signature, block=64, warps=4, stages=2, arch=90):
    before = len(compiled)
    found = binaries.find_or_compile(
        kernel, signature, {"BLOCK": block}, warps=warps, stages=stages, arch=arch, cache=cache
    )
    return len(compiled) - before, found

made, first = count()
again, second = count()
others = [count(block=32), count(warps=2), count(stages=3), count(arch=80),
          count(signature=signature | {"x_ptr": "*bf16:16"}), count(signature=signature | {"x_ptr": "*fp16", "y_ptr": "*fp16"})]
file, = [entry.path for entry in cache.entries() if entry.kind == "binaries" and entry.path.name.startswith(
    binaries._key(sample.made_descriptor, signature, {"BLOCK": 64}, 4, 2, 90))]
file.write_text("{}")
damaged, third = count()
print(json.dumps({"compiled": [made, again, [times for times, _ in others], damaged],
                  "same": [first == second, first == third], "arch": others[3][1].arch}))
"""


def test_a_kernel_is_compiled_once(cache_folder: Path, tmp_path: Path) -> None:
    found = run_compiling(CODE, tmp_path)
    assert found["compiled"] == [1, 0, [1] * 6, 1]
    assert found["same"] == [True, True]
    assert found["arch"] == 80
