"""ONNX Runtime as a Python function of Triton Inference Server, by PyTriton, which brings the server as a wheel.

    python pytriton_onnx.py PORT GRPC_PORT THREADS BATCH NAME=FILE...

THREADS are those of ONNX Runtime's pool, BATCH how many rows Triton's dynamic batcher puts together at most.
"""

from __future__ import annotations

import signal
import sys
from typing import Any

import numpy as np
import onnxruntime as ort
from pytriton.decorators import batch
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig

DTYPES = {"tensor(float)": np.float32, "tensor(int64)": np.int64}


def main() -> None:
    """Serves until it is killed."""
    http, grpc, threads, most = (int(argument) for argument in sys.argv[1:5])
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the server is a process that it ends only then
    config = TritonConfig(http_port=http, grpc_port=grpc, allow_metrics=False, exit_timeout_secs=2)
    with Triton(config=config) as triton:
        for name, file in (pair.split("=", 1) for pair in sys.argv[5:]):
            _bind(triton, name, file, threads, most)
        triton.serve()


def _bind(triton: Any, name: str, file: str, threads: int, most: int) -> None:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    outputs = [output.name for output in session.get_outputs()]

    @batch  # pyright: ignore[reportUntypedFunctionDecorator]
    def infer(**feeds: Any) -> dict[str, Any]:
        return dict(zip(outputs, session.run(None, feeds), strict=True))

    triton.bind(
        model_name=name,
        infer_func=infer,
        inputs=[_tensor(info) for info in session.get_inputs()],
        outputs=[_tensor(info) for info in session.get_outputs()],
        config=ModelConfig(max_batch_size=most, batcher=DynamicBatcher(max_queue_delay_microseconds=0)),
    )


def _tensor(info: Any) -> Any:
    """As Triton declares it, without the batch; a dim of any size is -1."""
    shape = tuple(dim if isinstance(dim, int) else -1 for dim in info.shape[1:])
    return Tensor(name=info.name, dtype=DTYPES[info.type], shape=shape)


if __name__ == "__main__":
    main()
