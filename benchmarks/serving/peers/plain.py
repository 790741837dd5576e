"""ONNX Runtime behind FastAPI, as people write it themselves; the binary form of the protocol, for its speed.

    python plain.py PORT THREADS CALLS NAME=FILE...

THREADS are those of ONNX Runtime's pool, CALLS how many requests are computed at once.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import onnxruntime as ort
import uvicorn
from fastapi import FastAPI, Request, Response

DTYPES = {"FP32": np.float32, "INT64": np.int64, "INT32": np.int32}


def main() -> None:
    """Serves until it is killed."""
    port, threads, calls = (int(argument) for argument in sys.argv[1:4])
    sessions = {name: _session(file, threads) for name, file in (pair.split("=", 1) for pair in sys.argv[4:])}
    pool = ThreadPoolExecutor(calls)
    app = FastAPI()

    @app.get("/v2/health/ready")
    async def ready() -> Response:
        return Response()

    @app.post("/v2/models/{name}/infer")
    async def infer(name: str, request: Request) -> Response:
        import asyncio

        body = await request.body()
        header = int(request.headers["inference-header-content-length"])
        feeds, at = {}, header
        for tensor in json.loads(body[:header])["inputs"]:
            size = tensor["parameters"]["binary_data_size"]
            array = np.frombuffer(body, DTYPES[tensor["datatype"]], size // DTYPES[tensor["datatype"]]().itemsize, at)
            feeds[tensor["name"]] = array.reshape(tensor["shape"])
            at += size
        session = sessions[name]
        outputs = await asyncio.get_running_loop().run_in_executor(pool, session.run, None, feeds)
        told, parts = [], []
        for info, array in zip(session.get_outputs(), outputs, strict=True):
            data = np.ascontiguousarray(array).tobytes()
            parameters = {"binary_data_size": len(data)}
            told.append({"name": info.name, "datatype": "FP32", "shape": array.shape, "parameters": parameters})
            parts.append(data)
        head = json.dumps({"model_name": name, "outputs": told}).encode()
        headers = {"inference-header-content-length": str(len(head))}
        return Response(head + b"".join(parts), headers=headers, media_type="application/octet-stream")

    _ = ready, infer
    uvicorn.run(app, port=port, log_level="warning", access_log=False)


def _session(file: str, threads: int) -> Any:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    return ort.InferenceSession(file, options, providers=["CPUExecutionProvider"])


if __name__ == "__main__":
    main()
