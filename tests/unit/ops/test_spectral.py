from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opweld.errors import AssumptionError, ModelError
from tests.unit.ops.one_node import check, make_model, normal, programs_of, run

LENGTHS = [1, 2, 5, 8]


def scalar(value: Any, dtype: Any = np.int64) -> Any:
    return np.array(value, dtype)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("axis", [1, -2])
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("inverse", [0, 1])
def test_dft(length: int, axis: int, parts: int, inverse: int) -> None:
    x = normal(2, length, 3, parts) if axis == 1 else normal(2, 3, length, parts)
    if parts == 1 and inverse:

        def reference(x: Any, *_: Any) -> Any:
            found = np.fft.ifft(x[..., 0].astype(np.float64), axis=1 if axis == 1 else 2)
            return np.stack([found.real, found.imag], -1).astype(np.float32)

        check("DFT", [x, None, scalar(axis)], constant=(2,), inverse=1, reference=reference)
    else:
        check("DFT", [x, None, scalar(axis)], constant=(2,), inverse=inverse)


@pytest.mark.parametrize("size", LENGTHS)
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("onesided", [0, 1])
def test_dft_pads_or_cuts(size: int, length: int, onesided: int) -> None:
    check("DFT", [normal(2, size, 1), scalar(length)], constant=(1,), onesided=onesided)


@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize("length", [None, 1, 4, 5, 8, 9])
def test_half_a_spectrum_back(size: int, length: int | None) -> None:
    inputs = [normal(2, size, 2), None if length is None else scalar(length)]
    check("DFT", inputs, constant=(1,), inverse=1, onesided=1)


@pytest.mark.parametrize("options", [{}, {"inverse": 1}, {"onesided": 1}])
def test_dft_of_any_length(options: dict[str, Any]) -> None:
    """The matrix is looked up in a table."""
    parts = 1 if options.get("onesided") else 2
    more = [[normal(2, n, parts)] for n in (1, 2, 9, 30)]
    check("DFT", [normal(2, 7, parts)], dims={0: ("b", "n", parts)}, more=more, **options)


def test_dft_of_a_fed_length() -> None:
    more = [[normal(1, n, 1), scalar(k)] for n, k in ((4, 4), (9, 2), (3, 8))]
    check("DFT", [normal(1, 5, 1), scalar(6)], dims={0: (1, "n", 1)}, more=more, onesided=1)


def test_half_a_spectrum_of_any_size_back() -> None:
    more = [[normal(1, n, 2)] for n in (2, 3, 8)]
    check("DFT", [normal(1, 5, 2)], dims={0: (1, "n", 2)}, more=more, inverse=1, onesided=1)


def test_long_dft() -> None:
    """Longer than a matrix is made for."""
    x = normal(1, 2500, 1)
    check("DFT", [x], onesided=1, tolerance=1e-5)


@pytest.mark.parametrize("dims", [None, {0: ("b", "n", 1)}])
def test_the_middle_of_a_spectrum_of_real_numbers_is_real(dims: Any) -> None:
    """Exactly, so that its angle is 0 or pi."""
    x = normal(4, 100, 1)
    found = run(programs_of(make_model("DFT", [x], dims=dims, onesided=1)), {"x0": x})["y0"]
    np.testing.assert_array_equal(found[:, [0, -1], 1], np.zeros((4, 2)))


def test_dft_of_half_precision_and_double() -> None:
    for dtype, tolerance in ((np.float16, 2e-3), (np.float64, 1e-12)):
        check("DFT", [normal(2, 12, 1, dtype=dtype)], tolerance=tolerance)


def test_what_is_not_defined() -> None:
    with pytest.raises(ModelError, match="not defined"):
        programs_of(make_model("DFT", [normal(2, 4, 2)], onesided=1))
    with pytest.raises(ModelError, match="1 or 2"):
        programs_of(make_model("DFT", [normal(2, 4, 3)]))


@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize("windowed", [False, True])
def test_stft(onesided: int, windowed: bool) -> None:
    window = np.hanning(6).astype(np.float32) if windowed else None
    for samples, step in ((6, 1), (20, 4), (17, 3)):
        inputs = [normal(2, samples, 1), scalar(step), window, scalar(6)]
        check(
            "STFT",
            inputs,
            constant=(1, 3),
            onesided=onesided,
            reference=lambda x, hop, w, size: framed(x, hop, w, size, onesided),
        )


def test_stft_of_a_real_signal_without_its_last_axis() -> None:
    inputs = [normal(2, 20), scalar(4), None, scalar(6)]
    check("STFT", inputs, constant=(1, 3), reference=lambda x, hop, w, size: framed(x[..., None], hop, w, size, 1))


def framed(signal: Any, step: Any, window: Any, length: Any, onesided: int) -> Any:
    size, hop = int(length), int(step)
    scale = np.ones(size) if window is None else window.astype(np.float64)
    starts = range(0, signal.shape[1] - size + 1, hop)
    frames = np.stack([signal[:, s : s + size, 0] * scale for s in starts], 1)
    found = (np.fft.rfft if onesided else np.fft.fft)(frames, axis=-1)
    return np.stack([found.real, found.imag], -1).astype(np.float32)


def test_stft_of_any_length() -> None:
    window = np.hamming(5).astype(np.float32)
    more = [[normal(b, n, 1), scalar(2), window] for b, n in ((1, 5), (3, 6), (2, 31))]
    check(
        "STFT",
        [normal(2, 12, 1), scalar(2), window],
        constant=(1, 2),
        dims={0: ("b", "n", 1)},
        more=more,
        reference=lambda x, step, w: framed(x, step, w, 5, 1),
    )


@pytest.mark.parametrize("op_type", ["HannWindow", "HammingWindow", "BlackmanWindow"])
@pytest.mark.parametrize("periodic", [0, 1])
def test_windows(op_type: str, periodic: int) -> None:
    for size in (2, 3, 10):
        check(op_type, [scalar(size)], constant=(0,), periodic=periodic)
    check(op_type, [scalar(7)], more=[[scalar(n)] for n in (2, 12)], periodic=periodic)


def test_window_of_another_type() -> None:
    check("HannWindow", [scalar(9)], constant=(0,), output_datatype=11, tolerance=1e-12)


@pytest.mark.parametrize("edges", [(0.0, 4096.0), (300.0, 3000.0)])
def test_mel_weights(edges: tuple[float, float]) -> None:
    low, high = (scalar(edge, np.float32) for edge in edges)
    inputs = [scalar(8), scalar(64), scalar(8192), low, high]
    check("MelWeightMatrix", inputs, constant=(0, 1, 2, 3, 4))
    check("MelWeightMatrix", inputs, more=[[scalar(3), scalar(16), scalar(8192), low, high]])


def test_whether_numbers_are_complex_hangs_on_a_symbolic_axis() -> None:
    dims: dict[int, list[int | str]] = {0: ["b", "n", "c"]}
    axis = np.array(1)
    programs = check(
        "DFT", [normal(2, 8, 1), None, axis], constant=(2,), dims=dims, more=[[normal(1, 6, 2), None, axis]]
    )
    assert len(programs) == 2
    with pytest.raises(AssumptionError):
        run(programs, {"x0": normal(1, 8, 3)})
    frames = [None, np.array(8)]
    step = np.array(4)
    check(
        "STFT",
        [normal(1, 18, 1), step, *frames],
        constant=(1, 3),
        dims=dims,
        more=[[normal(1, 20, 2), step, *frames]],
        onesided=0,
    )
