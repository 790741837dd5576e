"""Single operators at the sizes that models have them, beside ONNX Runtime in the same process, slowest first.

    python -m benchmarks.operators                     all, one thread
    python -m benchmarks.operators Transpose Conv      those whose names begin so
    python -m benchmarks.operators --isa avx2          opweld without AVX-512; ONNX Runtime as it is
    python -m benchmarks.operators --json FILE

In a model most operators are fused, and arrays between them have the layout that suits their kernels; alone, an
operator reads and writes what a caller has. This shows which one a user would find slow: microseconds are the lower
quartile of runs in turns, the ratio is ONNX Runtime's by opweld's.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper, shape_inference

import opweld
from benchmarks.paired import ISAS

Array = np.ndarray[Any, Any]

RANDOM = np.random.default_rng(0)
TURNS = 3


@dataclass(frozen=True, eq=False)
class Case:
    """A node: its operator, what it is fed (None: nothing), which of that is constant, and its attributes."""

    name: str
    operator: str
    inputs: tuple[Array | None, ...]
    constant: tuple[int, ...] = ()
    outputs: int = 1
    opset: int = 20
    attributes: dict[str, Any] = field(default_factory=dict[str, Any])

    def model(self) -> onnx.ModelProto:
        """The model of the node."""
        names = [f"x{place}" if array is not None else "" for place, array in enumerate(self.inputs)]
        node = helper.make_node(self.operator, names, [f"y{n}" for n in range(self.outputs)], **self.attributes)
        fed = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in self._fed()
        ]
        weights = [numpy_helper.from_array(array, f"x{n}") for n, array in self._arrays() if n in self.constant]
        results = [onnx.ValueInfoProto(name=name) for name in node.output]
        graph = helper.make_graph([node], "operator", fed, results, weights)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=10)
        return shape_inference.infer_shapes(made)

    def feeds(self) -> dict[str, Array]:
        """What is fed."""
        return dict(self._fed())

    def _arrays(self) -> Iterator[tuple[int, Array]]:
        yield from ((place, array) for place, array in enumerate(self.inputs) if array is not None)

    def _fed(self) -> Iterator[tuple[str, Array]]:
        yield from ((f"x{place}", array) for place, array in self._arrays() if place not in self.constant)


@dataclass(frozen=True)
class Row:
    """An operator's microseconds in opweld and in ONNX Runtime."""

    name: str
    opweld: float
    onnxruntime: float

    @property
    def ratio(self) -> float:
        """The other's by ours."""
        return self.onnxruntime / self.opweld


def floats(*shape: int) -> Array:
    """Normal numbers."""
    return RANDOM.normal(size=shape).astype(np.float32)


def whole(most: int, *shape: int) -> Array:
    """Integers below a number."""
    return RANDOM.integers(0, most, shape).astype(np.int64)


def ints(*values: int) -> Array:
    """An operand such as axes or sizes."""
    return np.array(values, np.int64)


def cases() -> Iterator[Case]:
    """The table."""
    image, matrix = floats(1, 64, 56, 56), floats(256, 1024)

    def case(name: str, operator: str, *inputs: Array | None, **more: Any) -> Case:
        known = {key: more.pop(key) for key in ("constant", "outputs", "opset") if key in more}
        return Case(name, operator, inputs, attributes=more, **known)

    yield case("MaxPool 2x2 s2", "MaxPool", floats(1, 64, 112, 112), kernel_shape=[2, 2], strides=[2, 2])
    pads = [1, 1, 1, 1]
    yield case("MaxPool 3x3 s2", "MaxPool", floats(1, 64, 112, 112), kernel_shape=[3, 3], strides=[2, 2], pads=pads)
    yield case("MaxPool 3x3", "MaxPool", image, kernel_shape=[3, 3], pads=pads)
    yield case("MaxPool 5x5", "MaxPool", floats(1, 256, 20, 20), kernel_shape=[5, 5], pads=[2, 2, 2, 2])
    yield case("AveragePool 3x3", "AveragePool", image, kernel_shape=[3, 3], pads=pads)
    yield case("AveragePool 1-D", "AveragePool", floats(1, 64, 4000), kernel_shape=[4], strides=[4])
    yield case("GlobalAveragePool", "GlobalAveragePool", image)
    twice = np.array([1, 1, 2, 2], np.float32)
    yield case("Resize nearest", "Resize", image, None, twice, constant=(2,), mode="nearest", nearest_mode="floor",
               coordinate_transformation_mode="asymmetric")  # fmt: skip
    yield case("Resize linear", "Resize", image, None, twice, constant=(2,), mode="linear")
    smaller = (floats(1, 3, 640, 640), None, None, ints(1, 3, 224, 224))
    yield case("Resize linear 640 to 224", "Resize", *smaller, constant=(3,), mode="linear")
    yield case("Transpose 1024 x 1024", "Transpose", floats(1024, 1024), perm=[1, 0])
    yield case("Transpose to channels last", "Transpose", image, perm=[0, 2, 3, 1])
    yield case("Transpose from channels last", "Transpose", floats(1, 56, 56, 64), perm=[0, 3, 1, 2])
    yield case("Transpose image to planes", "Transpose", floats(1, 224, 224, 3), perm=[0, 3, 1, 2])
    yield case("Transpose planes to image", "Transpose", floats(1, 3, 224, 224), perm=[0, 2, 3, 1])
    yield case("Transpose heads", "Transpose", floats(1, 128, 12, 64), perm=[0, 2, 1, 3])
    yield case("Transpose rows of a batch", "Transpose", floats(8, 77, 768), perm=[0, 2, 1])
    yield case("Concat channels", "Concat", image, floats(1, 64, 56, 56), axis=1)
    yield case("Concat last", "Concat", floats(4096, 32), floats(4096, 32), axis=1)
    yield case("Split last", "Split", floats(1024, 192), outputs=3, axis=1, num_outputs=3)
    yield case("Pad", "Pad", image, ints(0, 0, 1, 1, 0, 0, 1, 1), constant=(1,))
    yield case("Tile", "Tile", floats(1, 64, 64), ints(8, 1, 2), constant=(1,))
    yield case("Slice rows", "Slice", floats(1024, 512), ints(100), ints(612), ints(0), constant=(1, 2, 3))
    steps = (ints(0), ints(2**31 - 1), ints(1), ints(2))
    yield case("Slice every second", "Slice", floats(64, 4096), *steps, constant=(1, 2, 3, 4))
    backwards = (ints(-1), ints(-(2**31)), ints(1), ints(-1))
    yield case("Slice backwards", "Slice", floats(64, 4096), *backwards, constant=(1, 2, 3, 4))
    yield case("SpaceToDepth", "SpaceToDepth", floats(1, 3, 640, 640), blocksize=2)
    yield case("DepthToSpace", "DepthToSpace", floats(1, 64, 64, 64), blocksize=2, mode="CRD")
    yield case("Gather rows", "Gather", floats(30000, 384), whole(30000, 1, 128), constant=(0,))
    yield case("GatherElements", "GatherElements", floats(1024, 256), whole(256, 1024, 256), axis=1)
    yield case("ScatterND", "ScatterND", floats(1000, 64), whole(1000, 200, 1), floats(200, 64))
    yield case("TopK", "TopK", floats(64, 1000), ints(10), constant=(1,), outputs=2)
    yield case("ArgMax last", "ArgMax", floats(512, 1000), axis=1)
    yield case("ArgMax channels", "ArgMax", floats(1, 21, 256, 256), axis=1)
    yield case("NonZero", "NonZero", (floats(256, 256) > 1).astype(np.float32))
    yield case("CumSum last", "CumSum", floats(256, 512), ints(1)[0], constant=(1,))
    yield case("CumSum first", "CumSum", floats(512, 256), ints(0)[0], constant=(1,))
    yield case("CumSum long", "CumSum", floats(1, 24000, 9), ints(1)[0], constant=(1,))
    yield case("Softmax 1000", "Softmax", floats(128, 1000), axis=1)
    yield case("Softmax 128", "Softmax", floats(1536, 128), axis=1)
    yield case("Softmax channels", "Softmax", floats(1, 21, 256, 256), axis=1)
    yield case("LayerNormalization", "LayerNormalization", floats(128, 768), floats(768), floats(768), constant=(1, 2))
    yield case("InstanceNormalization", "InstanceNormalization", image, floats(64), floats(64), constant=(1, 2))
    yield case("ReduceMean last", "ReduceMean", floats(1024, 768), ints(1), constant=(1,))
    yield case("ReduceSum first", "ReduceSum", floats(1024, 768), ints(0), constant=(1,))
    for operator in (
        "Exp",
        "Erf",
        "Sigmoid",
        "Tanh",
        "Gelu",
        "Relu",
        "Sqrt",
        "Log",
        "Sin",
        "Mish",
        "Softplus",
        "Round",
    ):
        yield case(operator, operator, np.abs(matrix) + np.float32(0.1))
    yield case("Add row", "Add", matrix, floats(1024))
    yield case("Where", "Where", matrix > 0, matrix, floats(256, 1024))
    yield case("Cast to float16", "Cast", matrix, to=onnx.TensorProto.FLOAT16)
    yield case("Cast from uint8", "Cast", whole(255, 256, 1024).astype(np.uint8), to=onnx.TensorProto.FLOAT)
    yield case("Div int64", "Div", whole(1000, 256, 1024), ints(7)[0], constant=(1,))
    yield case("MatMul 1 x 768", "MatMul", floats(1, 768), floats(768, 3072), constant=(1,))
    yield case("MatMul 256", "MatMul", floats(256, 256), floats(256, 256))
    yield case("MatMul batch", "MatMul", floats(12, 128, 64), floats(12, 64, 128))
    yield case("Conv 3x3", "Conv", image, floats(64, 64, 3, 3), constant=(1,), pads=pads)
    yield case("Conv 1x1", "Conv", image, floats(128, 64, 1, 1), constant=(1,))
    image_s2 = {"strides": [2, 2], "pads": pads, "constant": (1,)}
    yield case("Conv 3x3 s2 stem", "Conv", floats(1, 3, 224, 224), floats(32, 3, 3, 3), **image_s2)
    yield case("Conv depthwise 3x3", "Conv", image, floats(64, 1, 3, 3), constant=(1,), pads=pads, group=64)
    wide = (floats(1, 96, 112, 112), floats(96, 1, 3, 3))
    yield case("Conv depthwise 3x3 s2", "Conv", *wide, group=96, **image_s2)
    seven = (floats(1, 96, 56, 56), floats(96, 1, 7, 7))
    yield case("Conv depthwise 7x7", "Conv", *seven, constant=(1,), pads=[3, 3, 3, 3], group=96)
    yield case("Conv 1x1 s2", "Conv", floats(1, 64, 56, 56), floats(128, 64, 1, 1), constant=(1,), strides=[2, 2])
    yield case("Conv 1-D k5", "Conv", floats(1, 128, 500), floats(128, 128, 5), constant=(1,), pads=[2, 2])
    yield case("Conv 3-D", "Conv", floats(1, 16, 16, 32, 32), floats(16, 16, 3, 3, 3), constant=(1,), pads=[1] * 6)
    yield case("ConvTranspose 2x2 s2", "ConvTranspose", floats(1, 64, 64, 64), floats(64, 32, 2, 2), constant=(1,),
               strides=[2, 2])  # fmt: skip
    yield case("ConvTranspose 4x4 s2", "ConvTranspose", floats(1, 64, 32, 32), floats(64, 32, 4, 4), **image_s2)
    yield case("ConvTranspose 1-D", "ConvTranspose", floats(1, 256, 100), floats(256, 128, 16), constant=(1,),
               strides=[8], pads=[4, 4])  # fmt: skip
    cells = (floats(50, 1, 64), floats(1, 512, 64), floats(1, 512, 128), floats(1, 1024))
    yield case("LSTM", "LSTM", *cells, constant=(1, 2, 3), hidden_size=128)
    yield case("GridSample", "GridSample", floats(1, 32, 64, 64), np.tanh(floats(1, 64, 64, 2)))
    scale = (np.array(0.05, np.float32), np.array(3, np.uint8))
    yield case("QuantizeLinear", "QuantizeLinear", matrix, *scale, constant=(1, 2))
    yield case("DynamicQuantizeLinear", "DynamicQuantizeLinear", matrix, outputs=3, opset=13)


def quartile(run: Callable[[], object], seconds: float = 0.05) -> float:
    """Microseconds that a quarter of the runs stay below."""
    found: list[float] = []
    end = time.perf_counter() + seconds
    while len(found) < 10 or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        found.append(time.perf_counter() - start)
    return sorted(found)[len(found) // 4] * 1e6


def compare(case: Case, isa: str) -> Row:
    """Both in turns, after a first run of each."""
    model, feeds = case.model(), case.feeds()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    peer = onnxruntime.InferenceSession(model.SerializeToString(), options)
    own = opweld.compile(model, threads=1, target=ISAS[isa] or "native").session
    runs: tuple[Callable[[], object], ...] = (lambda: own.run(feeds), lambda: peer.run(None, feeds))
    for run in runs:
        run()
    ours, theirs = zip(*([quartile(run) for run in runs] for _ in range(TURNS)), strict=True)
    return Row(case.name, min(ours), min(theirs))


def main() -> int:
    """See the module's documentation."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="how names begin; left out: all")
    parser.add_argument("--isa", choices=ISAS, default="native", help="the instructions that opweld may use")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    wanted = [case for case in cases() if not options.names or case.name.startswith(tuple(options.names))]
    if not wanted:
        parser.error(f"no operator begins so; there are {', '.join(case.name for case in cases())}")
    rows: list[Row] = []
    for number, case in enumerate(wanted):
        print(f"{number + 1} of {len(wanted)}: {case.name}", file=sys.stderr)
        rows.append(compare(case, options.isa))
    rows.sort(key=lambda row: row.ratio)
    for row in rows:
        print(f"{row.name:30} {row.opweld:9.1f} us   onnxruntime {row.onnxruntime:9.1f} us {row.ratio:6.2f}")
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(row) | {"ratio": row.ratio} for row in rows], indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
