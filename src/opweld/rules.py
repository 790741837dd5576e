"""Every kind of decision: what its baseline is, what else there is, and the level from which it may be taken.

The levels are nested: what `basic` may do, `extended` may do too. `opweld explain`, `--disable` and the documentation
read this table, and a decision of a kind that is not in it fails a test.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

LEVELS = ("none", "basic", "extended", "all")
"""From the least to the most."""


@dataclass(frozen=True)
class Rule:
    """One kind of decision.

    Attributes:
        level: the first of `LEVELS` at which more than the baseline is taken.
        baseline: what is always legal. otherwise: what else there is. Both in a few words.
    """

    level: str
    baseline: str
    otherwise: str


RULES: dict[str, Rule] = {
    "simplify.fold": Rule("none", "in every run", "computed now, from constants, or by its readers"),
    "fuse.view": Rule("basic", "copy", "index arithmetic in the users"),
    "fuse.prologue": Rule("none", "in memory", "computed by the contraction that multiplies it, in registers"),
    "fuse.chain": Rule("basic", "separate", "computed inside the user"),
    "fuse.epilogue": Rule("basic", "separate", "computed on the accumulators"),
    "fuse.rows": Rule("extended", "separate", "computed with the row"),
    "fuse.block": Rule("extended", "separate", "computed in the same kernel, part by part, through scratch"),
    "place.order": Rule("all", "row-major", "lanes innermost, or as what it reads lies"),
    "place.halo": Rule("none", "test edges", "padding in memory, or a padded copy"),
    "place.rows": Rule("all", "dense", "rows that share places in the cache lie a line further apart"),
    "place.slice": Rule("extended", "copy", "written into the whole"),
    "place.pack": Rule("none", "strided, or lanes innermost", "blocked, or copied once"),
    "place.sums": Rule("none", "1, all at once", "a long sum part by part, sums so far in memory between"),
    "place.state": Rule("basic", "computed apart, and copied", "written in place"),
    "place.reuse": Rule("basic", "own memory", "in place of a dying operand"),
    "schedule.lane": Rule("none", "the first axis", "the axis along which vectors cost the least"),
    "schedule.vectors": Rule("none", "1", "vectors of a register tile"),
    "schedule.row": Rule("none", "no row axis", "the axis that the rows of a register tile count"),
    "schedule.height": Rule("none", "1", "rows of a register tile"),
    "schedule.order": Rule(
        "none",
        "all rows pass over a block of weights",
        "all weights pass over a tile of rows; or forth and back, step by step",
    ),
    "schedule.span": Rule("none", "0, all of them", "rows that pass over a block of weights before the next"),
    "schedule.taps": Rule("none", "a loop", "written out"),
    "schedule.algorithm": Rule("extended", "direct", "Winograd's F(2 x 2, 3 x 3): fewer products, other roundings"),
    "schedule.tiles": Rule("none", "8", "tiles of 2 x 2 results that are transformed at a time"),
    "schedule.groups": Rule("none", "1", "groups of lanes, each for all tiles before the next"),
    "schedule.chunk": Rule("none", "all of the lane axis", "lane tiles of one grid iteration"),
    "schedule.inner": Rule("none", "0", "further axes that a grid iteration takes in"),
    "schedule.keep": Rule("none", "computed again in every pass", "kept in scratch"),
    "schedule.block": Rule("extended", "1", "rows of a block that a grid iteration computes"),
    "schedule.columns": Rule(
        "extended", "0, all at once", "columns of a softmax at a time, with states: no row is whole"
    ),
    "schedule.masked": Rule("extended", "computed", "columns of a softmax that its mask rules out are skipped"),
    "schedule.unroll": Rule("none", "1", "bodies of an inner loop laid out in a row"),
    "schedule.prefetch": Rule("none", "0", "the next panel of weights is fetched meanwhile"),
    "schedule.separate": Rule("none", "no", "loads are not shared between accumulations"),
    "schedule.phase": Rule("basic", "a phase of its own", "with launches that do not depend on it"),
}


REWRITES: dict[str, Rule] = {
    "rewrite.redundant": Rule("basic", "as written", "its input is read instead"),
    "rewrite.target": Rule("basic", "computed", "stored, with 0 and -1 for what is not known"),
    "rewrite.transposes": Rule("basic", "as written", "two transpositions are one, or none"),
    "rewrite.transposed_batch": Rule("basic", "as written", "one transposition"),
    "rewrite.reshapes": Rule("basic", "as written", "two reshapes are one, or none"),
    "rewrite.casts": Rule("basic", "as written", "two casts are one, or none"),
    "rewrite.split_concat": Rule("basic", "as written", "what was split is read instead"),
    "rewrite.concat_slice": Rule("basic", "as written", "the part is read instead"),
    "rewrite.axes": Rule("basic", "as written", "two nodes that add or remove axes are one"),
    "rewrite.slices": Rule("basic", "as written", "two slices are one"),
    "rewrite.concats": Rule("basic", "as written", "parts are joined at once"),
    "rewrite.repeated": Rule("basic", "as written", "once, or not at all"),
    "rewrite.limits": Rule("basic", "as written", "one pair of limits, or none"),
    "rewrite.requantized": Rule("basic", "as written", "the integers are read instead"),
    "rewrite.constants": Rule("basic", "as written", "two numbers in a row are one"),
    "rewrite.fold": Rule("basic", "as written", "computed now"),
    "rewrite.branches": Rule("basic", "as written", "the branch that is taken"),
    "rewrite.equal_nodes": Rule("basic", "computed", "shared"),
    "rewrite.equal_tensors": Rule("basic", "stored", "shared"),
    "rewrite.dead": Rule("basic", "kept", "removed"),
    "rewrite.batch_normalization": Rule("basic", "as written", "in the weights of the product before it"),
    "rewrite.bias": Rule("basic", "as written", "in the bias of the product before it"),
    "rewrite.scale": Rule("basic", "as written", "in the weights of the product before it"),
    "rewrite.scale_before": Rule("basic", "as written", "in the weights of the product after it"),
    "rewrite.shift_before": Rule("basic", "as written", "in the bias of the product after it"),
    "rewrite.scale_past": Rule("basic", "as written", "in the weights of the product, past what lies between"),
    "rewrite.padding": Rule("basic", "as written", "padding of the convolution after it"),
    "rewrite.gemm": Rule("extended", "as written", "one Gemm"),
    "rewrite.one_place": Rule("extended", "as written", "a product of matrices"),
    "rewrite.gelu": Rule("extended", "as written", "one node"),
    "rewrite.tanh_gelu": Rule("extended", "as written", "one node"),
    "rewrite.sigmoid": Rule("extended", "as written", "Sigmoid"),
    "rewrite.swish": Rule("extended", "as written", "one node"),
    "rewrite.mish": Rule("extended", "as written", "one node"),
    "rewrite.hard_swish": Rule("extended", "as written", "one node"),
    "rewrite.hard_sigmoid": Rule("extended", "as written", "HardSigmoid"),
    "rewrite.consecutive": Rule("extended", "as written", "one product"),
    "rewrite.layer_normalization": Rule("extended", "as written", "one LayerNormalization"),
    "rewrite.rms_normalization": Rule("extended", "as written", "one RMSNormalization"),
    "rewrite.skip_normalization": Rule("extended", "as written", "computed with the sum before it"),
    "rewrite.fused_activation": Rule("extended", "as written", "computed with the product before it"),
    "rewrite.fused_matmul": Rule("extended", "as written", "transposed and scaled by the product"),
    "rewrite.bias_gelu": Rule("extended", "as written", "one node"),
    "rewrite.softmax": Rule("extended", "as written", "one Softmax"),
    "rewrite.log_softmax": Rule("extended", "as written", "one LogSoftmax"),
    "rewrite.rotary_embedding": Rule("extended", "as written", "one RotaryEmbedding"),
    "rewrite.rotary_parts": Rule("extended", "as written", "one RotaryEmbedding"),
    "rewrite.einsum": Rule("extended", "as written", "a product of matrices"),
    "rewrite.attention": Rule("extended", "as written", "one node"),
    "rewrite.one_slope": Rule("basic", "as written", "LeakyRelu"),
    "rewrite.zero_states": Rule("basic", "as written", "without states to begin with"),
    "rewrite.selection": Rule("all", "as written", "selected before it is computed"),
    "rewrite.sinking": Rule("all", "as written", "in another order of axes, with fewer transpositions"),
    "rewrite.pointwise": Rule("all", "as written", "products as convolutions, or convolutions as products"),
    "rewrite.common_factor": Rule("extended", "as written", "one product of a sum"),
    "rewrite.sum_of_products": Rule("extended", "as written", "one product by the sum of weights"),
    "rewrite.association": Rule("extended", "as written", "multiplied in the other order"),
    "rewrite.parallel_convolutions": Rule("all", "as written", "one convolution, whose channels are those of all"),
    "rewrite.siblings": Rule("all", "as written", "one product, whose columns are those of all"),
}
"""Decisions about ONNX graphs: those of `opweld optimize`."""

HOISTED = ("rewrite.consecutive", "rewrite.selection")
"""Those that compiling takes too: what only the graph shows cheaply. The rest the tensor program sees by itself; and
siblings are better apart there, where each of Q, K and V is written in the order that its reader wants: merged, BERT
and ViT took 3% longer."""

COMPILED = RULES | {name: REWRITES[name] for name in HOISTED}
"""Decisions of compiling."""


def stage_of(rule: str) -> str:
    """The part of a rule's name before the first dot: `fuse` of `fuse.epilogue`."""
    return rule.partition(".")[0]


def allowed(rule: str, level: str, first: str = "", added: Mapping[str, Rule] = RULES) -> bool:
    """Whether a level takes more than the baseline of a rule; a rule that is in no table always may. `first`: the
    first level at which one decision may, where it is another than the rule's. `added`: the table of other packages'
    rules."""
    known = RULES.get(rule) or REWRITES.get(rule) or added.get(rule)
    first = first or (LEVELS[0] if known is None else known.level)
    return LEVELS.index(first) <= LEVELS.index(level)
