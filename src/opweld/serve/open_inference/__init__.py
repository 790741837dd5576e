"""The Open Inference Protocol, version 2, with Triton's extensions: over HTTP and over gRPC.

datatypes.py   element types; strings.py: strings as bytes
tensors.py     a tensor out of what a request says of it
parameters.py  what requests say beside their tensors
regions.py     shared memory of clients
infer.py       a call of a model; classification.py: an output's largest values in its place
told.py        what the server tells of itself and its models
http_infer.py  calls over HTTP; forms.py: the JSON of requests; json_fields.py, bodies.py: what they are read from
routes.py      the paths of HTTP; paths.py: how what is at one is found
interface.py   all of it for the server
"""
