"""What the GPU is and can do at most, and that its driver does what `opweld.runtime.cuda` asks of it.

    python -m benchmarks.gpu device

Copies within the GPU and with the host, launches, matrix products of 8192 x 8192 by cuBLAS: the ceilings of what the
other parts measure. Then a kernel that was compiled ahead of time runs through the driver, alone and in a graph.
"""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from typing import Any

import numpy as np

import opweld
from opweld.analysis.gpu import Gpu, measure_gpu
from opweld.codegen.triton.binary import compile_kernel
from opweld.runtime.cuda.arguments import Arguments
from opweld.runtime.cuda.device import Device
from opweld.runtime.cuda.memory import Memory
from opweld.runtime.cuda.module import Module
from opweld.runtime.cuda.stream import Event, Stream

PACKAGES = ("torch", "triton", "transformers", "numpy", "liger-kernel")
SAMPLES = 20


def main(quick: bool) -> Iterator[dict[str, Any]]:
    """Yields what the machine is, what it can do, and what was checked."""
    device = Device.open()
    about = {"name": device.properties.name, "driver": _driver(), **_versions()}
    for name, value in about.items():
        print(f"{name:12} {value}")
    yield about
    for check in (_kernel_runs, _graph_runs):
        yield {"check": check.__name__.strip("_"), "answer": check(device)}
        print(f"{check.__name__.strip('_'):12} right")
    ceilings = measure_gpu(device, samples=SAMPLES // 2 if quick else SAMPLES)
    _show(ceilings)
    yield ceilings.to_json()


def _versions() -> dict[str, str]:
    found = {"opweld": opweld.__version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "-"
    return found


def _driver() -> str:
    """The version of NVIDIA's driver, the limit of its power and its highest clock, as nvidia-smi tells them."""
    wanted = "driver_version,power.limit,clocks.max.sm"
    try:
        answer = subprocess.run(
            ["nvidia-smi", f"--query-gpu={wanted}", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    return answer.stdout.strip().splitlines()[0]


def _show(ceilings: Gpu) -> None:
    for kind, rate in ceilings.matrix.items():
        print(f"{kind:12} {rate.value / 1e12:8.1f} TFLOP/s, matrix products (spread {rate.spread:.0%})")
    for name, figure in (
        ("copy", ceilings.copy),
        ("to device", ceilings.to_device),
        ("to host", ceilings.to_host),
    ):
        print(f"{name:12} {figure.value / 1e9:8.1f} GB/s (spread {figure.spread:.0%})")
    for name, figure in (("launch", ceilings.launch), ("in a graph", ceilings.graph_launch)):
        print(f"{name:12} {figure.value * 1e6:8.2f} us (spread {figure.spread:.0%})")


class _Scaling:
    """y = 3 x + 1 over a million numbers, by a kernel that was compiled ahead of time."""

    SIZE, BLOCK = 1_000_003, 1024

    def __init__(self, device: Device) -> None:
        from benchmarks.gpu_kernel import scale_and_shift

        signature = {"x_ptr": "*fp32:16", "y_ptr": "*fp32:16", "factor": "fp32", "shift": "fp16", "n": "i32"}
        binary = compile_kernel(
            scale_and_shift,
            signature,
            {"BLOCK": self.BLOCK},
            warps=4,
            stages=2,
            arch=90 if device.properties.arch >= 90 else 80,
        )
        self.device, self.stream = device, Stream(device)
        self.x = np.random.default_rng(0).standard_normal(self.SIZE, np.float32)
        self.source, self.target = Memory(device, self.x.nbytes), Memory(device, self.x.nbytes)
        self.kernel = Module(device, binary.cubin).function(binary.name, threads=binary.threads, shared=binary.shared)
        values = (self.source.address, self.target.address, 3.0, 1.0, self.SIZE)
        self.arguments = Arguments([parameter.type for parameter in binary.parameters], values)
        self.stream.copy_in(self.source.address, self.x)
        self.stream.fill(self.target.address, 0xFF, self.x.nbytes)

    def launch(self) -> None:
        """Gives the stream one run."""
        self.kernel.launch((-(-self.SIZE // self.BLOCK), 1, 1), self.stream, self.arguments)

    def check(self) -> None:
        """Compares what the last run wrote."""
        found = np.empty_like(self.x)
        self.stream.copy_out(found, self.target.address)
        self.stream.synchronize()
        np.testing.assert_allclose(found, 3 * self.x + 1, rtol=1e-6, atol=1e-6)


def _kernel_runs(device: Device) -> str:
    scaling = _Scaling(device)
    start, end = Event(device), Event(device)
    start.record(scaling.stream)
    scaling.launch()
    end.record(scaling.stream)
    scaling.check()
    return f"right, {end.elapsed(start) * 1e6:.1f} us, {scaling.kernel.attribute(4)} registers"


def _graph_runs(device: Device) -> str:
    scaling = _Scaling(device)
    graph = scaling.stream.capture(lambda: [scaling.launch() for _ in range(10)])
    graph.launch(scaling.stream)
    scaling.check()
    scaling.stream.fill(scaling.target.address, 0xFF, scaling.x.nbytes)
    graph.launch(scaling.stream)
    scaling.check()
    return "right, twice"


if __name__ == "__main__":
    sys.exit(0 if list(main(False)) else 1)
