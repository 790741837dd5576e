"""The page of `opweld serve` in a headless browser: somebody clicks through it."""

from __future__ import annotations

import re
import shutil
import struct
import zlib
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from opweld.serve.inference.model import TensorSpec
from opweld.serve.interface import Interface
from opweld.serve.limits import Keys, Limits
from opweld.serve.metrics import Metrics
from opweld.serve.open_inference.interface import OpenInference
from opweld.serve.openai.interface import openai_interface
from opweld.serve.openai.models import Models, Served
from opweld.serve.page.interface import page_interface
from opweld.serve.page.reports import Reports
from opweld.serve.server import Server
from tests.unit.serve.fakes import (
    CONTEXT,
    FAIL,
    STALL,
    FakeEmbedder,
    FakeEngine,
    FakeReranker,
    FakeTokenizer,
    eventually,
    listening,
)
from tests.unit.serve.tensor_models import DTYPES, FakeModel, FakeRepository, same

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chrome"))), None)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no browser: apt-get install -y --no-install-recommends chromium"),
]

HOSTILE = "<img src=x onerror=document.title='taken'>"
"""A name that would be markup, wherever it is not kept from it."""

IMAGES: dict[str, tuple[int | str, ...]] = {
    "planar": ("batch", 3, "height", "width"),
    "grey": (1, 5, 6, 1),
    "bytes": (1, 2, 2, 3),
}
"""Models that give back an image, by the shape that they take."""

PATIENCE = 60_000
"""Milliseconds that a browser may take on a busy machine."""


@pytest.fixture(scope="module")
def browser() -> Generator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        expect.set_options(timeout=PATIENCE)
        yield browser
        browser.close()


@dataclass
class Running:
    """A server with the fake models of texts and of tensors."""

    url: str
    engine: FakeEngine
    repository: FakeRepository


class Counted(Collector):
    """Counts what fake models did by the names of `serve/inference/metrics.py`; a call takes 2 ms, and one row."""

    def __init__(self, repository: FakeRepository) -> None:
        self._repository = repository

    def collect(self) -> Iterator[Metric]:
        by = ("model", "version")
        calls = CounterMetricFamily("opweld_model_calls", "", labels=(*by, "outcome"))
        running = GaugeMetricFamily("opweld_model_calls_running", "", labels=by)
        took = HistogramMetricFamily("opweld_model_call_seconds", "", labels=by)
        rows = HistogramMetricFamily("opweld_model_batch_rows", "", labels=by)
        for name, versions in self._repository.models.items():
            for version, model in versions.items():
                told = model.statistics
                for outcome, count in (("answered", told.calls), ("failed", told.failures), ("refused", told.refused)):
                    calls.add_metric((name, version, outcome), count)
                running.add_metric((name, version), told.running)
                for family, least, most in ((took, "0.001", "0.003"), (rows, "1.0", "2.0")):
                    ones = told.calls if family is rows else 0
                    family.add_metric(
                        (name, version), [(least, ones), (most, told.calls), ("+Inf", told.calls)], told.calls
                    )
        yield from (calls, running, took, rows)


def counted(repository: FakeRepository, limits: Limits, metrics: Metrics) -> Interface:
    metrics.registry.register(Counted(repository))
    return OpenInference(repository).interface(limits, metrics)


@contextmanager
def serving(keys: Sequence[str] = ()) -> Generator[Running]:
    engine, repository = FakeEngine(), FakeRepository()
    hostile = TensorSpec(HOSTILE, np.dtype(object), (HOSTILE,))
    repository.models[HOSTILE] = {"1": FakeModel(HOSTILE, [hostile], [hostile], dict)}
    for name, shape in IMAGES.items():
        repository.models[name] = {"1": same(name, np.uint8 if name == "bytes" else np.float32, shape)}
    language = Models(
        [
            Served("talker", FakeTokenizer(), CONTEXT, engine=engine),
            Served("embedder", FakeTokenizer(), 512, embedder=FakeEmbedder()),
            Served("ranker", FakeTokenizer(), 64, reranker=FakeReranker()),
        ]
    )
    interfaces = [
        partial(openai_interface, language),
        partial(counted, repository),
        partial(page_interface, repository, language, Reports()),
    ]
    server = Server([language, repository], interfaces, limits=Limits(drain=0.0), keys=Keys(keys))
    with listening(server) as (host, port, _):
        yield Running(f"http://{host}:{port}/", engine, repository)


@pytest.fixture(scope="module")
def running() -> Generator[Running]:
    with serving() as running:
        yield running


class Opened:
    """The page at a model, with what it asked for and complained of."""

    def __init__(self, browser: Browser, running: Running, model: str = "", width: int = 1300) -> None:
        self.page: Page = browser.new_page(viewport={"width": width, "height": 900})
        self.page.set_default_timeout(PATIENCE)
        self.complaints, self.requests = list[str](), list[str]()
        self.page.on(
            "console", lambda said: self.complaints.append(said.text) if said.type in ("error", "warning") else None
        )
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(f"{running.url}{'#/' if model else ''}{model}")

    def named(self, name: str) -> Locator:
        """A section by its name."""
        return self.page.get_by_role("region", name=name)


Open: TypeAlias = Callable[..., Opened]


@pytest.fixture
def at(browser: Browser, running: Running) -> Generator[Open]:
    """Opens pages, which complain of nothing and ask nobody else."""
    made: list[Opened] = []

    def at(model: str = "", width: int = 1300) -> Opened:
        made.append(Opened(browser, running, model, width))
        return made[-1]

    yield at
    for one in made:
        assert one.complaints == []
        assert [url for url in one.requests if not url.startswith(running.url)] == []
        one.page.close()


def test_models_are_listed_and_chosen(at: Open) -> None:
    shown = at()
    models = shown.page.get_by_role("navigation", name="Models")
    expect(models.get_by_role("listitem")).to_have_count(27)
    expect(shown.named("All models").get_by_role("row", name="same_BF16")).to_contain_text("x [n]")
    shown.page.get_by_label("Find a model").fill("sim")
    expect(models.get_by_role("listitem")).to_have_text(["simpletensors", "simple_stringtensors"])
    models.get_by_role("link", name="simple").first.click()
    expect(shown.page.get_by_role("heading", name="simple", exact=True)).to_be_visible()
    expect(shown.named("Inputs and outputs")).to_contain_text("[batch, 16]")
    expect(shown.page).to_have_title("simple · opweld")
    shown.page.get_by_label("Version").select_option("1")
    expect(shown.page).to_have_url(re.compile("#/simple/1$"))


def test_a_name_is_never_markup(at: Open) -> None:
    shown = at()
    shown.page.get_by_role("navigation", name="Models").get_by_role("link", name=HOSTILE).click()
    expect(shown.page.get_by_role("heading", name=HOSTILE)).to_be_visible()
    expect(shown.page).to_have_title(f"{HOSTILE} · opweld")
    shown.page.get_by_label("Text").fill(HOSTILE)
    expect(tried(shown).get_by_role("listitem")).to_have_text(HOSTILE)
    expect(shown.page).to_have_title(f"{HOSTILE} · opweld")
    assert shown.page.locator("img").count() == 0


def test_chat(at: Open, running: Running) -> None:
    shown = at("talker")
    talk = shown.page.get_by_role("log", name="Conversation")
    message = shown.page.get_by_label("Message")
    message.fill(f"{HOSTILE} {STALL} done")
    message.press("Enter")
    expect(talk).to_contain_text(f"Model{HOSTILE} ")  # a part, while the rest is not there
    running.engine.release()
    expect(talk).to_contain_text(f"Model{HOSTILE} {STALL} done")
    expect(shown.named("Chat").get_by_role("status")).to_contain_text("written")
    expect(shown.named("Live").get_by_text("Time to the first token")).to_be_visible()
    expect(message).to_be_empty()
    shown.page.get_by_role("button", name="New conversation").click()
    expect(talk).to_be_empty()
    message.fill(FAIL)
    shown.page.get_by_role("button", name="Send").click()
    expect(talk.get_by_role("alert")).to_contain_text("The server had an error")
    shown.complaints.clear()  # the browser's own words on the status


def test_texts_become_vectors_and_are_ranked(at: Open) -> None:
    shown = at("embedder")
    shown.page.get_by_label("Texts").fill("abc\nabd\nxyz")
    shown.page.get_by_role("button", name="Embed").click()
    expect(shown.named("Try it").get_by_role("row", name="abd")).to_contain_text("0.667")
    shown = at("ranker")
    shown.page.get_by_label("Query").fill("abc")
    shown.page.get_by_label("Texts").fill("xyz\nabc")
    shown.page.get_by_role("button", name="Rank").click()
    expect(shown.named("Try it").get_by_role("row").nth(1)).to_contain_text("abc")


def tried(shown: Opened) -> Locator:
    """Runs the model with what its form says: the answer, or the error."""
    shown.page.get_by_role("button", name="Run").click()
    return shown.named("Try it").get_by_role("status")


def test_a_model_is_tried_with_json(at: Open, running: Running) -> None:
    shown = at("simple")
    shown.page.get_by_label("batch").fill("2")
    for name, value in (("INPUT0", 40), ("INPUT1", 2)):
        field = shown.page.get_by_role("group", name=name)
        field.get_by_label("Values").select_option("JSON")
        field.get_by_label("JSON").fill(str([[value] * 15 + [value + 1]] * 2))
    answer = tried(shown)
    expect(answer).to_contain_text("OUTPUT0 int32 [2, 16]from 42 to 44")
    expect(answer).to_contain_text("OUTPUT1 int32 [2, 16]from 38 to 38")
    expect(answer.get_by_role("row", name="0 15 44")).to_be_visible()
    expect(answer.get_by_role("img", name="The values of OUTPUT0 as colours")).to_be_visible()
    assert running.repository.models["simple"]["3"].statistics.calls == 1


def test_what_does_not_fit_is_told_by_the_server(at: Open) -> None:
    shown = at("simple")
    field = shown.page.get_by_role("group", name="INPUT0")
    field.get_by_label("Values").select_option("JSON")
    field.get_by_label("JSON").fill("[[1, 2, 3]]")
    expect(tried(shown).get_by_role("alert")).to_contain_text("INPUT0 has shape [1, 3], the model takes [batch, 16]")
    shown.complaints.clear()  # the browser's own words on the status
    shown.page.get_by_label("batch").fill("1000000000")
    expect(tried(shown).get_by_role("alert")).to_contain_text("16 are more values than")
    shown.page.get_by_label("batch").fill("1")
    for text, words in (("[[1], [2, 3]]", "rows differ"), ("[1, ", "no JSON"), ("[[0.5]]", "a value is none of int32")):
        field.get_by_label("JSON").fill(text)
        expect(tried(shown).get_by_role("alert")).to_contain_text(words)


@pytest.mark.parametrize("dtype", [name for name in DTYPES if name not in ("BOOL", "BYTES")])
def test_numbers_of_every_type_come_back(at: Open, dtype: str) -> None:
    shown = at(f"same_{dtype}")
    is_float, signed = dtype[:2] in ("FP", "BF"), not dtype.startswith("U")
    given = [1.5, -0.375, 65504, 2**-24, 0] if is_float else [1, 127, 0] + [-128] * signed
    told = {"BF16": "1.5, -0.375, 65536, 5.9605e-8, 0"}.get(dtype, "1.5, -0.375, 65504, 5.9605e-8, 0")
    shown.page.get_by_label("Values").select_option("JSON")
    shown.page.get_by_label("JSON").fill(str(given))
    answer = tried(shown)
    answer.get_by_text("Values").click()
    expect(answer.locator("pre")).to_have_text(told if is_float else ", ".join(map(str, given)))


def test_texts_and_truths(at: Open) -> None:
    shown = at("same_BYTES")
    shown.page.get_by_label("n", exact=True).fill("2")
    shown.page.get_by_label("Text").fill(f"é {HOSTILE}\nb")
    expect(tried(shown).get_by_role("listitem")).to_have_text([f"é {HOSTILE}", "b"])
    shown = at("same_BOOL")
    shown.page.get_by_label("Values").select_option("JSON")
    shown.page.get_by_label("JSON").fill("[true, false]")
    answer = tried(shown)
    answer.get_by_text("Values").click()
    expect(answer.locator("pre")).to_have_text("true, false")


def test_random_numbers_are_the_same_for_a_seed(at: Open) -> None:
    shown = at("same_FP32")
    shown.page.get_by_label("n", exact=True).fill("200")
    found: list[str] = []
    for seed in ("1", "2", "1"):
        shown.page.get_by_label("Seed").fill(seed)
        answer = tried(shown)
        expect(answer).to_contain_text("Answered")
        found.append(answer.locator("pre").inner_text() or answer.locator("pre").text_content() or "")
        shown.page.get_by_role("navigation", name="Models").get_by_role("link", name="same_FP64").click()
        shown.page.get_by_role("navigation", name="Models").get_by_role("link", name="same_FP32").click()
        shown.page.get_by_label("n", exact=True).fill("200")
    assert found[0] == found[2] != found[1]


def test_an_image_is_scaled_and_laid_out(at: Open, tmp_path: Path) -> None:
    """Left half red, right half blue, as the models give it back."""
    file = tmp_path / "image.png"
    file.write_bytes(png([[(255, 0, 0)] * 2 + [(0, 0, 255)] * 2] * 4))

    def values(model: str, **choices: str) -> list[float]:
        shown = at(model)
        for label, size in (("height", "2"), ("width", "4")):
            if model == "planar":
                shown.page.get_by_label(label).fill(size)
        shown.page.get_by_label("Image", exact=True).set_input_files(file)
        for label, choice in {"Size": "stretched", **choices}.items():
            shown.page.get_by_label(label).select_option(choice)
        answer = tried(shown)
        expect(answer).to_contain_text("Answered")
        return [float(one) for one in (answer.locator("pre").text_content() or "").split(", ")]

    row = [1.0, 1.0, 0.0, 0.0]
    assert values("planar", Numbers="0 to 1") == [*row, *row, *[0.0] * 8, *row[::-1], *row[::-1]]
    assert values("planar", Numbers="0 to 1", Colours="blue, green, red")[:8] == [*row[::-1], *row[::-1]]
    assert values("planar", Numbers="ImageNet's mean and deviation")[0] == pytest.approx((1 - 0.485) / 0.229, rel=1e-4)
    assert values("grey", Numbers="0 to 1")[0] == pytest.approx(0.299, rel=1e-4)
    assert values("bytes") == [255, 0, 0, 0, 0, 255] * 2


def png(pixels: Sequence[Sequence[tuple[int, int, int]]]) -> bytes:
    """An image file of rows of red, green and blue."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", len(pixels[0]), len(pixels), 8, 2, 0, 0, 0)
    rows = b"".join(b"\0" + bytes(value for pixel in row for value in pixel) for row in pixels)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def test_what_a_model_does_is_shown_as_it_does_it(at: Open, running: Running) -> None:
    shown = at("any_rank")
    live = shown.named("Live")

    def tile(label: str) -> Locator:
        return live.locator(".tile", has_text=label).locator(".value")

    expect(tile("refused")).to_have_text("0")
    expect(live.get_by_role("img", name="Latency")).to_have_count(0)
    expect(tried(shown)).to_contain_text("Answered")
    expect(live.get_by_role("img", name="Latency")).to_have_attribute(
        "aria-label", re.compile("^Latency (in the last minute|since it was loaded): up to 1 ms: 0, up to 3 ms: 1")
    )
    expect(tile("p50")).to_have_text("2 ms")
    expect(tile("rows a run")).to_have_text("1")
    model = running.repository.models["any_rank"]["1"]
    model.most = 0
    expect(tried(shown).get_by_role("alert")).to_contain_text("0 calls wait for any_rank already")
    expect(tile("refused")).to_have_text("1")
    model.most, model.held = 1000, True
    shown.page.get_by_role("button", name="Run").click()
    expect(tile("running")).to_have_text("1")
    shown.page.get_by_role("button", name="Stop").click()
    expect(tile("running")).to_have_text("0")
    expect(shown.named("Try it").get_by_role("status")).to_be_empty()
    model.held = False
    assert model.gone == 1
    shown.complaints.clear()  # the browser's own words on the status


def test_a_model_is_unloaded_and_loaded(at: Open) -> None:
    shown = at("asleep")
    shown.page.get_by_role("button", name="Load", exact=True).click()
    expect(shown.named("Inputs and outputs")).to_contain_text("[n]")
    link = shown.page.get_by_role("navigation", name="Models").get_by_role("link", name="asleep")
    expect(link).to_contain_text("tensors")
    shown.page.get_by_role("button", name="Unload").click()
    expect(link).to_contain_text("unavailable")
    expect(shown.page.get_by_role("alert")).to_contain_text("unloaded")


def test_requests_are_counted_by_their_status(at: Open) -> None:
    shown = at()
    shown.page.evaluate("fetch('/v1/models/none')")
    expect(shown.named("Requests").get_by_role("row", name="/v1/models/{name:path}")).to_contain_text("404")
    eventually(lambda: bool(shown.complaints))
    shown.complaints.clear()


@pytest.mark.parametrize("model", ["", "simple", "talker", "embedder"])
def test_nothing_is_wider_than_a_phone(at: Open, model: str) -> None:
    shown = at(model, width=360)
    expect(shown.page.locator("main section").first).to_be_visible()
    if not model:
        shown.page.evaluate("fetch('/v2/repository/index', { method: 'POST' })")
        expect(shown.named("Requests").get_by_role("row", name="/v2/repository/index")).to_be_visible()
    assert shown.page.evaluate("document.documentElement.scrollWidth") <= 360


def test_a_key_is_asked_for_and_stays_in_the_tab(browser: Browser) -> None:
    with serving(["right"]) as running:
        shown = Opened(browser, running, "talker")
        dialog = shown.page.get_by_role("dialog")
        dialog.get_by_label("Key").fill("wrong")
        dialog.get_by_role("button").click()
        expect(dialog.get_by_role("alert")).to_contain_text("does not know that key")
        dialog.get_by_label("Key").fill("right")
        dialog.get_by_label("Key").press("Enter")
        expect(shown.page.get_by_role("heading", name="talker")).to_be_visible()
        assert shown.page.evaluate("[sessionStorage.length, localStorage.length, document.cookie]") == [1, 0, ""]
        assert not any("right" in url for url in [*shown.requests, shown.page.url])
        shown.page.get_by_role("button", name="Forget key").click()
        expect(dialog).to_be_visible()
        shown.page.close()
