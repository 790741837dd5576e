"""Fused kernels for NVIDIA GPUs in Triton, as functions on PyTorch's tensors: one kernel a file, whose docstring is its
formula. They need PyTorch and the extra `cuda`."""

from opweld.kernels.batch_norm_act import batch_norm_act as batch_norm_act
from opweld.kernels.cross_entropy import cross_entropy as cross_entropy
from opweld.kernels.flash_attention import flash_attention as flash_attention
from opweld.kernels.flash_decode import flash_decode as flash_decode
from opweld.kernels.geglu import geglu as geglu
from opweld.kernels.layer_norm import layer_norm as layer_norm
from opweld.kernels.linear import linear as linear
from opweld.kernels.linear_cross_entropy import linear_cross_entropy as linear_cross_entropy
from opweld.kernels.linear_fp8 import linear_fp8 as linear_fp8
from opweld.kernels.linear_int4 import linear_int4 as linear_int4
from opweld.kernels.linear_int4 import quantize_int4 as quantize_int4
from opweld.kernels.linear_int8 import linear_int8 as linear_int8
from opweld.kernels.paged_attention import paged_attention as paged_attention
from opweld.kernels.rms_norm import rms_norm as rms_norm
from opweld.kernels.rope import rope as rope
from opweld.kernels.softmax import softmax as softmax
from opweld.kernels.swiglu import swiglu as swiglu
