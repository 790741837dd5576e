"""A whole module as C files: the kernels, each once, and `module.c` with the tables that describe them."""

from __future__ import annotations

import hashlib
import math

from opweld.codegen.c.bind import Binder
from opweld.codegen.c.literals import string_literal
from opweld.codegen.c.render import render_body, render_comment
from opweld.codegen.c.tables import VariantTables, array, pointer
from opweld.target import Target
from opweld.tensor.program import Input
from opweld.tile.module import Module
from opweld.tile.text import print_kernel
from opweld.tile.tile import Invoke, Kernel, walk_statements

_FILE_CHARACTERS = 100_000
_PLACEHOLDER = "kernel_name"


def render_module(module: Module, target: Target) -> dict[str, str]:
    """C text by file name. Kernels that are the same, up to names from the model, are rendered once.

    Raises ValueError when a kernel or table breaks the rules of `schedule`."""
    kernels = _Kernels(target.vector_lanes_f32)
    for variant in module.variants:
        for launch in variant.launches:
            kernels.add(launch.kernel)
    files = kernels.files()
    files["module.c"] = _module_file(module, kernels)
    return files


class _Kernels:
    """Kernels by content: equal texts have one name."""

    def __init__(self, lanes: int) -> None:
        self._lanes = lanes
        self._names: dict[Kernel, str] = {}
        self._texts: dict[str, str] = {}
        self._by_signature: dict[str, str] = {}
        self._calls: set[str] = set()

    def add(self, kernel: Kernel) -> None:
        """Renders a kernel unless an equal one is there."""
        if kernel in self._names:
            return
        same = print_kernel(kernel)  # by canonical names: twelve layers of a transformer need one text
        known = self._by_signature.get(same)
        if known is not None:
            self._names[kernel] = known
            return
        body = render_body(kernel, self._lanes, _PLACEHOLDER)
        name = f"k_{hashlib.sha256(body.encode()).hexdigest()[:12]}"
        self._names[kernel] = self._by_signature[same] = name
        if name not in self._texts:
            self._texts[name] = render_comment(kernel) + body.replace(f"void {_PLACEHOLDER}(", f"void {name}(", 1)
            if any(isinstance(statement, Invoke) for statement in walk_statements(kernel.body)):
                self._calls.add(name)

    def name(self, kernel: Kernel) -> str:
        """The C name of an added kernel."""
        return self._names[kernel]

    @property
    def names(self) -> list[str]:
        """Every C name, in order of first use."""
        return list(self._texts)

    def files(self) -> dict[str, str]:
        """Files of about equal size: including the headers costs as much as compiling several kernels."""
        total = sum(map(len, self._texts.values()))
        count = max(min(2, len(self._texts)), math.ceil(total / _FILE_CHARACTERS))
        files: dict[str, str] = {}
        group: list[str] = []
        for name in self._texts:
            group.append(name)
            if sum(len(self._texts[other]) for other in group) * count >= total:
                files[f"kernels_{len(files)}.c"] = self._file(group)
                group = []
        if group:
            files[f"kernels_{len(files)}.c"] = self._file(group)
        return files

    def _file(self, names: list[str]) -> str:
        calls = '#include "opweld_extern.h"\n' if self._calls.intersection(names) else ""
        head = f'#define OPW_LANES {self._lanes}\n#include "opweld_kernel.h"\n{calls}\n'
        return head + "\n".join(self._texts[name] for name in names)


def _module_file(module: Module, kernels: _Kernels) -> str:
    inputs = _inputs(module)
    free_ranks = frozenset(name for name, rank in _ranks(module).items() if rank < 0)
    parts = ['#include "opweld_abi.h"\n#include "opweld_bind.h"\n\n']
    parts.extend(f"OPW_DECLARE_KERNEL({name});\n" for name in kernels.names)
    variants: list[str] = []
    for number, variant in enumerate(module.variants):
        tables = VariantTables(variant, f"v{number}", Binder(variant, module.input_names, free_ranks), kernels.name)
        body = tables.text()
        parts.append("\n" + body)
        variants.append(tables.initialiser())
    parts.append("\n" + array("opw_input", "inputs", inputs))
    parts.append(array("char *const", "output_names", map(string_literal, module.output_names)))
    parts.append(array("opw_variant", "variants", variants))
    fields = [
        "OPW_ABI",
        string_literal(" ".join(module.cpu_features)),
        str(module.weights_bytes),
        f"{len(inputs)}, {pointer('inputs', len(inputs))}",
        f"{len(module.output_names)}, {pointer('output_names', len(module.output_names))}",
        f"{len(variants)}, {pointer('variants', len(variants))}",
    ]
    parts.append(f"static const opw_module module = {{{', '.join(fields)}}};\n\n")
    parts.append('__attribute__((visibility("default"))) const opw_module *opw_module_entry(void);\n')
    parts.append("const opw_module *opw_module_entry(void) { return &module; }\n")
    return "".join(parts)


def _signatures(module: Module) -> dict[str, list[Input]]:
    found: dict[str, list[Input]] = {name: [] for name in module.input_names}
    for variant in module.variants:
        for value in variant.inputs:
            if value.name not in found:
                raise ValueError(f"variant {variant.name!r} has an input {value.name!r} that the module has not")
            found[value.name].append(value)
    return found


def _ranks(module: Module) -> dict[str, int]:
    ranks: dict[str, int] = {}
    for name, values in _signatures(module).items():
        found = {len(value.shape) for value in values}
        ranks[name] = found.pop() if len(found) == 1 else -1
    return ranks


def _inputs(module: Module) -> list[str]:
    by_value = {source.input for variant in module.variants for source in variant.symbols if source.by_value}
    ranks = _ranks(module)
    rows: list[str] = []
    for name, values in _signatures(module).items():
        dtypes = {value.dtype for value in values}
        if len(dtypes) != 1:
            raise ValueError(f"input {name!r} needs one element type, its variants say {sorted(map(repr, dtypes))}")
        rows.append(f"{{{string_literal(name)}, {dtypes.pop().onnx}, {ranks[name]}, {int(name in by_value)}}}")
    return rows
