"""The model zoo: real ONNX models, fetched or exported on demand into a cache and pinned by hash.

`catalogue.MODELS` says what there is, `fetch.path(name)` brings a model and answers where it lies, and
`inputs.example(name, variant)` makes the arrays to feed it. Only `export` needs torch; `inputs` needs NumPy alone.
"""
