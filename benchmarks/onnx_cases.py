"""ONNX's own tests as values: node tests, which carry model and data, and model tests, which lie in files beside onnx.

The files: folders of a model and of sets of data, and *light* models (known networks whose weights are made by nodes),
which have the outputs of one input that is counted out.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator", "real")
"""The kinds of tests as onnx names them."""


@dataclass(frozen=True)
class Case:
    """One test of ONNX's suite, `onnx.backend.test.case.test_case.TestCase`."""

    found: Any

    @property
    def name(self) -> str:
        """As the suite names it, such as `test_abs`."""
        return self.found.name

    @property
    def tolerances(self) -> tuple[float, float]:
        """The relative and the absolute one of its comparison."""
        return self.found.rtol, self.found.atol

    @cached_property
    def model(self) -> Any:
        """Its onnx.ModelProto."""
        import onnx

        if self.found.model is not None:
            return self.found.model
        return onnx.load(self._light if self._light else self._folder / "model.onnx")

    def data_sets(self) -> Iterator[tuple[list[Any], list[Any]]]:
        """Inputs and expected outputs: arrays, lists of arrays, or None for an empty optional."""
        from onnx import TensorProto, numpy_helper

        if self.found.data_sets is not None:
            for values in self.found.data_sets:
                inputs, expected = (
                    [numpy_helper.to_array(value) if isinstance(value, TensorProto) else value for value in side]
                    for side in values
                )
                yield inputs, expected
        elif self._light:
            yield self._counted_out()
        else:
            for folder in sorted(self._folder.glob("test_data_set*")):
                yield (
                    self._read(folder, "input", self.model.graph.input),
                    self._read(folder, "output", self.model.graph.output),
                )

    @property
    def _folder(self) -> Path:
        return Path(self.found.model_dir)

    @property
    def _light(self) -> Path | None:
        import onnx

        return None if self.found.url is None else Path(onnx.__file__).parents[1] / self.found.url

    def _counted_out(self) -> tuple[list[Any], list[Any]]:
        from onnx.backend.test.runner import Runner

        assert self._light is not None
        made = {initializer.name for initializer in self.model.graph.initializer}
        fed = [value for value in self.model.graph.input if value.name not in made]
        expected = [
            _tensor(self._light.with_name(f"{self._light.stem}_output_{place}.pb"))
            for place in range(len(self.model.graph.output))
        ]
        return [Runner.generate_dummy_data(value) for value in fed], expected

    def _read(self, folder: Path, side: str, described: Any) -> list[Any]:
        count = len(list(folder.glob(f"{side}_*.pb")))
        return [_value(folder / f"{side}_{place}.pb", described[place].type) for place in range(count)]


def _tensor(file: Path) -> Any:
    from onnx import TensorProto, numpy_helper

    return numpy_helper.to_array(TensorProto.FromString(file.read_bytes()))


def _value(file: Path, described: Any) -> Any:
    from onnx import OptionalProto, SequenceProto, numpy_helper

    if described.HasField("sequence_type"):
        return numpy_helper.to_list(SequenceProto.FromString(file.read_bytes()))
    if described.HasField("optional_type"):
        return numpy_helper.to_optional(OptionalProto.FromString(file.read_bytes()))
    return _tensor(file)


def cases() -> dict[str, Case]:
    """The suite by name of test."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its expected values are made with overflows and divisions by zero
        return {found.name: Case(found) for kind in KINDS for found in load_model_tests(kind=kind)}
