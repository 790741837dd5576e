"""Models of `opweld serve` as a deployment of Ray Serve."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from opweld.errors import MissingModelError, OptionError
from opweld.ray.packages import package
from opweld.ray.predict import check_positive
from opweld.ray.processors import take_processors

Paths: TypeAlias = "str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Mapping[str, str | os.PathLike[str]]"


def deployment(
    models: Paths,
    *,
    replicas: int | str = 1,
    threads: int = 1,
    max_batch: int = 32,
    target_ms: float = 50.0,
    queue: int = 1024,
    max_body: int = 64 << 20,
    timeout: float = 600.0,
    keys: Sequence[str] = (),
    name: str = "opweld",
) -> Any:
    """An application of Ray Serve that answers as `opweld serve` does: over the Open Inference Protocol, below /v2.

    Each replica is a process with the models open, and batches by itself. It keeps to `threads` processors of its node,
    as many as Ray reserves for it, which no other replica has; the weights are pages of files, which the replicas of a
    node share.

    Args:
        models: a folder of models, an artifact or an ONNX file, several of them, or by name; where replicas run.
        replicas: how many; "auto": as many as requests need.
        threads: of each replica.
        max_batch: rows of a run at most. target_ms: from a request to its answer, which is aimed at.
        queue: requests that wait at most, of each model in each replica.
        max_body: bytes of a request. timeout: seconds of one.
        keys: one of which a client must know; none where there are none.
        name: of the deployment.

    Raises OptionError for numbers that are none."""
    check_positive("threads", threads)
    check_positive("max_batch", max_batch)
    if isinstance(replicas, int):
        check_positive("replicas", replicas)
    elif replicas != "auto":
        raise OptionError(f'replicas is {replicas!r}, expected a number of at least 1, or "auto"')
    build = partial(
        _application, _named(models), threads, max_batch, target_ms / 1e3, queue, max_body, timeout, tuple(keys)
    )
    serve = package("ray.serve")
    return serve.deployment(
        name=name,
        num_replicas=replicas,
        ray_actor_options={"num_cpus": threads},
        max_ongoing_requests=queue + max_batch,
    )(serve.ingress(lambda: build())(_Replica)).bind()


def application(arguments: Mapping[str, Any]) -> Any:
    """`deployment` for files of Ray Serve, as `import_path: opweld.ray:application`. `arguments`: its, by name.

    Raises OptionError for one that it does not have."""
    known = [*inspect.signature(deployment).parameters]
    if unknown := next((name for name in arguments if name not in known), None):
        raise OptionError(f"{unknown!r} is no argument of a deployment; there are {', '.join(known)}")
    if "models" not in arguments:
        raise OptionError("a deployment needs the argument 'models': a folder of models, or models by name")
    return deployment(**arguments)


class _Replica:
    """What Ray Serve makes a replica of: all that it does is the application."""


def _named(models: Paths) -> list[tuple[str | None, Path]]:
    if isinstance(models, Mapping):
        return [(name, Path(path).absolute()) for name, path in models.items()]
    several = [models] if isinstance(models, str | os.PathLike) else models
    return [(None, Path(path).absolute()) for path in several]


def _application(
    models: Sequence[tuple[str | None, Path]],
    threads: int,
    max_batch: int,
    target: float,
    queue: int,
    body: int,
    seconds: float,
    keys: Sequence[str],
) -> Any:
    """The application of `opweld serve` in a replica, its models loaded."""
    from opweld.serve.inference.metrics import measured
    from opweld.serve.inference.repository import ModelRepository
    from opweld.serve.inference.settings import Settings
    from opweld.serve.limits import Keys, Limits
    from opweld.serve.open_inference.interface import OpenInference
    from opweld.serve.server import Server

    take_processors(threads)
    if missing := next((path for _, path in models if not path.exists()), None):
        raise MissingModelError(f"there is no {missing} on this node: put models where all nodes see the same path")
    usual = Settings(max_batch=max_batch, target=target, queue=queue, threads=threads)
    repository = ModelRepository(models, usual)
    repository.load_all()
    interface = partial(measured, repository, OpenInference(repository).interface)
    return Server([repository], [interface], limits=Limits(body=body, seconds=seconds), keys=Keys(keys)).config.app
