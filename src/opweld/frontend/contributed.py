"""Schemas of the operators of `com.microsoft`, which ONNX Runtime and its tools write into models.

`check.py` reads them like those of ONNX: inputs, outputs, attributes; `?` marks an optional one, `*` an input that
repeats, `!` a required attribute. Element types are checked by inference.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import onnx

MICROSOFT = "com.microsoft"

MISPLACED = frozenset(("SimplifiedLayerNormalization",))
"""Operators of ONNX Runtime that it writes into the default domain."""

_CONVOLUTION = "auto_pad:s dilations:is group:i kernel_shape:is pads:is strides:is"
_ACTIVATION = "activation:s activation_params:fs"
_GEMM = "alpha:f transA:i transB:i"

_TABLE = f"""
Attention | input weights bias? mask_index? past? attention_bias? past_sequence_length? | output present?
    | num_heads:i! unidirectional:i scale:f mask_filter_value:f qkv_hidden_sizes:is do_rotary:i rotary_embedding_dim:i
      past_present_share_buffer:i
BiasAdd | X bias skip | Y |
BiasGelu | A B | C |
BiasSplitGelu | X bias | Y |
DequantizeLinear | x x_scale x_zero_point? | y | axis:i
DynamicQuantizeLSTM | X W R B? sequence_lens? initial_h? initial_c? P? W_scale W_zero_point R_scale R_zero_point
    | Y? Y_h? Y_c?
    | activations:ss activation_alpha:fs activation_beta:fs clip:f direction:s hidden_size:i input_forget:i
DynamicQuantizeMatMul | A B b_scale b_zero_point? bias? | Y |
EmbedLayerNormalization | input_ids segment_ids? word_embedding position_embedding segment_embedding? gamma beta mask?
      position_ids? | output mask_index? embedding_sum? | epsilon:f mask_index_type:i
FastGelu | X bias? | Y |
FusedConv | X W B? Z? | Y | {_CONVOLUTION} {_ACTIVATION}
FusedGemm | A B C? | Y | {_GEMM} beta:f activation:s activation_alpha:f activation_beta:f activation_gamma:f
FusedMatMul | A B | Y | {_GEMM} transBatchA:i transBatchB:i
Gelu | X | Y |
GridSample | X Grid | Y | align_corners:i mode:s padding_mode:s
GroupQueryAttention | query key? value? past_key? past_value? seqlens_k total_sequence_length cos_cache? sin_cache?
      position_ids? attention_bias? head_sink? k_scale? v_scale? q_norm_weight? k_norm_weight?
    | output present_key? present_value? output_qk?
    | num_heads:i! kv_num_heads:i! causal:i do_rotary:i k_quant_type:s kv_cache_bit_width:i local_window_size:i
      qk_norm_epsilon:f qk_output:i rotary_interleaved:i scale:f sliding_window_cache:i smooth_softmax:i softcap:f
      v_quant_type:s
MatMulIntegerToFloat | A B a_scale b_scale a_zero_point? b_zero_point? bias? | Y |
MatMulNBits | A B scales zero_points? g_idx? bias? | Y
    | K:i! N:i! block_size:i! bits:i accuracy_level:i weight_prepacked:i
MultiHeadAttention | query key? value? bias? key_padding_mask? attention_bias? past_key? past_value?
      past_sequence_length? cache_indirection? | output present_key? present_value? qk?
    | num_heads:i! mask_filter_value:f scale:f unidirectional:i
NhwcConv | X W B? | Y | {_CONVOLUTION}
NhwcFusedConv | X W B? Z? | Y | {_CONVOLUTION} {_ACTIVATION}
NhwcMaxPool | x | y | auto_pad:s ceil_mode:i dilations:is kernel_shape:is! pads:is strides:is
QAttention | input weight bias input_scale weight_scale mask_index? input_zero_point? weight_zero_point? past?
    | output present? | num_heads:i! unidirectional:i do_rotary:i mask_filter_value:f past_present_share_buffer:i
QEmbedLayerNormalization | input_ids segment_ids? word_embedding position_embedding segment_embedding? gamma beta mask?
      word_embedding_scale position_embedding_scale segment_embedding_scale? gamma_scale beta_scale
      word_embedding_zero_point position_embedding_zero_point segment_embedding_zero_point? gamma_zero_point
      beta_zero_point | output mask_index? | epsilon:f
QGemm | A a_scale a_zero_point B b_scale b_zero_point C? y_scale? y_zero_point? | Y | {_GEMM}
QLinearAdd | A A_scale A_zero_point? B B_scale B_zero_point? C_scale C_zero_point? | C |
QLinearAveragePool | X x_scale x_zero_point? y_scale y_zero_point? | Y
    | auto_pad:s ceil_mode:i channels_last:i count_include_pad:i kernel_shape:is! pads:is strides:is
QLinearConcat | Y_scale Y_zero_point inputs* | Y | axis:i!
QLinearConv | x x_scale x_zero_point w w_scale w_zero_point y_scale y_zero_point B? | y | {_CONVOLUTION} channels_last:i
QLinearGlobalAveragePool | X x_scale x_zero_point y_scale y_zero_point | Y | channels_last:i
QLinearLeakyRelu | X X_scale X_zero_point? Y_scale Y_zero_point? | Y | alpha:f
QLinearMul | A A_scale A_zero_point? B B_scale B_zero_point? C_scale C_zero_point? | C |
QLinearSigmoid | X X_scale X_zero_point? Y_scale Y_zero_point? | Y |
QLinearSoftmax | X X_scale x_zero_point? y_scale y_zero_point | Y | axis:i opset:i!
QLinearWhere | condition X x_scale x_zero_point Y y_scale y_zero_point z_scale z_zero_point | Z |
QuantizeLinear | x y_scale y_zero_point? | y | axis:i
QuickGelu | X | Y | alpha:f
RotaryEmbedding | input position_ids cos_cache sin_cache | output
    | interleaved:i is_packed_batching:i num_heads:i rotary_embedding_dim:i scale:f
SimplifiedLayerNormalization | X scale | Y inv_std_var? | axis:i epsilon:f stash_type:i
SkipLayerNormalization | input skip gamma beta? bias? | output mean? inv_std_var? input_skip_bias_sum? | epsilon:f
SkipSimplifiedLayerNormalization | input skip gamma bias? | output mean? inv_std_var? input_skip_bias_sum? | epsilon:f
TransposeMatMul | A B | Y | {_GEMM}
Trilu | X k? | Y | upper:i
"""

_KINDS = {"f": "FLOAT", "fs": "FLOATS", "i": "INT", "is": "INTS", "s": "STRING", "ss": "STRINGS"}


def _schema(line: str) -> Any:
    name, inputs, outputs, attributes = (part.split() for part in line.split("|"))
    return onnx.defs.OpSchema(
        name[0],
        MICROSOFT,
        1,
        inputs=[_formal(text) for text in inputs],
        outputs=[_formal(text) for text in outputs],
        attributes=[_attribute(text) for text in attributes],
    )


def _formal(text: str) -> Any:
    option = onnx.defs.OpSchema.FormalParameterOption
    which = {"?": option.Optional, "*": option.Variadic}.get(text[-1], option.Single)
    return onnx.defs.OpSchema.FormalParameter(text.rstrip("?*"), "tensor(float)", param_option=which)


def _attribute(text: str) -> Any:
    name, kind = text.rstrip("!").split(":")
    kinds: Any = onnx.defs.OpSchema.AttrType
    return onnx.defs.OpSchema.Attribute(name, getattr(kinds, _KINDS[kind]), "", required=text.endswith("!"))


def _lines() -> Iterable[str]:
    """The rows of the table, with indented continuation lines joined."""
    return _TABLE.replace("\n ", " ").strip().splitlines()


SCHEMAS: dict[tuple[str, str], Any] = {(MICROSOFT, schema.name): schema for schema in map(_schema, _lines())}
"""The schema of each operator by domain and name."""


def move_misplaced(nodes: Iterable[onnx.NodeProto]) -> None:
    """Gives operators of ONNX Runtime that are in the default domain their own domain."""
    for node in nodes:
        if node.domain in ("", "ai.onnx") and node.op_type in MISPLACED:
            node.domain = MICROSOFT
        for attribute in node.attribute:
            for graph in (*((attribute.g,) if attribute.HasField("g") else ()), *attribute.graphs):
                move_misplaced(graph.node)
