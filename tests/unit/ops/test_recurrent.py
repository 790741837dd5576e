from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from opweld.errors import ModelError
from opweld.tensor.program import Scan
from tests.unit.ops.one_node import check, make_model, normal, programs_of

Array = Any
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
SIZES = [(1, 1, 1, 1), (1, 2, 3, 5), (4, 1, 3, 2), (7, 3, 5, 4)]


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def one_direction(op: str, x: Array, w: Array, r: Array, b: Array, h: Array, c: Array, p: Array, linear: bool) -> Any:
    """All hidden states and the last states of one direction, by the formulas of the specification in float64."""
    size = r.shape[1]
    wb, rb = np.split(b, 2)
    outputs = []
    for xt in x:
        if op == "LSTM":
            i, o, f, g = np.split(xt @ w.T + h @ r.T + wb + rb, 4, axis=1)
            pi, po, pf = np.split(p, 3)
            c_next = sigmoid(f + pf * c) * c + sigmoid(i + pi * c) * np.tanh(g)
            h, c = sigmoid(o + po * c_next) * np.tanh(c_next), c_next
        elif op == "GRU":
            gx = xt @ w.T + wb
            gh = h @ r[: 2 * size].T + rb[: 2 * size]
            z, s = np.split(sigmoid(gx[:, : 2 * size] + gh), 2, axis=1)
            last, bias = r[2 * size :].T, rb[2 * size :]
            inner = s * (h @ last + bias) if linear else (s * h) @ last + bias
            h = (1 - z) * np.tanh(gx[:, 2 * size :] + inner) + z * h
        else:
            h = np.tanh(xt @ w.T + h @ r.T + wb + rb)
        outputs.append(h)
    return np.stack(outputs), h, c


def reference(op: str, direction: str, linear: bool = False, outputs: int = 3) -> Any:
    def run(
        x: Array,
        w: Array,
        r: Array,
        b: Array = None,
        _: Array = None,
        h: Array = None,
        c: Array = None,
        p: Array = None,
    ) -> Any:
        ways = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[direction]
        size, batch = r.shape[2], x.shape[1]
        results = []
        for d, reverse in enumerate(ways):
            zero = np.zeros((batch, size))
            y, h_last, c_last = one_direction(
                op,
                (x[::-1] if reverse else x).astype(np.float64),
                w[d].astype(np.float64),
                r[d].astype(np.float64),
                np.zeros(2 * w.shape[1]) if b is None else b[d].astype(np.float64),
                zero if h is None else h[d].astype(np.float64),
                zero if c is None else c[d].astype(np.float64),
                np.zeros(3 * size) if p is None else p[d].astype(np.float64),
                linear,
            )
            results.append((y[::-1] if reverse else y, h_last, c_last))
        y = np.stack([result[0] for result in results], 1)
        lasts = [np.stack([result[k] for result in results]) for k in (1, 2)]
        return tuple(a.astype(np.float32) for a in (y, *lasts))[: outputs if op == "LSTM" else 2]

    return run


def arrays(op: str, t: int, b: int, i: int, h: int, d: int) -> list[Array]:
    rows = GATES[op] * h
    return [normal(t, b, i), normal(d, rows, i, seed=1), normal(d, rows, h, seed=2), normal(d, 2 * rows, seed=3)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
def test_directions(op: str, direction: str, size: tuple[int, int, int, int]) -> None:
    t, b, i, h = size
    d = 2 if direction == "bidirectional" else 1
    given = arrays(op, t, b, i, h, d)
    initial = [None, normal(d, b, h, seed=4), *([normal(d, b, h, seed=5)] if op == "LSTM" else [])]
    options: dict[str, Any] = {"hidden_size": h, "direction": direction}
    count = 3 if op == "LSTM" else 2
    check(op, given[:3], outputs=count, reference=reference(op, direction), tolerance=1e-5, **options)
    check(
        op,
        [*given, *initial],
        outputs=count,
        constant=(1, 2, 3),
        reference=reference(op, direction),
        tolerance=1e-5,
        **options,
    )


@pytest.mark.parametrize("steps", [1, 5])
def test_linear_before_reset(steps: int) -> None:
    given = [*arrays("GRU", steps, 2, 3, 4, 1), None, normal(1, 2, 4, seed=4)]
    check(
        "GRU",
        given,
        outputs=2,
        hidden_size=4,
        linear_before_reset=1,
        reference=reference("GRU", "forward", linear=True),
        tolerance=1e-5,
    )


@pytest.mark.parametrize("steps", [1, 5])
def test_peepholes(steps: int) -> None:
    given = [*arrays("LSTM", steps, 2, 3, 4, 1), None, None, normal(1, 2, 4, seed=5), normal(1, 12, seed=6)]
    check("LSTM", given, outputs=3, hidden_size=4, reference=reference("LSTM", "forward"), tolerance=1e-5)


def test_torch_agrees() -> None:
    layer = torch.nn.LSTM(3, 4)
    w, r, bw, br = (
        getattr(layer, name).detach().numpy() for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    )
    order = np.concatenate([np.arange(k * 4, k * 4 + 4) for k in (0, 3, 1, 2)])
    bias = np.concatenate([bw[order], br[order]])[None]

    def run(x: Array, *_: Array) -> tuple[Array, ...]:
        with torch.no_grad():
            y, (h, c) = layer(torch.tensor(x))
        return y.numpy()[:, None], h.numpy(), c.numpy()

    given = [normal(6, 2, 3), w[order][None], r[order][None], bias]
    check("LSTM", given, outputs=3, constant=(1, 2, 3), hidden_size=4, reference=run, tolerance=1e-5)


def test_activations_and_clip() -> None:
    def run(x: Array, w: Array, r: Array) -> tuple[Array, Array]:
        h, outputs = np.zeros((x.shape[1], r.shape[2])), []
        for xt in x:
            h = np.maximum(np.clip(xt @ w[0].T + h @ r[0].T, -0.5, 0.5), 0)
            outputs.append(h)
        return np.stack(outputs)[:, None].astype(np.float32), h[None].astype(np.float32)

    given = arrays("RNN", 4, 2, 3, 5, 1)[:3]
    check("RNN", given, outputs=2, hidden_size=5, activations=["Relu"], clip=0.5, reference=run)


def test_outputs_may_be_left_out() -> None:
    given = arrays("LSTM", 4, 2, 3, 5, 1)
    check(
        "LSTM",
        given,
        outputs=3,
        absent=(0, 1),
        hidden_size=5,
        tolerance=1e-5,
        reference=lambda *a: reference("LSTM", "forward")(*a)[2],
    )
    check("LSTM", given, outputs=1, hidden_size=5, tolerance=1e-5, reference=reference("LSTM", "forward", outputs=1))


def test_dynamic_time_and_batch() -> None:
    def given(t: int, b: int) -> list[Array]:
        return arrays("LSTM", t, b, 3, 4, 2)

    programs = check(
        "LSTM",
        given(5, 2),
        outputs=3,
        constant=(1, 2, 3),
        dims={0: ("T", "N", 3)},
        more=[given(1, 1), given(9, 3)],
        hidden_size=4,
        direction="bidirectional",
        reference=reference("LSTM", "bidirectional"),
        tolerance=1e-5,
    )
    assert sum(isinstance(item, Scan) for item in programs[0].items) == 2


def test_one_step_is_no_recurrence() -> None:
    (program,) = programs_of(make_model("LSTM", arrays("LSTM", 1, 2, 3, 4, 1), outputs=3, hidden_size=4))
    assert not any(isinstance(item, Scan) for item in program.items)


@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
def test_a_hidden_size_that_contradicts_the_weights_is_refused(op: str) -> None:
    with pytest.raises(ModelError, match="hidden_size"):
        programs_of(make_model(op, arrays(op, 5, 2, 3, 4, 1), hidden_size=7))


def of_lengths(op: str, direction: str, linear: bool = False) -> Any:
    """Each sequence alone, as long as it is; zeros after its end."""
    whole = reference(op, direction, linear)

    def run(x: Array, w: Array, r: Array, b: Array, lengths: Array, h: Array = None, c: Array = None) -> Any:
        found = []
        for n, length in enumerate(lengths):
            state = [None if s is None else s[:, n : n + 1] for s in (h, c)]
            every, *last = whole(x[: max(length, 1), n : n + 1], w, r, b, None, *state)
            if not length:
                every, last = every[:0], [last_ if s is None else s for last_, s in zip(last, state, strict=False)]
            padding = np.zeros((len(x) - length, *every.shape[1:]), np.float32)
            found.append([np.concatenate([every, padding]), *last])
        return tuple(
            np.concatenate(parts, axis) for axis, parts in zip((2, 1, 1), zip(*found, strict=True), strict=False)
        )

    return run


@pytest.mark.parametrize("op", list(GATES))
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("constant", [(), (4,)])
@pytest.mark.parametrize("lengths", [[3, 5, 1], [0, 5, 2]])
def test_sequence_lengths(op: str, direction: str, constant: tuple[int, ...], lengths: list[int]) -> None:
    """A sequence of no steps ends in the state that it begins with: the last of the states that the formulas give."""
    ways = 2 if direction == "bidirectional" else 1
    check(
        op,
        [
            *arrays(op, 5, 3, 2, 4, ways),
            np.array(lengths, np.int32),
            *(normal(ways, 3, 4, seed=s) for s in range(8, 8 + states(op))),
        ],
        outputs=1 + states(op),
        constant=constant,
        hidden_size=4,
        direction=direction,
        reference=lambda *a: of_lengths(op, direction)(*a)[: 1 + states(op)],
    )


def test_sequence_lengths_of_all_steps() -> None:
    full = np.array([5, 5], np.int32)
    check(
        "RNN",
        [*arrays("RNN", 5, 2, 3, 4, 1), full],
        outputs=2,
        constant=(4,),
        hidden_size=4,
        reference=reference("RNN", "forward"),
    )


@pytest.mark.parametrize("op", list(GATES))
@pytest.mark.parametrize("direction", ["reverse", "bidirectional"])
def test_batch_first(op: str, direction: str) -> None:
    ways = 2 if direction == "bidirectional" else 1
    x, *weights = arrays(op, 5, 3, 2, 4, ways)
    given = [np.ascontiguousarray(x.swapaxes(0, 1)), *weights, np.array([5, 2, 4], np.int32)]
    given += [normal(3, ways, 4, seed=s) for s in range(8, 8 + states(op))]

    def expected(x: Array, w: Array, r: Array, b: Array, lengths: Array, *initial: Array) -> Any:
        turned = [state.swapaxes(0, 1) for state in initial]
        every, *last = of_lengths(op, direction)(x.swapaxes(0, 1), w, r, b, lengths, *turned)
        return (every.transpose(2, 0, 1, 3), *(state.swapaxes(0, 1) for state in last[: states(op)]))

    options: dict[str, Any] = {"hidden_size": 4, "direction": direction, "layout": 1}
    check(op, given, outputs=1 + states(op), reference=expected, **options)


def states(op: str) -> int:
    return 2 if op == "LSTM" else 1
