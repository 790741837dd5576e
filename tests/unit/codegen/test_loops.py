"""However a loop is written, compiled code answers the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from opweld.tensor.dim import Symbol
from opweld.tile.tile import Kernel
from opweld.tile.unroll import CHOICES
from tests.unit.codegen.compiled import Runner, aligned, compile_text, source
from tests.unit.codegen.hand_written import gemm

K = Symbol("k")


@pytest.mark.parametrize("bodies", CHOICES)
@pytest.mark.parametrize(
    ("kernel", "reduced"),
    [(gemm(24, 32, 64), 64), (gemm(24, 32, 7), 7), (gemm(24, 32, K.dim, 9, sizes=(K,)), 13)],
    ids=["whole groups", "few trips", "run time"],
)
def test_any_number_of_bodies_is_right(kernel: Kernel, reduced: int, bodies: int) -> None:
    def decide(loop: int, rule: str, names: Sequence[str], prefer: str, reason: str, failed: Mapping[str, str]) -> str:
        wanted = {"schedule.unroll": str(bodies), "schedule.prefetch": "0" if failed else "2"}
        return wanted.get(rule, prefer)

    random = np.random.default_rng(0)
    arrays = {"A": aligned((24, reduced)), "B": aligned((reduced, 32)), "bias": aligned((32,)), "C": aligned((24, 32))}
    for array in arrays.values():
        array[...] = random.standard_normal(array.shape)
    text = source(kernel, 8, decide)
    in_a_row = not kernel.sizes and reduced <= bodies
    assert (f"OPW_UNROLL({bodies})" in text) == (bodies > 1 and not in_a_row)
    assert not Runner(kernel, 8, compile_text(text))(arrays, {K: reduced} if kernel.sizes else None)
    expected = np.maximum(arrays["A"].astype(np.float64) @ arrays["B"] + arrays["bias"], 0)
    np.testing.assert_allclose(arrays["C"], expected, rtol=1e-5, atol=1e-5)


def test_a_single_pass_that_run_time_counts_fetches_nothing() -> None:
    """How far fetches of a panel are apart is nothing in a single pass, and known before all loops."""
    kernel = gemm(K.dim, 64, 1024, 8, 32, sizes=(K,))
    text = source(kernel, 16)
    assert text.count("const int64_t step0 = ") == 1
    assert text.count("_block * step0") > 0
    assert "step0" not in source(gemm(256, 64, 1024, 8, 32), 16)
