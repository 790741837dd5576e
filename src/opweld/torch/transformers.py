"""transformers: `attn_implementation="opweld"`."""

from __future__ import annotations

from typing import Any, cast

import torch

from opweld.errors import UnsupportedError
from opweld.torch.attention import Operands, attention, run_attention

NAME = "opweld"


def register_attention() -> None:
    """Makes `attn_implementation="opweld"` known to transformers, for every model loaded or switched later.

    A model runs it compiled where it is called in eager mode, also with soft caps, sinks, biases of positions and in
    16 bits; under `torch.compile` and `torch.export` the same definition is traced with the rest of the model.

    Raises UnsupportedError where transformers is not installed or has no such interface."""
    try:
        from transformers import AttentionInterface, masking_utils
    except ImportError as error:
        raise UnsupportedError("no attention can be registered: install transformers 4.53 or newer") from error
    AttentionInterface.register(NAME, attention_forward)
    mask = cast("Any", masking_utils).sdpa_mask  # True where a key is read; None where causality says all
    masking_utils.AttentionMaskInterface.register(NAME, mask)


def attention_forward(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    position_bias: torch.Tensor | None = None,
    cache: Any = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Attention as transformers calls it.

    Args:
        query: [batch, heads, queries, size].
        key, value: [batch, key heads, keys, size]; heads are a multiple of theirs.
        attention_mask: [batch or 1, heads or 1, queries, keys], booleans (True: the key is read) or what is added.
        scaling: of scores, 1 / sqrt(size) where None. is_causal: where None, as the module says; with a mask the mask
            says it.
        softcap: scores are softcap * tanh(score / softcap). s_aux: [heads], a score of each head that reads no value.
        position_bias: added to scores, of the mask's shape.

    Returns [batch, queries, heads, size], and no weights.

    Raises UnsupportedError for a paged cache."""
    if cache is not None:
        raise UnsupportedError('paged caches are not supported by attn_implementation="opweld"; use "sdpa" for them')
    wanted = getattr(module, "is_causal", True) if is_causal is None else is_causal
    causal = False
    if wanted and attention_mask is None and query.shape[2] > 1:
        causal = True
        key, value = key[:, :, : query.shape[2]], value[:, :, : query.shape[2]]  # others are still empty in the cache
        position_bias = position_bias if position_bias is None else position_bias[..., : query.shape[2]]
    scale = query.shape[-1] ** -0.5 if scaling is None else float(scaling)
    operands = Operands(query, key, value, attention_mask, position_bias, s_aux)
    if dropout or _is_for_pytorch(operands):
        return attention(operands, scale, causal, softcap, dropout), None
    return run_attention(operands, scale, causal, softcap), None


def _is_for_pytorch(operands: Operands) -> bool:
    """Whether PyTorch runs the definition itself: where it traces or differentiates it, chooses types (autocast), and
    where there is nothing to compute, or not on the CPU, or of other axes."""
    if torch.compiler.is_compiling() or cast("Any", torch.jit).is_tracing():
        return True
    if torch.is_autocast_enabled("cpu"):  # which chooses the types that PyTorch computes in
        return True
    given = [x for x in operands if x is not None]
    if torch.is_grad_enabled() and any(x.requires_grad for x in given):
        return True
    if any(x is not None and x.dim() != 4 for x in operands[:5]):
        return True
    kinds = (torch.Tensor, torch.nn.Parameter)
    return any(type(x) not in kinds or x.device.type != "cpu" or 0 in x.shape for x in given)
