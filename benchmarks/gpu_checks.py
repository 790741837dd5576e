"""What only a GPU can show of compiled models, checked and timed.

    python -m benchmarks.gpu_checks                    all of it; exit status 1 where something is not right
    python -m benchmarks.gpu_checks tensors attention  parts of it
    python -m benchmarks.gpu checks                    as a part of all benchmarks

Each check prints a line: what, right or what is wrong, and what was measured."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import torch

import opweld
from opweld.errors import OpweldError, RunError
from opweld.options import PrecisionName
from opweld.runtime.cuda.array import DeviceArray
from opweld.torch.on_gpu import OnGpu

Line = tuple[str, str]
"""What was checked, and what was measured of it. A check that is not right raises AssertionError."""

RUNS = 50
PRECISIONS: tuple[tuple[PrecisionName, float], ...] = ("fp32", 1e-6), ("tf32", 2e-3)
"""Of products of float32, and the most that they may be off."""
FAILURES = (AssertionError, OpweldError, RuntimeError, TypeError, ValueError, AttributeError)


def _compiled(body: str, **options: Any) -> opweld.Model:
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> g {body}')
    return opweld.compile(model, target="cuda", **options)


def _close(found: torch.Tensor, right: torch.Tensor, tolerance: float) -> None:
    error = float((found.double() - right.double()).norm() / right.double().norm())
    assert error <= tolerance, f"error {error:.2e}, more than {tolerance:.0e}"


def _micros(call: Callable[[], object], runs: int = RUNS) -> float:
    """Microseconds of a call: the median of times on the host, each with the wait for the device."""
    times: list[float] = []
    for number in range(runs + 3):
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        if number >= 3:
            times.append(time.perf_counter() - start)
    return 1e6 * sorted(times)[len(times) // 2]


def tensors() -> Iterator[Line]:
    """`torch.compile(backend="opweld")` of CUDA tensors, and runs of a caller's memory."""
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.Linear(512, 64)).cuda().eval()
    run: Any = torch.compile(module, backend="opweld", options={"strict": True})
    with torch.no_grad():
        for rows in (64, 33, 1000):
            x = torch.randn(rows, 256, device="cuda")
            _close(run(x), module(x), 1e-4)
        yield (
            "torch.compile: a module, three sizes",
            f"{_micros(lambda: run(x)):.0f} us, eager {_micros(lambda: module(x)):.0f}",
        )
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            late = x
            for _ in range(20):
                late = late * 1.01  # on this stream, so that a run on another one would come too early
            found = run(late)
        stream.synchronize()
        _close(found, module(late), 1e-4)
        yield "torch.compile: on the current stream", ""

        def written(y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            y.mul_(2)
            return y.t(), y.sum(0)

        mine, right = torch.ones(4, 8, device="cuda"), torch.ones(4, 8, device="cuda")
        compiled: Any = torch.compile(written, backend="opweld", options={"strict": True})
        for found, expected in zip(compiled(mine), written(right), strict=True):
            _close(found, expected, 1e-6)
        assert torch.equal(mine, right)
        yield "torch.compile: written in place, views", ""
    yield from _addresses()


def _addresses() -> Iterator[Line]:
    """Inputs and outputs where they lie, at other addresses each time, and copied within the GPU."""
    from opweld.runtime.cuda import prepared

    shape = 4096, 4096
    rows, columns = shape
    model = _compiled(f"(float[{rows}, {columns}] x) => (float[{rows}, {columns}] y) {{ y = Relu (x) }}")
    inputs = [torch.randn(shape, device="cuda") for _ in range(3)]
    usual, times = prepared.NODE, dict[str, float]()
    try:
        for what, node in (("direct", usual), ("copied", 1 << 60)):
            prepared.NODE = node
            call, kept = OnGpu(opweld.load(model.path)), list[torch.Tensor]()
            for number in range(9):  # results are kept: each lies elsewhere
                x = inputs[number % 3]
                kept.append(call(x)[0])
                assert torch.equal(kept[-1], torch.relu(x)), f"{what}, run {number}"
            assert torch.equal(kept[0], torch.relu(inputs[0])), f"{what}: an earlier result has changed"
            turn = iter(range(1 << 30))
            times[what] = _micros(lambda call=call, turn=turn: call(inputs[next(turn) % 3]))
    finally:
        prepared.NODE = usual
    yield "64 MiB in and out: direct, copied", " ".join(f"{what} {micros:.0f} us" for what, micros in times.items())
    small = _compiled("(float[64, 64] x) => (float[64, 64] y) { y = Relu (x) }")
    try:
        for what, node in (("direct", 1), ("copied", usual)):
            prepared.NODE = node
            call = OnGpu(opweld.load(small.path))
            pair, turn = [torch.randn(64, 64, device="cuda") for _ in range(2)], iter(range(1 << 30))
            times[what] = _micros(lambda call=call, turn=turn, pair=pair: call(pair[next(turn) % 2]))
    finally:
        prepared.NODE = usual
    yield "16 KiB in and out, other addresses: direct, copied", " ".join(f"{w} {m:.1f} us" for w, m in times.items())


def interchange() -> Iterator[Line]:
    """Arrays of other libraries by DLPack, here PyTorch's, and results by the same."""
    model = _compiled("(float[n, 3] x, float[3] b) => (float[n, 3] y, bool[n, 3] z) "
                                   "{ y = Add (x, b) z = Greater (y, b) }")  # fmt: skip
    x, b = torch.randn(5, 3, device="cuda"), torch.randn(3, device="cuda")
    found = model.run({"x": x, "b": b.cpu().numpy()})
    assert isinstance(found["y"], DeviceArray)
    assert torch.equal(torch.from_dlpack(found["y"]), x + b)
    assert torch.equal(torch.from_dlpack(found["z"]), x + b > b)
    assert torch.equal(torch.as_tensor(found["y"], device="cuda"), x + b)
    np.testing.assert_array_equal(np.asarray(found["y"]), (x + b).cpu().numpy())
    again = model.run({"x": found["y"], "b": b})
    assert torch.equal(torch.from_dlpack(again["y"]), x + b + b)
    half = _compiled("(bfloat16[n] x) => (bfloat16[n] y) { y = Mul (x, x) }")
    h = torch.randn(1000, device="cuda").bfloat16()
    assert torch.equal(torch.from_dlpack(half.run({"x": h})["y"]), h * h)
    yield (
        "model.run of tensors on the GPU: float32, bool, bfloat16",
        f"{_micros(lambda: model.run({'x': x, 'b': b})):.0f} us",
    )
    large = torch.randn(1 << 24, 3, device="cuda")
    on_gpu, host = _micros(lambda: model.run({"x": large, "b": b}), 10), large.cpu().numpy()
    start = time.perf_counter()
    model.run({"x": host, "b": b.cpu().numpy()})
    yield "192 MiB: on the GPU, through the host", f"{on_gpu:.0f} us, {1e6 * (time.perf_counter() - start):.0f} us"
    gather = _compiled("(float[4, 3] w, int64[2] i) => (float[2, 3] y) { y = Gather (w, i) }")
    w = torch.randn(4, 3, device="cuda")
    try:
        gather.run({"w": w, "i": torch.tensor([0, 4], device="cuda")})
    except RunError:
        yield "a bad index is told at once", ""
    else:
        raise AssertionError("a bad index was not told")
    call = OnGpu(gather)
    call(w, torch.tensor([0, 4], device="cuda"))
    torch.cuda.synchronize()
    try:
        call(w, torch.tensor([0, 3], device="cuda"))
    except RunError:
        yield "and by the next run, where nobody waits", ""
    else:
        raise AssertionError("a bad index was not told by the next run")


class _Masked(torch.nn.Module):
    """Attention whose row i sees columns up to i, of the last `window` where there is one."""

    def __init__(self, window: int = 0) -> None:
        super().__init__()
        self.window = window

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        if not self.window:
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        i = torch.arange(q.shape[2], device=q.device)[:, None]
        j = torch.arange(k.shape[2], device=q.device)[None, :]
        mask = (j <= i) & (j > i - self.window)
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def attention() -> Iterator[Line]:
    """Compiled attention that skips what a mask hides, beside all columns, and beside PyTorch's own."""
    q, k, v = torch.randn(3, 1, 16, 4096, 128, device="cuda", dtype=torch.bfloat16).unbind()
    for what, module in (("causal", _Masked()), ("a window of 512", _Masked(512))):
        times: dict[str, float] = {}
        for name, disabled in (("skipped", ()), ("computed", ("schedule.masked",))):
            example = tuple(x.cpu() for x in (q, k, v))
            call = OnGpu(opweld.compile(module.eval(), example, target="cuda", disable=disabled))
            _close(call(q, k, v)[0], module(q, k, v), 1e-2)
            times[name] = _micros(lambda call=call: call(q, k, v), 10)
        times["PyTorch"] = _micros(lambda module=module: module(q, k, v), 10)
        yield f"attention of 16 heads, 4096 x 128, {what}", " ".join(f"{n} {t:.0f} us" for n, t in times.items())


def tf32() -> Iterator[Line]:
    """Products of float32 by tensor cores, beside exact ones: errors against float64, and PyTorch's."""
    torch.manual_seed(0)
    linear = torch.nn.Linear(4096, 4096).eval()
    x = torch.randn(4096, 4096)
    right = torch.nn.functional.linear(*(t.double().cuda() for t in (x, *linear.parameters())))
    line: list[str] = []
    for precision, tolerance in PRECISIONS:
        call, given = OnGpu(opweld.compile(linear, (x,), target="cuda", precision=precision)), x.cuda()
        found = call(given)[0]
        _close(found, right, tolerance)
        error = float((found.double() - right).norm() / right.norm())
        line.append(f"{precision} {_micros(lambda call=call, given=given: call(given), 10):.0f} us, error {error:.1e}")
    theirs, given = linear.cuda(), x.cuda()
    before = torch.backends.cuda.matmul.fp32_precision
    try:
        for precision in ("ieee", "tf32"):
            torch.backends.cuda.matmul.fp32_precision = precision
            with torch.no_grad():
                line.append(f"PyTorch {precision} {_micros(lambda: theirs(given), 10):.0f} us")
    finally:
        torch.backends.cuda.matmul.fp32_precision = before
    yield "linear 4096^3 of float32", "; ".join(line)


def own() -> Iterator[Line]:
    """A kernel of Triton that a package brings: right when it is pinned, and measured where a rule says so."""
    from benchmarks.gpu_own_kernel import Reversed

    body = """(float[512, 4096] x) => (float[512, 4096] y) <int64[1] starts = {-1}, int64[1] ends = {-100000},
        int64[1] axes = {1}, int64[1] steps = {-1}> {
        a = Relu (x) b = Slice (a, starts, ends, axes, steps) y = Neg (b) }"""
    x = np.random.default_rng(0).standard_normal((512, 4096), np.float32)
    right = -np.maximum(x, 0)[:, ::-1]
    measured = _compiled(body, rules=(Reversed,))
    (decided,) = [d for d in measured.explain().decisions if d.rule == Reversed.name]
    np.testing.assert_array_equal(measured.run({"x": x})["y"], right)
    pinned = _compiled(body, rules=(Reversed,), pins={decided.id: "rewritten"})
    np.testing.assert_array_equal(pinned.run({"x": x})["y"], right)
    yield "a kernel of a package, measured and pinned", f"{decided.taken}: {decided.reason}"


PARTS: Mapping[str, Callable[[], Iterator[Line]]] = {
    "tensors": tensors,
    "interchange": interchange,
    "attention": attention,
    "tf32": tf32,
    "own": own,
}


def main(quick: bool = False, parts: Sequence[str] = ()) -> dict[str, Any]:
    """Runs the checks, prints a line for each, and returns them: what, "right" or the error, what was measured."""
    found: dict[str, Any] = {}
    for part in parts or PARTS:
        start = time.perf_counter()
        try:
            for what, measured in PARTS[part]():
                found[what] = {"error": "", "measured": measured}
                print(f"right  {what}  {measured}".rstrip(), flush=True)
        except FAILURES as error:  # the other parts are checked all the same
            found[part] = {"error": f"{type(error).__name__}: {error}", "measured": ""}
            print(f"WRONG  {part}: {type(error).__name__}: {error}", traceback.format_exc(), sep="\n", flush=True)
        print(f"       {part}: {time.perf_counter() - start:.1f} s", flush=True)
    return found


if __name__ == "__main__":
    sys.exit(any(line["error"] for line in main(parts=sys.argv[1:]).values()))
