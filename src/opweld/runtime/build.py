"""Compiles the C runtime: a part of compiling a model, never of running one."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import opweld
from opweld.build.toolchain import Compiler, build_shared
from opweld.runtime.library import c_headers, c_sources
from opweld.target import Target

_HEADERS = ("opweld.h", "opweld_abi.h", "runtime.h")
"""What its sources include; the other headers are for generated modules."""


def build_runtime(out: Path, target: Target) -> Path:
    """Compiles runtime.so for `target`'s architecture; returns where it is, which is `out`. Raises ToolchainError.

    It uses no instruction beyond the oldest processors of that architecture: it is what tells the user that a model was
    compiled for another processor.
    """
    flags = [f'-DOPW_VERSION="{opweld.__version__}"']
    if target.name.startswith("x86-64"):
        target = dataclasses.replace(Target.of("x86-64-v3"), triple=target.triple)
        flags.append("-mcpu=baseline" if Compiler.find().is_zig else "-march=x86-64")
    headers = {name: text for name, text in c_headers().items() if name in _HEADERS}
    build_shared(c_sources(), out, target=target, headers=headers, flags=flags, jobs=1, keep=True)
    return out
