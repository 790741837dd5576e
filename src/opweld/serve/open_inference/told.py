"""What the server tells of itself and of its models: the same over HTTP, as JSON, and over gRPC, as messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import opweld
from opweld.serve.inference.model import Repository, Statistics, TensorModel, TensorSpec
from opweld.serve.open_inference.datatypes import BYTES, datatype_of
from opweld.serve.open_inference.parameters import Parameter
from opweld.serve.refusal import Refusal

_EXTENSIONS: Final = (
    "binary_tensor_data",
    "classification",
    "model_configuration",
    "model_repository",
    "parameters",
    "schedule_policy",
    "statistics",
)
PLATFORM: Final = "opweld"


def server(shared_memory: bool) -> dict[str, Any]:
    """The server, with the extensions of the protocol that it has."""
    extensions = [*_EXTENSIONS, *(["system_shared_memory"] if shared_memory else [])]
    return {"name": "opweld", "version": opweld.__version__, "extensions": extensions}


def metadata(model: TensorModel, versions: Sequence[str]) -> dict[str, Any]:
    """A model's inputs and outputs. A dim of any size is -1, and so is the whole shape where the rank is open."""
    return {
        "name": model.name,
        "versions": list(versions),
        "platform": PLATFORM,
        "inputs": [_tensor(spec) for spec in model.inputs],
        "outputs": [_tensor(spec) for spec in model.outputs],
    }


def _tensor(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "datatype": datatype_of(spec.name, spec.dtype), "shape": _dims(spec)}


def _dims(spec: TensorSpec) -> list[int]:
    return [-1] if spec.shape is None else [-1 if isinstance(size, str) else size for size in spec.shape]


def configuration(model: TensorModel) -> dict[str, Any]:
    """What of Triton's configuration of a model has a meaning here. Where it batches, dims are those of a row."""
    return {
        "name": model.name,
        "platform": PLATFORM,
        "backend": PLATFORM,
        "max_batch_size": model.max_batch,
        "input": [_configured(spec, model.max_batch > 0) for spec in model.inputs],
        "output": [_configured(spec, model.max_batch > 0) for spec in model.outputs],
    }


def _configured(spec: TensorSpec, batched: bool) -> dict[str, Any]:
    datatype = datatype_of(spec.name, spec.dtype)
    data_type = "TYPE_STRING" if datatype == BYTES else f"TYPE_{datatype}"
    return {"name": spec.name, "data_type": data_type, "dims": _dims(spec)[1 if batched else 0 :]}


def statistics(models: Sequence[TensorModel], did: Sequence[Statistics]) -> dict[str, Any]:
    """What models did since they were loaded; times in nanoseconds."""
    return {"model_stats": [_counted(model, one) for model, one in zip(models, did, strict=True)]}


def _counted(model: TensorModel, did: Statistics) -> dict[str, Any]:
    none = {"count": 0, "ns": 0}
    return {
        "name": model.name,
        "version": model.version,
        "last_inference": did.last_ns // 1_000_000,
        "inference_count": did.rows,
        "execution_count": did.runs,
        "inference_stats": {
            "success": {"count": did.calls, "ns": did.waited_ns + did.computed_ns},
            "fail": {"count": did.failures + did.refused, "ns": 0},
            "queue": {"count": did.calls, "ns": did.waited_ns},
            "compute_input": none,
            "compute_infer": {"count": did.calls, "ns": did.computed_ns},
            "compute_output": none,
            "cache_hit": none,
            "cache_miss": none,
        },
        "batch_stats": [],
        "memory_usage": [],
    }


def index(repository: Repository, ready: bool) -> list[dict[str, Any]]:
    """Models and versions that there are; with `ready`, of those that can be called."""
    return [
        {"name": one.name, "version": one.version, "state": one.state, "reason": one.reason}
        for one in repository.index()
        if not ready or one.state == "READY"
    ]


def all_models(repository: Repository, name: str, version: str) -> list[TensorModel]:
    """The loaded models that a name and a version mean; all of the name, or all, where they are left out. Raises as
    `Repository.get`."""
    if name:
        return [repository.get(name, one) for one in ([version] if version else repository.versions(name))]
    loaded = [one for one in repository.index() if one.state == "READY"]
    return [repository.get(one.name, one.version) for one in loaded]


def check_load(parameters: Mapping[str, Parameter]) -> None:
    """Refuses what a request to load brings along: a model is what its folder holds."""
    if parameters:
        names = ", ".join(sorted(parameters)[:3])
        raise Refusal(400, f"{names}: a model is loaded as its folder in the repository has it; change it there")


def no_cuda() -> Refusal:
    """Shared memory of a GPU."""
    return Refusal(
        501, "This server takes no CUDA shared memory; use system shared memory, or send tensors in requests."
    )


def no_settings() -> Refusal:
    """Settings of traces and logs."""
    return Refusal(501, "Tracing and logging are set where the server is started, not by its clients.")
