"""Small tensor programs, as operators lower to, with sizes to choose. A size may be the name of a symbol."""

from __future__ import annotations

Size = int | str


def symbols(**places: str) -> str:
    """Lines that bind each symbol to a dim: `N="0 of x"`."""
    return "".join(f"symbol {name} >= 1 = dim {place}\n" for name, place in places.items())


def dense(m: Size, k: int, n: int, head: str = "") -> str:
    """relu(x w + b)"""
    return f"""program dense
{head}
input x f32[{m}, {k}]
constant w f32[{k}, {n}]
constant b f32[{n}]
tensor product f32[i0: {m}, i1: {n}] from "MatMul"
  over r0: {k}
  = sum<r0>(mul(x[i0, r0], w[r0, i1]))
tensor total f32[i0: {m}, i1: {n}] from "Add"
  = add(product[i0, i1], b[i1])
tensor result f32[i0: {m}, i1: {n}] from "Relu"
  = max(total[i0, i1], 0.0)
output y = result
"""


def layers(m: Size, k: int, inner: int, n: int) -> str:
    """relu(x w) v"""
    return f"""program layers
input x f32[{m}, {k}]
constant w f32[{k}, {inner}]
constant v f32[{inner}, {n}]
tensor product f32[i0: {m}, i1: {inner}] from "MatMul"
  over r0: {k}
  = sum<r0>(mul(x[i0, r0], w[r0, i1]))
tensor hidden f32[i0: {m}, i1: {inner}] from "Relu"
  = max(product[i0, i1], 0.0)
tensor result f32[i0: {m}, i1: {n}] from "MatMul_1"
  over r0: {inner}
  = sum<r0>(mul(hidden[i0, r0], v[r0, i1]))
output y = result
"""


def product(a: Size, b: Size, k: Size, head: str = "", transposed: bool = False) -> str:
    """x z, or x z^T: two computed operands."""
    z, at = (f"{b}, {k}", "i1, r0") if transposed else (f"{k}, {b}", "r0, i1")
    return f"""program product
{head}
input x f32[{a}, {k}]
input z f32[{z}]
tensor result f32[i0: {a}, i1: {b}] from "MatMul"
  over r0: {k}
  = sum<r0>(mul(x[i0, r0], z[{at}]))
output y = result
"""


def narrow(m: Size, k: int, n: int, dtype: str = "f16", head: str = "") -> str:
    """relu(x w) of operands of a narrower type, and a residual that reads x as it is."""
    return f"""program narrow
{head}
input x {dtype}[{m}, {k}]
constant w {dtype}[{k}, {n}]
constant v {dtype}[{n}, {k}]
tensor before {dtype}[i0: {m}, i1: {k}] from "Neg"
  = neg(x[i0, i1])
tensor hidden f32[i0: {m}, i1: {n}] from "MatMul"
  over r0: {k}
  = max(sum<r0>(mul(f32(before[i0, r0]), f32(w[r0, i1]))), 0.0)
tensor product f32[i0: {m}, i1: {k}] from "MatMul_1"
  over r0: {n}
  = sum<r0>(mul(hidden[i0, r0], f32(v[r0, i1])))
tensor result f32[i0: {m}, i1: {k}] from "Add"
  = add(product[i0, i1], f32(before[i0, i1]))
output y = result
"""


def rounded(m: Size, k: int, n: int) -> str:
    """relu(x w) v + x, of operands that may be rounded to bfloat16."""
    head = symbols(N="0 of x") if m == "N" else ""
    return f"""program rounded
precision bf16
{head}
input x f32[{m}, {k}]
constant w f32[{k}, {n}]
constant v f32[{n}, {k}]
tensor product f32[i0: {m}, i1: {n}] from "MatMul"
  over r0: {k}
  = sum<r0>(mul(x[i0, r0], w[r0, i1]))
tensor hidden f32[i0: {m}, i1: {n}] from "Relu"
  = max(product[i0, i1], 0.0)
tensor second f32[i0: {m}, i1: {k}] from "MatMul_1"
  over r0: {n}
  = sum<r0>(mul(hidden[i0, r0], v[r0, i1]))
tensor result f32[i0: {m}, i1: {k}] from "Add"
  = add(second[i0, i1], x[i0, i1])
output y = result
output hidden = hidden
"""


def dequantized(m: Size, k: int, n: int) -> str:
    """x w, where w is (q - zero) * scale with a zero point and a scale for each column."""
    return f"""program dequantized
input x f32[{m}, {k}]
constant q i8[{k}, {n}]
constant zero i8[{n}]
constant scale f32[{n}]
tensor result f32[i0: {m}, i1: {n}] from "MatMul"
  over r0: {k}
  = sum<r0>(mul(x[i0, r0], mul(f32(sub(i32(q[r0, i1]), i32(zero[i1]))), scale[i1])))
output y = result
"""


def quantized(m: Size, k: int, n: int, x: str = "u8", w: str = "i8", zeros: bool = False) -> str:
    """x w of quantized values, quantized again. `zeros`: w has a zero point for each column."""
    weight = "sub(i32(w[r0, i1]), i32(zero[i1]))" if zeros else "i32(w[r0, i1])"
    head = symbols(N="0 of x") if m == "N" else ""
    return f"""program quantized
{head}
input x {x}[{m}, {k}]
constant w {w}[{k}, {n}]
constant zero {w}[{n}]
constant scale f32[{n}]
tensor a f32[i0: {m}, i1: {k}] from "DequantizeLinear"
  = mul(f32(sub(i32(x[i0, i1]), 3:i32)), 0.5)
tensor product f32[i0: {m}, i1: {n}] from "MatMul"
  over r0: {k}
  = sum<r0>(mul(a[i0, r0], mul(f32({weight}), scale[i1])))
tensor result u8[i0: {m}, i1: {n}] from "QuantizeLinear"
  = u8(min(max(round(add(mul(max(product[i0, i1], 0.0:f32), 0.125:f32), 7.0:f32)), 0.0:f32), 255.0:f32))
output y = result
"""


def quantized_convolution(c: int, o: int, h: int, w: int, x: str = "i8") -> str:
    """A padded 3x3 convolution of quantized values; padding stands for zero."""
    guards = f"i2 + r1 - 1 >= 0, {h} - i2 - r1 >= 0, i3 + r2 - 1 >= 0, {w} - i3 - r2 >= 0"
    return f"""program quantized_convolution
input x {x}[2, {c}, {h}, {w}]
constant w i8[{o}, {c}, 3, 3]
constant b f32[{o}]
tensor a f32[i0: 2, i1: {c}, i2: {h}, i3: {w}] from "DequantizeLinear"
  = mul(f32(sub(i32(x[i0, i1, i2, i3]), 2:i32)), 0.25)
tensor product f32[i0: 2, i1: {o}, i2: {h}, i3: {w}] from "Conv"
  over r0: {c}, r1: 3, r2: 3
  = sum<r0, r1, r2>(mul(a[i0, r0, i2 + r1 - 1, i3 + r2 - 1 if {guards} else 0.0], mul(f32(w[i1, r0, r1, r2]), 0.5)))
tensor result f32[i0: 2, i1: {o}, i2: {h}, i3: {w}] from "Conv"
  = max(add(product[i0, i1, i2, i3], b[i1]), 0.0)
output y = result
"""


def narrow_convolution(c: int, o: int, h: int, w: int) -> str:
    """A padded 3x3 convolution, in float16, of what one of 1x1 makes."""
    guards = f"i2 + r1 - 1 >= 0, {h} - i2 - r1 >= 0, i3 + r2 - 1 >= 0, {w} - i3 - r2 >= 0"
    return f"""program narrow_convolution
input x f16[2, {c}, {h}, {w}]
constant v f16[{c}, {c}]
constant w f16[{o}, {c}, 3, 3]
tensor product f32[i0: 2, i1: {c}, i2: {h}, i3: {w}] from "Conv"
  over r0: {c}
  = sum<r0>(mul(f32(x[i0, r0, i2, i3]), f32(v[i1, r0])))
tensor hidden f16[i0: 2, i1: {c}, i2: {h}, i3: {w}] from "Cast"
  = f16(floor(product[i0, i1, i2, i3]))
tensor result f32[i0: 2, i1: {o}, i2: {h}, i3: {w}] from "Conv_1"
  over r0: {c}, r1: 3, r2: 3
  %0 = hidden[i0, r0, i2 + r1 - 1, i3 + r2 - 1 if {guards} else 0.0:f16]
  = sum<r0, r1, r2>(mul(f32(%0), f32(w[i1, r0, r1, r2])))
output y = result
"""


def of_doubles(text: str) -> str:
    """A program that computes in float64 what it did in float32."""
    return text.replace("f32", "f64")


def convolution(c: int, o: int, h: Size, w: Size, stride: int = 1, n: Size = 1, head: str = "") -> str:
    """Two 3x3 convolutions with bias and relu between them: padded in the middle, channels first at both ends."""
    height = f"(({h} - 1) // {stride}) + 1" if stride > 1 else h
    width = f"(({w} - 1) // {stride}) + 1" if stride > 1 else w
    y, x = (f"{stride}*i2 + r1 - 1", f"{stride}*i3 + r2 - 1") if stride > 1 else ("i2 + r1 - 1", "i3 + r2 - 1")
    guards = f"{y} >= 0, {h} - 1 - {_minus(y)} >= 0, {x} >= 0, {w} - 1 - {_minus(x)} >= 0"
    inner = f"i2 + r1 - 1 >= 0, {height} - i2 - r1 >= 0, i3 + r2 - 1 >= 0, {width} - i3 - r2 >= 0"
    return f"""program convolution
{head}
input x f32[{n}, {c}, {h}, {w}]
constant w1 f32[{o}, {c}, 3, 3]
constant b1 f32[{o}]
constant w2 f32[{c}, {o}, 3, 3]
tensor first f32[i0: {n}, i1: {o}, i2: {height}, i3: {width}] from "Conv"
  over r0: {c}, r1: 3, r2: 3
  %0 = x[i0, r0, {y}, {x} if {guards} else 0.0]
  = sum<r0, r1, r2>(mul(%0, w1[i1, r0, r1, r2]))
tensor biased f32[i0: {n}, i1: {o}, i2: {height}, i3: {width}] from "Conv"
  = add(first[i0, i1, i2, i3], b1[i1])
tensor relu f32[i0: {n}, i1: {o}, i2: {height}, i3: {width}] from "Relu"
  = max(biased[i0, i1, i2, i3], 0.0)
tensor second f32[i0: {n}, i1: {c}, i2: {height}, i3: {width}] from "Conv_1"
  over r0: {o}, r1: 3, r2: 3
  %0 = relu[i0, r0, i2 + r1 - 1, i3 + r2 - 1 if {inner} else 0.0]
  = sum<r0, r1, r2>(mul(%0, w2[i1, r0, r1, r2]))
output y = second
"""


def _minus(dim: str) -> str:
    return dim.replace("+", "~").replace("-", "+").replace("~", "-")


def separable(c: int, o: int, h: int, w: int) -> str:
    """A 1x1 convolution, a depthwise 3x3 one and another 1x1 one: an inverted residual."""
    guards = f"i2 + r0 - 1 >= 0, {h} - i2 - r0 >= 0, i3 + r1 - 1 >= 0, {w} - i3 - r1 >= 0"
    return f"""program separable
input x f32[1, {c}, {h}, {w}]
constant w0 f32[{o}, {c}, 1, 1]
constant w1 f32[{o}, 1, 3, 3]
constant b1 f32[{o}]
constant w2 f32[{c}, {o}, 1, 1]
tensor wide f32[i0: 1, i1: {o}, i2: {h}, i3: {w}] from "Conv"
  over r0: {c}
  = sum<r0>(mul(x[0, r0, i2, i3], w0[i1, r0, 0, 0]))
tensor each f32[i0: 1, i1: {o}, i2: {h}, i3: {w}] from "Conv_1"
  over r0: 3, r1: 3
  = sum<r0, r1>(mul(wide[0, i1, i2 + r0 - 1, i3 + r1 - 1 if {guards} else 0.0], w1[i1, 0, r0, r1]))
tensor biased f32[i0: 1, i1: {o}, i2: {h}, i3: {w}] from "Conv_1"
  = add(each[i0, i1, i2, i3], b1[i1])
tensor clipped f32[i0: 1, i1: {o}, i2: {h}, i3: {w}] from "Clip"
  = min(max(biased[0, i1, i2, i3], 0.0), 6.0)
tensor narrow f32[i0: 1, i1: {c}, i2: {h}, i3: {w}] from "Conv_2"
  over r0: {o}
  = sum<r0>(mul(clipped[0, r0, i2, i3], w2[i1, r0, 0, 0]))
tensor result f32[i0: 1, i1: {c}, i2: {h}, i3: {w}] from "Add"
  = add(narrow[0, i1, i2, i3], x[0, i1, i2, i3])
output y = result
"""


def bottleneck(c: int, o: int, h: Size, w: Size, n: Size = 1, head: str = "") -> str:
    """A 1x1 convolution to o channels, a 3x3 one that is added to it, and a 1x1 one back to c."""
    guards = f"i2 + r1 - 1 >= 0, {h} - i2 - r1 >= 0, i3 + r2 - 1 >= 0, {w} - i3 - r2 >= 0"
    return f"""program bottleneck
{head}
input x f32[{n}, {c}, {h}, {w}]
constant w0 f32[{o}, {c}, 1, 1]
constant w1 f32[{o}, {o}, 3, 3]
constant b1 f32[{o}]
constant w2 f32[{c}, {o}, 1, 1]
tensor reduced f32[i0: {n}, i1: {o}, i2: {h}, i3: {w}] from "Conv"
  over r0: {c}
  = sum<r0>(mul(x[i0, r0, i2, i3], w0[i1, r0, 0, 0]))
tensor product f32[i0: {n}, i1: {o}, i2: {h}, i3: {w}] from "Conv_1"
  over r0: {o}, r1: 3, r2: 3
  %0 = reduced[i0, r0, i2 + r1 - 1, i3 + r2 - 1 if {guards} else 0.0]
  = sum<r0, r1, r2>(mul(%0, w1[i1, r0, r1, r2]))
tensor biased f32[i0: {n}, i1: {o}, i2: {h}, i3: {w}] from "Conv_1"
  = add(product[i0, i1, i2, i3], b1[i1])
tensor added f32[i0: {n}, i1: {o}, i2: {h}, i3: {w}] from "Add"
  = max(add(biased[i0, i1, i2, i3], reduced[i0, i1, i2, i3]), 0.0)
tensor result f32[i0: {n}, i1: {c}, i2: {h}, i3: {w}] from "Conv_2"
  over r0: {o}
  = sum<r0>(mul(added[i0, r0, i2, i3], w2[i1, r0, 0, 0]))
output y = result
"""


def grouped(groups: int, c: int, o: int, h: int, w: int) -> str:
    """A convolution of groups of c channels to groups of o."""
    guards = f"i2 + r1 - 1 >= 0, {h} - i2 - r1 >= 0, i3 + r2 - 1 >= 0, {w} - i3 - r2 >= 0"
    return f"""program grouped
input x f32[1, {groups * c}, {h}, {w}]
constant w1 f32[{groups * o}, {c}, 3, 3]
tensor result f32[i0: 1, i1: {groups * o}, i2: {h}, i3: {w}] from "Conv"
  over r0: {c}, r1: 3, r2: 3
  %0 = x[0, {c}*(i1 // {o}) + r0, i2 + r1 - 1, i3 + r2 - 1 if {guards} else 0.0]
  = sum<r0, r1, r2>(mul(%0, w1[i1, r0, r1, r2]))
output y = result
"""


def max_pool(c: int, h: int, w: int) -> str:
    """A 1x1 convolution and a padded 3x3 maximum with stride 2."""
    height, width = (h - 1) // 2 + 1, (w - 1) // 2 + 1
    guards = f"2*i2 + r0 - 1 >= 0, {h} - 2*i2 - r0 >= 0, 2*i3 + r1 - 1 >= 0, {w} - 2*i3 - r1 >= 0"
    return f"""program max_pool
input x f32[1, 3, {h}, {w}]
constant w0 f32[{c}, 3, 1, 1]
tensor made f32[i0: 1, i1: {c}, i2: {h}, i3: {w}] from "Conv"
  over r0: 3
  = sum<r0>(mul(x[0, r0, i2, i3], w0[i1, r0, 0, 0]))
tensor result f32[i0: 1, i1: {c}, i2: {height}, i3: {width}] from "MaxPool"
  over r0: 3, r1: 3
  = max<r0, r1>(made[0, i1, 2*i2 + r0 - 1, 2*i3 + r1 - 1 if {guards} else -inf])
output y = result
"""


def softmax(rows: Size, columns: Size, head: str = "", axis: int = 1) -> str:
    """Along the last axis, or along the first."""
    kept, element, at, own = (rows, "i0, r0", "i0", "i0") if axis else (columns, "r0, i0", "i1", "i1")
    reduced = columns if axis else rows
    return f"""program softmax
{head}
input x f32[{rows}, {columns}]
tensor top f32[i0: {kept}] from "Softmax"
  over r0: {reduced}
  = max<r0>(x[{element}])
tensor raised f32[i0: {rows}, i1: {columns}] from "Softmax"
  = exp(sub(x[i0, i1], top[{at}]))
tensor total f32[i0: {kept}] from "Softmax"
  over r0: {reduced}
  = sum<r0>(raised[{element}])
tensor result f32[i0: {rows}, i1: {columns}] from "Softmax"
  = div(raised[i0, i1], total[{own}])
output y = result
"""


def layer_norm(rows: Size, columns: int, head: str = "") -> str:
    """Of a sum that is an output too."""
    return f"""program layer_norm
{head}
input x f32[{rows}, {columns}]
input z f32[{rows}, {columns}]
constant scale f32[{columns}]
constant shift f32[{columns}]
tensor added f32[i0: {rows}, i1: {columns}] from "Add"
  = add(x[i0, i1], z[i0, i1])
tensor total f32[i0: {rows}] from "LayerNormalization"
  over r0: {columns}
  = sum<r0>(added[i0, r0])
tensor mean f32[i0: {rows}] from "LayerNormalization"
  = div(total[i0], {columns}.0)
tensor deviation f32[i0: {rows}, i1: {columns}] from "LayerNormalization"
  = sub(added[i0, i1], mean[i0])
tensor squares f32[i0: {rows}] from "LayerNormalization"
  over r0: {columns}
  %0 = deviation[i0, r0]
  = sum<r0>(mul(%0, %0))
tensor inverse f32[i0: {rows}] from "LayerNormalization"
  = rsqrt(add(div(squares[i0], {columns}.0), 0.00001))
tensor result f32[i0: {rows}, i1: {columns}] from "LayerNormalization"
  = add(mul(mul(deviation[i0, i1], inverse[i0]), scale[i1]), shift[i1])
output y = result
output residual = added
"""


def moments(rows: Size, columns: int, head: str = "") -> str:
    """A row less its mean, which is taken twice, over its spread: the last two sums need nothing of each other."""
    return f"""program moments
{head}
input x f32[{rows}, {columns}]
tensor total f32[i0: {rows}] from "near"
  over r0: {columns}
  = sum<r0>(x[i0, r0])
tensor near f32[i0: {rows}] from "near"
  = div(total[i0], {columns}.0)
tensor offset f32[i0: {rows}, i1: {columns}] from "offset"
  = sub(x[i0, i1], near[i0])
tensor beyond f32[i0: {rows}] from "rest"
  over r0: {columns}
  = sum<r0>(offset[i0, r0])
tensor rest f32[i0: {rows}] from "rest"
  = div(beyond[i0], {columns}.0)
tensor squares f32[i0: {rows}] from "spread"
  over r0: {columns}
  %0 = offset[i0, r0]
  = sum<r0>(mul(%0, %0))
tensor spread f32[i0: {rows}] from "spread"
  = sqrt(sub(squares[i0], mul(beyond[i0], rest[i0])))
tensor result f32[i0: {rows}, i1: {columns}] from "result"
  = div(sub(offset[i0, i1], rest[i0]), spread[i0])
output y = result
"""


def global_pool(c: int, h: int, w: int) -> str:
    """Squeeze and excite: the mean of each channel goes through a small product and scales the channel."""
    return f"""program global_pool
input x f32[2, 3, {h}, {w}]
constant w0 f32[{c}, 3, 1, 1]
constant w1 f32[{c}, {c}]
tensor made f32[i0: 2, i1: {c}, i2: {h}, i3: {w}] from "Conv"
  over r0: 3
  = sum<r0>(mul(x[i0, r0, i2, i3], w0[i1, r0, 0, 0]))
tensor total f32[i0: 2, i1: {c}, i2: 1, i3: 1] from "GlobalAveragePool"
  over r0: {h}, r1: {w}
  = sum<r0, r1>(made[i0, i1, r0, r1])
tensor mean f32[i0: 2, i1: {c}, i2: 1, i3: 1] from "GlobalAveragePool"
  = div(total[i0, i1, i2, i3], {h * w}.0)
tensor mixed f32[i0: 2, i1: {c}, i2: 1, i3: 1] from "Conv_1"
  over r0: {c}
  = sum<r0>(mul(mean[i0, r0, 0, 0], w1[i1, r0]))
tensor gate f32[i0: 2, i1: {c}, i2: 1, i3: 1] from "Sigmoid"
  = sigmoid(mixed[i0, i1, 0, 0])
tensor result f32[i0: 2, i1: {c}, i2: {h}, i3: {w}] from "Mul"
  = mul(made[i0, i1, i2, i3], gate[i0, i1, 0, 0])
output y = result
"""


def concatenation(c: int, o: int, h: int, w: int) -> str:
    """Two convolutions and the input side by side, and a 1x1 convolution of them."""
    whole = o + c + 3
    return f"""program concatenation
input x f32[1, 3, {h}, {w}]
constant w0 f32[{o}, 3, 1, 1]
constant w1 f32[{c}, 3, 1, 1]
constant w2 f32[4, {whole}, 1, 1]
tensor left f32[i0: 1, i1: {o}, i2: {h}, i3: {w}] from "Conv"
  over r0: 3
  = sum<r0>(mul(x[0, r0, i2, i3], w0[i1, r0, 0, 0]))
tensor right f32[i0: 1, i1: {c}, i2: {h}, i3: {w}] from "Conv_1"
  over r0: 3
  = sum<r0>(mul(x[0, r0, i2, i3], w1[i1, r0, 0, 0]))
tensor joined f32[i0: 1, i1: {whole}, i2: {h}, i3: {w}] from "Concat"
  %0 = select(ge(index(i1 - {o + c}), 0:i64), x[0, i1 - {o + c}, i2, i3], right[0, i1 - {o}, i2, i3])
  = select(ge(index(i1 - {o}), 0:i64), %0, left[0, i1, i2, i3])
tensor result f32[i0: 1, i1: 4, i2: {h}, i3: {w}] from "Conv_2"
  over r0: {whole}
  = sum<r0>(mul(joined[0, r0, i2, i3], w2[i1, r0, 0, 0]))
output y = result
"""


def upsampling(c: int, o: int, h: Size, w: Size, head: str = "") -> str:
    """A transposed 2x2 convolution with stride 2: each output has exactly one tap."""
    return f"""program upsampling
{head}
input x f32[1, {c}, {h}, {w}]
constant w0 f32[{c}, {o}, 2, 2]
constant b0 f32[{o}]
tensor made f32[i0: 1, i1: {o}, i2: 2*{h}, i3: 2*{w}] from "ConvTranspose"
  over r0: {c}
  = sum<r0>(mul(x[0, r0, (i2 // 2), (i3 // 2)], w0[r0, i1, (i2 % 2), (i3 % 2)]))
tensor result f32[i0: 1, i1: {o}, i2: 2*{h}, i3: 2*{w}] from "ConvTranspose"
  = add(made[i0, i1, i2, i3], b0[i1])
output y = result
"""


def lstm(steps: Size, batch: Size, width: int, hidden: int, head: str = "") -> str:
    """A recurrence with two states, its input product hoisted."""
    gates = 4 * hidden
    return f"""program lstm
{head}
input x f32[{steps}, {batch}, {width}]
constant w f32[{gates}, {width}]
constant r f32[{gates}, {hidden}]
constant b f32[{gates}]
tensor inner f32[i0: {steps}, i1: {batch}, i2: {gates}] from "LSTM"
  over r0: {width}
  = sum<r0>(mul(x[i0, i1, r0], w[i2, r0]))
tensor fed f32[i0: {steps}, i1: {batch}, i2: {gates}] from "LSTM"
  = add(inner[i0, i1, i2], b[i2])
scan t0: {steps} from "LSTM"
  state h f32[i0: {batch}, i1: {hidden}] updated by h_after
    = 0.0
  state c f32[i0: {batch}, i1: {hidden}] updated by c_after
    = 0.0
  step mixed f32[i0: {batch}, i1: {gates}] from "LSTM"
    over r0: {hidden}
    = sum<r0>(mul(h[i0, r0], r[i1, r0]))
  step c_after f32[i0: {batch}, i1: {hidden}] from "LSTM"
    %0 = sigmoid(add(fed[t0, i0, i1], mixed[i0, i1]))
    %1 = sigmoid(add(fed[t0, i0, i1 + {2 * hidden}], mixed[i0, i1 + {2 * hidden}]))
    %2 = tanh(add(fed[t0, i0, i1 + {3 * hidden}], mixed[i0, i1 + {3 * hidden}]))
    = add(mul(%1, c[i0, i1]), mul(%0, %2))
  step h_after f32[i0: {batch}, i1: {hidden}] from "LSTM"
    %0 = sigmoid(add(fed[t0, i0, i1 + {hidden}], mixed[i0, i1 + {hidden}]))
    = mul(%0, tanh(c_after[i0, i1]))
  stack all = h_after
  final last = h
output y = all
output h_last = last
"""


def pursuit(steps: Size, rows: Size, width: Size, head: str = "") -> str:
    """A recurrence that finds the largest element of each row of its state, and the sum of all of them."""
    return f"""program pursuit
{head}
input x f32[{steps}, {rows}, {width}]
scan t0: {steps} from "Scan"
  state s f32[i0: {rows}, i1: {width}] updated by after
    = 0.0
  state n f32[] updated by total
    = 1.0
  step sum f32[i0: {rows}, i1: {width}] from "Scan"
    = add(s[i0, i1], x[t0, i0, i1])
  step place i64[i0: {rows}] from "Scan"
    over r0: {width}
    = argmax<r0>(sum[i0, r0])
  step total f32[] from "Scan"
    over r0: {rows}, r1: {width}
    = sum<r0, r1>(mul(sum[r0, r1], n[]))
  step after f32[i0: {rows}, i1: {width}] from "Scan"
    = sub(sum[i0, i1], f32(place[i0]))
  stack all = place
  final last = s
  final all_sums = n
output y = all
output s_last = last
output n_last = all_sums
"""


def attention(batch: Size, length: Size, heads: int, width: int, head: str = "") -> str:
    """Heads side by side in memory: softmax(q k^T) v, put together again."""
    whole = heads * width
    return f"""program attention
{head}
input q f32[{batch}, {length}, {whole}]
input k f32[{batch}, {length}, {whole}]
input v f32[{batch}, {length}, {whole}]
tensor scores f32[i0: {batch}, i1: {heads}, i2: {length}, i3: {length}] from "MatMul"
  over r0: {width}
  = sum<r0>(mul(q[i0, i2, {width}*i1 + r0], k[i0, i3, {width}*i1 + r0]))
tensor scaled f32[i0: {batch}, i1: {heads}, i2: {length}, i3: {length}] from "Mul"
  = mul(scores[i0, i1, i2, i3], 0.5)
tensor top f32[i0: {batch}, i1: {heads}, i2: {length}] from "Softmax"
  over r0: {length}
  = max<r0>(scaled[i0, i1, i2, r0])
tensor raised f32[i0: {batch}, i1: {heads}, i2: {length}, i3: {length}] from "Softmax"
  = exp(sub(scaled[i0, i1, i2, i3], top[i0, i1, i2]))
tensor total f32[i0: {batch}, i1: {heads}, i2: {length}] from "Softmax"
  over r0: {length}
  = sum<r0>(raised[i0, i1, i2, r0])
tensor shares f32[i0: {batch}, i1: {heads}, i2: {length}, i3: {length}] from "Softmax"
  = div(raised[i0, i1, i2, i3], total[i0, i1, i2])
tensor mixed f32[i0: {batch}, i1: {heads}, i2: {length}, i3: {width}] from "MatMul_1"
  over r0: {length}
  = sum<r0>(mul(shares[i0, i1, i2, r0], v[i0, r0, {width}*i1 + i3]))
tensor swapped f32[i0: {batch}, i1: {length}, i2: {heads}, i3: {width}] from "Transpose"
  = mixed[i0, i2, i1, i3]
tensor result f32[i0: {batch}, i1: {length}, i2: {whole}] from "Reshape"
  = swapped[i0, i1, (i2 // {width}), (i2 % {width})]
output y = result
"""


SCORES = "sum<r0>(mul(q[i0, r0], k[r0, i1]))"
"""The scores of `scaled_scores`."""


def scaled_scores(
    q: str = "mul(qkv[i0, i1], 0.5)", k: str = "mul(qkv[i1, i0 + 12], 0.25)", scores: str = SCORES, others: str = ""
) -> str:
    """Queries and keys that are each scaled, as slices of one product, and what their scores weigh. `others`: further
    outputs."""
    text = f"""program scaled
input x f32[6, 24]
constant w f32[24, 36]
tensor qkv f32[i0: 6, i1: 36] from "Joined"
  over r0: 24
  = sum<r0>(mul(x[i0, r0], w[r0, i1]))
tensor q f32[i0: 6, i1: 12] from "Scale"
  = {q}
tensor k f32[i0: 12, i1: 6] from "Scale_1"
  = {k}
tensor scores f32[i0: 6, i1: 6] from "Scores"
  over r0: 12
  = {scores}
tensor mixed f32[i0: 6, i1: 12] from "Mixed"
  over r0: 6
  = sum<r0>(mul(scores[i0, r0], qkv[r0, i1 + 24]))
output out = mixed
"""
    return text + "".join(f"output {name} = {name}\n" for name in others)


def residual(m: Size, width: int, head: str = "") -> str:
    """a = relu(x w0); c = (a w1) w1 + a; y = c w2: where a is added, it dies."""
    return f"""program residual
{head}
input x f32[{m}, {width}]
constant w0 f32[{width}, {width}]
constant w1 f32[{width}, {width}]
constant w2 f32[{width}, {width}]
tensor a0 f32[i0: {m}, i1: {width}] from "MatMul"
  over r0: {width}
  = sum<r0>(mul(x[i0, r0], w0[r0, i1]))
tensor a f32[i0: {m}, i1: {width}] from "Relu"
  = max(a0[i0, i1], 0.0)
tensor b f32[i0: {m}, i1: {width}] from "MatMul_1"
  over r0: {width}
  = sum<r0>(mul(a[i0, r0], w1[r0, i1]))
tensor c0 f32[i0: {m}, i1: {width}] from "MatMul_3"
  over r0: {width}
  = sum<r0>(mul(b[i0, r0], w1[r0, i1]))
tensor c f32[i0: {m}, i1: {width}] from "Add"
  = add(c0[i0, i1], a[i0, i1])
tensor result f32[i0: {m}, i1: {width}] from "MatMul_2"
  over r0: {width}
  = sum<r0>(mul(c[i0, r0], w2[r0, i1]))
output y = result
"""


def best(rows: Size, columns: int, count: int, head: str = "") -> str:
    """The greatest elements of each column of relu(x), and their sum, by an extern between what fusion does."""
    return f"""program best
{head}
input x f32[{columns}, {rows}]
tensor relu f32[i0: {columns}, i1: {rows}] from "Relu"
  = max(x[i0, i1], 0.0)
tensor keys f32[i0: {rows}, i1: {columns}] from "TopK"
  = relu[i1, i0]
extern order rows {rows} of ({columns}, {count}, 1) from "TopK"
  operand keys
  result places i64[{rows}, {count}]
tensor values f32[i0: {rows}, i1: {count}] from "TopK"
  = relu[at(places[i0, i1], {columns}), i0]
tensor total f32[i0: {rows}] from "ReduceSum"
  over r0: {count}
  = sum<r0>(values[i0, r0])
output best = values
output sums = total
output where = places
"""


def scattered(size: int, count: int, width: int) -> str:
    """Rows of z added to rows of relu(x), the first ones."""
    return f"""program scattered
input x f32[{size}, {width}]
input z f32[{count}, {width}]
tensor relu f32[i0: {size}, i1: {width}] from "Relu"
  = max(x[i0, i1], 0.0)
tensor places i64[i0: {count}] from "ScatterND"
  = index({width}*(i0 // 2))
extern scatter_add rows 1 of ({size * width}, {count}, {width}) from "ScatterND"
  operand relu
  operand places
  operand z
  result made f32[{size}, {width}]
tensor result f32[i0: {size}, i1: {width}] from "Mul"
  = mul(made[i0, i1], relu[i0, i1])
output y = result
"""


def elementwise(shape: tuple[Size, ...], body: str, head: str = "") -> str:
    """One expression of x over all axes."""
    sizes = ", ".join(map(str, shape))
    axes = ", ".join(f"i{position}: {size}" for position, size in enumerate(shape))
    return f"""program elementwise
{head}
input x f32[{sizes}]
tensor result f32[{axes}] from "Map"
  = {body}
output y = result
"""


COUNTER = """program counter
input count i64[]
tensor more i64[] from "Add"
  = add(count[], 1)
output next = more
state count becomes next
"""
"""Keeps a value between runs, so that whoever runs it says what there was."""


PROGRAMS = {
    "dense": dense(17, 7, 33),
    "product": product(5, 19, 6),
    "product_transposed": product(7, 11, 3, transposed=True),
    "product_of_doubles": of_doubles(product(9, 35, 6)),
    "narrow": narrow(17, 7, 33),
    "narrow_bf16": narrow(3, 10, 20, "bf16"),
    "dequantized": dequantized(5, 7, 35),
    "quantized": quantized(5, 12, 35),
    "quantized_convolution": quantized_convolution(8, 20, 5, 7),
    "narrow_convolution": narrow_convolution(3, 10, 5, 7),
    "convolution": convolution(3, 10, 5, 7),
    "convolution_strided": convolution(5, 6, 9, 7, stride=2),
    "separable": separable(3, 10, 5, 7),
    "bottleneck": bottleneck(5, 24, 9, 11),
    "grouped": grouped(3, 2, 5, 4, 5),
    "max_pool": max_pool(11, 7, 5),
    "softmax": softmax(5, 19),
    "softmax_of_columns": softmax(7, 13, axis=0),
    "layer_norm": layer_norm(5, 19),
    "moments": moments(5, 19),
    "global_pool": global_pool(11, 3, 5),
    "concatenation": concatenation(5, 7, 3, 5),
    "upsampling": upsampling(3, 5, 3, 4),
    "lstm": lstm(4, 2, 5, 3),
    "pursuit": pursuit(3, 2, 5),
    "residual": residual(9, 16),
    "attention": attention(2, 7, 3, 5),
    "long_attention": attention(1, 70, 1, 3),
    "best": best(5, 19, 4),
    "scattered": scattered(7, 4, 9),
    "elementwise": elementwise((3, 5, 7), "tanh(mul(x[i0, i1, i2], 2.0))"),
    "transpose": elementwise((7, 7), "add(x[i1, i0], x[i0, i1])"),
}
"""One of each, of sizes that leave tails."""


def rounded_between(m: Size, n: int, x: str = "u8", hidden: str = "u8", y: str = "u8") -> str:
    """erf and a square of quantised values, each quantised again: functions of the bytes of x, but for the last."""
    low, high = ("0.0:f32", "255.0:f32") if hidden == "u8" else ("-128.0:f32", "127.0:f32")
    least, most = ("0.0:f32", "255.0:f32") if y == "u8" else ("-128.0:f32", "127.0:f32")
    return f"""program rounded_between
input x {x}[{m}, {n}]
input z f32[{m}, {n}]
tensor a {hidden}[i0: {m}, i1: {n}] from "Erf"
  = {hidden}(min(max(round(mul(erf(mul(f32(x[i0, i1]), 0.02:f32)), 90.0:f32)), {low}), {high}))
tensor b {y}[i0: {m}, i1: {n}] from "Mul"
  %0 = mul(f32(a[i0, i1]), 0.11:f32)
  = {y}(min(max(round(mul(%0, %0)), {least}), {most}))
tensor c u8[i0: {m}, i1: {n}] from "Add"
  = u8(min(max(round(add(f32(b[i0, i1]), z[i0, i1])), 0.0:f32), 255.0:f32))
output y = c
"""


def blocks_of_codes(m: Size, k: int, n: int, dtype: str = "u4", block: int = 32) -> str:
    """x w, of codes with a scale for each block of what is summed."""
    head = symbols(N="0 of x") if m == "N" else ""
    return f"""program blocks
{head}
input before f32[{m}, {k}]
constant w {dtype}[{k}, {n}]
constant scale f32[{k // block}, {n}]
tensor x f32[i0: {m}, i1: {k}] from "Neg"
  = neg(before[i0, i1])
tensor result f32[i0: {m}, i1: {n}] from "MatMul"
  over r0: {k}
  = sum<r0>(mul(x[i0, r0], mul(f32(w[r0, i1]), scale[(r0 // {block}), i1])))
output y = result
""".replace("0 of x", "0 of before")
