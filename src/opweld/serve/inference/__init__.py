"""Models of tensors behind a server, in no protocol's terms: arrays in, arrays out.

model.py         what a model is to a protocol
repository.py    models by name and version: found, loaded, unloaded
layout.py        where their versions lie in files and folders
settings.py      what the file opweld.toml beside a model says
compiling.py     an ONNX file is compiled in a process of its own
tensors.py       a compiled model as tensors by name
loaded.py        a compiled model in memory, which answers calls
program.py       a program of several models: what its file declares
program_model.py a program loaded, which is a model too
workers.py       the threads that run models
timed.py         a run whose kernels are timed, for those who observe calls
"""
