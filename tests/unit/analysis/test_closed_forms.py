"""What nodes cost is what textbooks say of them, operator by operator, as formulas and as numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from opweld.analysis.analysis import Analysis, NodeAnalysis, analysis_of
from opweld.analysis.costs import NAMES
from opweld.errors import OptionError
from opweld.options import Options
from opweld.pipeline import dry_run
from opweld.target import Target
from opweld.tensor.intern import compilation
from tests.unit.rewrite.rewritten import model_of, normal

F = 4
"""Bytes of a float32."""


@dataclass(frozen=True)
class Form:
    """A node and its closed form: operations as numbers; bytes read and written as numbers of float32 elements."""

    name: str
    text: str
    flops: int = 0
    macs: int = 0
    special: int = 0
    integer: int = 0
    read: float = 0
    written: float = 0
    launches: int = 1
    weights: dict[str, Any] = field(default_factory=dict[str, Any])

    def __str__(self) -> str:
        return self.name


N, C, H, W = 2, 8, 9, 10
X = f"float[{N}, {C}, {H}, {W}]"
SIZE = N * C * H * W


def conv(
    name: str, attributes: str, weights: tuple[int, ...], out: tuple[int, ...], taps: int, bias: bool = True
) -> Form:
    """taps: products of one element of the result."""
    size = int(np.prod(out))
    text = f"g ({X} x) => ({_float(out)} y) {{ y = {attributes}(x, w{', b' if bias else ''}) }}"
    channels = out[1]
    stored: dict[str, Any] = {"w": normal(*weights)} | ({"b": normal(channels)} if bias else {})
    read = SIZE + int(np.prod(weights)) + (channels if bias else 0)
    return Form(name, text, size * (2 * taps + bias), size * taps, read=read, written=size, weights=stored)


def _float(shape: tuple[int, ...]) -> str:
    return f"float[{', '.join(map(str, shape))}]"


def unary(name: str, flops: int = 0, special: int = 0) -> Form:
    text = f"g ({X} x) => ({X} y) {{ y = {name}(x) }}"
    return Form(name, text, flops * SIZE, special=special * SIZE, read=SIZE, written=SIZE)


def binary(name: str, flops: int = 1, special: int = 0) -> Form:
    text = f"g ({X} x, {X} z) => ({X} y) {{ y = {name}(x, z) }}"
    return Form(name, text, flops * SIZE, special=special * SIZE, read=2 * SIZE, written=SIZE)


M, K, L = 6, 7, 5

FORMS = (
    # two tensors of N x C x H x W: an addition each, three tensors of traffic
    binary("Add"),
    binary("Mul"),
    binary("Max"),
    binary("Div", special=1),
    unary("Relu", 1),
    unary("Neg", 1),
    unary("Sqrt", 1, 1),
    unary("Exp", 1, 1),
    unary("Tanh", 1, 1),
    unary("Sigmoid", 1, 1),
    Form("Identity", f"g ({X} x) => ({X} y) {{ y = Identity(x) }}", launches=0),
    Form(
        "Add of a row",
        f"g ({X} x, float[{W}] z) => ({X} y) {{ y = Add(x, z) }}",
        SIZE, read=SIZE + W, written=SIZE,
    ),
    Form(
        "Where",
        f"g (bool[{M}] c, float[{M}] x, float[{M}] z) => (float[{M}] y) {{ y = Where(c, x, z) }}",
        read=2 * M + M / F, written=M,
    ),
    Form(
        "Cast",
        f"g (float[{M}] x) => (float16[{M}] y) {{ y = Cast<to = 10>(x) }}",
        read=M, written=M / 2,
    ),
    # M x K times K x L: a multiplication and an addition for each of M K L
    Form(
        "MatMul",
        f"g (float[{M}, {K}] x, float[{K}, {L}] z) => (float[{M}, {L}] y) {{ y = MatMul(x, z) }}",
        2 * M * K * L, M * K * L, read=M * K + K * L, written=M * L,
    ),
    Form(
        "MatMul of a batch",
        f"g (float[3, {M}, {K}] x, float[3, {K}, {L}] z) => (float[3, {M}, {L}] y) {{ y = MatMul(x, z) }}",
        3 * 2 * M * K * L, 3 * M * K * L, read=3 * (M * K + K * L), written=3 * M * L,
    ),
    Form(
        "Gemm",
        f"g (float[{M}, {K}] x) => (float[{M}, {L}] y) {{ y = Gemm<transB = 1>(x, w, b) }}",
        2 * M * K * L + M * L, M * K * L, read=M * K + K * L + L, written=M * L,
        weights={"w": normal(L, K), "b": normal(L)},
    ),
    Form(
        "Einsum",
        f'g (float[{M}, {K}] x, float[{L}, {K}] z) => (float[{M}, {L}] y) {{ y = Einsum<equation = "ik,jk->ij">(x, z) '
        "}",
        2 * M * K * L, M * K * L, read=M * K + K * L, written=M * L,
    ),
    # N Co Ho Wo results of Ci Kh Kw products each, taps beyond the edge counted too
    conv("Conv", "Conv<pads = [1, 1, 1, 1]>", (12, C, 3, 3), (N, 12, H, W), C * 9),
    conv("Conv 1 x 1", "Conv", (12, C, 1, 1), (N, 12, H, W), C, bias=False),
    conv("Conv of stride 2", "Conv<strides = [2, 2]>", (12, C, 3, 3), (N, 12, 4, 4), C * 9),
    conv("Conv, dilated", "Conv<dilations = [2, 2]>", (12, C, 3, 3), (N, 12, 5, 6), C * 9),
    conv("Conv of 2 groups", "Conv<group = 2, pads = [1, 1, 1, 1]>", (12, C // 2, 3, 3), (N, 12, H, W), C // 2 * 9),
    conv("Conv, depthwise", f"Conv<group = {C}, pads = [1, 1, 1, 1]>", (C, 1, 3, 3), (N, C, H, W), 9),
    # a window of the kernel's elements for each result
    Form(
        "MaxPool",
        f"g ({X} x) => (float[{N}, {C}, 4, 5] y) {{ y = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(x) }}",
        N * C * 4 * 5 * 4, read=N * C * 8 * 10, written=N * C * 4 * 5,
    ),
    Form(
        "AveragePool",
        f"g ({X} x) => (float[{N}, {C}, 4, 5] y) {{ y = AveragePool<kernel_shape = [2, 2], strides = [2, 2]>(x) }}",
        N * C * 4 * 5 * (4 + 1), read=N * C * 8 * 10, written=N * C * 4 * 5,
    ),
    Form(
        "GlobalAveragePool",
        f"g ({X} x) => (float[{N}, {C}, 1, 1] y) {{ y = GlobalAveragePool(x) }}",
        SIZE + N * C, read=SIZE, written=N * C,
    ),
    Form(
        "ReduceSum",
        f"g ({X} x) => (float[{N}, {C}, {H}] y) {{ y = ReduceSum<keepdims = 0>(x, last) }}",
        SIZE, read=SIZE, written=SIZE // W, weights={"last": np.array([3])},
    ),
    Form(
        "ReduceMax",
        f"g ({X} x) => (float[{N}, {C}, {H}] y) {{ y = ReduceMax<keepdims = 0>(x, last) }}",
        SIZE, read=SIZE, written=SIZE // W, weights={"last": np.array([3])},
    ),
    # a maximum, a subtraction, an exponential, a sum and a quotient an element
    Form(
        "Softmax",
        f"g (float[{M}, {L}] x) => (float[{M}, {L}] y) {{ y = Softmax(x) }}",
        5 * M * L, special=2 * M * L, read=M * L, written=M * L,
    ),
    # scale and shift that are known are one multiplication and one addition
    Form(
        "BatchNormalization",
        f"g ({X} x) => ({X} y) {{ y = BatchNormalization(x, s, b, m, v) }}",
        2 * SIZE, read=SIZE + 2 * C, written=SIZE,
        weights={name: np.abs(normal(C, seed=i)) for i, name in enumerate("sbmv")},
    ),
    # nothing is computed
    Form(
        "Reshape",
        f"g ({X} x) => (float[{SIZE}] y) {{ y = Reshape(x, s) }}",
        launches=0, weights={"s": np.array([-1])},
    ),
    Form(
        "Transpose",
        f"g (float[{M}, {L}] x) => (float[{L}, {M}] y) {{ y = Transpose<perm = [1, 0]>(x) }}",
        read=M * L, written=M * L,
    ),
    Form(
        "Concat",
        f"g (float[{M}, {L}] x, float[{M}, {K}] z) => (float[{M}, {L + K}] y) {{ y = Concat<axis = 1>(x, z) }}",
        read=M * (L + K), written=M * (L + K),
    ),
    Form(
        "Slice",
        f"g (float[{M}, 8] x) => (float[{M}, 3] y) {{ y = Slice(x, from, to, axes) }}",
        read=3 * M, written=3 * M,
        weights={"from": np.array([2]), "to": np.array([5]), "axes": np.array([1])},
    ),
    Form(
        "Gather",
        f"g (float[100, {L}] x, int64[3] i) => (float[3, {L}] y) {{ y = Gather(x, i) }}",
        integer=6, read=3 * L + 2 * 3, written=3 * L,
    ),
    Form(
        "Expand",
        f"g (float[1, {L}] x) => (float[{M}, {L}] y) {{ y = Expand(x, s) }}",
        read=L, written=M * L, weights={"s": np.array([M, L])},
    ),
    Form(
        "Pad",
        f"g (float[{M}, {L}] x) => (float[{M + 2}, {L}] y) {{ y = Pad(x, p) }}",
        read=M * L, written=(M + 2) * L, weights={"p": np.array([1, 0, 1, 0])},
    ),
    Form(
        "Resize, nearest",
        f'g ({X} x) => (float[{N}, {C}, 18, 20] y) {{ y = Resize<mode = "nearest", coordinate_transformation_mode = '
        '"asymmetric", nearest_mode = "floor">(x, , scales) }',
        read=SIZE, written=4 * SIZE, weights={"scales": np.array([1, 1, 2, 2], np.float32)},
    ),
)  # fmt: skip


def analysed(text: str, weights: dict[str, Any] | None = None, **dims: int) -> Analysis:
    with compilation():
        return analysis_of(dry_run(model_of(text, weights), Options(), Target.of("x86-64-v3")), dims)


def only(analysis: Analysis) -> NodeAnalysis:
    (node,) = analysis.nodes
    return node


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_a_node_costs_its_closed_form(form: Form) -> None:
    node = only(analysed(form.text, form.weights))
    a = node.amounts
    found = (
        a.flops.value,
        a.macs.value,
        a.special.value,
        a.integer.value,
        a.read.value,
        a.written.value,
        node.launches,
    )
    wanted = (form.flops, form.macs, form.special, form.integer, form.read * F, form.written * F, form.launches)
    assert found == wanted


def test_a_transposed_convolution_scatters_each_element_to_every_tap() -> None:
    text = f"""g ({X} x) => (float[{N}, 12, 18, 20] y) {{
        y = ConvTranspose<strides = [2, 2], kernel_shape = [2, 2]>(x, w) }}"""
    amounts = only(analysed(text, {"w": normal(C, 12, 2, 2)})).amounts
    assert amounts.macs.value == N * H * W * C * 12 * 2 * 2
    assert amounts.written.value == F * N * 12 * 18 * 20


def test_a_layer_norm_passes_over_its_rows_for_mean_deviation_and_result() -> None:
    text = f"g (float[{M}, {L}] x) => (float[{M}, {L}] y) {{ y = LayerNormalization(x, s, b) }}"
    node = only(analysed(text, {"s": normal(L), "b": normal(L)}))
    # sum; difference, its sum, square, sum; difference, scale by the row, by gamma, beta; for each row three means,
    # what the first one lacked squared and taken off, epsilon and the root
    assert node.amounts.flops.value == 9 * M * L + 7 * M
    assert (node.amounts.read.value, node.amounts.written.value) == (F * (M * L + 2 * L), F * M * L)


def test_a_recurrence_multiplies_its_weights_at_every_step() -> None:
    steps, width, hidden = 5, 3, 4
    text = f"""g (float[{steps}, 1, {width}] x) => (float[{steps}, 1, 1, {hidden}] y) {{
        y = LSTM<hidden_size = {hidden}>(x, w, r) }}"""
    amounts = only(analysed(text, {"w": normal(1, 4 * hidden, width), "r": normal(1, 4 * hidden, hidden)})).amounts
    assert amounts.macs.value == steps * 4 * hidden * (width + hidden)


def test_attention_grows_with_the_square_of_its_length() -> None:
    d = 16
    text = f"""g (float[n, {d}] q, float[n, {d}] k, float[n, {d}] v) => (float[n, {d}] y) {{
        t = Transpose<perm = [1, 0]>(k) s = MatMul(q, t) p = Softmax(s) y = MatMul(p, v) }}"""
    found = analysed(text, n=256)
    scores, softmax, values = (node for node in found.nodes if node.operator in ("MatMul", "Softmax"))
    assert scores.amounts.macs.formula == values.amounts.macs.formula == f"{d}*n*n"
    assert scores.amounts.macs.value == 256 * 256 * d
    assert softmax.amounts.flops.formula == "5*n*n"
    assert found.before.amounts.macs.formula == f"{2 * d}*n*n"
    assert found.before.amounts.macs.value == found.after.amounts.macs.value, "fusion computes nothing twice here"
    assert found.after.amounts.written.value < found.before.amounts.written.value


def test_parameters_are_counted_once_whoever_reads_them() -> None:
    text = f"g (float[{M}, 8] x) => (float[{M}, 8] y) {{ a = MatMul(x, w) y = MatMul(a, w) }}"
    found = analysed(text, {"w": normal(8, 8)})
    assert [node.parameters for node in found.nodes] == [64, 64]
    assert (found.parameters, found.parameter_bytes) == (64, 256)
    t = found.training
    assert (t.weights, t.gradients, t.optimizer, t.activations.value) == (256, 256, 512, 2 * M * 8 * F)
    assert t.total == 4 * 256 + 2 * M * 8 * F


def test_memory_is_what_is_needed_at_one_time_and_all_together() -> None:
    text = f"""g (float[{M}, 8] x) => (float[{M}, 8] y) {{ a = MatMul(x, u) b = Softmax(a) c = MatMul(b, v)
        d = Softmax<axis = 0>(c) y = MatMul(d, w) }}"""
    found = analysed(text, {name: normal(8, 8, seed=i) for i, name in enumerate("uvw")})
    assert 0 < found.memory.live <= found.memory.tensors == sum(buffer.bytes for buffer in found.buffers)


def test_a_size_that_there_is_not_is_refused_by_name() -> None:
    text = "g (float[n] x) => (float[n] y) { y = Relu(x) }"
    with pytest.raises(OptionError, match="--dim m: the model has no symbolic dim of that name, only n"):
        analysed(text, m=3)


TWO_WAYS = """g (float[B, S] x, int64[2] s) => (float[n, m] y) { r = Reshape(x, s) y = Exp(r) }"""
SEGMENTS = """g (float[N, 8] x) => (float[k, 8] y, int64[2, z] i) {
    c = ReduceSum<keepdims = 0>(x, last) p = Greater(c, zero) a = Compress<axis = 0>(x, p) y = Exp(a)
    i = NonZero(x) }"""


@pytest.mark.parametrize(
    ("text", "weights"),
    [(TWO_WAYS, {}), (SEGMENTS, {"last": np.array([1]), "zero": np.zeros((), np.float32)})],
    ids=["variants", "segments"],
)
def test_totals_are_the_sums_of_their_rows_whichever_variant_runs(text: str, weights: dict[str, Any]) -> None:
    with compilation():
        account = dry_run(model_of(text, weights), Options(), Target.of("x86-64-v3"))
        for variant in account.record.variants:
            found = analysis_of(account, variant=variant.name)
            for rows, totals in ((found.nodes, found.before), (found.kernels, found.after)):
                for name in NAMES:
                    own = [getattr(row.amounts, name).value for row in rows]
                    assert sum(own) == getattr(totals.amounts, name).value, (variant.name, name)
    assert analysis_of(account).before.amounts.special.value > 0


def test_a_run_follows_one_path_of_segments() -> None:
    with compilation():
        record = dry_run(model_of(TWO_WAYS), Options(), Target.of("x86-64-v3")).record
    assert len(record.variants) > 1
    assert [variant.segment for variant in record.usual] == [0], "another way is for shapes that this one does not take"


def test_a_size_that_one_variant_refuses_may_suit_another() -> None:
    text = "g (float[B, S] x) => (float[n, 4] y) { r = Reshape(x, s) y = Exp(r) }"
    found = analysed(text, {"s": np.array([-1, 4])}, B=2, S=8)
    assert found.before.amounts.special.value == 16
