"""`opweld kernels`: what is known of the GPU kernels of `opweld.kernels`."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from opweld.cli import arguments, show
from opweld.errors import OptionError
from opweld.table import Column, of_names, of_words

if TYPE_CHECKING:
    from opweld.analysis.kernel_resources import Resources

app = typer.Typer(rich_markup_mode=None, add_completion=False, no_args_is_help=True)


@app.callback()
def kernels() -> None:
    """Look into the kernels of `opweld.kernels`, which run on NVIDIA GPUs."""


@app.command()
def report(
    kernels: Annotated[
        list[str] | None,
        typer.Argument(metavar="KERNEL", help="Files of opweld.kernels, as layer_norm.", show_default=False),
    ] = None,
    arch: Annotated[str, typer.Option(metavar="sm_80|sm_90", help="The architecture to compile for.")] = "sm_90",
    json: arguments.JsonOption = None,
) -> None:
    """Compile kernels in their default configurations and tell what each needs of a GPU. None has to be there.

    \b
    opweld kernels report                           all kernels, for an H100 or H200
    opweld kernels report --arch sm_80 layer_norm   one, for an A100
    opweld kernels report --json resources.json     with every instruction counted

    \b
    registers    of a thread, 255 at most; a multiprocessor has 65536
    spills       bytes that a thread stores and loads because its registers do not suffice: slow, should be 0
    shared       bytes of a block; a multiprocessor has 164 KiB on sm_80, 228 on sm_90
    blocks       at a time on a multiprocessor, and what allows no more of them
    occupancy    their warps, of the 64 that a multiprocessor can have; memory latency is hidden by other warps, and in
                 kernels of matrix products by the stages of their pipelines
    tensor core  instructions that multiply matrices, as they stand in the code: HMMA of a warp, HGMMA of four warps
                 (sm_90), IMMA and IGMMA on int8, QGMMA on fp8

    What was compiled is kept in the cache. Exit status 1 where a kernel is not compiled, spills, or cannot be launched.
    """
    from opweld.analysis.kernel_resources import kernel_variants, measure_resources
    from opweld.codegen.triton.binary import ARCHITECTURES

    number = re.fullmatch(r"sm_(\d+)", arch)
    if number is None or int(number[1]) not in ARCHITECTURES:
        known = " or ".join(f"sm_{one}" for one in ARCHITECTURES)
        raise OptionError(f"--arch {arch}: expected {known}")
    variants = kernel_variants(int(number[1]), kernels or ())
    with show.progress() as progress:
        found = measure_resources(variants, int(number[1]), progress)
    if json is not None:
        show.write_json({"arch": arch, "kernels": [one.to_json() for one in found]}, json)
    if json is None or str(json) != "-":
        _show(arch, found)
    if any(one.finding for one in found):
        sys.exit(1)


def _show(arch: str, found: list[Resources]) -> None:
    columns = (
        of_names("kernel"),
        Column("warps"),
        Column("registers"),
        Column("spills"),
        Column("shared", 2),
        Column("blocks"),
        of_words("limited by", 3),
        Column("occupancy", 1),
        of_words("tensor core", 4),
    )
    notes = [f"{one.variant.name} {one.finding}" for one in found if one.finding]
    count = "1 configuration" if len(found) == 1 else f"{len(found)} configurations"
    show.table(f"{arch}: {count}", columns, [_row(one) for one in found], notes)


def _row(one: Resources) -> tuple[str, ...]:
    if one.binary is None or one.occupancy is None:
        return (one.variant.name, str(one.variant.warps), *["-"] * 7)
    counts = one.binary.tensor_core_instructions
    return (
        one.variant.name,
        str(one.binary.warps),
        str(one.binary.registers),
        str(one.binary.spills),
        show.byte_count(one.binary.shared),
        str(one.occupancy.blocks),
        one.occupancy.limit,
        f"{one.occupancy.fraction:.0%}",
        ", ".join(f"{name} {count}" for name, count in counts.items()) or "-",
    )
