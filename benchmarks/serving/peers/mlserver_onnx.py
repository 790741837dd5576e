"""ONNX Runtime as a model of MLServer, whose own batching puts requests together."""

from __future__ import annotations

import asyncio
import os

import onnxruntime as ort
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse


class OnnxModel(MLModel):  # pyright: ignore[reportUntypedBaseClass]
    """A file that `parameters.uri` names; BENCHMARK_THREADS is the size of its pool."""

    async def load(self) -> bool:
        """Opens it."""
        options = ort.SessionOptions()
        options.intra_op_num_threads = int(os.environ["BENCHMARK_THREADS"])
        self._session = ort.InferenceSession(self.settings.parameters.uri, options, providers=["CPUExecutionProvider"])
        self._names = [output.name for output in self._session.get_outputs()]
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Runs it in a thread."""
        feeds = {tensor.name: NumpyCodec.decode_input(tensor) for tensor in payload.inputs}
        arrays = await asyncio.get_running_loop().run_in_executor(None, self._session.run, None, feeds)
        outputs = [NumpyCodec.encode_output(name, array) for name, array in zip(self._names, arrays, strict=True)]
        return InferenceResponse(model_name=self.name, outputs=outputs)
