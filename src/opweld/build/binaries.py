"""Kernels of Triton compiled once: binaries are kept in the cache by what they are made of."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

from opweld.build.cache import Cache
from opweld.build.workspace import temporary_folder
from opweld.codegen.triton.binary import Binary, compile_kernel
from opweld.codegen.triton.parameters import Parameter

_FORMAT: Final = 1
"""Version of the files, and of what `Binary` says of a kernel."""

_KIND: Final = "binaries"
_SUFFIX: Final = ".json"


def find_or_compile(
    kernel: Any,
    signature: Mapping[str, str],
    constants: Mapping[str, Any],
    *,
    warps: int,
    stages: int,
    arch: int,
    cache: Cache | None = None,
) -> Binary:
    """`compile_kernel`, whose arguments and errors it has, or what it made before.

    `cache`: where binaries are kept; the user's where None."""
    cache = cache or Cache.open()
    key = _key(kernel, signature, constants, warps, stages, arch)
    if key is not None and (found := cache.find_file(_KIND, key, _SUFFIX)) is not None:
        return _parsed(found.read_text(encoding="utf-8"))
    binary = compile_kernel(kernel, signature, constants, warps=warps, stages=stages, arch=arch)
    if key is not None:
        with temporary_folder() as folder:
            file = folder / "binary.json"
            file.write_text(_text(binary), encoding="utf-8")
            cache.publish_file(_KIND, key, _SUFFIX, file)
    return binary


def _key(
    kernel: Any, signature: Mapping[str, str], constants: Mapping[str, Any], warps: int, stages: int, arch: int
) -> str | None:
    """The identity of a binary: its kernel's text with all that it calls, what it is compiled for, and the compiler.
    None for what is no kernel of Triton, which `compile_kernel` refuses."""
    text = getattr(kernel, "cache_key", None)
    if text is None:
        return None
    triton: Any = import_module("triton")
    switches: Any = import_module("triton._C.libtriton").get_cache_invalidating_env_vars()
    parts = [_FORMAT, triton.__version__, sorted(switches.items()), text, kernel.__name__, warps, stages, arch]
    parts += [sorted(signature.items()), sorted((name, repr(value)) for name, value in constants.items())]
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:40]


def _text(binary: Binary) -> str:
    fields = {**vars(binary), "cubin": base64.b64encode(binary.cubin).decode()}
    fields["parameters"] = [(parameter.name, parameter.type) for parameter in binary.parameters]
    fields["instructions"] = dict(binary.instructions)
    return json.dumps(fields)


def _parsed(text: str) -> Binary:
    """A binary of a file whose content the cache has checked."""
    fields = json.loads(text)
    fields["cubin"] = base64.b64decode(fields["cubin"])
    fields["parameters"] = tuple(Parameter(*pair) for pair in fields["parameters"])
    fields["scratch"] = tuple(fields["scratch"])
    return Binary(**fields)
