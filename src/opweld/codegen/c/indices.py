"""Indices that differ from lane to lane, as vectors of int64, and the check of every run-time index."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opweld.codegen.c.active import Active
from opweld.codegen.c.scope import Scopes
from opweld.tensor.dim import ONE, ZERO, Atom, Dim, FloorDiv, Max, Min, Mod, Value, as_dim, nonnegative
from opweld.tensor.dtype import DType
from opweld.tensor.expr import cast

if TYPE_CHECKING:
    from opweld.codegen.c.values import Values


class Indices:
    """Writes the indices of one function."""

    def __init__(self, values: Values, scopes: Scopes) -> None:
        self._values = values
        self._scopes = scopes

    def run_time(self, atom: Value) -> str:
        """A run-time index that is the same in every lane, checked."""
        key = ("index", atom)
        found = self._scopes.find(key)
        if found is not None:
            return found
        text = self._values.scalar(cast(atom.expr, DType.I64))
        name = self._scopes.numbered("j")
        self._scopes.define(key, "const int64_t", name, text, self._values.dependence.reads(atom.expr))
        extent = self._values.integers.operand(atom.extent)
        self._values.fail_if(f"(uint64_t){name} >= (uint64_t){extent}", "OPW_BAD_INDEX")
        return name

    def vector(self, dim: Dim, active: Active) -> str:
        """A polynomial as a vector of int64; run-time indices in it are checked."""
        dependence = self._values.dependence
        if not dependence.dim_varies(dim) and (active.mask is None or not dependence.dim_reads(dim)):
            return f"opw_splat_i64({self._values.integers.text(dim)})"
        key = ("vector", dim, active)
        found = self._scopes.find(key)
        if found is not None:
            return found
        uniform, parts = ZERO, list[str]()
        for monomial, coefficient in dim.terms:
            factor = as_dim(coefficient)
            vectors: list[str] = []
            for atom in monomial:
                checked = active.mask is not None and self._values.dependence.dim_reads(atom.dim)
                if checked or self._values.dependence.dim_varies(atom.dim):
                    vectors.append(self._atom_vector(atom, active))
                else:
                    factor = factor * atom.dim
            if not vectors:
                uniform = uniform + factor
            else:
                scale = [] if factor is ONE else [self._values.integers.operand(factor)]
                parts.append(" * ".join((*vectors, *scale)))
        if uniform is not ZERO:
            parts.append(self._values.integers.operand(uniform))
        if len(parts) == 1 and parts[0].isidentifier():
            return parts[0]
        name = self._scopes.numbered("o")
        return self._scopes.define(key, "const vi64", name, " + ".join(parts), self._values.dependence.dim_reads(dim))

    def _atom_vector(self, atom: Atom, active: Active) -> str:
        if atom is self._values.lane:
            return "opw_lane_i64()"
        key = ("atom", atom, active)
        found = self._scopes.find(key)
        if found is not None:
            return found
        reads = self._values.dependence.dim_reads(atom.dim)
        name = self._scopes.numbered("o")
        if isinstance(atom, Value):
            self._scopes.define(key, "const vi64", name, self._values.vector(cast(atom.expr, DType.I64), active), reads)
            outside = f"opw_outside({name}, {self._values.integers.text(atom.extent)})"
            self._values.fail_where(outside, active, "OPW_BAD_INDEX")
            return name
        assert isinstance(atom, FloorDiv | Mod | Min | Max)
        left, right = self.vector(atom.left, active), self.vector(atom.right, active)
        if isinstance(atom, FloorDiv | Mod) and nonnegative(atom.left):
            text = f"{left} {'/' if isinstance(atom, FloorDiv) else '%'} {right}"
        else:
            function = {FloorDiv: "floordiv", Mod: "mod", Min: "min", Max: "max"}[type(atom)]
            text = f"opw_index_{function}({left}, {right})"
        return self._scopes.define(key, "const vi64", name, text, reads)
