"""`opweld serve`: models of tensors and language models behind HTTP."""

from __future__ import annotations

import faulthandler
import importlib
import logging
import socket
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from opweld.cli import show
from opweld.cli.language import (
    CacheOption,
    ContextOption,
    MemoryOption,
    PrecisionOption,
    ThreadsOption,
    check_installed,
    load,
    load_encoder,
    named,
)
from opweld.collector import collected_seldom, pass_over_what_is_new
from opweld.errors import OptionError
from opweld.options import byte_count

if TYPE_CHECKING:
    from grpc.aio import ServerInterceptor

    from opweld.cli.language import LanguageModel
    from opweld.llm.encoder import Encoder
    from opweld.serve.inference.model import Repository
    from opweld.serve.inference.repository import ModelRepository
    from opweld.serve.interface import Backend
    from opweld.serve.listener import MakeListener
    from opweld.serve.open_inference.interface import OpenInference
    from opweld.serve.openai.models import Models, Served
    from opweld.serve.processes.member import Member
    from opweld.serve.processes.part import Part
    from opweld.serve.server import Around, MakeInterface
    from opweld.serve.tls import Tls
    from opweld.serve.tracing.request import Tracing


def serve(
    models: Annotated[
        list[str],
        typer.Argument(metavar="MODEL", help="An artifact, an .onnx file, a folder of those, a .gguf file, or a folder "
                       "with config.json; NAME=MODEL names one.", show_default=False),
    ],
    *,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Where to listen; 0.0.0.0: everywhere.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="N", min=0, max=65535, help="0 takes a free one.")] = 8000,
    grpc_port: Annotated[
        int | None, typer.Option("--grpc-port", metavar="N", min=0, max=65535, help="Models of tensors over gRPC too, "
                                 "there; 8001 is usual.", show_default=False)
    ] = None,
    memory: MemoryOption = None,
    threads: ThreadsOption = None,
    context: ContextOption = None,
    cache: CacheOption = None,
    precision: PrecisionOption = None,
    api_key: Annotated[
        list[str] | None,
        typer.Option("--api-key", metavar="KEY", envvar="OPWELD_API_KEY", show_default=False,
                     help="A key that clients must know; repeat for more. Others see a command line: the environment "
                     "or a file keep it to themselves."),
    ] = None,
    api_key_file: Annotated[
        Path | None, typer.Option("--api-key-file", metavar="FILE", help="Keys, one a line.", show_default=False)
    ] = None,
    queue: Annotated[
        int, typer.Option("--queue", metavar="N", min=0, help="Requests that wait at most, of each model.")
    ] = 1024,
    max_batch: Annotated[
        int, typer.Option("--max-batch", metavar="ROWS", min=1, help="Of one run of a model of tensors; 1: no batches.")
    ] = 32,
    target: Annotated[
        float, typer.Option("--target", metavar="MS", min=0.001, help="From a request to a model of tensors to its "
                            "answer, which batches aim at.")
    ] = 50.0,
    max_prompt: Annotated[
        int | None,
        typer.Option("--max-prompt", metavar="N", min=1, help="Tokens of a prompt; what the context has room for where "
                     "not given.", show_default=False),
    ] = None,
    max_answers: Annotated[int, typer.Option("--max-answers", metavar="N", min=1, help="Of one request.")] = 128,
    max_body: Annotated[
        str | None, typer.Option("--max-body", metavar="SIZE", help="Of one request: 4M, or 64M where there are models "
                                 "of tensors.", show_default=False)
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", min=0.1, help="From a request to the end of its answer.")
    ] = 600.0,
    workers: Annotated[
        int, typer.Option("--workers", metavar="N", min=1, help="Processes that answer, of models of tensors; for "
                          "small ones, whose requests cost more than their runs.")
    ] = 1,
    drain: Annotated[
        float, typer.Option("--drain", metavar="SECONDS", min=0, help="That answers have to end when the server stops.")
    ] = 30.0,
    cors: Annotated[
        list[str] | None,
        typer.Option("--cors", metavar="ORIGIN", help="Web pages from there may call it; repeat for more.",
                     show_default=False),
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option("--tls-cert", metavar="FILE", help="The server's certificate, in PEM: clients come "
                                  "over TLS.", show_default=False)
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option("--tls-key", metavar="FILE", help="Its key, in PEM.", show_default=False)
    ] = None,
    tls_clients: Annotated[
        Path | None, typer.Option("--tls-clients", metavar="FILE", help="Clients must have a certificate of this "
                                  "authority, in PEM.", show_default=False)
    ] = None,
    shared_memory: Annotated[
        bool, typer.Option("--shared-memory", help="Clients of this machine may send and get tensors in shared memory; "
                           "they can then read what other programs of this user share.")
    ] = False,
    trace: Annotated[
        str | None,
        typer.Option("--trace", metavar="WHERE", help="Spans of OpenTelemetry go there: http://COLLECTOR:4318, a file, "
                     "or console.", show_default=False),
    ] = None,
    trace_requests: Annotated[
        float, typer.Option("--trace-requests", metavar="PART", min=0, max=1, help="Of requests whose caller does not "
                            "say whether they are traced.")
    ] = 1.0,
    trace_kernels: Annotated[
        float, typer.Option("--trace-kernels", metavar="PART", min=0, max=1, help="Of the runs of traced requests, "
                            "whose kernels are spans too.")
    ] = 0.01,
) -> None:  # fmt: skip
    """Serve models over HTTP: models of tensors over the Open Inference Protocol, language models over OpenAI's API.

    \b
    opweld serve resnet50.onnx                 compiled now, or found in the cache
    opweld serve resnet50.opweld               an artifact of opweld compile
    opweld serve models --grpc-port 8001       FOLDER/NAME/VERSION/model.onnx, FOLDER/NAME.opweld, ...
    curl localhost:8000/v2/models/resnet50

    \b
    opweld serve model.gguf
    opweld serve small=SmolLM2-135M-Instruct big=Qwen3-4B --memory 8G
    opweld serve all-MiniLM-L6-v2 chat=model.gguf models
        an encoder for embeddings and ranking, a model that chats, and a folder of models of tensors
    curl localhost:8000/v1/chat/completions -H 'Content-Type: application/json' \\
        -d '{"model": "chat", "messages": [{"role": "user", "content": "Hello"}]}'

    \b
    /                             a page that shows the models, and on which to try them
    /v2/models/NAME/infer, /v2/repository/index, ...   Open Inference Protocol
    /v1/chat/completions, /v1/completions, /v1/embeddings, /v1/rerank, /v1/models
    /health/live, /health/ready   for a load balancer
    /metrics                      for Prometheus

    --workers 2 answers in two processes: of small models, whose requests cost more than their runs, twice as many.
    Requests to a model of tensors share runs where its first dim is free, as far as that costs less than it saves;
    opweld.toml beside a model says max_batch, target_ms, versions and more. Language models share each step among many
    requests; --memory is each one's. A request that finds the queue full is answered with 429.
    SIGTERM or Ctrl-C lets answers end, a second one does not. A line of standard error tells of each request, never
    what it says. docs/guides/serve-models.md and serve-language-models.md have more.
    """
    check_installed("fastapi", "uvicorn", "uvloop", "httptools", "prometheus_client", "grpc", extra="serve")
    with collected_seldom():
        from opweld.serve.limits import Keys, Limits, bytes_in_flight, keys_of_file
        from opweld.serve.processes.hub import Hub
        from opweld.serve.processes.part import Part
        from opweld.serve.server import Server, allow_connections, reserve, share
        from opweld.serve.supervisor import supervised
        from opweld.serve.watchdog import Watchdog

    keys = Keys([*(api_key or ()), *(keys_of_file(api_key_file) if api_key_file else ())])
    given = named(models)
    of_language = [(name, path) for name, path in given if _is_language(path)]
    of_tensors = [(name, path) for name, path in given if not _is_language(path)]
    limits = Limits(
        body=byte_count("--max-body", max_body or ("64M" if of_tensors else "4M")),
        prompt=max_prompt,
        answers=max_answers,
        seconds=timeout,
        drain=drain,
    )
    tls = _tls(tls_cert, tls_key, tls_clients)
    if grpc_port is not None and not of_tensors:
        raise OptionError("--grpc-port is for models of tensors, and there is none")
    if workers > 1 and of_language:
        raise OptionError(
            f"--workers is {workers}, and {of_language[0][1]} is a language model, of which each process would have a "
            "cache of its own; serve it by a server of its own, with --workers 1"
        )
    with ExitStack() as reserved, ExitStack() as starting:  # reserved before minutes of compiling, not after
        starting.enter_context(collected_seldom())
        http = reserved.enter_context(reserve(host, port))
        grpc = None if grpc_port is None else reserved.enter_context(reserve(host, grpc_port, "--grpc-port"))
        beside = "" if grpc is None else f", gRPC at {_shown(grpc)}"
        secret = f"{'with' if keys else 'without'} keys"
        here = f"{'https' if tls else 'http'}://{_shown(http)}/, {secret}{beside}; Ctrl-C ends it"
        _import(bool(of_tensors), bool(of_language))
        allow_connections()
        hub = None
        if workers > 1:
            limits = replace(limits, in_flight=bytes_in_flight(limits))
            hub = Hub(http, workers, partial(_say, here))
            if grpc is not None:
                share(grpc)
        watchdog = Watchdog(workers)
        found = supervised(_say, hub, watchdog)
        if isinstance(found, int):
            raise typer.Exit(found)
        faulthandler.enable(2)  # of a process that crashes, or hangs and is ended: what its threads were doing
        member = found
        part = Part() if member is None else member.part
        tracing = _tracing(trace, trace_requests, trace_kernels) if trace else None
        backends: list[Backend] = []
        interfaces: list[MakeInterface] = []
        listeners: list[MakeListener] = []
        repository, language = None, None
        if of_tensors:
            settings = (max_batch, target / 1e3, queue, threads or 0)
            repository = _of_tensors(of_tensors, settings, part)
            protocol, measured = _protocol(repository, tracing, shared_memory, member)
            backends.append(repository)
            interfaces.append(measured)
            if grpc is not None:
                listeners.append(protocol.listener(grpc, _around_calls(tracing)))
        if of_language:
            language, openai = _language(of_language, memory, threads, context, cache, precision, queue)
            backends.append(language)
            interfaces.append(openai)
        interfaces.append(_page(repository, language, member))
        around = None if tracing is None else _around(tracing)
        server = Server(
            backends,
            interfaces,
            limits=part.limits(limits),
            keys=keys,
            origins=cors or (),
            listeners=listeners,
            tls=tls,
            around=around,
            member=member,
            beat=partial(watchdog.beat, part.number),
        )
        _log(part)
        if member is None:
            _say(here)
        else:
            http.close()
        starting.close()
        try:
            server.run(sockets=[http] if member is None else [])
        finally:
            if tracing is not None:
                tracing.close()


def _import(tensors: bool, language: bool) -> None:
    """Imports what the server needs, before there is one: a server that is started again when it dies has it by the
    fork, and is there in half a second. Nothing of it starts a thread of Python's."""
    needed = ["opweld.serve.page.interface", "opweld.runtime.native", "opweld.build.toolchain", "uvloop"]
    if tensors:
        needed += ["opweld.serve.inference.repository", "opweld.serve.processes.shared"]
    if language:
        needed += ["opweld.serve.openai.interface", "opweld.llm.async_engine", "opweld.llm.load", "tokenizers"]
    for name in needed:
        importlib.import_module(name)
    pass_over_what_is_new()  # which stays, and which no server needs to look through


def _shown(listening: socket.socket) -> str:
    address, port = listening.getsockname()[:2]
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _tls(certificate: Path | None, key: Path | None, clients: Path | None) -> Tls | None:
    """How connections are secured; None: they are not."""
    if certificate is None and key is None and clients is None:
        return None
    if certificate is None or key is None:
        raise OptionError("--tls-cert and --tls-key go together, and --tls-clients with them")
    from opweld.serve.tls import Tls

    return Tls(certificate, key, clients)


def _is_language(path: Path) -> bool:
    """Whether it is a language model: a .gguf file, a folder with config.json or genai_config.json, or with one .gguf
    file."""
    if not path.is_dir():
        return path.suffix == ".gguf"
    described = any((path / name).is_file() for name in ("config.json", "genai_config.json"))
    return described or any(path.glob("*.gguf"))


def _of_tensors(
    given: Sequence[tuple[str | None, Path]], settings: tuple[int, float, int, int], part: Part
) -> ModelRepository:
    """Models of tensors, loaded. settings: max_batch, target, queue, threads."""
    from opweld.serve.inference.repository import ModelRepository
    from opweld.serve.inference.settings import Settings

    max_batch, target, queue, threads = settings
    usual = Settings(max_batch=max_batch, target=target, queue=queue, threads=threads)
    repository = ModelRepository(given, usual, partial(_say_of, part), part)
    repository.load_all()
    return repository


def _protocol(
    models: ModelRepository, tracing: Tracing | None, shared_memory: bool, member: Member | None
) -> tuple[OpenInference, MakeInterface]:
    """The protocol that models of tensors are behind, and its interface, which counts what they do."""
    from opweld.serve.inference.metrics import measured
    from opweld.serve.open_inference.interface import OpenInference
    from opweld.serve.open_inference.regions import Regions
    from opweld.serve.processes.shared import SharedRegions, SharedRepository, counted

    if member is None:
        protocol = OpenInference(_observed(models, tracing), Regions(shared_memory))
        return protocol, partial(measured, models, protocol.interface)
    repository = SharedRepository(models, member)
    protocol = OpenInference(_observed(repository, tracing), SharedRegions(shared_memory, member))
    return protocol, partial(counted, member, models, partial(measured, models, protocol.interface))


def _page(repository: ModelRepository | None, language: Models | None, member: Member | None) -> MakeInterface:
    """The page at /."""
    from opweld.serve.page.interface import page_interface
    from opweld.serve.page.reports import Reports

    if member is None:
        return partial(page_interface, repository, language, Reports())
    from opweld.serve.processes.shared import shared_reports

    return partial(page_interface, repository, language, shared_reports(member))


def _language(
    given: Sequence[tuple[str | None, Path]],
    memory: str | None,
    threads: int | None,
    context: int | None,
    cache: str | None,
    precision: str | None,
    queue: int,
) -> tuple[Models, MakeInterface]:
    """Language models, and the protocol that they are behind."""
    check_installed("tokenizers", "jinja2", extra="llm,serve")
    from opweld.llm.files import is_encoder
    from opweld.serve.openai.interface import openai_interface
    from opweld.serve.openai.models import Models

    models = Models(
        _encoder(load_encoder(path, memory=memory, threads=threads, context=context), name)
        if is_encoder(path)
        else _decoder(
            load(
                path,
                memory=memory,
                threads=threads,
                context=context,
                cache=cache,
                precision=precision,
                queue=queue,
            ),
            name,
        )
        for name, path in given
    )
    return models, partial(openai_interface, models)


def _tracing(where: str, requests: float, kernels: float) -> Tracing:
    """What traces requests."""
    check_installed("opentelemetry", extra="trace")
    check_installed("opentelemetry.sdk", extra="trace")
    from opweld.serve.tracing.export import tracing_to

    return tracing_to(where, requests=requests, kernels=kernels)


def _observed(repository: Repository, tracing: Tracing | None) -> Repository:
    """The repository for protocols: one that notes what becomes of calls, where requests are traced."""
    if tracing is None:
        return repository
    from opweld.serve.tracing.models import TracedRepository

    return TracedRepository(repository)


def _around(tracing: Tracing) -> Around:
    from opweld.serve.tracing.http import TracedRequests

    return partial(TracedRequests, tracing)


def _around_calls(tracing: Tracing | None) -> Sequence[ServerInterceptor]:
    if tracing is None:
        return ()
    from opweld.serve.tracing.grpc import TracedCalls

    return (TracedCalls(tracing),)


def _decoder(model: LanguageModel, name: str | None) -> Served:
    from opweld.serve.openai.models import Served

    cache = int(model.token_bytes * model.cache_tokens)
    name = name or model.name
    _tell(name, model.weight_bytes, f"cache {show.byte_count(cache)} ({model.cache_tokens} tokens)", model.context)
    return Served(name, model.tokenizer, model.context, model.engine, sampling=model.sampling)


def _encoder(model: Encoder, name: str | None) -> Served:
    from opweld.serve.openai.models import Served

    name = name or model.name
    makes = "scores pairs of texts" if model.scores else f"vectors of {model.dimensions} numbers"
    _tell(name, model.weight_bytes, makes, model.context)
    embedder, reranker = (None, model) if model.scores else (model, None)
    return Served(name, model.tokenizer, model.context, embedder=embedder, reranker=reranker)


def _tell(name: str, weights: int, more: str, context: int) -> None:
    _say(f"{name}: weights {show.byte_count(weights)}, {more}, context {context} tokens")


def _say(line: str) -> None:
    print(f"opweld: {line}", file=sys.stderr, flush=True)


def _say_of(part: Part, line: str) -> None:
    """What a server tells, with its name where it is one of several processes."""
    _say(line if part.count == 1 else f"{part.name}: {line}")


def _log(part: Part) -> None:
    """Requests, and faults with their tracebacks, go to standard error."""
    from opweld.serve.access import LineFormatter

    handler = logging.StreamHandler()
    handler.setFormatter(LineFormatter("" if part.count == 1 else part.name))
    log = logging.getLogger("opweld.serve")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
