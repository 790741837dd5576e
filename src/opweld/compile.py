"""The flow: a model goes through one stage after another and becomes an artifact."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeAlias, Unpack, cast

import numpy as np

from opweld.build import artifact
from opweld.build.workspace import temporary_folder
from opweld.cached import compile_model
from opweld.display import Piece, Shown, Table
from opweld.errors import (
    AssumptionError,
    ModelError,
    OptionError,
    UnsupportedError,
)
from opweld.frontends import example_source, source_of
from opweld.frontends.estimators import Booster, Estimator
from opweld.frontends.onnx import onnx_model
from opweld.frontends.source import Source
from opweld.interface import ModelMetadata, Structure, TensorInfo, shape_text
from opweld.ledger import printable
from opweld.option import documented
from opweld.options import CompileOptions, LevelName, Options
from opweld.runtime.cuda.array import ByDlpack, ByInterface
from opweld.runtime.fitted import FittedSessions
from opweld.runtime.session import Session
from opweld.runtime.state import Capacity, State
from opweld.table import of_names, of_words
from opweld.target import Target

if TYPE_CHECKING:
    import onnx
    import onnx_ir
    import torch

    from opweld.account.explained import Explanation
    from opweld.account.regions import Form, Kept
    from opweld.analysis.analysis import Analysis
    from opweld.analysis.profile import ModelProfile
    from opweld.rewrite import Pass, Rule
    from opweld.rewrite.optimize import Optimized
    from opweld.tensor.flow import Flow
    from opweld.tensor.program import TensorProgram
    from opweld.verification.check import Check

Array = np.ndarray[Any, Any]
Feed: TypeAlias = "Array | ByDlpack | ByInterface | Sequence[Array] | None"
"""What an input is fed: an array, also one on a GPU, a list of arrays for a sequence, None for an optional that holds
nothing."""
Value: TypeAlias = Any
"""What an output is: an array, or a list of arrays, a list of dicts of numbers, None."""
OnnxModel: TypeAlias = "str | os.PathLike[str] | bytes | onnx.ModelProto | onnx_ir.Model"
"""An ONNX model: the path of a file, its bytes, the parsed file, or a model of onnx_ir."""
ModelSource: TypeAlias = (
    "OnnxModel | TensorProgram | Flow | torch.export.ExportedProgram | torch.nn.Module | Estimator | Booster | Source"
)
"""A model as callers have it: ONNX, tensor programs (`opweld.programs`), a program or a module of PyTorch, an
estimator of scikit-learn, XGBoost or LightGBM."""
ExampleInputs: TypeAlias = "Sequence[Any] | Mapping[str, Any] | torch.Tensor | Any"
"""Arguments of a PyTorch module: positional, by name, or the only one; what is no tensor is a constant. Rows of an
estimator: an array, a DataFrame, arrays by column, or texts."""
DynamicShapes: TypeAlias = "Mapping[str, Any] | Sequence[Any]"
"""Which sizes of arguments may change, in the form of `torch.export.export`."""
Progress = Callable[[str, int, int], None]
"""Called with (what is being done, steps done, steps in all)."""

_SCREEN = 12
"""Inputs, and outputs, that a model shows of itself."""


class Model(Shown):
    """A compiled model, open and ready to run. Any number of threads may run it at the same time. It pickles.

    Attributes:
        path: the artifact folder. session: what runs it.
        inputs, outputs: name, dtype and shape of each tensor, in the model's order, with the sizes that were fixed and
            inferred; a sequence x is x[0], x[1], and so on.
    """

    def __init__(
        self,
        path: Path,
        threads: int | None = None,
        *,
        source: Source | None = None,
        options: Options | None = None,
        verify: bool = False,
    ) -> None:
        """Opens an artifact; `source` and `options` say what it was compiled from, where that is known. `verify`: as
        for `load`."""
        self.path = path.absolute()
        self.session = Session(path, threads=threads, verify=verify)
        self._verify = verify
        self.inputs: tuple[TensorInfo, ...] = self.session.manifest.inputs
        self.outputs: tuple[TensorInfo, ...] = self.session.manifest.outputs
        # For a process that changes its folder, and for those that the model is sent to.
        self._source = None if source is None else source.settled()
        self._options = options or Options()
        self._fitted = FittedSessions(self.session, None if source is None else self._compile)

    def _compile(self, dims: Mapping[str, int]) -> Path:
        return compile_model(self._source, self._options.fitted(dims))

    def run(self, feeds: Mapping[str, Feed], state: State | None = None) -> dict[str, Value]:
        """Runs the model.

        Args:
            feeds: an array for every input name, of the model's dtype and rank; a list of arrays for a sequence, None
                for an optional that holds nothing. Of a model for a GPU also arrays there, see `Session.run`.
            state: of a model with states, what `new_state` made; the run finds it as the one before left it, and
                writes it.

        Returns the outputs by name, new arrays, in the model's order; lists, dicts and None where they are no
        tensors. Raises InputError when a feed is missing, unknown
        or wrong, AssumptionError for sizes that the model was not compiled for, RunError when a kernel fails.
        """
        if state is not None:
            return dict(zip(self.session.output_names, self.session.run(feeds, state), strict=True))
        try:
            outputs = self.session.run(feeds)
        except AssumptionError as error:
            outputs = self._fitted.answer(feeds, error, lambda session: session.run(feeds))
        return dict(zip(self.session.output_names, outputs, strict=True))

    def new_state(self, capacity: Capacity = None, dims: Mapping[str, int] | None = None) -> State:
        """What the model keeps from one run to the next, for a model that was compiled with states.

        Args:
            capacity: how long what grows may become: one number for all, or by name of the input.
            dims: sizes of other symbolic dims of the states, as {"batch": 2}.

        Any number of states may be in use, each by one run at a time. Raises InputError for what is not said."""
        return self.session.new_state(capacity, dims)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Copies the artifact to a folder, usually called `*.opweld`; an artifact already there is replaced.

        The number of threads that was asked for becomes the copy's default."""
        folder = Path(path)
        artifact.copy(self.path, folder, self.session.threads)
        return folder

    def verify(
        self, feeds: Mapping[str, Feed] | None = None, *, rtol: float | None = None, atol: float | None = None
    ) -> Check:
        """Compares the answer with the model itself, computed in float64, and with ONNX Runtime where it is installed.

        Args:
            feeds: inputs; random ones of usual sizes where None. Noise is a poor input for a detector.
            rtol: tolerance as a part of each output's scale; by dtype and by ONNX Runtime's own error where None.
            atol: tolerance of the difference itself.

        Returns the comparison: `passed`, `error`, one entry an output. Raises OptionError for a model that was loaded:
        an artifact does not hold the graph that it was made from; and for a tolerance that is no number of at least 0.
        UnsupportedError when there is no reference.
        """
        if self._source is None:
            raise OptionError(f"{self.path} cannot be verified: it was loaded, and holds no model; compile anew")
        from opweld.verification.check import check_tolerances
        from opweld.verification.expected import expectation_of
        from opweld.verification.inputs import fitting_inputs

        check_tolerances(rtol=rtol, atol=atol)
        if feeds is None:
            feeds, _ = fitting_inputs(
                self.inputs, self.session.check, given={}, dims={}, expected=expectation_of(self.path)
            )
        session = self.session
        names, outputs = [info.name for info in self.outputs], session.run_values(feeds)
        return self._source.check(session.as_declared(feeds), names, outputs, rtol, atol)

    def explain(self) -> Explanation:
        """What was decided of the model, what was not, and why; see `opweld.explain`."""
        from opweld.inspection import explain

        return explain(self.session)

    def analyze(self, sizes: Mapping[str, int] | None = None) -> Analysis:
        """What the model costs, at `sizes` of its symbolic dims; see `opweld.analyze`."""
        from opweld.inspection import analyze

        return analyze(self.session, sizes=sizes)

    def profile(self, feeds: Mapping[str, Feed] | None = None, *, runs: int | None = None) -> ModelProfile:
        """Where the time of a run goes, kernel by kernel: what `opweld profile` prints.

        Args:
            feeds: inputs; random ones of usual sizes where None.
            runs: with clocks, and as many without; what fits into two seconds where None.

        Raises what `run` raises; OptionError for runs that are no positive number.
        """
        from opweld.inspection import profile

        return profile(self.session, feeds, runs=runs)

    def shown(self) -> Sequence[Piece]:
        """What goes in, what comes out, and what it was made for."""
        manifest = self.session.manifest
        columns = (of_words(""), of_names("name", least=24), of_words("dtype"), of_names("shape"))
        rows = [
            (kind, printable(info.name), info.dtype, _shape(info))
            for kind, values in (("input", self.inputs), ("output", self.outputs))
            for info in values[:_SCREEN]
        ]
        left = sum(max(0, len(values) - _SCREEN) for values in (self.inputs, self.outputs))
        more = [f"and {left} more inputs and outputs"] if left else []
        head = f"opweld.Model: {_kernels(manifest.kernels)}, {_made_for(manifest)}"
        return [head, Table(columns, tuple(rows)), *more]

    def __repr__(self) -> str:
        manifest = self.session.manifest
        inputs, outputs = (_printed(values) for values in (self.inputs, self.outputs))
        return f"<opweld.Model ({inputs}) -> ({outputs}): {_kernels(manifest.kernels)}, {_made_for(manifest)}>"

    def __reduce__(self) -> tuple[Any, ...]:
        if self._source is None:
            return (_loaded, (self.path, self.session.threads, self._verify))
        return (_compiled, (self._source, self._options))


@documented(Options)
def compile(
    model: ModelSource,
    example_inputs: ExampleInputs | None = None,
    *,
    dynamic_shapes: DynamicShapes | None = None,
    progress: Progress | None = None,
    **options: Unpack[CompileOptions],
) -> Model:
    """Compiles a model and opens it; what was compiled before is opened from the cache.

    Args:
        model: the path of an ONNX file, its bytes, or an onnx.ModelProto; a tensor program (`opweld.programs`), of
            which lengths, ranks, constants and rules say nothing; a program of `torch.export`, or a PyTorch module.
        example_inputs: of a PyTorch module: a tuple of tensors, or a dict of those with names. They say which dtypes
            and ranks it takes, and which sizes where `dynamic_shapes` says nothing. Of an estimator: rows, which say
            what columns it takes; one float32 matrix where None.
        dynamic_shapes: of a PyTorch module: which sizes may change, as `torch.export.export` has it:
            {"x": {0: "batch"}}.
        options: see docs/options.md.
        progress: called with (what is being done, steps done, steps in all) while the model is compiled. The logger
            "opweld" also tells, at level INFO, when it begins and how long it took.

    Raises OpweldError: ModelError for a bad model, UnsupportedError naming operator and node (UnspecifiedError where
    lengths, ranks or constants would help), OptionError, ToolchainError where there is no C compiler.
    """
    chosen = Options.of(**options)
    if progress is not None and not callable(cast(object, progress)):
        raise OptionError(f"progress is {progress!r}, expected a function of a text and two numbers")
    if example_inputs is not None:
        return _compiled(example_source(model, example_inputs, dynamic_shapes), chosen, progress)
    if dynamic_shapes is not None:
        raise OptionError("dynamic_shapes is for a PyTorch module with example_inputs")
    return _compiled(source_of(model), chosen, progress)


def _compiled(source: Source, options: Options, progress: Progress | None = None) -> Model:
    return Model(compile_model(source, options, progress), options.threads, source=source, options=options)


def load(path: str | os.PathLike[str], threads: SupportsIndex | None = None, *, verify: bool = False) -> Model:
    """Opens a saved artifact. Needs neither onnx nor a compiler.

    Args:
        path: the folder.
        threads: at most so many a run; 0 for all processors of this machine; what the artifact says where None.
        verify: compare what is loaded with its digests, not only its sizes: damaged code may do anything when it runs.
            A file is read for it once, and again when it has changed.

    Raises ArtifactError when the artifact is missing, damaged, of another format, or for another processor.
    """
    return _loaded(Path(path), None if threads is None else Options.of(threads=threads).threads, verify)


def _loaded(path: Path, threads: int | None, verify: bool) -> Model:
    return Model(path, threads, verify=verify)


def optimize(
    model: OnnxModel,
    *,
    level: LevelName = "all",
    disable: Sequence[str] = (),
    pins: Mapping[str, str] | None = None,
    rules: Iterable[Rule | Pass | type[Rule | Pass]] = (),
    keep_regions: bool | Form = False,
) -> onnx.ModelProto:
    """An ONNX model that gives the same as `model` with less: at its opset, with its inputs, outputs, metadata.

    `model` is a path, bytes or a ModelProto, left untouched; `level`, `disable` and `pins` are as in `compile`.
    `rules`: rules and passes (`opweld.rewrite.Rule`, `Pass`) beside opweld's own and those of installed packages.
    `keep_regions`: says on each node which kernel of `compile` computes it, as metadata that graph viewers show; with
    "functions", the nodes of each fused kernel are a function too. See docs/guides/optimize.md.
    Raises ModelError for whatever is malformed or unsafe, OptionError for a wrong option, RuleError for a rule that
    fails, UnsupportedError where regions are to be kept of a model that cannot be compiled."""
    from opweld.rewrite.optimize import optimize_as_asked
    from opweld.rewrite.write import message

    options = Options(level=level, disable=tuple(disable), pins=pins or {})
    form = "metadata" if keep_regions is True else keep_regions
    if form not in (False, "metadata", "functions"):
        raise OptionError(f"keep_regions is {keep_regions!r}, expected True, False, 'metadata' or 'functions'")
    done = optimize_as_asked(onnx_model(model), options, rules=rules)
    if form:
        keep_regions_of(done, form)
    return message(done)


def keep_regions_of(optimized: Optimized, form: Form, progress: Progress | None = None) -> Kept:
    """Writes into a rewritten model which of its nodes `compile` puts into one kernel; the model is changed.

    Raises UnsupportedError for a model that cannot be compiled."""
    from opweld.account.regions import keep_regions
    from opweld.pipeline import dry_run
    from opweld.rewrite.write import save
    from opweld.tensor.intern import compilation

    target = Target.of("native")
    with temporary_folder() as folder, compilation():
        path = folder / "model.onnx"
        save(optimized, path)
        try:
            account = dry_run(path, Options(), target, progress)
        except (ModelError, UnsupportedError) as error:
            raise UnsupportedError(f"there are no regions to keep, as the model cannot be compiled: {error}") from error
    return keep_regions(optimized.model, account, target.name, form)


def declaration_of(model: Path | bytes | onnx.ModelProto) -> tuple[Structure, ModelMetadata]:
    """What a model declares, read without compiling it."""
    from opweld.frontend import onnx

    return onnx.declaration_of(model)


def overridden(
    model: Path | bytes, initializers: Mapping[str, Array], denotations: Mapping[str, int]
) -> onnx.ModelProto:
    """A copy of the model with other weights, and sizes of dims by what they denote."""
    from opweld.frontend import override

    return override.overridden(model, initializers, denotations)


def _kernels(count: int) -> str:
    return f"{count} kernel" + "s" * (count != 1)


def _made_for(manifest: artifact.Manifest) -> str:
    return f"{manifest.made_for}, level {manifest.level}"


def _printed(values: Sequence[TensorInfo]) -> str:
    """Inputs or outputs as a short text: `x float32[batch, 3], y float32[4]`."""
    told = [f"{printable(info.name)} {info.dtype}{_shape(info)}" for info in values[:_SCREEN]]
    return ", ".join([*told, f"and {len(values) - _SCREEN} more"] if len(values) > _SCREEN else told)


def _shape(info: TensorInfo) -> str:
    """A shape as a short text: `[batch, 3]`."""
    return printable("[*]" if info.shape is None else shape_text(info.shape))
