"""The kernels of a variant as an artifact records them: where they come from, what they cost and are predicted to take,
and the memory between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from opweld.ledger import Ledger
from opweld.place.storage import Storage
from opweld.record import BufferEntry, KernelEntry, Predicted
from opweld.schedule.expected import Expected
from opweld.tensor.costed import costs_entry, size_entry
from opweld.tensor.expr import Binary
from opweld.tile.kernels import ScheduledKernel
from opweld.tile.module import ModuleVariant
from opweld.tile.tile import Accumulate, Statement, walk_statements

COMPUTES = {"dot4": "int8", "dot4s": "int8", "dot2": "bf16", "dot2i": "int8"}
"""What is multiplied by operators on words, as ceilings of machines call it."""


def recorded(
    variant: ModuleVariant,
    scheduled: Sequence[ScheduledKernel],
    storages: Mapping[str, Storage],
    expected: Expected,
    ledger: Ledger,
) -> tuple[tuple[KernelEntry, ...], tuple[BufferEntry, ...]]:
    """The kernels of what `assemble` made, at the sizes that are expected, and the memory between them."""
    made = {item.kernel.name: item for item in scheduled}
    roots = {storage.root: storage for storage in storages.values()}
    makers: dict[str, tuple[str, ...]] = {}
    kernels: list[KernelEntry] = []
    for launch in variant.launches:
        item = made[launch.kernel.name]
        cost, traffic = item.prediction.cost, item.prediction.traffic
        memory = [variant.memory[number] for number in launch.memory]
        weights = [(piece.offset, roots[piece.name]) for piece in memory if piece.kind == "constant"]
        computed = tuple(name for name in launch.origin if name)
        for buffer, piece in zip(launch.kernel.buffers, memory, strict=True):
            if buffer.role != "read":
                makers.setdefault(piece.name, computed)
        kernels.append(
            KernelEntry(
                name=launch.kernel.name,
                region=ledger.label(item.region),
                nodes=computed,
                phase=launch.phase,
                seconds=expected(launch.work) * 1e-9,
                bytes=expected(launch.bytes),
                flops=expected(launch.flops),
                costs=costs_entry(item.count, item.bytes - item.written, item.written),
                constants=tuple((at, int(storage.elements) * storage.dtype.bytes) for at, storage in weights),
                predicted=Predicted(
                    cost.arithmetic, cost.dependency, cost.traffic, cost.launch, traffic.l2, traffic.l3, traffic.dram
                ),
                computes=_computes(launch.kernel.body),
            )
        )
    buffers = tuple(
        BufferEntry(piece.name, size_entry(piece.size), piece.first, piece.last, makers.get(piece.name, ()))
        for piece in variant.memory
        if piece.kind == "arena" and piece.size is not None
    )
    return tuple(kernels), buffers


def _computes(body: Sequence[Statement]) -> str:
    """What a kernel's products are of."""
    values = (statement.value for statement in walk_statements(body) if isinstance(statement, Accumulate))
    found = (COMPUTES.get(value.op) for value in values if isinstance(value, Binary))
    return next((name for name in found if name is not None), "fp32")
