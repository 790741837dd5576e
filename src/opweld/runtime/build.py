"""Compiles the C runtime: only while compiling a model."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import opweld
from opweld.build.toolchain import Compiler, build_shared
from opweld.runtime.library import c_headers, c_sources
from opweld.target import Target

_HEADERS = ("opweld.h", "opweld_abi.h", "runtime.h")
"""The headers that its sources include; others are for generated modules."""


def build_runtime(out: Path, target: Target) -> Path:
    """Compiles runtime.so for `target`'s architecture; returns `out`. Raises ToolchainError.

    It uses only instructions of the oldest processors of that architecture, so that it can report that a model was
    compiled for another processor.
    """
    flags = [f'-DOPW_VERSION="{opweld.__version__}"']
    if target.name.startswith("x86-64"):
        target = dataclasses.replace(Target.of("x86-64-v3"), triple=target.triple)
        flags.append("-mcpu=baseline" if Compiler.find().is_zig else "-march=x86-64")
    headers = {name: text for name, text in c_headers().items() if name in _HEADERS}
    # One file of all sources: a third less time than one by one, and what they call of each other is inlined.
    sources = c_sources()
    whole = "#define _GNU_SOURCE\n" + "".join(f'#include "{name}"\n' for name in sources)
    build_shared({"runtime.c": whole}, out, target=target, headers={**headers, **sources}, flags=flags, keep=True)
    return out
