"""The table of decision rules: the baseline of each, its other alternatives, and the lowest level that permits them.

The levels are nested: what `basic` may do, `extended` may do too. `opweld explain`, `--disable` and the documentation
read this table; a test fails on a decision whose rule is not in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

LEVELS = ("none", "basic", "extended", "all")
"""From the least to the most optimised."""


@dataclass(frozen=True)
class DecisionRule:
    """One kind of decision.

    Attributes:
        level: the lowest of `LEVELS` that permits another alternative than the baseline.
        baseline: the alternative that is always legal, in a few words.
        otherwise: the other alternatives, in a few words.
    """

    level: str
    baseline: str
    otherwise: str


RULES: dict[str, DecisionRule] = {
    "simplify.fold": DecisionRule("none", "in every run", "computed now, from constants, or by its readers"),
    "fuse.view": DecisionRule("basic", "copy", "index arithmetic in the users"),
    "fuse.integer": DecisionRule(
        "basic", "floats", "sums of integers, of 8 or 16 bits or in whole floats, scaled after it"
    ),
    "fuse.precision": DecisionRule("basic", "fp32", "operands rounded to bf16 or tf32, or weights to int8 or int4"),
    "fuse.denormal": DecisionRule("basic", "as they are", "denormal weights scaled by 2 ** 23, and their sums back"),
    "fuse.prologue": DecisionRule("none", "in memory", "computed by the contraction that multiplies it, in registers"),
    "fuse.chain": DecisionRule("basic", "separate", "computed inside the user"),
    "fuse.epilogue": DecisionRule("basic", "separate", "computed on the accumulators"),
    "fuse.scale": DecisionRule("basic", "before the sums", "after the sums, which read what was there before"),
    "fuse.table": DecisionRule("extended", "computed", "looked up in a table of the function's 256 values"),
    "fuse.requantize": DecisionRule(
        "basic", "scales one after the other", "what scales a sum and the scale of its byte are one factor"
    ),
    "fuse.rows": DecisionRule("extended", "separate", "computed with the row"),
    "fuse.block": DecisionRule("extended", "separate", "computed in the same kernel, part by part, through scratch"),
    "place.order": DecisionRule("all", "row-major", "lanes innermost, or in the order of its operand"),
    "place.halo": DecisionRule("none", "test edges", "padding in memory, or a padded copy"),
    "place.rows": DecisionRule("all", "dense", "rows padded by a cache line, against set conflicts"),
    "place.slice": DecisionRule("extended", "copy", "written into the whole"),
    "place.pack": DecisionRule("none", "strided, or lanes innermost", "blocked, or copied once"),
    "place.split_k": DecisionRule("none", "1, all at once", "a long sum in parts, partial sums in memory between them"),
    "place.state": DecisionRule("basic", "computed apart, and copied", "written in place"),
    "place.reuse": DecisionRule("basic", "own memory", "in place of a dying operand"),
    "version.size": DecisionRule("extended", "the same code for all sizes", "a variant of its own where a dim is 1"),
    "schedule.lane": DecisionRule("none", "the first axis", "the axis along which vectors cost the least"),
    "schedule.vectors": DecisionRule("none", "1", "vectors of a register tile: NR in vectors"),
    "schedule.row": DecisionRule(
        "none", "no row axis", "the axis that the rows of a register tile count, or of squares that are transposed"
    ),
    "schedule.height": DecisionRule("none", "1", "rows of a register tile: MR"),
    "schedule.order": DecisionRule(
        "none",
        "all rows pass over a block of weights",
        "all weights pass over a tile of rows; or in serpentine order",
    ),
    "schedule.span": DecisionRule("none", "0, all of them", "rows that pass over a block of weights: MC"),
    "schedule.taps": DecisionRule("none", "a loop", "written out"),
    "schedule.scales": DecisionRule("none", "each product", "the sum of a block"),
    "schedule.tile": DecisionRule("none", "the smallest", "results of a product that a program of a GPU computes"),
    "schedule.unit": DecisionRule("none", "vector registers", "the registers of a matrix unit (AMX)"),
    "schedule.algorithm": DecisionRule(
        "extended", "direct", "Winograd's F(2 x 2, 3 x 3): fewer products, other roundings"
    ),
    "schedule.tiles": DecisionRule("none", "8", "tiles of 2 x 2 results that are transformed at a time"),
    "schedule.groups": DecisionRule("none", "1", "groups of lanes, each for all tiles before the next"),
    "schedule.chunk": DecisionRule("none", "all of the lane axis", "lane tiles of one grid iteration"),
    "schedule.inner": DecisionRule("none", "0", "further axes that a grid iteration takes in"),
    "schedule.keep": DecisionRule("none", "computed again in every pass", "kept in scratch"),
    "schedule.block": DecisionRule("extended", "1", "rows of a block that a grid iteration computes"),
    "schedule.columns": DecisionRule(
        "extended", "0, all at once", "columns of a softmax at a time, with states: no row is whole"
    ),
    "schedule.masked": DecisionRule("extended", "computed", "columns of a softmax that its mask rules out are skipped"),
    "schedule.unroll": DecisionRule("none", "1", "iterations of an inner loop written out"),
    "schedule.prefetch": DecisionRule(
        "none", "0", "weights are prefetched: the next panel, or what is read a little later"
    ),
    "schedule.separate": DecisionRule("none", "no", "loads are not shared between accumulations"),
    "schedule.phase": DecisionRule("basic", "a phase of its own", "with launches that do not depend on it"),
}


STORAGE_RULES = frozenset(
    (
        "fuse.integer",
        "fuse.precision",
        "fuse.denormal",
        "fuse.prologue",
        "fuse.requantize",
        "place.order",
        "place.pack",
        "schedule.algorithm",
        "schedule.lane",
        "schedule.vectors",
    )
)
"""Rules whose decisions determine the dtype and the layout of the weights in an artifact."""

REWRITES: dict[str, DecisionRule] = {
    "rewrite.redundant": DecisionRule("basic", "as written", "its input is read instead"),
    "rewrite.target": DecisionRule("basic", "computed", "stored, with 0 and -1 for what is not known"),
    "rewrite.transposes": DecisionRule("basic", "as written", "two transpositions are one, or none"),
    "rewrite.transposed_batch": DecisionRule("basic", "as written", "one transposition"),
    "rewrite.reshapes": DecisionRule("basic", "as written", "two reshapes are one, or none"),
    "rewrite.casts": DecisionRule("basic", "as written", "two casts are one, or none"),
    "rewrite.split_concat": DecisionRule("basic", "as written", "what was split is read instead"),
    "rewrite.concat_slice": DecisionRule("basic", "as written", "the part is read instead"),
    "rewrite.axes": DecisionRule("basic", "as written", "two nodes that add or remove axes are one"),
    "rewrite.slices": DecisionRule("basic", "as written", "two slices are one"),
    "rewrite.concats": DecisionRule("basic", "as written", "parts are joined at once"),
    "rewrite.repeated": DecisionRule("basic", "as written", "once, or not at all"),
    "rewrite.limits": DecisionRule("basic", "as written", "one pair of limits, or none"),
    "rewrite.requantized": DecisionRule("basic", "as written", "the integers are read instead"),
    "rewrite.constants": DecisionRule("basic", "as written", "two numbers in a row are one"),
    "rewrite.fold": DecisionRule("basic", "as written", "computed now"),
    "rewrite.branches": DecisionRule("basic", "as written", "the branch that is taken"),
    "rewrite.equal_nodes": DecisionRule("basic", "computed", "shared"),
    "rewrite.equal_tensors": DecisionRule("basic", "stored", "shared"),
    "rewrite.dead": DecisionRule("basic", "kept", "removed"),
    "rewrite.batch_normalization": DecisionRule("basic", "as written", "in the weights of the product before it"),
    "rewrite.bias": DecisionRule("basic", "as written", "in the bias of the product before it"),
    "rewrite.scale": DecisionRule("basic", "as written", "in the weights of the product before it"),
    "rewrite.scale_before": DecisionRule("basic", "as written", "in the weights of the product after it"),
    "rewrite.shift_before": DecisionRule("basic", "as written", "in the bias of the product after it"),
    "rewrite.scale_past": DecisionRule("basic", "as written", "in the weights of the product, past what lies between"),
    "rewrite.padding": DecisionRule("basic", "as written", "padding of the convolution after it"),
    "rewrite.gemm": DecisionRule("extended", "as written", "one Gemm"),
    "rewrite.one_place": DecisionRule("extended", "as written", "a product of matrices"),
    "rewrite.gelu": DecisionRule("extended", "as written", "one node"),
    "rewrite.tanh_gelu": DecisionRule("extended", "as written", "one node"),
    "rewrite.sigmoid": DecisionRule("extended", "as written", "Sigmoid"),
    "rewrite.swish": DecisionRule("extended", "as written", "one node"),
    "rewrite.mish": DecisionRule("extended", "as written", "one node"),
    "rewrite.hard_swish": DecisionRule("extended", "as written", "one node"),
    "rewrite.hard_sigmoid": DecisionRule("extended", "as written", "HardSigmoid"),
    "rewrite.consecutive": DecisionRule("extended", "as written", "one product"),
    "rewrite.layer_normalization": DecisionRule("extended", "as written", "one LayerNormalization"),
    "rewrite.rms_normalization": DecisionRule("extended", "as written", "one RMSNormalization"),
    "rewrite.skip_normalization": DecisionRule("extended", "as written", "computed with the sum before it"),
    "rewrite.fused_activation": DecisionRule("extended", "as written", "computed with the product before it"),
    "rewrite.fused_matmul": DecisionRule("extended", "as written", "transposed and scaled by the product"),
    "rewrite.bias_gelu": DecisionRule("extended", "as written", "one node"),
    "rewrite.softmax": DecisionRule("extended", "as written", "one Softmax"),
    "rewrite.log_softmax": DecisionRule("extended", "as written", "one LogSoftmax"),
    "rewrite.rotary_embedding": DecisionRule("extended", "as written", "one RotaryEmbedding"),
    "rewrite.rotary_parts": DecisionRule("extended", "as written", "one RotaryEmbedding"),
    "rewrite.einsum": DecisionRule("extended", "as written", "a product of matrices"),
    "rewrite.attention": DecisionRule("extended", "as written", "one node"),
    "rewrite.one_slope": DecisionRule("basic", "as written", "LeakyRelu"),
    "rewrite.zero_states": DecisionRule("basic", "as written", "without states to begin with"),
    "rewrite.selection": DecisionRule("all", "as written", "selected before it is computed"),
    "rewrite.sinking": DecisionRule("all", "as written", "in another order of axes, with fewer transpositions"),
    "rewrite.pointwise": DecisionRule("all", "as written", "products as convolutions, or convolutions as products"),
    "rewrite.common_factor": DecisionRule("extended", "as written", "one product of a sum"),
    "rewrite.sum_of_products": DecisionRule("extended", "as written", "one product by the sum of weights"),
    "rewrite.association": DecisionRule("extended", "as written", "multiplied in the other order"),
    "rewrite.parallel_convolutions": DecisionRule(
        "all", "as written", "one convolution, whose channels are those of all"
    ),
    "rewrite.siblings": DecisionRule("all", "as written", "one product, whose columns are those of all"),
}
"""Decisions about ONNX graphs: those of `opweld optimize`."""

HOISTED = ("rewrite.consecutive", "rewrite.selection")
"""The rewrites that compiling applies too, because only the graph shows them cheaply. The tensor program makes the
others unnecessary; and `siblings` would be slower: apart, each of Q, K and V is written in the order that its reader
wants; merged, BERT and ViT took 3% longer."""

COMPILED = RULES | {name: REWRITES[name] for name in HOISTED}
"""The decision rules of compiling."""


def stage_of(rule: str) -> str:
    """The part of a rule's name before the first dot: `fuse` of `fuse.epilogue`."""
    return rule.partition(".")[0]


def allowed(rule: str, level: str, first: str = "", added: Mapping[str, DecisionRule] = RULES) -> bool:
    """Whether a level permits other alternatives than a rule's baseline; always for a rule that is in no table.
    `first`: the lowest such level of a single decision, where it differs from the rule's. `added`: the table of rules
    of other packages."""
    known = RULES.get(rule) or REWRITES.get(rule) or added.get(rule)
    first = first or (LEVELS[0] if known is None else known.level)
    return LEVELS.index(first) <= LEVELS.index(level)
