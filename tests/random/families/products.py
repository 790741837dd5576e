"""Sums of products: MatMul, Gemm, Einsum, convolutions."""

from __future__ import annotations

from typing import Any

from tests.random.families.registry import proposal
from tests.random.graph import F16, F32, Graph, Rejected, Value

FLOATS = (F32, F32, F32, F16)


def single(value: Value) -> bool:
    """A float32 value; accumulated in float16 nothing could be compared."""
    return value.dtype == F32


def width(graph: Graph) -> int:
    """How many outputs a layer has."""
    return graph.choose([1, 2, 3, 4, 7, 8, 16, 17, 24, 33])


@proposal(5)
def matmul_by_weights(graph: Graph) -> Value:
    x = graph.pick(lambda v: single(v) and v.rank > 0 and v.static(-1 + v.rank))
    k = x.size(x.rank - 1)
    w = graph.weights(k, width(graph)) if graph.chance(0.9) else graph.weights(k)
    y = graph.node("MatMul", x, w)
    if graph.chance(0.4) and y.rank:
        y = graph.node("Add", y, graph.constant(graph.draw((y.size(y.rank - 1),), F32)))
    return y


@proposal(3)
def matmul_of_two(graph: Graph) -> Value:
    """Two computed operands: x y, x x^T, or whatever fits."""
    x = graph.pick(lambda v: single(v) and v.rank > 1)
    fits = [v for v in graph.values if single(v) and v.rank > 1 and v.extents[-2] == x.extents[-1]]
    if fits and graph.chance(0.6):
        return graph.node("MatMul", x, graph.choose(fits))
    same = [v for v in graph.values if single(v) and v.rank == x.rank and v.extents[-1] == x.extents[-1]]
    y = graph.choose(same)
    perm = list(range(y.rank))
    perm[-1], perm[-2] = perm[-2], perm[-1]
    return graph.node("MatMul", x, graph.node("Transpose", y, perm=perm))


@proposal(3)
def gemm(graph: Graph) -> Value:
    x = graph.pick(lambda v: single(v) and v.rank == 2)
    trans_a = graph.chance(0.3)
    k = x.size(0 if trans_a else 1)
    n = width(graph)
    trans_b = graph.chance(0.5)
    w = graph.weights(n, k) if trans_b else graph.weights(k, n)
    bias = graph.choose([None, (n,), (1, n), (1,), ()])
    c = None if bias is None else graph.constant(graph.draw(bias, F32), F32)
    alpha, beta = graph.choose([(1.0, 1.0), (1.0, 1.0), (0.5, 2.0), (1.0, 0.0)])
    return graph.node("Gemm", x, w, c, transA=int(trans_a), transB=int(trans_b), alpha=alpha, beta=beta)


EQUATIONS = (
    "ab,bc->ac",
    "ab,cb->ac",
    "ab,cb->ab",
    "ab,ab->a",
    "ab,ab->ab",
    "ab,b->a",
    "ab->ba",
    "ab->b",
    "abc,acd->abd",
    "abc,adc->abd",
    "abc,dc->abd",
    "abc,abd->acd",
    "abc->cab",
    "a,b->ab",
    "...a,...a->...",
    "abc,bd->acd",
    "aab->ab",
    "abc,bc,c->ab",
)


@proposal(2.5)
def einsum(graph: Graph) -> Value:
    """Letters are bound to the dims of values that are there; a missing operand is made of weights. An ellipsis stands
    for as many dims in each term: ONNX says no more, and a checker refuses what NumPy would broadcast."""
    equation = graph.choose(EQUATIONS)
    terms = equation.split("->")[0].split(",")
    bound: dict[str, tuple[int, ...]] = {}
    operands: list[Value] = []
    hidden: list[int] = []  # how many dims the ellipsis of each term before stands for
    for term in terms:
        letters = term.replace("...", "")

        def fits(value: Value, letters: str = letters, dots: bool = "..." in term) -> bool:
            extents = value.extents
            if not single(value) or (len(letters) != value.rank and not dots) or value.rank < len(letters):
                return False
            if dots and hidden and value.rank - len(letters) != hidden[0]:
                return False
            own = extents[len(extents) - len(letters) :]
            local = dict(bound)
            return all(local.setdefault(letter, e) == e for letter, e in zip(letters, own, strict=True))

        found = [v for v in graph.values if fits(v)]
        if found and graph.chance(0.8):
            operand = graph.choose(found[-6:])
        else:
            sizes = [bound.get(letter, (graph.between(1, 6),)) for letter in letters]
            if any(len(set(size)) != 1 for size in sizes) or "..." in term:
                raise Rejected
            operand = graph.weights(*(size[0] for size in sizes))
        for letter, extent in zip(letters, operand.extents[operand.rank - len(letters) :], strict=True):
            bound[letter] = extent
        if "..." in term:
            hidden.append(operand.rank - len(letters))
        operands.append(operand)
    return graph.node("Einsum", *operands, equation=equation)


def windows(graph: Graph, x: Value) -> dict[str, Any]:
    """Kernel, strides, dilations, padding for the spatial axes of a value."""
    n = x.rank - 2
    kernel = [graph.choose([1, 1, 2, 3, 3, 5]) for _ in range(n)]
    made: dict[str, Any] = {"kernel_shape": kernel}
    if graph.chance(0.4):
        made["strides"] = [graph.choose([1, 2, 2, 3]) for _ in range(n)]
    if graph.chance(0.2):
        made["dilations"] = [graph.choose([1, 2, 3]) for _ in range(n)]
    how = graph.random.random()
    if how < 0.45:
        made["pads"] = [k // 2 for k in kernel] * 2
    elif how < 0.65:
        made["pads"] = [graph.between(0, 2) for _ in range(2 * n)]
    elif how < 0.75 and "dilations" not in made:
        made["auto_pad"] = graph.choose(["SAME_UPPER", "SAME_LOWER", "VALID"])
    return made


def image(value: Value) -> bool:
    """A batch of channels of one to three spatial axes."""
    return value.dtype == F32 and 3 <= value.rank <= 5


@proposal(5)
def conv(graph: Graph) -> Value:
    """Plain, grouped, depthwise, with and without bias; often with an activation behind it."""
    x = graph.pick(image)
    channels = x.size(1)
    group = graph.choose([1, 1, 1, channels, channels, 2]) or 1
    if channels % group:
        raise Rejected
    outputs = group * graph.choose([1, 2]) if group > 1 else width(graph)
    attributes = windows(graph, x)
    kernel = attributes["kernel_shape"]
    w = graph.weights(outputs, channels // group, *kernel)
    bias = graph.weights(outputs) if graph.chance(0.5) else None
    if graph.chance(0.2):
        del attributes["kernel_shape"]
    y = graph.node("Conv", x, w, bias, group=group, **attributes)
    return graph.node(graph.choose(["Relu", "Sigmoid", "HardSwish"]), y) if graph.chance(0.4) else y


@proposal(2)
def conv_transpose(graph: Graph) -> Value:
    x = graph.pick(image)
    channels = x.size(1)
    group = graph.choose([1, 1, 1, channels])
    n = x.rank - 2
    kernel = [graph.choose([1, 2, 2, 3, 4]) for _ in range(n)]
    strides = [graph.choose([1, 2, 2, 3]) for _ in range(n)]
    w = graph.weights(channels, graph.between(1, 5), *kernel)
    pads = [graph.between(0, (k - 1) // 2) for k in kernel] if graph.chance(0.5) else [0] * n
    extra = [graph.between(0, s - 1) for s in strides] if graph.chance(0.3) else None
    dilations = [graph.choose([1, 2]) for _ in range(n)] if graph.chance(0.2) else None
    bias = graph.weights(group * w.size(1)) if graph.chance(0.5) else None
    return graph.node(
        "ConvTranspose",
        x,
        w,
        bias,
        group=group,
        strides=strides,
        pads=pads * 2,
        output_padding=extra,
        dilations=dilations,
    )
