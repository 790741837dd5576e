"""What layers are predicted to take: seconds of the kernels that compute them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from opweld.compile import Model


def seconds_of(model: Model, layers: Mapping[str, int]) -> dict[int, float]:
    """Predicted seconds on one core by the place of a layer's node, for the names of layers: those of the kernels that
    hold the layer, or an equal part of them where they hold several."""
    found = dict.fromkeys(layers.values(), 0.0)
    for kernel in model.explain().account.kernels:
        held: Collection[int] = {layers[name] for name in kernel.nodes if name in layers}
        for node in held:
            found[node] += kernel.seconds / len(held)
    return found
