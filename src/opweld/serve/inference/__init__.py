"""Models of tensors behind a server, in no protocol's terms: arrays in, arrays out.

model.py         what a model is to a protocol
repository.py    models by name and version: found, loaded, unloaded
loaded.py        a compiled model in memory, which answers calls
timed.py         a run whose kernels are timed, for those who observe calls
"""
