from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import opweld
from opweld.errors import ModelError
from opweld.tensor.expr import Reduce
from opweld.tensor.program import Tensor
from tests.unit.ops.one_node import check, integers, make_model, normal, programs_of

SHAPES = [
    ((3, 4), (4, 5)),
    ((4,), (4,)),
    ((4,), (4, 5)),
    ((3, 4), (4,)),
    ((2, 3, 4), (4, 5)),
    ((3, 4), (2, 4, 5)),
    ((2, 3, 4), (2, 4, 5)),
    ((2, 1, 3, 4), (7, 4, 5)),
    ((2, 7, 3, 4), (4,)),
    ((4,), (2, 7, 4, 5)),
    ((1, 1), (1, 1)),
    ((13, 17), (17, 11)),
    ((5, 1), (1, 7)),
    ((1, 3, 4), (6, 4, 1)),
]


@pytest.mark.parametrize(("a", "b"), SHAPES)
def test_matmul(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    check("MatMul", [normal(*a), normal(*b, seed=1)])


def test_matmul_of_integers() -> None:
    check("MatMul", [integers(3, 4, dtype=np.int32), integers(4, 5, dtype=np.int32, seed=1)])


def test_half_precision_accumulates_in_fp32() -> None:
    a, b = normal(3, 4096, dtype=np.float16), normal(4096, 5, dtype=np.float16, seed=1)
    exact = (a.astype(np.float64) @ b.astype(np.float64)).astype(np.float16)
    check("MatMul", [a, b], reference=lambda *_: exact, tolerance=1e-3)


def test_dynamic_matmul() -> None:
    def arrays(n: int, s: int) -> list[Any]:
        return [normal(n, s, 8), normal(n, 8, s, seed=1)]

    check("MatMul", arrays(2, 3), dims={0: ("N", "S", 8), 1: ("N", 8, "S")}, more=[arrays(1, 1), arrays(3, 11)])


def test_depths_that_differ_are_refused() -> None:
    with pytest.raises(ModelError, match="the_MatMul"):
        programs_of(make_model("MatMul", [normal(3, 4), normal(5, 6)]))


@pytest.mark.parametrize("across_a", [0, 1])
@pytest.mark.parametrize("across_b", [0, 1])
@pytest.mark.parametrize("c", [None, (), (1,), (5,), (3, 1), (1, 5), (3, 5)])
def test_gemm(across_a: int, across_b: int, c: tuple[int, ...] | None) -> None:
    a = normal(4, 3) if across_a else normal(3, 4)
    b = normal(5, 4, seed=1) if across_b else normal(4, 5, seed=1)
    addend = [] if c is None else [normal(*c, seed=2)]
    check("Gemm", [a, b, *addend], transA=across_a, transB=across_b)
    check("Gemm", [a, b, *addend], transA=across_a, transB=across_b, alpha=0.5, beta=2.0)


def test_gemm_ignores_its_addend_with_beta_zero() -> None:
    check("Gemm", [normal(3, 4), normal(4, 5), normal(3, 5)], beta=0.0)


def test_gemm_refuses_an_addend_that_is_larger_than_the_product() -> None:
    with pytest.raises(ModelError, match="the_Gemm"):
        programs_of(make_model("Gemm", [normal(1, 4), normal(4, 5), normal(3, 5)]))


def test_contraction_is_a_tensor_of_its_own() -> None:
    (program,) = check("Gemm", [normal(3, 4), normal(4, 5), normal(5)])
    bodies = [item.body for item in program.items if isinstance(item, Tensor)]
    assert [isinstance(body, Reduce) for body in bodies] == [True, False]


EQUATIONS = [
    ("ij,jk->ik", [(3, 4), (4, 5)]),
    ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]),
    ("ij->ji", [(3, 4)]),
    ("ij->", [(3, 4)]),
    ("ii->i", [(4, 4)]),
    ("i,j->ij", [(3,), (4,)]),
    ("...ij,...jk->...ik", [(2, 3, 4), (2, 4, 5)]),
    ("...ij,jk->...ik", [(2, 7, 3, 4), (4, 5)]),
    ("bhqd,bhkd->bhqk", [(2, 3, 4, 5), (2, 3, 6, 5)]),
    ("ij,jk", [(3, 4), (4, 5)]),
    ("a,ab,b->", [(3,), (3, 4), (4,)]),
]


@pytest.mark.parametrize(("equation", "shapes"), EQUATIONS)
def test_einsum(equation: str, shapes: list[tuple[int, ...]]) -> None:
    arrays = [normal(*shape, seed=seed) for seed, shape in enumerate(shapes)]
    check("Einsum", arrays, equation=equation, reference=lambda *x: np.asarray(np.einsum(equation, *x)))


def test_einsum_refuses_an_equation_that_does_not_fit() -> None:
    with pytest.raises(ModelError, match="the_Einsum"):
        programs_of(make_model("Einsum", [normal(3, 4)], equation="ijk->i"))


def test_a_gemm_whose_rows_another_product_sums_shares_its_kernel() -> None:
    """The axes of a product are none that a block of several has for itself."""
    model = onnx.parser.parse_model(
        """<ir_version: 11, opset_import: ["" : 23]>
        g (float[2, 3] x, float[2, 2] z, float[3, 3] w) => (float[a, b] y) {
            v = Gemm<transB = 1>(x, w)
            y = MatMul(z, v)
        }"""
    )
    x, z, w = normal(2, 3), normal(2, 2, seed=1), normal(3, 3, seed=2)
    (y,) = opweld.compile(model).run({"x": x, "z": z, "w": w}).values()
    np.testing.assert_allclose(y, z @ (x @ w.T), rtol=1e-5, atol=1e-6)
