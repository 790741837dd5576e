"""The page of `opweld serve` in a headless browser: somebody clicks through it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np
import pytest
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

from opweld.serve.limits import Keys, Limits
from opweld.serve.models import Models, Served
from opweld.serve.openai.interface import openai_interface
from opweld.serve.page.interface import page_interface
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
from tests.unit.serve.tensor_models import FakeRepository, same

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chrome"))), None)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no browser: apt-get install -y --no-install-recommends chromium"),
]

HOSTILE = "<img src=x onerror=document.title='taken'>"
"""A name that would be markup, wherever it is not kept from it."""

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


@contextmanager
def serving(keys: Sequence[str] = ()) -> Generator[Running]:
    engine, repository = FakeEngine(), FakeRepository()
    repository.models[HOSTILE] = {"1": same(HOSTILE, np.float32)}
    language = Models(
        [
            Served("talker", FakeTokenizer(), CONTEXT, engine=engine),
            Served("embedder", FakeTokenizer(), 512, embedder=FakeEmbedder()),
            Served("ranker", FakeTokenizer(), 64, reranker=FakeReranker()),
        ]
    )
    interfaces = [
        partial(openai_interface, language),
        partial(page_interface, repository, language),
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
    expect(models.get_by_role("listitem")).to_have_count(24)
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
