"""Models behind HTTP: one server, in which each protocol is an interface beside the others.

    server.py        listens, and stops without losing an answer
    application.py   puts interfaces, health and metrics together
    connection.py    limits of what comes before a request's body, and of who does not take an answer
    transport.py     sends what is written of an answer at once
    guard.py         what holds for every interface: keys, limits, time, clients that went away, the line of the log
    exchange.py      a request over HTTP and its answer, as ASGI has them
    visits.py        requests that are being answered, and how they end; after.py: what happens to them after a time
    access.py        what the log says of them
    listener.py      what a listener beside HTTP is, and what all that listens has in common
    interface.py     what an interface is: routes under a prefix, or a function of requests, and the shape of its errors
    processes/       several servers at one port, below their supervisor
    openai/          OpenAI's
    open_inference/  the Open Inference Protocol: models of tensors, of inference/
    page/            the page at /, which shows the models and lets people try them
    tracing/         requests as spans of OpenTelemetry

It stands beside `opweld.llm`, not in it: models that are no language models are served by the same server.
Needs fastapi, uvicorn and prometheus-client: pip install 'opweld[serve]'.
"""
