"""Models of tensors behind a server, in no protocol's terms: arrays in, arrays out.

model.py         what a model is to a protocol
repository.py    models by name and version: found, loaded, unloaded
layout.py        where their versions lie in files and folders
settings.py      what the file opweld.toml beside a model says
settled.py       an artifact that nobody changes while it is served
compiling.py     an ONNX file is compiled in a process of its own
tensors.py       a compiled model as tensors by name
examined.py      whether calls of it may share runs, and what runs take, found out when it is loaded
lengths.py       the length of rows where those of calls are unequal
joined.py        calls put together to one run, and taken apart again
cost.py          what a run takes by its size, learned from runs
arrivals.py      when the next call is expected
batcher.py       which calls make the next run of a model, and when it begins
cores.py         which model's run is next
dispatcher.py    that done, by threads and on an event loop
loaded.py        a compiled model in memory, which answers calls
tally.py         what it did
metrics.py       the same for Prometheus
program.py       a program of several models: what its file declares
program_model.py a program loaded, which is a model too
workers.py       the threads that run models
timed.py         a run whose kernels are timed, for those who observe calls
"""
