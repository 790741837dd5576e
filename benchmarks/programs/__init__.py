"""Programs that others wrote on onnxruntime, run once with it and once with opweld in its place: same inputs, same
answers?

`catalogue.PROGRAMS` says which, `environment` installs each into a virtual environment of its own, exact versions from
`locks/`, `drivers/use_NAME` has a few lines that call it, `drive` runs one of them and `answers` compares.
"""
