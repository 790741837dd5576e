"""Decoders whose products round rows to 8 bits: near those that do not, and the same bits however steps are divided."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import opweld
from opweld import ir
from opweld.errors import RunError
from opweld.llm.engine import Engine
from opweld.llm.graph_builder import GraphBuilder, graph_input
from opweld.llm.panels import in_panels
from opweld.llm.settings import Settings
from opweld.llm.source import DecoderSource
from opweld.llm.step import Span
from opweld.llm.weights import Blocked
from opweld.tensor.dtype import DType
from opweld.tensor.rounded import (
    FRACTION,
    GROUP,
    KINDS,
    PANEL,
    PART,
    ROUNDED,
    ROWS,
    _matrix,  # pyright: ignore[reportPrivateUsage]
    fixed_point,
    panels_of,
)
from tests.unit.llm.decoder import Decoder
from tests.unit.llm.decoders import BLOCK, CONFIGS, PLAIN, digest, runner_of, weights_of
from tests.unit.llm.fake import letters, request
from tests.unit.llm.test_compiled import LENGTH, run_in, tokens_of
from tests.unit.llm.test_engine import answered, prompts

Array = np.ndarray[Any, Any]

TARGETS = ("native", "x86-64-v3")
"""A matrix unit or VNNI, where this processor has them, and 16-bit products; both have FMA."""
FORMS: dict[str, tuple[int, int, bool]] = {
    "Q4_0": (4, 32, False),
    "Q4_1": (4, 32, True),
    "Q5_1": (5, 32, True),
    "Q8_0": (8, 32, False),
    "a whole row": (8, 576, False),
}
"""Bits, elements of a block, and whether codes are unsigned and have minimums."""
OUT, SIZE = 75, 576
"""Of matrices: no whole panels, a last group of one line, more than a call."""


@pytest.mark.parametrize("bits", [4, 8])
def test_panels_hold_every_code(bits: int) -> None:
    codes = np.random.default_rng(bits).integers(0, 1 << bits, (37, 96)).astype(np.uint8)
    np.testing.assert_array_equal(_matrix(panels_of(codes, bits), bits, 37, 96), codes)


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_rows_are_rounded_alike_whatever_shares_their_step(name: str) -> None:
    config, tokens = CONFIGS[name], tokens_of()
    weights = weights_of(config, blocked=True)
    model = runner_of(config, weights, rounded=True, threads=2)
    whole = model.run([Span(tokens, 0, range(20), LENGTH)])
    right = Decoder(config, weights).logits(tokens)
    error = np.sqrt(((whole - right) ** 2).mean() / (right**2).mean())
    # Each element is off by up to 1/254 of the largest of its group, in two layers and the head.
    assert 0 < error < 0.03
    for counts in ((1, 6, 33, 250, 1, 9, 300), (599, 1), (16, 17, 15, 552)):
        np.testing.assert_array_equal(run_in(model, tokens, counts, range(20)), whole)
    alone = runner_of(config, weights, rounded=True, threads=1)
    np.testing.assert_array_equal(run_in(alone, tokens, (300, 299, 1), range(20)), whole)
    narrow = runner_of(config, weights, rounded=True, threads=1, target="x86-64-v3")
    found = narrow.run([Span(tokens, 0, range(20), LENGTH)])
    np.testing.assert_allclose(found, whole, atol=0.03 * np.abs(whole).max(), rtol=0)


def matrix_of(form: str, out: int = OUT) -> Blocked:
    """Random, with both ends of what codes may be in each row."""
    bits, block, unsigned = FORMS[form]
    rng = np.random.default_rng(len(form) + out)
    low = 0 if unsigned else -(1 << bits - 1)
    codes = rng.integers(low, low + (1 << bits), (out, SIZE))
    codes[:, ::7], codes[:, 3::11] = low, low + (1 << bits) - 1
    scales = (rng.random((out, SIZE // block)) + 0.5).astype(np.float16).astype(np.float32)
    if unsigned:
        return Blocked(codes.astype(np.uint8), scales, -7 * scales, bits, block)
    return Blocked(codes.astype(np.int8), scales, None, bits, block)


class Linear(GraphBuilder):
    """A linear layer of what is fed."""

    def graph(self) -> ir.Graph:
        x = graph_input("x", DType.F32, "T", SIZE)
        made = self._linear("matrix", x)
        made.name = "made"
        return ir.Graph([x], [made], self._nodes, self._stored.values())


def linear(weight: Blocked, **options: Any) -> opweld.Model:
    read = {"matrix": lambda: weight}

    class Source(DecoderSource):
        def graph(self) -> ir.Graph:
            return Linear("llama", read, rounded=True).graph()

    return opweld.compile(Source(PLAIN, read, BLOCK, lambda _: f"linear {digest(read)}"), **options)


def product(model: opweld.Model, x: Array) -> Array:
    return np.asarray(model.run({"x": x})["made"])


def in_numpy(weight: Blocked, x: Array) -> Array:
    """The product as the externs mean it, added in float64."""
    rows, (out, _), made = len(x), weight.shape, in_panels(weight)
    codes, steps, totals = (
        np.zeros((rows, SIZE), np.int8),
        np.zeros((rows, -(-SIZE // GROUP))),
        np.zeros((rows, SIZE // PART)),
    )
    for r in range(rows):
        ROUNDED["round_rows"].compute([x[r]], [codes[r], steps[r], totals[r]], (SIZE,))
    operands = [np.array([0, len(made.codes)]), codes, steps, totals, made.codes, made.units, made.numbers]
    found = np.full((rows, out), np.nan)
    sizes = (rows, out, SIZE, weight.block // PART, made.zero, int(made.numbers.shape[1] > made.blocks * PANEL))
    ROUNDED[KINDS[made.bits]].compute([np.ravel(operand) for operand in operands], [found.ravel()], sizes)
    return found


@pytest.mark.parametrize("form", FORMS)
def test_products_are_what_they_mean_by_all_instructions_of_any_rows(form: str) -> None:
    weight, x = matrix_of(form), np.random.default_rng(5).standard_normal((70, SIZE)).astype(np.float32)
    right = in_numpy(weight, x)
    near = x.astype(np.float64) @ weight.values().astype(np.float64).T
    # Rounding of x: half of a step of each element, 1/254 of the largest of its group. Of weights: half of a unit of a
    # scale, times a code, and of a minimum.
    reach, largest = np.abs(weight.values()), np.abs(weight.codes.astype(np.int16)).max()
    limit = np.abs(x).max() * (reach.sum(1).max() / 254 + SIZE * reach.max() / 32_000 * (largest + 1) / 2)
    np.testing.assert_allclose(right, near, atol=limit, rtol=0)
    whole = product(linear(weight, threads=2), x)
    # Sums of three groups in float32, and a product.
    np.testing.assert_allclose(whole, right, atol=2e-6 * np.abs(right).max(), rtol=0)
    for target in TARGETS:
        model = linear(weight, threads=1, target=target)
        for rows in (1, 2, 3, 7, 15, 16, 17, 31, 32, 33, 48, 55, 70):
            np.testing.assert_array_equal(product(model, x[:rows]), whole[:rows], err_msg=f"{target}, {rows} rows")


class Rows(GraphBuilder):
    """Rows of a matrix that is multiplied, too."""

    def graph(self) -> ir.Graph:
        rows = graph_input("rows", DType.I64, "T")
        found = self._gathered("matrix", rows, (OUT, SIZE), multiplied=True)
        made = self._linear("matrix", found)
        found.name, made.name = "found", "made"
        return ir.Graph([rows], [found, made], self._nodes, self._stored.values())


@pytest.mark.parametrize("form", FORMS)
def test_a_matrix_that_is_multiplied_is_looked_up_as_it_lies_for_that(form: str) -> None:
    weight = matrix_of(form)
    read = {"matrix": lambda: weight}

    class Source(DecoderSource):
        def graph(self) -> ir.Graph:
            return Rows("llama", read, rounded=True).graph()

    model = opweld.compile(Source(PLAIN, read, BLOCK, lambda _: f"rows {digest(read)}"), threads=1)
    rows = np.array([0, 17, 74, 15, 16, 17, 63])
    found, made = (np.asarray(array) for array in model.run({"rows": rows}).values())
    np.testing.assert_allclose(found, weight.values()[rows], rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(made, product(linear(weight, threads=1), found))
    panels = in_panels(weight)
    numbers = (OUT, SIZE, weight.block // PART, panels.added, int(weight.minimums is not None))
    least = weight.scales if weight.minimums is None else weight.minimums
    for row in rows:
        meant = np.zeros(SIZE, np.float32)
        operands = [np.array([row]), panels.codes.ravel(), weight.scales.ravel(), least.ravel()]
        ROUNDED[ROWS[panels.bits]].compute(operands, [meant], numbers)
        np.testing.assert_allclose(meant, weight.values()[row], rtol=1e-6, atol=1e-6)
    for row in (-1, OUT):
        with pytest.raises(RunError, match="out of range"):
            model.run({"rows": np.array([3, row])})


@pytest.mark.parametrize("form", FORMS)
def test_the_largest_sums_of_integers_are_exact(form: str) -> None:
    weight = matrix_of(form, out=16)
    ends = int(weight.codes.min()), int(weight.codes.max())
    weight.codes[:8], weight.codes[8:] = ends
    weight.scales[:] = 1
    if weight.minimums is not None:
        weight.minimums[:] = -7
    x = np.full((17, SIZE), 127, np.float32)  # a step of one
    x[1::2] *= -1
    right = in_numpy(weight, x)
    for target in TARGETS:
        found = product(linear(weight, threads=1, target=target), x)
        # A sum of a group has 30 bits: it is rounded, as are two sums of three of them and the product by a unit.
        np.testing.assert_allclose(found, right, rtol=4 * 2.0**-24, err_msg=target)


def test_numbers_of_blocks_are_as_fine_as_16_bits() -> None:
    rng = np.random.default_rng(3)
    scales, minimums = rng.standard_normal((2, 40, 9)) * 10.0 ** rng.integers(-3, 3, (2, 40, 1))
    scales[5], minimums[5] = 0, 0
    scales[6, 2], scales[7, 3] = np.nan, np.inf
    for low, high in ((-8, 7), (0, 31), (-128, 127), (0, 255)):
        units, pairs = fixed_point(scales.astype(np.float32), minimums.astype(np.float32), low, high)
        assert pairs[5].tolist() == [[0, 0]] * 9
        assert np.isnan(units[6:8]).all()
        fine = np.delete(np.arange(40), [5, 6, 7])
        for code in (low, 0, high):
            whole = pairs[fine, :, 0].astype(np.int64) * code + pairs[fine, :, 1]
            assert np.abs(whole).max() < 2**15, "an integer of 16 bits"
            right = (scales[fine] * code + minimums[fine]) / units[fine, None] * FRACTION
            assert np.abs(whole - right).max() <= (abs(code) + 1) / 2 + 0.1, "float32 of what was given rounds by less"
    scales, units = fixed_point(np.array([[-2.0, 1.0]], np.float32), None, -8, 7)[::-1]
    assert scales.shape == (1, 2) and scales[0, 0] < 0 < scales[0, 1] and units[0] > 0


@pytest.mark.parametrize("rows", [3, 19])
def test_numbers_at_the_ends_change_no_other_row(rows: int) -> None:
    weight = matrix_of("Q4_1")
    x = np.random.default_rng(6).standard_normal((rows, SIZE)).astype(np.float32)
    for target in TARGETS:
        model = linear(weight, threads=1, target=target)
        whole = product(model, x)
        for number in (0.0, -0.0, 1e-45, -1e-39, 1e-35, 1e30, -1e35, np.inf, -np.inf, np.nan):
            changed = x.copy()
            changed[1] = number
            found = product(model, changed)
            np.testing.assert_array_equal(np.delete(found, 1, 0), np.delete(whole, 1, 0))
            if np.isfinite(number):
                right = in_numpy(weight, changed)[1]
                np.testing.assert_allclose(found[1], right, atol=2e-6 * np.abs(right).max(), rtol=0)
            else:
                assert np.isnan(found[1]).all()
        changed = x.copy()
        changed[1, 40] = np.inf
        assert np.isnan(product(model, changed)[1]).all(), "one element is enough"
        tiny = x.copy()
        tiny[1] = 2.0**-100
        np.testing.assert_array_equal(product(model, tiny)[1], 0)


def test_answers_are_the_same_alone_batched_chunked_cached_and_preempted() -> None:
    config = CONFIGS["llama"]
    weights, words = weights_of(config, blocked=True), letters(config.vocabulary)
    several = [request(str(at), prompt, limit=40) for at, prompt in enumerate(prompts(6, 90))]
    many = runner_of(config, weights, rounded=True, pool=DType.BF16, paired=True, threads=2)
    expected = {one.id: answered(Engine(many, words, Settings()), [one]).tokens[one.id] for one in several}
    for settings in (Settings(), Settings(budget=7, rows=5), Settings(budget=40, rows=8), Settings(lookup=4)):
        engine = Engine(many, words, settings)
        for cached in (False, True):
            told = answered(engine, several)
            assert told.tokens == expected
            assert any(told.cached.values()) == cached
    few = Engine(
        runner_of(config, weights, blocks=7, rounded=True, pool=DType.BF16, paired=True, threads=2), words, Settings()
    )
    assert answered(few, several).tokens == expected
    assert few.statistics.preemptions > 0
