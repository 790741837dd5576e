"""Attention of 2 rows, 3 heads of size 4, 5 queries and 7 keys."""

from __future__ import annotations

import numpy as np
from onnx import ModelProto

from tests.unit.rewrite.rewritten import Array, model_of, normal

LOWEST = np.finfo(np.float32).min
WEIGHTS: dict[str, Array] = {
    "scale": np.array(0.5, np.float32), "root": np.array(np.sqrt(0.5), np.float32), "two": np.array(2, np.float32),
    "zero": np.array(0, np.float32), "lowest": np.array(LOWEST), "infinite": np.array(-np.inf, np.float32),
    "near": np.array(-100, np.float32), "one": np.array(1, np.float32), "large": np.array(-1e4, np.float32),
    "apart": np.array([0, 0, 3, 4]), "flat": np.array([0, 0, 12]), "packed": np.array([0, -1, 3, 3, 4]),
    "single": np.array([-1, 7, 4]), "swapped": np.array([2, 3, 4, 7]), "axis": np.array([2]),
    "wide": np.array([2, 1, 3, 7, 4]), "heads": np.array([2, 3, 7, 4]), "last": np.array([-1]),
    "end": np.array([2**63 - 1]), "ones": np.array([1], np.float32), "zeros": np.array([0], np.float32),
    "nothing": np.array([-np.inf], np.float32), "before": np.array([-2]), "small": np.array(-1e9, np.float32),
    "causal": np.triu(np.full((5, 7), LOWEST), 1), "seen": np.tril(np.ones((5, 7), bool)),
    "bias": normal(1, 3, 5, 7), "n0": np.array([0]), "n1": np.array([1]), "n2": np.array([2]), "n3": np.array([3]),
}  # fmt: skip
SIZES = "2, 5, 12|2, 7, 12"
FEEDS = {"x": normal(2, 5, 12), "y": normal(2, 7, 12), "z": normal(2, 7, 12, seed=1)}


def model(body: str, opset: int = 23, mask: str = "", sizes: str = SIZES) -> ModelProto:
    """The nodes as a model of queries, keys and values, with what they read, and a mask that is fed."""
    words = set(body.replace("(", " ").replace(")", " ").replace(",", " ").split())
    used = {name: value for name, value in WEIGHTS.items() if name in words}
    queries, keys = sizes.split("|")
    more = f", {mask}" if mask else ""
    return model_of(
        f"g (float[{queries}] x, float[{keys}] y, float[{keys}] z{more}) => (float[{queries}] r) {{ {body} }}",
        used,
        opset,
    )


def fed(mask: str) -> dict[str, Array]:
    """Queries, keys, values and a mask as it is declared; no row is masked wholly."""
    shape = [int(n) for n in mask.partition("[")[2].partition("]")[0].split(",")]
    chosen = normal(*shape) > 0 if mask.startswith("bool") else normal(*shape)
    chosen[..., 0], chosen[..., 1] = (1, 0) if mask.startswith("bool") else (0.5, -0.5)
    return {**FEEDS, "mask": chosen}


ROWS = """a = Reshape(x, apart) q = Transpose<perm = [0, 2, 1, 3]>(a) b = Reshape(y, apart)
          c = Reshape(z, apart) v = Transpose<perm = [0, 2, 1, 3]>(c) """
KEYS = "k = Transpose<perm = [0, 2, 1, 3]>(b) "
OUT = " o = Transpose<perm = [0, 2, 1, 3]>(w) r = Reshape(o, flat)"

DYNAMO = ROWS + KEYS + """e = Reshape(k, single) f = Transpose<perm = [0, 2, 1]>(e) t = Reshape(f, swapped)
    g = Mul(q, root) h = Mul(t, root) m = MatMul(g, h) """  # fmt: skip
SCRIPT = ROWS + KEYS + """sa = Shape(q) sb = Slice(sa, last, end) sc = Cast<to = 1>(sb) sd = Sqrt(sc)
    se = Div(ones, sd) t = Transpose<perm = [0, 1, 3, 2]>(k) sf = Sqrt(se) g = Mul(q, sf) sg = Sqrt(se) h = Mul(t, sg)
    m = MatMul(g, h) """  # fmt: skip
KERAS = ROWS + "t = Transpose<perm = [0, 2, 3, 1]>(b) i = MatMul(q, t) m = Mul(i, scale) "
PADDLE = ROWS + KEYS + "g = Mul(q, scale) t = Transpose<perm = [0, 1, 3, 2]>(k) m = MatMul(g, t) "
PACKED = """a = Reshape(x, packed) b = Transpose<perm = [2, 0, 3, 1, 4]>(a)
    c = Slice(b, n0, n1, n0, n1) q = Squeeze(c, n0) g = Mul(q, scale) d = Slice(b, n1, n2, n0, n1) k = Squeeze(d, n0)
    e = Slice(b, n2, n3, n0, n1) v = Squeeze(e, n0) t = Transpose<perm = [0, 1, 3, 2]>(k) m = MatMul(g, t) """
SOFTMAX = "p = Softmax<axis = -1>(m) w = MatMul(p, v)" + OUT

ATTENTION = {
    "torch dynamo": DYNAMO + SOFTMAX,
    "torch's old exporter": SCRIPT + SOFTMAX,
    "tf2onnx": KERAS + SOFTMAX,
    "paddle2onnx": PADDLE + SOFTMAX.replace("axis = -1", "axis = 3"),
    "by hand: scores are scaled": ROWS
    + "t = Transpose<perm = [0, 2, 3, 1]>(b) m = MatMul(q, t) s = Mul(m, scale) "
    + "p = Softmax<axis = -1>(s) w = MatMul(p, v)" + OUT,
    "by hand: keys are scaled before": ROWS + KEYS
    + """h = Div(k, two) t = Transpose<perm = [0, 1, 3, 2]>(h) m = MatMul(q, t)
        p = Softmax<axis = -1>(m) w = MatMul(p, v)""" + OUT,
    "by hand: queries are divided": ROWS + KEYS
    + """h = Div(q, two) t = Transpose<perm = [0, 1, 3, 2]>(k) m = MatMul(h, t)
        p = Softmax<axis = 3>(m) w = MatMul(p, v)""" + OUT,
    "by hand: not scaled": ROWS + KEYS
    + "t = Transpose<perm = [0, 1, 3, 2]>(k) m = MatMul(q, t) p = Softmax(m) w = MatMul(p, v)" + OUT,
}  # fmt: skip

ADDED = "u = Add(m, mask) p = Softmax(u) w = MatMul(p, v)" + OUT
CHOSEN = "n = Where(mask, zero, lowest) u = Add(m, n) p = Softmax(u) w = MatMul(p, v)" + OUT
MASKED = {
    "torch dynamo": DYNAMO + ADDED,
    "torch's old exporter": SCRIPT + ADDED,
    "tf2onnx": KERAS + ADDED,
    "paddle2onnx": PADDLE + ADDED,
}
GUARDED = {
    "torch dynamo": DYNAMO
    + "n = Where(mask, zero, lowest) u = Add(m, n) l = Softmax(u) i = IsNaN(l) p = Where(i, zero, l) w = MatMul(p, v)"
    + OUT,
    "torch's old exporter": SCRIPT
    + "n = Where(mask, zeros, nothing) u = Add(m, n) l = Softmax(u) i = IsNaN(l) p = Where(i, zeros, l) "
    + "w = MatMul(p, v)"
    + OUT,
}
CHOOSING = {
    "tf2onnx": KERAS + "f = Cast<to = 1>(mask) j = Sub(one, f) n = Mul(j, large) u = Add(m, n) p = Softmax(u) "
    "w = MatMul(p, v)" + OUT,
    "by hand: chosen": KERAS + CHOSEN,
    "by hand: filled": KERAS + "u = Where(mask, m, lowest) p = Softmax(u) w = MatMul(p, v)" + OUT,
}
CAUSAL = {
    "torch dynamo": DYNAMO + "u = Add(m, causal) p = Softmax(u) w = MatMul(p, v)" + OUT,
    "torch's old exporter": SCRIPT
    + """ca = Shape(q) cb = Shape(k) cc = Slice(ca, before, last) cd = Slice(cb, before, last)
        ce = Concat<axis = 0>(cc, cd) cf = Expand(ones, ce) cg = Trilu<upper = 0>(cf) ch = Equal(cg, zeros)
        n = Where(ch, nothing, zeros) u = Add(m, n) p = Softmax(u) w = MatMul(p, v)""" + OUT,
    "tf2onnx": KERAS + "f = Cast<to = 1>(seen) j = Sub(one, f) n = Mul(j, small) u = Add(m, n) p = Softmax(u) "
    "w = MatMul(p, v)" + OUT,
    "paddle2onnx": PADDLE + "u = Add(m, causal) p = Softmax(u) w = MatMul(p, v)" + OUT,
    "by hand: filled": KERAS + "u = Where(seen, m, lowest) p = Softmax(u) w = MatMul(p, v)" + OUT,
}  # fmt: skip
BIASED = {
    "torch dynamo": DYNAMO + "u = Add(m, bias) p = Softmax(u) w = MatMul(p, v)" + OUT,
    "torch's old exporter": SCRIPT + "u = Add(m, bias) p = Softmax(u) w = MatMul(p, v)" + OUT,
    "tf2onnx": KERAS + "u = Add(m, bias) p = Softmax(u) w = MatMul(p, v)" + OUT,
    "paddle2onnx": PADDLE + "u = Add(m, bias) p = Softmax(u) w = MatMul(p, v)" + OUT,
}

REPEATED = """a = Reshape(x, apart) q = Transpose<perm = [0, 2, 1, 3]>(a)
    d = Unsqueeze(y, axis) e = Expand(d, wide) k = Reshape(e, heads)
    f = Unsqueeze(z, axis) g = Expand(f, wide) v = Reshape(g, heads) """
ONE_HEAD = "2, 5, 12|2, 1, 7, 4"
GROUPED = {
    "torch dynamo": REPEATED
    + """ke = Reshape(k, single) kf = Transpose<perm = [0, 2, 1]>(ke) t = Reshape(kf, swapped) h = Mul(q, root)
        i = Mul(t, root) m = MatMul(h, i) """ + SOFTMAX,
    "torch's old exporter": REPEATED
    + """sa = Shape(q) sb = Slice(sa, last, end) sc = Cast<to = 1>(sb) sd = Sqrt(sc) se = Div(ones, sd)
        t = Transpose<perm = [0, 1, 3, 2]>(k) sf = Sqrt(se) h = Mul(q, sf) sg = Sqrt(se) i = Mul(t, sg)
        m = MatMul(h, i) """ + SOFTMAX,
    "by hand: scores are scaled": REPEATED
    + "t = Transpose<perm = [0, 1, 3, 2]>(k) i = MatMul(q, t) m = Mul(i, scale) " + SOFTMAX,
}  # fmt: skip
