"""Products of the models of `benchmarks.gpu_models` on a GPU in blocks of every size: which are the fastest, beside
cuBLAS. `python -m benchmarks.gpu contractions`."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

SHAPES = (
    (4096, 768, 768), (4096, 3072, 768), (4096, 768, 3072), (4096, 2304, 768), (4096, 32000, 768),
    (6304, 768, 768), (6304, 3072, 768), (6304, 768, 3072),
    (128, 768, 768), (128, 3072, 768), (128, 768, 3072), (128, 32000, 768),
    (100352, 64, 576), (100352, 256, 64), (100352, 64, 256), (25088, 128, 1152), (25088, 512, 128),
    (6272, 256, 2304), (6272, 1024, 256), (6272, 256, 1024), (1568, 512, 4608), (1568, 2048, 512),
    (3136, 64, 576), (784, 128, 1152), (196, 256, 2304), (49, 512, 4608), (49, 2048, 512), (49, 512, 2048),
    (32, 1000, 2048), (100352, 384, 96), (100352, 96, 384), (25088, 768, 192), (25088, 192, 768),
)  # fmt: skip
"""(M, N, K) of products of bfloat16."""

BLOCKS = (
    (128, 256, 64, 8, 3), (128, 256, 64, 8, 4), (256, 128, 64, 8, 3), (128, 128, 64, 8, 3), (128, 128, 64, 4, 4),
    (128, 128, 32, 4, 5), (128, 64, 64, 4, 4), (64, 128, 64, 4, 4), (64, 64, 64, 4, 4), (64, 64, 128, 4, 3),
    (64, 32, 128, 4, 4), (32, 64, 128, 4, 4), (32, 32, 128, 4, 4), (16, 64, 128, 4, 4), (16, 32, 256, 4, 3),
    (128, 96, 64, 4, 4),
)  # fmt: skip
"""(M, N, K at a time, warps, stages)."""


def _name(shape: tuple[int, ...], block: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) + "-" + "x".join(map(str, block))


def _binary(shape: tuple[int, ...], block: tuple[int, ...], folder: Path) -> tuple[str, dict[str, Any]]:
    """The cubin of a product in blocks of a size, and what a launch of it takes."""
    from opweld.backends.cuda import module_of
    from opweld.codegen.triton.binary import compile_kernel
    from opweld.codegen.triton.contraction import contraction, product_of
    from opweld.codegen.triton.kernel import Launched
    from opweld.codegen.triton.module import Texts
    from opweld.place.storage import dense
    from opweld.tensor.dim import Axis, as_dim
    from opweld.tensor.dtype import DType
    from opweld.tensor.expr import binary, cast, load, reduce
    from opweld.tensor.intern import compilation
    from opweld.tile.nest import nest_of

    m, n, k = shape
    with compilation():
        i, j, r = Axis("i", m), Axis("j", n), Axis("r", k)
        a, w = load("a", DType.BF16, (i.dim, r.dim)), load("w", DType.BF16, (j.dim, r.dim))
        total = reduce("sum", (r,), binary("mul", cast(a, DType.F32), cast(w, DType.F32)))
        body = cast(binary("add", total, cast(load("b", DType.BF16, (j.dim,)), DType.F32)), DType.BF16)
        shapes = {"a": (m, k), "w": (n, k), "b": (n,), "y": (m, n)}
        dims = {name: tuple(map(as_dim, sizes)) for name, sizes in shapes.items()}
        storages = {name: dense(name, DType.BF16, sizes) for name, sizes in dims.items()}
        nest = nest_of((i, j), (i.dim, j.dim), body, storages["y"], storages, dims, words=False)
        found = product_of(nest)
        assert found is not None
        kernel = contraction(
            nest, found, "y", DType.BF16, Launched(block[:3], block[3], block[4]), "ieee", False, ("product",)
        )
        texts = Texts()
        name = texts.add(kernel)
        path = folder / f"{_name(shape, block)}.py"
        path.write_text(texts.text(), encoding="utf-8")
        made = compile_kernel(
            getattr(module_of(path), name),
            kernel.signature,
            {},
            warps=block[3],
            stages=block[4],
            arch=90,
            divisible=[p for p, _, _, _ in kernel.pointers],
        )
    grid = [int(size) for size in kernel.grid]
    order = [memory for _, memory, _, _ in kernel.pointers]
    return _name(shape, block), {
        "cubin": made.cubin, "entry": made.name, "warps": made.warps, "shared": made.shared, "spills": made.spills,
        "types": [p.type for p in made.parameters], "grid": grid, "order": order,
    }  # fmt: skip


def main(quick: bool) -> Iterator[dict[str, Any]]:
    """Prints a table, and yields its rows."""
    import torch

    from opweld.runtime.cuda.arguments import Arguments
    from opweld.runtime.cuda.device import Device
    from opweld.runtime.cuda.module import Module
    from opweld.runtime.cuda.stream import Stream

    with tempfile.TemporaryDirectory() as where:
        jobs = [
            (shape, block)
            for shape in SHAPES
            for block in BLOCKS
            if block[0] < 2 * shape[0] and block[1] < 2 * shape[1] and -(-shape[0] // block[0]) <= 8192
        ]
        made: dict[str, dict[str, Any]] = {}
        with ProcessPoolExecutor(15, mp_context=get_context("spawn")) as pool:
            waiting = [pool.submit(_binary, shape, block, Path(where)) for shape, block in jobs]
            for future in waiting:
                try:
                    name, binary = future.result(timeout=120)
                    made[name] = binary
                except Exception as error:  # noqa: BLE001 - others go on
                    print(str(error)[-200:])
    torch.cuda.init()
    device = Device.open()
    stream = Stream(device, torch.cuda.current_stream().cuda_stream)
    for shape in SHAPES:
        m, n, k = shape
        tensors = {
            "a": torch.randn(m, k, device="cuda").bfloat16(), "w": torch.randn(n, k, device="cuda").bfloat16(),
            "b": torch.randn(n, device="cuda").bfloat16(), "y": torch.empty(m, n, device="cuda").bfloat16(),
        }  # fmt: skip
        own = _time(lambda t=tensors: torch.nn.functional.linear(t["a"], t["w"], t["b"]))
        rows: list[tuple[float, str]] = []
        for block in BLOCKS:
            found = made.get(_name(shape, block))
            if found is None or found["spills"]:
                continue
            function = Module(device, found["cubin"]).function(
                found["entry"], threads=32 * found["warps"], shared=found["shared"]
            )
            arguments = Arguments(found["types"], [tensors[name].data_ptr() for name in found["order"]])
            grid = (*found["grid"], 1, 1)[:3]
            rows.append((_time(lambda f=function, a=arguments, g=grid: f.launch(g, stream, a)), str(block)))
        if not rows:
            continue
        rows.sort()
        best = "  ".join(f"{time:.1f} {block}" for time, block in rows[:3])
        print(f"{shape!s:22} cuBLAS {own:7.1f} us {2e-6 * m * n * k / own:5.0f} TF  {best}", flush=True)
        yield {"shape": shape, "cublas": own, "ours": rows}


def _time(call: Any) -> float:
    """Microseconds, the median of ten, each of twenty in a graph of CUDA's where that is possible, else in a row."""
    import torch

    for _ in range(3):
        call()
    torch.cuda.synchronize()
    times: list[float] = []
    for _ in range(7):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(200_000)  # pyright: ignore[reportPrivateUsage] - launches gather behind it
        begin.record()
        for _ in range(10):
            call()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 100)
    return float(np.median(times))
