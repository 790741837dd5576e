"""What happened to a request, as spans of OpenTelemetry: for collectors, and for whoever looks for the latency.

request.py   the spans of a request, written when it is over
models.py    a repository whose models note what becomes of a call
http.py      around the application: a request of HTTP
grpc.py      around the handlers of gRPC
export.py    where spans go

All of it stands around the server, which knows the observer of a call (`serve/inference/model.py`) and nothing else.
Needs opentelemetry-sdk: pip install 'opweld[trace]'.
"""
