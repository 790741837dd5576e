"""A whole module as C files: the kernels, each once, and `module.c` with the tables that describe them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from opweld.codegen.c.bind import Binder
from opweld.codegen.c.literals import string_literal, words
from opweld.codegen.c.render import render_body, render_comment
from opweld.codegen.c.tables import VariantTables, array, pointer
from opweld.target import Target
from opweld.tensor.externs import EXTERNS
from opweld.tensor.intern import current
from opweld.tensor.program import Input
from opweld.tile.module import Module, Segment
from opweld.tile.text import print_kernel
from opweld.tile.tile import Invoke, Kernel, walk_statements

Finished: TypeAlias = Callable[[str, str], object]
"""Takes the name and the text of a source that is complete, while others are not."""


def unheeded(name: str, text: str) -> None:
    """A `Finished` that does nothing: all sources are compiled together later."""


_FILE_CHARACTERS = 100_000
"""The length at which a file of kernels is complete."""
_FEWEST_CHARACTERS = 25_000
"""The length at which a file is complete if the next kernel is not known yet: each file costs 0.05 s to compile beside
its kernels."""
_PLACEHOLDER = "kernel_name"


def render_module(module: Module, target: Target, kernels: KernelFiles | None = None) -> dict[str, str]:
    """C text by file name. Kernels that are the same, up to names from the model, are rendered once. `kernels`: files
    with some or all of the module's kernels already in them.

    Raises ValueError when a kernel or table breaks the rules of `tile.check`."""
    kernels = kernels or KernelFiles(target)
    for variant in module.variants:
        for launch in variant.launches:
            kernels.add(launch.kernel)
    return kernels.files(_module_file(module, kernels))


def common_text(target: Target) -> str:
    """How every file of kernels begins."""
    return f'#define OPW_LANES {target.vector_lanes_f32}\n#include "opweld_kernel.h"\n'


class KernelFiles:
    """Kernels by content, in files that are complete one after the other: equal texts have one name, that of the first:
    debuggers and profilers show it."""

    def __init__(self, target: Target, finished: Finished = unheeded) -> None:
        """`finished` takes each file as soon as it is complete."""
        self._lanes = target.vector_lanes_f32
        self._common = common_text(target)
        self._finished = finished
        self._files: dict[str, str] = {}
        self._open: list[str] = []
        self._names: dict[Kernel, str] = {}
        self._texts: dict[str, str] = {}
        self._by_signature: dict[str, str] = {}
        self._by_digest: dict[str, str] = {}
        self._calls: dict[str, set[str]] = {}

    def add(self, kernel: Kernel) -> None:
        """Renders a kernel unless an equal one is there."""
        if kernel in self._names:
            return
        same = print_kernel(kernel)  # by canonical names: twelve layers of a transformer need one text
        known = self._by_signature.get(same)
        if known is not None:
            self._names[kernel] = known
            return
        texts = current.get().texts  # a model that is tuned is rendered many times, mostly the same
        body = texts.get((self._lanes, same))
        if body is None:
            body = texts[self._lanes, same] = render_body(kernel, self._lanes, _PLACEHOLDER)
        digest = hashlib.sha256(body.encode()).hexdigest()[:12]
        name = self._by_digest.setdefault(digest, f"opw_{words(kernel.name, kernel.origin)}_{digest}")
        self._names[kernel] = self._by_signature[same] = name
        if name not in self._texts:
            self._texts[name] = render_comment(kernel) + body.replace(f"void {_PLACEHOLDER}(", f"void {name}(", 1)
            self._calls[name] = {s.function for s in walk_statements(kernel.body) if isinstance(s, Invoke)}
            self._open.append(name)
            if self._characters(self._open) >= _FILE_CHARACTERS:
                self._close(self._open)
                self._open = []

    def add_all(self, kernels: Iterable[Kernel]) -> None:
        """Renders the kernels of a variant. Those that are worth a file do not wait for the next variant's."""
        for kernel in kernels:
            self.add(kernel)
        if self._characters(self._open) >= _FEWEST_CHARACTERS:
            self._close_rest()

    def name(self, kernel: Kernel) -> str:
        """The C name of an added kernel."""
        return self._names[kernel]

    @property
    def names(self) -> list[str]:
        """Every C name, in order of first use."""
        return list(self._texts)

    def files(self, module: str) -> dict[str, str]:
        """All files by name, that of the module's tables, `module.c`, the last."""
        self._close_rest()
        self._finished("module.c", module)
        return {**self._files, "module.c": module}

    def _close_rest(self) -> None:
        """Closes the open file; if it is the only one, as two files, which two compilers compile at once."""
        rest, self._open = self._open, []
        if not self._files and len(rest) > 1:
            half = next(n for n in range(1, len(rest)) if 2 * self._characters(rest[: n + 1]) > self._characters(rest))
            self._close(rest[:half])
            rest = rest[half:]
        if rest:
            self._close(rest)

    def _characters(self, names: Sequence[str]) -> int:
        return sum(len(self._texts[name]) for name in names)

    def _close(self, names: Sequence[str]) -> None:
        """These kernels are a file."""
        file, text = f"kernels_{len(self._files)}.c", self._file(names)
        self._files[file] = text
        self._finished(file, text)

    def _file(self, names: Sequence[str]) -> str:
        called = sorted(set[str]().union(*(self._calls[name] for name in names)))
        calls = '#include "opweld_extern.h"\n' if called else ""
        head = f"{self._common}{calls}\n"
        # Several functions may be of one text.
        own = "".join(f"{text}\n" for text in dict.fromkeys(EXTERNS[name].source for name in called) if text)
        return head + own + "\n".join(self._texts[name] for name in names)


def _module_file(module: Module, kernels: KernelFiles) -> str:
    parts = ['#include "opweld_abi.h"\n#include "opweld_bind.h"\n\n']
    parts.extend(f"OPW_DECLARE_KERNEL({name});\n" for name in kernels.names)
    if len(module.segments) == 1:
        parts.append(_segment_tables("", module.segments[0], kernels))
        inputs, variants, segments = ("inputs", module.segments[0].inputs), len(module.variants), "0, NULL, 0, NULL"
    else:
        flow = _FlowTables(module, kernels)
        parts.append(flow.text())
        inputs, variants, segments = ("public_inputs", module.input_names), 0, flow.fields()
    parts.append(array("char *const", "output_names", map(string_literal, module.output_names)))
    fields = [
        "OPW_ABI",
        string_literal(" ".join(module.cpu_features)),
        str(module.weights_bytes),
        f"{len(inputs[1])}, {pointer(inputs[0], len(inputs[1]))}",
        f"{len(module.output_names)}, {pointer('output_names', len(module.output_names))}",
        f"{variants}, {pointer('variants', variants)}",
        segments,
        str(int(module.zero_denormals)),
        f"{len(module.states)}, {pointer('states', len(module.states))}",
    ]
    parts.append(array("opw_state_input", "states", _states(module)))
    parts.append(f"static const opw_module module = {{{', '.join(fields)}}};\n\n")
    parts.append('__attribute__((visibility("default"))) const opw_module *opw_module_entry(void);\n')
    parts.append("const opw_module *opw_module_entry(void) { return &module; }\n")
    return "".join(parts)


def _states(module: Module) -> list[str]:
    """Which input each state is, and along which axis it grows."""
    places = {name: number for number, name in enumerate(module.segments[0].inputs)}
    return [f"{{{places[state.input]}, {-1 if state.axis is None else state.axis}}}" for state in module.states]


def _segment_tables(prefix: str, segment: Segment, kernels: KernelFiles) -> str:
    """The tables of a segment's inputs and variants; their names start with the prefix."""
    signatures = _signatures(segment)
    free_ranks = frozenset(name for name, values in signatures.items() if _rank(values) < 0)
    parts: list[str] = []
    variants: list[str] = []
    for number, variant in enumerate(segment.variants):
        binder = Binder(variant, segment.inputs, free_ranks)
        tables = VariantTables(variant, f"{prefix}v{number}", binder, kernels.name)
        parts.append("\n" + tables.text())
        variants.append(tables.initialiser())
    parts.append("\n" + array("opw_input", f"{prefix}inputs", _inputs(segment, signatures)))
    parts.append(array("opw_variant", f"{prefix}variants", variants))
    return "".join(parts)


def _signatures(segment: Segment) -> dict[str, list[Input]]:
    found: dict[str, list[Input]] = {name: [] for name in segment.inputs}
    for variant in segment.variants:
        for value in variant.inputs:
            if value.name not in found:
                raise ValueError(f"variant {variant.name!r} has an input {value.name!r} that the module has not")
            found[value.name].append(value)
    return found


def _rank(values: list[Input]) -> int:
    """The one rank of an input, -1 where variants want different ones."""
    found = {len(value.shape) for value in values}
    return found.pop() if len(found) == 1 else -1


def _inputs(segment: Segment, signatures: Mapping[str, list[Input]]) -> list[str]:
    by_value = {source.input for variant in segment.variants for source in variant.symbols if source.by_value}
    rows: list[str] = []
    for name, values in signatures.items():
        dtypes = {value.dtype for value in values}
        if len(dtypes) != 1:
            raise ValueError(f"input {name!r} needs one element type, its variants say {sorted(map(repr, dtypes))}")
        rows.append(f"{{{string_literal(name)}, {dtypes.pop().onnx}, {_rank(values)}, {int(name in by_value)}}}")
    return rows


class _FlowTables:
    """The tables of a program of several segments. Values are numbered as they are met, the inputs first."""

    def __init__(self, module: Module, kernels: KernelFiles) -> None:
        self._module = module
        self._kernels = kernels
        self._numbers = {name: number for number, name in enumerate(module.input_names)}

    def text(self) -> str:
        """Everything that `fields` refers to."""
        module = self._module
        parts: list[str] = []
        segments: list[str] = []
        for number, segment in enumerate(module.segments):
            prefix = f"s{number}_"
            parts.append(_segment_tables(prefix, segment, self._kernels))
            parts.append(self._ends(prefix, segment))
            most = max(len(variant.outputs) for variant in segment.variants)
            names = next(variant.names for variant in segment.variants if len(variant.names) == most)
            parts.append(array("char *const", f"{prefix}output_names", map(string_literal, names)))
            fields = [
                "OPW_ABI",
                "NULL",
                str(module.weights_bytes),
                f"{len(segment.inputs)}, {pointer(f'{prefix}inputs', len(segment.inputs))}",
                f"{most}, {pointer(f'{prefix}output_names', most)}",
                f"{len(segment.variants)}, {prefix}variants",
                "0, NULL, 0, NULL",
                str(int(module.zero_denormals)),
                "0, NULL",
            ]
            parts.append(f"static const opw_module {prefix}module = {{{', '.join(fields)}}};\n")
            parts.append(self._values(f"{prefix}values", segment.inputs))
            values = pointer(f"{prefix}values", len(segment.inputs))
            segments.append(f"{{&{prefix}module, {values}, {prefix}endings}}")
        parts.append(array("opw_segment", "segments", segments))
        parts.append(self._values("results", module.results))
        public = Segment(module.input_names, module.segments[0].variants, (), ())
        parts.append(array("opw_input", "public_inputs", _inputs(public, _signatures(public))))
        return "".join(parts)

    def fields(self) -> str:
        """The last fields of the `opw_module`."""
        results = pointer("results", len(self._module.results))
        return f"{len(self._module.segments)}, segments, {len(self._numbers)}, {results}"

    def _number(self, name: str) -> int:
        return self._numbers.setdefault(name, len(self._numbers))

    def _values(self, table: str, names: Iterable[str]) -> str:
        return array("int32_t", table, [str(self._number(name)) for name in names])

    def _ends(self, prefix: str, segment: Segment) -> str:
        parts: list[str] = []
        endings: list[str] = []
        for position, (variant, ending, dead) in enumerate(
            zip(segment.variants, segment.endings, segment.dead, strict=True)
        ):
            own = f"{prefix}e{position}_"
            appends = [name for pair in ending.appends for name in pair]
            moves = [name for pair in ending.moves for name in pair]
            parts.append(self._values(f"{own}outputs", variant.names))
            parts.append(self._values(f"{own}appends", appends))
            parts.append(self._values(f"{own}moves", moves))
            parts.append(self._values(f"{own}dead", dead))
            stacks: list[str] = []
            for number, stack in enumerate(ending.stacks):
                dims = f"{own}d{number}"
                parts.append(array("int64_t", dims, map(str, stack.dims)))
                fields = self._number(stack.name), stack.dtype.onnx, 1 + len(stack.dims), pointer(dims, len(stack.dims))
                stacks.append(f"{{{', '.join(map(str, fields))}}}")
            parts.append(array("opw_stack", f"{own}stacks", stacks))
            counted = [("stacks", len(stacks)), ("appends", len(ending.appends)), ("moves", len(ending.moves))]
            counted.append(("dead", len(dead)))
            tables = ", ".join(f"{count}, {pointer(own + name, count)}" for name, count in counted)
            following = -1 if ending.next is None else ending.next
            endings.append(f"{{{following}, {pointer(f'{own}outputs', len(variant.names))}, {tables}}}")
        return "".join(parts) + array("opw_ending", f"{prefix}endings", endings)
