"""The generated C of each kernel, from an artifact's source/ folder.

Functions are named after what they compute, so that equal kernels share one; module.c maps the steps of variants to
functions, and the file of kernels has each with a comment about its loops."""

from __future__ import annotations

import re
from pathlib import Path

_STEPS = re.compile(r"^static const opw_step (\w+)_steps\[\] = \{\n(.*?)^\};", re.MULTILINE | re.DOTALL)
_STEP = re.compile(r'^    \{(opw_\w+),[^"\n]*"(\w+)"', re.MULTILINE)
_VARIANT = re.compile(r'^    \{"([^"\\]+)", [^\n]*?\b(\w+)_steps\b', re.MULTILINE)
_FUNCTION = re.compile(r"^((?://[^\n]*\n)*)void (opw_\w+)\(.*?^\}\n", re.MULTILINE | re.DOTALL)


def kernel_sources(folder: Path) -> dict[str, str]:
    """By "variant/kernel", the C function with the comment before it; without those that are missing."""
    return {kernel: text for kernel, (_, text) in kernel_functions(folder).items()}


def kernel_functions(folder: Path) -> dict[str, tuple[str, str]]:
    """The same, as (name, text) of each function."""
    try:
        module = (folder / "source" / "module.c").read_text(encoding="utf-8")
        files = [path.read_text(encoding="utf-8") for path in sorted((folder / "source").glob("kernels_*.c"))]
    except (OSError, UnicodeDecodeError):
        return {}
    functions = {match[2]: match[0] for text in files for match in _FUNCTION.finditer(text)}
    variants = {table: name for name, table in _VARIANT.findall(module)}
    found: dict[str, tuple[str, str]] = {}
    for table, body in _STEPS.findall(module):
        for function, kernel in _STEP.findall(body):
            if table in variants and function in functions:
                found[f"{variants[table]}/{kernel}"] = function, functions[function]
    return found
