"""Servers under load: opweld's beside others, on the same models and the same requests.

python -m benchmarks.serving --help

__main__.py    the command
requests.py    models, and the requests that clients send, as bytes
transports.py  clients that send them, over HTTP and gRPC
load.py        requests that come at random times, whether answers are there or not
servers.py     servers as processes
peers/         what other servers run: read by their own interpreters
loadgen.py     MLPerf's scenarios
"""
