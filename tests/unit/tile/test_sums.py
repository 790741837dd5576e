"""Long sums are summed in parts: values of one sign and size would all be rounded the same way in a single one."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import opweld
from opweld.codegen.c.render import render_body
from opweld.target import Target
from opweld.tensor.interpret import interpret
from opweld.tile.members.sums import LONGEST
from opweld.tile.tile import Accumulate, Declare, Kernel, Loop, Statement, Tile, walk_statements
from tests.unit.tile.pipeline import TARGET, compile_text, run
from tests.unit.tile.programs import Size, symbols

V4 = Target.of("x86-64-v4")


def moments(shape: tuple[Size, Size, Size], reduced: tuple[int, ...], head: str = "") -> str:
    """The sum along some axes of [a, b, c], the largest along them, and the sum of the squares of the distances."""
    kept = [axis for axis in range(3) if axis not in reduced]
    axes = ", ".join(f"i{n}: {shape[axis]}" for n, axis in enumerate(kept))
    over = ", ".join(f"r{n}: {shape[axis]}" for n, axis in enumerate(reduced))
    names = ", ".join(f"r{n}" for n in range(len(reduced)))
    at = ", ".join(f"i{kept.index(axis)}" if axis in kept else f"r{reduced.index(axis)}" for axis in range(3))
    own = ", ".join(f"i{n}" for n in range(len(kept)))
    return f"""program moments
{head}
input x f32[{", ".join(map(str, shape))}]
tensor total f32[{axes}] from "ReduceSum"
  over {over}
  = sum<{names}>(x[{at}])
tensor highest f32[{axes}] from "ReduceMax"
  over {over}
  = max<{names}>(x[{at}])
tensor spread f32[{axes}] from "ReduceSumSquare"
  over {over}
  = sum<{names}>(mul(sub(x[{at}], highest[{own}]), sub(x[{at}], highest[{own}])))
output t = total
output h = highest
output s = spread
"""


def most_in_a_row(kernel: Kernel) -> int:
    """The most values that are added to one accumulator of floating point after the other; of loops of unknown length,
    one pass."""
    found: list[int] = []

    def trips(loop: Loop) -> int:
        upper = loop.end.constant or loop.axis.extent.constant
        return 1 if upper is None else upper

    def visit(body: tuple[Statement, ...], values: dict[str, int]) -> None:
        declared = dict(values)
        for item in body:
            if isinstance(item, Declare) and item.dtype.is_float:
                declared[item.name] = 1
            elif isinstance(item, Accumulate) and item.kind == "sum":
                found.append(declared.get(item.name, 1))
            elif isinstance(item, Loop):
                visit(item.body, {name: count * trips(item) for name, count in declared.items()})
            elif isinstance(item, Tile):
                visit(item.body, declared)

    visit(kernel.body, {})
    return max(found, default=0)


LONG = [
    ((3, 40, 70), (1, 2)),
    ((40, 70, 5), (0, 1)),
    ((1, 3000, 19), (1,)),
    ((1, 2, 70000), (2,)),
    ((7, 9000, 1), (1,)),
]


@pytest.mark.parametrize("target", [TARGET, V4], ids=["AVX2", "AVX-512"])
@pytest.mark.parametrize(("shape", "reduced"), [*LONG, ((1, 600_000, 16), (1,)), ((2, 16, 16 * 129), (1, 2))])
def test_no_accumulator_sums_many_values_in_a_row(
    shape: tuple[int, int, int], reduced: tuple[int, ...], target: Target
) -> None:
    made = compile_text(moments(shape, reduced), target)
    assert 0 < max(most_in_a_row(item.kernel) for item in made.kernels) <= LONGEST


@pytest.mark.parametrize(("shape", "reduced"), [((3, 8, 32), (1, 2)), ((8, 32, 5), (0, 1)), ((1, 2, 2048), (2,))])
def test_short_sums_have_one_accumulator_each(shape: tuple[int, int, int], reduced: tuple[int, ...]) -> None:
    statements = [
        item for made in compile_text(moments(shape, reduced)).kernels for item in walk_statements(made.kernel.body)
    ]
    assert len([item for item in statements if isinstance(item, Declare)]) == 3


@pytest.mark.parametrize("known", [True, False], ids=["static", "symbolic"])
@pytest.mark.parametrize(("shape", "reduced"), LONG[:3])
def test_parts_make_up_the_whole(shape: tuple[int, int, int], reduced: tuple[int, ...], known: bool) -> None:
    head = "" if known else symbols(A="0 of x", B="1 of x", C="2 of x")
    program = moments(shape if known else ("A", "B", "C"), reduced, head)
    x = np.random.default_rng(0).integers(-4, 5, shape).astype(np.float32)
    made = compile_text(program)
    found, expected = run(made, {"x": x}), interpret(made.program, {"x": x})
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value)
    for item in made.kernels:
        assert render_body(item.kernel, TARGET.vector_lanes_f32, "k")


@pytest.mark.parametrize("sizes", ["512,512,16", "H,W,C", "512,W,16", "H,512,16"])
@pytest.mark.parametrize("axes", ["0,1", "1,2"])
def test_a_mean_of_many_tenths_is_a_tenth(sizes: str, axes: str) -> None:
    """Added one after the other, 512 x 512 of them are off by 0.25%."""
    model = onnx.parser.parse_model(
        f"""<ir_version: 11, opset_import: ["" : 21]>
        g (float[{sizes}] x) => (float[a, b, c] y) {{
            axes = Constant<value = int64[2] {{{axes}}}>()
            y = ReduceMean(x, axes)
        }}"""
    )
    x = np.full((512, 512, 16), 0.1, np.float32)
    (y,) = opweld.compile(model, threads=1).run({"x": x}).values()
    np.testing.assert_allclose(y, np.float32(0.1), rtol=5e-6)
