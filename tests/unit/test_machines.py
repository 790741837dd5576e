"""That a machine runs what is generated for one with wider vectors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx.parser
import pytest

import opweld
from opweld.build import artifact
from opweld.target import Target, detect
from tests import machines

AVX2 = frozenset(("avx2", "fma", "f16c", "bmi1", "bmi2"))

pytestmark = pytest.mark.skipif(Target.native().architecture != "x86_64", reason="of the targets of x86-64")


@pytest.fixture
def avx2(monkeypatch: pytest.MonkeyPatch) -> Iterator[Target]:
    """This machine, if it had no AVX-512."""
    native = Target.native()
    caches = {1: native.l1_bytes, 2: native.l2_bytes, 3: native.l3_bytes}
    found = replace(detect("x86_64", AVX2, caches, native.cores, "gnu"), triple=native.triple)
    monkeypatch.setattr(machines, "_native", lambda: found)
    machines.runnable.cache_clear()
    monkeypatch.setattr(Target, "native", staticmethod(lambda: machines.runnable("x86-64-v4")))
    yield found
    machines.runnable.cache_clear()


def test_wider_vectors_are_split_where_there_are_none(avx2: Target, cache_without_models: Path) -> None:
    target = Target.native()
    assert (target.vector_bytes, target.vector_registers, target.features) == (64, 32, avx2.features)
    assert machines.other() == "x86-64-v4" and machines.runnable("x86-64-v3") == avx2
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 20]>
        g (float[n, 40] x, float[40, 24] w) => (float[n, 24] y) { a = MatMul(x, w) b = Gelu(a) y = Softmax(b) }""")
    compiled = opweld.compile(model)
    assert set(artifact.read(compiled.path).features.split()) == set(avx2.features)
    for rows in (1, 7, 33):
        random = np.random.default_rng(rows)
        feeds = {"x": random.standard_normal((rows, 40), np.float32), "w": random.standard_normal((40, 24), np.float32)}
        assert compiled.verify(feeds).passed
