"""opweld as an ONNX backend: the interface of `onnx.backend.base`, as ONNX's own test suite calls it.

import opweld.backend
outputs = opweld.backend.prepare(model).run([x, y])

A model that opweld does not compile raises UnsupportedError, naming operator and node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx.backend.base import Backend, BackendRep, Device, DeviceType

from opweld.compile import Model, compile
from opweld.errors import InputError, OptionError, UnspecifiedError, UnsupportedError, in_line
from opweld.frontend.check import NEWEST_OPSET
from opweld.onnxruntime import InferenceSession

Array = NDArray[Any]


class OpweldRep(BackendRep):
    """A compiled model, or one that is compiled when it is fed."""

    def __init__(self, model: Model | InferenceSession) -> None:
        self.model = model

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """All outputs, in the model's order.

        Args:
            inputs: arrays, and lists of arrays or None where inputs are sequences or optionals, by position or by name;
                for a model of one input, also that array itself.
            kwargs: options of a run, of which there are none.

        Raises InputError for feeds that do not fit, AssumptionError for shapes that the model excludes.
        """
        _refuse(kwargs)
        feeds = self._feeds(inputs)
        if isinstance(self.model, InferenceSession):
            return tuple(self.model.run(None, feeds))
        return tuple(self.model.run(feeds).values())

    def _feeds(self, inputs: Any) -> Mapping[str, Any]:
        if isinstance(inputs, Mapping):
            return cast("Mapping[str, Any]", inputs)
        given = [cast(Array, inputs)] if isinstance(inputs, np.ndarray) else list(cast("Sequence[Any]", inputs))
        if isinstance(self.model, InferenceSession):
            names = tuple(node.name for node in self.model.get_inputs())
        else:
            names = self.model.session.input_names
        if len(given) != len(names):
            raise InputError(f"expected {len(names)} inputs ({', '.join(map(repr, names))}), got {len(given)}")
        return dict(zip(names, given, strict=True))


class OpweldBackend(Backend):
    """Prepares models and single nodes for the processor."""

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Whether opweld compiles this model for this device: found out by compiling it, which is remembered."""
        if not cls.supports_device(device):
            return False
        try:
            cls.prepare(model, device, **kwargs)
        except UnsupportedError:
            return False
        return True

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> OpweldRep:
        """Compiles a model; one that can only be compiled when it is known how it is fed, at its first run.

        `kwargs` are the options of `opweld.compile`. Raises OpweldError."""
        if not cls.supports_device(device):
            raise OptionError(f"device is {device!r}, expected 'CPU'")
        try:
            return OpweldRep(compile(model, **kwargs))
        except UnspecifiedError:
            return OpweldRep(InferenceSession(model.SerializeToString(), **kwargs))

    @classmethod
    def run_model(cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Array, ...]:
        """Compiles a model and runs it once; see `prepare` and `OpweldRep.run`."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[np.dtype[Any], tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Array, ...]:
        """Runs one node on arrays, one for each of its inputs that is there.

        Args:
            node: the node.
            inputs: arrays by position.
            device: where; "CPU".
            outputs_info: dtype and shape of each output; inferred where None.
            kwargs: `opset_version` of ONNX, else the newest that opweld reads;
                options of `opweld.compile`.

        Raises OpweldError.
        """
        opset = kwargs.pop("opset_version", None)
        names = [name for name in node.input if name]
        arrays = [np.asarray(array) for array in cast("Sequence[Any]", inputs)]
        if len(names) != len(arrays):
            raise InputError(f"node of {in_line(node.op_type)}: expected {len(names)} inputs, got {len(arrays)}")
        outputs = [name for name in node.output if name]
        described = [_describe(n, dtype, shape) for n, (dtype, shape) in zip(outputs, outputs_info or (), strict=False)]
        graph = onnx.helper.make_graph(
            [node],
            "node",
            [_describe(name, array.dtype, array.shape) for name, array in zip(names, arrays, strict=True)],
            described or [onnx.helper.make_empty_tensor_value_info(name) for name in outputs],
        )
        imports = [onnx.helper.make_opsetid(node.domain, 1)] if node.domain else []
        imports.append(onnx.helper.make_opsetid("", opset or min(onnx.defs.onnx_opset_version(), NEWEST_OPSET)))
        model = onnx.helper.make_model(graph, opset_imports=imports)
        return cls.run_model(onnx.shape_inference.infer_shapes(model), arrays, device, **kwargs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether `device`, such as "CPU" or "CUDA:1", is one that opweld compiles for."""
        try:
            return Device(device).type == DeviceType.CPU
        except AttributeError:  # what Device raises for a name it does not know
            return False


def _describe(name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> onnx.ValueInfoProto:
    return onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(dtype), shape)


def _refuse(kwargs: Mapping[str, Any]) -> None:
    if kwargs:
        raise OptionError(f"unknown option of a run {next(iter(kwargs))!r}; there are none")


is_compatible = OpweldBackend.is_compatible
prepare = OpweldBackend.prepare
run_model = OpweldBackend.run_model
run_node = OpweldBackend.run_node
supports_device = OpweldBackend.supports_device
