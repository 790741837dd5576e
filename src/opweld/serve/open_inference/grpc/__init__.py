"""The protocol over gRPC, without generated code.

messages.py      the table of messages; descriptors.py: their classes, made of it
grpc_infer.py    calls: messages to tensors and back
service.py       what each method does
guard.py         what holds for each method: keys, limits, time, clients that went away, the line of the log
listener.py      the server beside that of HTTP
"""
