"""Preprocessing of features: scaling, imputation, binarising, one-hot encoding, look-up, selection, concatenation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from opweld import ir
from opweld.errors import ModelError, UnsupportedError
from opweld.ops.arithmetic import apply, div, mul, root, square, sub, where
from opweld.ops.emitted import Emitted, Indices, define
from opweld.ops.fact import Fact
from opweld.ops.gather import chosen_index
from opweld.ops.ml.domain import ML
from opweld.ops.operands import describe, require_rank, require_same_dtype, required
from opweld.ops.registry import Inference, Lowering, attribute, infers, lowers
from opweld.ops.rows import rows_of
from opweld.tensor.dim import ONE, Dim, Value, as_dim, product
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, at_least_zero, binary, cast, const, index, select, unary

# -------------------------------------------------------------------------------------------------- one for each column


class Column:
    """Numbers of an attribute: one for all columns, or one for each."""

    def __init__(self, scope: Lowering, numbers: Sequence[Any], dtype: DType, hint: str) -> None:
        self.numbers, self.dtype = numbers, dtype
        self.name = "" if len(numbers) == 1 else scope.constant(np.asarray(numbers, dtype.numpy), hint)

    def at(self, column: Dim) -> Expr:
        """The number of a column."""
        return Emitted(self.name, self.dtype).at((column,)) if self.name else const(self.numbers[0], self.dtype)


def _check_columns(scope: Inference, node: ir.Node, x: Fact, numbers: Sequence[Any], what: str) -> None:
    if len(numbers) != 1:
        scope.same(x.shape[-1], as_dim(len(numbers)), node, f"there is one {what} for each column")


@infers("Scaler", domain=ML)
def infer_scaler(scope: Inference, node: ir.Node) -> list[Fact]:
    """float32 of the shape of the input."""
    x = require_rank(scope.fact(required(node, 0)), 1, node)
    for name in ("offset", "scale"):
        _check_columns(scope, node, x, attribute(node, name, None) or (0.0,), name)
    return [Fact(DType.F32, x.shape)]


@lowers("Scaler", domain=ML)
def lower_scaler(scope: Lowering, node: ir.Node) -> None:
    """(x - offset) * scale"""
    x = required(node, 0)
    offset = Column(scope, attribute(node, "offset", None) or (0.0,), DType.F32, "offset")
    scale = Column(scope, attribute(node, "scale", None) or (1.0,), DType.F32, "scale")

    def body(at: Indices) -> Expr:
        centred = sub(cast(scope.load(x, at), DType.F32), offset.at(at[-1]))
        return mul(centred, scale.at(at[-1]))

    define(scope, node.outputs[0], body)


@infers("Imputer", domain=ML)
def infer_imputer(scope: Inference, node: ir.Node) -> list[Fact]:
    """The fact of the input."""
    x = require_rank(scope.fact(required(node, 0)), 1, node)
    _check_columns(scope, node, x, _imputed(node, x.dtype)[0], "imputed value")
    return [Fact(x.dtype, x.shape)]


def _imputed(node: ir.Node, dtype: DType) -> tuple[Sequence[Any], Any]:
    """The imputed value of each column, and the value that it replaces."""
    kind = "float" if dtype.is_float else "int64"
    values = attribute(node, f"imputed_value_{kind}s", None)
    if not values:
        raise ModelError(f"{describe(node)}: attribute 'imputed_value_{kind}s' is missing for an input of {dtype!r}")
    return values, attribute(node, f"replaced_value_{kind}", 0)


@lowers("Imputer", domain=ML)
def lower_imputer(scope: Lowering, node: ir.Node) -> None:
    """x, or where it is the replaced value (which may be NaN), the imputed one."""
    x = required(node, 0)
    fact = scope.fact(x)
    values, replaced = _imputed(node, fact.dtype)
    column = Column(scope, values, fact.dtype, "imputed")

    def body(at: Indices) -> Expr:
        element = scope.load(x, at)
        gone = unary("isnan", element) if replaced != replaced else apply("eq", element, replaced)
        return where(gone, column.at(at[-1]), element)

    define(scope, node.outputs[0], body)


@infers("Binarizer", domain=ML)
def infer_binarizer(scope: Inference, node: ir.Node) -> list[Fact]:
    """The fact of the input."""
    x = scope.fact(required(node, 0))
    return [Fact(x.dtype, x.shape)]


@lowers("Binarizer", domain=ML)
def lower_binarizer(scope: Lowering, node: ir.Node) -> None:
    """One where x is above the threshold, else zero."""
    x, threshold = required(node, 0), float(attribute(node, "threshold", 0.0))
    dtype = scope.fact(x).dtype

    def body(at: Indices) -> Expr:
        element = scope.load(x, at)
        above = apply("gt", element if dtype.is_float else cast(element, DType.F64), threshold)
        return where(above, const(1, dtype), const(0, dtype))

    define(scope, node.outputs[0], body)


@infers("Normalizer", domain=ML)
def infer_normalizer(scope: Inference, node: ir.Node) -> list[Fact]:
    """float32 of the shape of the input, which is rows or one row."""
    x = require_rank(scope.fact(required(node, 0)), 1, node, 2)
    if attribute(node, "norm", "MAX") not in ("MAX", "L1", "L2"):
        raise ModelError(f"{describe(node)}: norm {attribute(node, 'norm', 'MAX')!r} is none of MAX, L1, L2")
    return [Fact(DType.F32, x.shape)]


@lowers("Normalizer", domain=ML)
def lower_normalizer(scope: Lowering, node: ir.Node) -> None:
    """Each row divided by its largest element, the sum of its magnitudes, or its length; zeros stay."""
    x = required(node, 0)
    shape, norm = scope.fact(x).shape, str(attribute(node, "norm", "MAX"))
    rows = rows_of(scope, shape, lambda at: cast(scope.load(x, at), DType.F32), (len(shape) - 1,))
    terms: Mapping[str, tuple[str, Callable[[Expr], Expr]]] = {
        "MAX": ("max", lambda value: value),
        "L1": ("sum", lambda value: unary("abs", value)),
        "L2": ("sum", square),
    }
    kind, term = terms[norm]
    total = rows.total(kind, lambda at: term(rows.element(at)), "norm")

    def body(at: Indices) -> Expr:
        size = total.at(rows.row(at))
        size = root(size) if norm == "L2" else size
        return where(apply("eq", size, 0), rows.element(at), div(rows.element(at), size))

    define(scope, node.outputs[0], body)


# ------------------------------------------------------------------------------------------------------------- look-ups


@infers("OneHotEncoder", domain=ML)
def infer_one_hot(scope: Inference, node: ir.Node) -> list[Fact]:
    """float32 of the shape of the input and one axis more, the categories."""
    _refuse_strings(node, "cats_strings")
    x = scope.fact(required(node, 0))
    categories = attribute(node, "cats_int64s", None)
    if not categories:
        raise ModelError(f"{describe(node)}: attribute 'cats_int64s' is missing")
    if not attribute(node, "zeros", 1):
        raise UnsupportedError(
            f"{describe(node)}: zeros=0 makes the run fail for an unknown category, which opweld does not do. "
            "Set zeros=1 (sklearn: handle_unknown='ignore'), which gives a row of zeros then."
        )
    return [Fact(DType.F32, (*x.shape, as_dim(len(categories))))]


@lowers("OneHotEncoder", domain=ML)
def lower_one_hot(scope: Lowering, node: ir.Node) -> None:
    """One where the element, truncated to an integer, equals the category, else zero."""
    x = required(node, 0)
    categories = [int(number) for number in attribute(node, "cats_int64s", ())]
    table = Emitted(scope.constant(np.asarray(categories, np.int64), "categories"), DType.I64)

    def body(at: Indices) -> Expr:
        same = binary("eq", cast(scope.load(x, at[:-1]), DType.I64), table.at(at[-1:]))
        return where(same, const(1.0, DType.F32), 0.0)

    define(scope, node.outputs[0], body)


def _refuse_strings(node: ir.Node, *names: str) -> None:
    for name in names:
        if attribute(node, name, None):
            raise UnsupportedError(
                f"{describe(node)}: {name} are strings, and opweld computes with numbers only. "
                "Encode strings as integers before they reach the model."
            )


@infers("LabelEncoder", domain=ML)
def infer_label_encoder(scope: Inference, node: ir.Node) -> list[Fact]:
    """The shape of the input; the dtype of the values."""
    _refuse_strings(node, "keys_strings", "values_strings", "classes_strings")
    keys, values, _ = _dictionary(node)
    if len(keys) != len(values) or not len(keys):
        raise ModelError(f"{describe(node)}: {len(keys)} keys and {len(values)} values are given")
    x = scope.fact(required(node, 0))
    if DType.of_numpy(keys.dtype) is not x.dtype:
        raise ModelError(f"{describe(node)}: its keys are {keys.dtype}, its input {x.dtype!r}")
    return [Fact(DType.of_numpy(values.dtype), x.shape)]


def _dictionary(node: ir.Node) -> tuple[Any, Any, Any]:
    """Keys, values, and the default value."""
    keys, values = _list_of(node, "keys"), _list_of(node, "values")
    found = attribute(node, "default_tensor", None)
    if found is not None:
        return keys, values, found.reshape(-1)[0]
    kind, default = ("float", -0.0) if values.dtype.kind == "f" else ("int64", -1)
    return keys, values, attribute(node, f"default_{kind}", default)


def _list_of(node: ir.Node, name: str) -> Any:
    tensor = attribute(node, f"{name}_tensor", None)
    if tensor is not None:
        return np.asarray(tensor).reshape(-1)
    integers = attribute(node, f"{name}_int64s", None)
    return (
        np.asarray(attribute(node, f"{name}_floats", None) or (), np.float32)
        if integers is None
        else np.asarray(integers, np.int64)
    )


@lowers("LabelEncoder", domain=ML)
def lower_label_encoder(scope: Lowering, node: ir.Node) -> None:
    """The value of the first key that equals the element (NaN equals NaN), or the default."""
    x, output = required(node, 0), node.outputs[0]
    fact, result = scope.fact(x), scope.fact(output).dtype
    keys, values, default = _dictionary(node)
    # The last position is the default's: the lowest matching position is taken.
    count = as_dim(len(keys))
    table = Emitted(scope.constant(keys, "keys"), fact.dtype)
    found = Emitted(scope.constant(np.append(values, np.asarray(default, values.dtype)), "values"), result)
    rows = rows_of(scope, (*fact.shape, count), lambda at: _match(scope, x, table, at, count), (fact.rank,))
    place = rows.total("min", rows.element, "place")
    define(scope, output, lambda at: found.at((Value(place.at(at), count + 1).dim,)))


def _match(scope: Lowering, x: ir.Value, keys: Emitted, at: Indices, count: Dim) -> Expr:
    """The position of a key if the element equals it, else the number of keys."""
    element, key = scope.load(x, at[:-1]), keys.at(at[-1:])
    same = binary("eq", element, key)
    if key.dtype.is_float:
        same = binary("or", same, binary("and", unary("isnan", element), unary("isnan", key)))
    return select(same, index(at[-1]), index(count))


# ------------------------------------------------------------------------------------------------------------ selection


@infers("ArrayFeatureExtractor", domain=ML)
def infer_extractor(scope: Inference, node: ir.Node) -> list[Fact]:
    """[..., features] -> [..., chosen], of one row or none [1, chosen]"""
    x, chosen = require_rank(scope.fact(required(node, 0)), 1, node), scope.fact(required(node, 1))
    if chosen.dtype is not DType.I64:
        raise ModelError(f"{describe(node)}: the places must be int64, got {chosen.dtype!r}")
    count = product(chosen.shape)
    return [Fact(x.dtype, (*x.shape[:-1], count) if x.rank > 1 else (ONE, count))]


@lowers("ArrayFeatureExtractor", domain=ML)
def lower_extractor(scope: Lowering, node: ir.Node) -> None:
    """The features at the given positions."""
    x, chosen = required(node, 0), required(node, 1)
    shape, places = scope.fact(x).shape, scope.fact(chosen).shape

    def body(at: Indices) -> Expr:
        place, rest = at[-1], list[Dim]()
        for extent in reversed(places[1:]):
            rest.insert(0, place % extent)
            place = place // extent
        own = (*((place,) if places else ()), *rest)
        column = chosen_index(scope, chosen, own, shape[-1])
        return scope.load(x, (*(at[:-1] if len(shape) > 1 else ()), column))

    define(scope, node.outputs[0], body)


@infers("FeatureVectorizer", domain=ML)
def infer_vectorizer(scope: Inference, node: ir.Node) -> list[Fact]:
    """Columns of several inputs side by side, as many of each as in inputdimensions, in float32."""
    facts = [require_rank(scope.fact(value), 1, node, 2) for value in node.inputs]
    require_same_dtype(facts, node)
    widths = attribute(node, "inputdimensions", None) or ()
    if len(widths) != len(facts) or min(widths) < 0:
        raise ModelError(f"{describe(node)}: inputdimensions must be {len(facts)} numbers, got {list(widths)}")
    rows = facts[0].shape[0] if facts[0].rank == 2 else ONE
    for fact in facts[1:]:
        scope.same(rows, fact.shape[0] if fact.rank == 2 else ONE, node, "inputs have the same rows")
    return [Fact(DType.F32, (rows, as_dim(sum(widths))))]


@lowers("FeatureVectorizer", domain=ML)
def lower_vectorizer(scope: Lowering, node: ir.Node) -> None:
    """The column of the input that contains its number; missing columns are zero."""
    values = [value for value in node.inputs if value is not None]
    widths = [int(width) for width in attribute(node, "inputdimensions", ())]

    def body(at: Indices) -> Expr:
        result: Expr = const(0.0, DType.F32)
        end = sum(widths)
        for value, width in zip(reversed(values), reversed(widths), strict=True):
            column = at[1] - (end - width)
            own = scope.fact(value).shape[-1]
            loaded = scope.load(value, (at[0], column), (column, own - 1 - column, as_dim(width - 1) - column))
            inside = at_least_zero(as_dim(end - 1) - at[1])
            result = select(inside, cast(loaded, DType.F32), result)
            end -= width
        return result

    define(scope, node.outputs[0], body)
