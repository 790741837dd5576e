"""Compiled models on many machines: batches by Ray Data, requests by Ray Serve.

    predicted = opweld.ray.predict(ray.data.read_parquet("rows/"), "model.onnx", batch_size=64, actors=8)
    opweld.ray.write(ray.data.read_parquet("rows/"), "model.onnx", "answers/", actors=8)
    ray.serve.run(opweld.ray.deployment("models/", replicas=4, threads=2))

    columns.py     which columns a model reads and writes, and what is wrong with those that do not fit
    shipment.py    an artifact on its way to the nodes: through the object store, into the cache of each, once
    predictor.py   what an actor does with batches
    predict.py     a dataset with the outputs of a model
    parts.py       a dataset as parts that are the same rows in every job
    ahead.py       parts, found while others are computed
    writers.py     actors that write parts, in the place of those that die
    write.py       files that a job which is begun again neither loses nor doubles
    serving.py     models of `opweld serve` as a deployment
    processors.py  processors of a node, each one process's at a time

Importing it needs Ray with its parts for data: pip install 'opweld[ray]'.
"""

from __future__ import annotations

from opweld.ray.predict import predict
from opweld.ray.serving import application, deployment
from opweld.ray.write import Written, write

__all__ = ["Written", "application", "deployment", "predict", "write"]
