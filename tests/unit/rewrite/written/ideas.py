"""Every idea with whoever writes it, for tests of all of them and for the table in docs/rewrites-by-exporter.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from onnx import ModelProto

from tests.unit.rewrite.rewritten import Array, normal
from tests.unit.rewrite.written import activations, attention, normalization, rotary, softmax

EXPORTERS = ("torch dynamo", "torch's old exporter", "tf2onnx", "paddle2onnx", "by hand")


@dataclass(frozen=True)
class Idea:
    """A formula that one operator stands for, and the ways in which it is written.

    Attributes:
        rule: what recognises it, and writes `operator`.
        forms: nodes by who writes them: an exporter, and which of its ways after a colon.
        model: the nodes as a model at an opset that has the operator.
        feeds: what the model is fed.
        absent: by exporter why there is no form.
        parts: rules that write what it is recognised by.
    """

    title: str
    rule: str
    operator: str
    forms: Mapping[str, str]
    model: Callable[[str], ModelProto]
    feeds: Mapping[str, Array]
    absent: Mapping[str, str] = field(default_factory=dict[str, str])
    parts: tuple[str, ...] = ()

    def of(self, exporter: str) -> list[str]:
        """The forms that an exporter writes."""
        return [form for form in self.forms if form.partition(":")[0] == exporter]


_activation = partial(Idea, model=activations.model, feeds=activations.X)
_ITSELF = "writes {} itself"
_HEADS = {"x": attention.FEEDS["x"], "y": normal(2, 1, 7, 4), "z": normal(2, 1, 7, 4, seed=1)}
_MASK, _CHOICE = "float[2, 1, 5, 7] mask", "bool[2, 1, 5, 7] mask"


IDEAS = (
    Idea("LayerNorm", "rewrite.layer_normalization", "LayerNormalization", normalization.LAYER, normalization.model,
         normalization.X),
    Idea("RMSNorm", "rewrite.rms_normalization", "RMSNormalization", normalization.ROOT,
         partial(normalization.model, opset=23), normalization.X),
    _activation("GELU", "rewrite.gelu", "Gelu", activations.GELU),
    _activation("GELU by tanh", "rewrite.tanh_gelu", "Gelu", activations.TANH,
                absent={"paddle2onnx": "writes GELU by Erf in its place"}),
    Idea("SiLU", "rewrite.swish", "Swish", activations.SILU, partial(activations.model, opset=24), activations.X,
         parts=("rewrite.sigmoid",)),
    _activation("HardSwish", "rewrite.hard_swish", "HardSwish", activations.HARD_SWISH,
                parts=("rewrite.hard_sigmoid",)),
    _activation("Mish", "rewrite.mish", "Mish", activations.MISH),
    Idea("softmax", "rewrite.softmax", "Softmax", softmax.SOFTMAX, softmax.model, softmax.X,
         {"paddle2onnx": _ITSELF.format("Softmax")}),
    Idea("log-softmax", "rewrite.log_softmax", "LogSoftmax", softmax.LOG, softmax.model, softmax.X,
         parts=("rewrite.softmax",)),
    Idea("attention", "rewrite.attention", "Attention", attention.ATTENTION, attention.model, attention.FEEDS),
    Idea("attention with a mask", "rewrite.attention", "Attention", attention.MASKED,
         partial(attention.model, mask=_MASK), attention.fed(_MASK)),
    Idea("attention of what a condition chooses", "rewrite.attention", "Attention", attention.CHOOSING,
         partial(attention.model, mask=_CHOICE), attention.fed(_CHOICE),
         {"torch dynamo": "guards it against NaN, as below", "torch's old exporter": "guards it against NaN, as below",
          "paddle2onnx": "fills with numbers that scores may be near"}),
    Idea("attention with a guard against NaN", "rewrite.attention", "Attention", attention.GUARDED,
         partial(attention.model, mask=_CHOICE), attention.fed(_CHOICE),
         dict.fromkeys(("tf2onnx", "paddle2onnx", "by hand"), "writes no guard")),
    Idea("causal attention", "rewrite.attention", "Attention", attention.CAUSAL, attention.model, attention.FEEDS),
    Idea("attention with a bias", "rewrite.attention", "Attention", attention.BIASED, attention.model, attention.FEEDS),
    Idea("attention of grouped queries", "rewrite.attention", "Attention", attention.GROUPED,
         partial(attention.model, sizes=attention.ONE_HEAD), _HEADS,
         dict.fromkeys(("tf2onnx", "paddle2onnx"), "has it in no model of the zoo")),
    Idea("RoPE", "rewrite.rotary_embedding", "RotaryEmbedding", rotary.ROTARY, rotary.model, rotary.X),
)  # fmt: skip
