"""Fused kernels for NVIDIA GPUs in Triton, as functions on PyTorch's tensors: one kernel a file, whose docstring is its
formula. They need PyTorch and the extra `cuda`."""
