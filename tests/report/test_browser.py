"""The page in a headless browser: it loads, draws, and answers clicks, for a small and a large model."""

from __future__ import annotations

import shutil
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from opweld.report.page import page as page_of
from tests.report.documents import HOSTILE, LARGE, bare, contraction, document, name_of

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chrome"))), None)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no browser: apt-get install -y --no-install-recommends chromium"),
]

PATIENCE = 60_000
"""Milliseconds that a layout may take on a busy machine."""


@pytest.fixture(scope="module")
def browser() -> Generator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


class Opened:
    """A page that is open, with what it asked for and complained of."""

    def __init__(self, page: Page, file: Path) -> None:
        self.page, self.complaints, self.requests = page, list[str](), list[str]()
        page.on(
            "console", lambda said: self.complaints.append(said.text) if said.type in ("error", "warning") else None
        )
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))
        page.goto(file.as_uri())
        page.locator(".graph-view[data-boxes]").nth(1).wait_for(timeout=PATIENCE)

    def ask(self, expression: str, argument: Any = None) -> Any:
        return self.page.evaluate(expression, argument)

    def panel(self) -> str:
        return self.page.locator("#panel").inner_text()

    def click(self, graph: str, index: int) -> None:
        """Clicks an item of the graph before or after."""
        canvas = self.page.locator(f".graph-pane.{graph} canvas")
        canvas.scroll_into_view_if_needed()
        box = canvas.bounding_box()
        assert box is not None
        x, y = self.ask("([graph, index]) => report.graphs[graph].position(index)", [graph, index])
        self.page.mouse.click(box["x"] + x, box["y"] + y)


def opened(browser: Browser, folder: Path, given: dict[str, Any], **settings: Any) -> Opened:
    file = folder / "report.html"
    file.write_text(page_of(given), encoding="utf-8")
    return Opened(browser.new_page(viewport={"width": 1500, "height": 950}, **settings), file)


@pytest.fixture(scope="module", params=[2, LARGE], ids=["small", "large"])
def shown(request: pytest.FixtureRequest, browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Opened:
    return opened(browser, tmp_path_factory.mktemp("report"), document(request.param))


def test_it_loads_without_complaint_and_without_a_network(shown: Opened) -> None:
    assert shown.complaints == []
    assert [url for url in shown.requests if not url.startswith(("file:", "blob:"))] == []
    assert len([url for url in shown.requests if url.startswith("file:")]) == 1


def test_plots_have_all_their_points(shown: Opened) -> None:
    kernels = shown.ask("report.model.kernels.length")
    series = "report.charts.{}.getOption().series.find((one) => one.name === '{}').data.length"
    assert shown.ask(series.format("roofline", "kernels")) == kernels
    assert shown.ask(series.format("timeline", "parts")) == 2 * kernels
    assert shown.ask(series.format("memory", "buffers")) == kernels
    assert shown.ask(series.format("numerics", "error")) == kernels
    assert shown.ask("report.charts.roofline.getOption().series.length") == 6  # four levels, the peak, the kernels
    assert shown.page.locator("#kernel-table tbody tr").count() == kernels


def test_both_graphs_are_laid_out(shown: Opened) -> None:
    nodes, kernels = (shown.ask(f"report.model.{items}.length") for items in ("nodes", "kernels"))
    boxes = shown.page.locator(".graph-view")
    assert boxes.nth(0).get_attribute("data-boxes") == str(nodes if nodes < 400 else nodes * 5 // 6)
    assert boxes.nth(1).get_attribute("data-boxes") == str(kernels)
    assert shown.ask("report.graphs.after.drawing.edges.length") == kernels - 1


def test_a_click_on_a_kernel_tells_all_of_it(shown: Opened) -> None:
    shown.click("after", 0)
    text = shown.panel()
    assert contraction(0) in text and "compute-bound" in text and "measured" in text
    assert "contraction lane=i1" in text and "fuse.epilogue" in text and "void k_0" in text
    assert HOSTILE in text


def test_a_click_on_a_node_tells_where_it_went(shown: Opened) -> None:
    index = shown.ask(
        "(name) => report.graphs.before.items.findIndex((node) => node.name === name)", name_of(1, "MatMul")
    )
    shown.click("before", index)
    text = shown.panel()
    assert name_of(1, "MatMul") in text and "computed in kernels with other nodes" in text
    assert contraction(1) in text and "model.py:11" in text


def test_a_click_on_a_point_of_the_roofline_chooses_its_kernel(shown: Opened) -> None:
    plot = shown.page.locator("#plot-roofline")
    plot.scroll_into_view_if_needed()
    shown.page.wait_for_timeout(300)
    box = plot.bounding_box()
    assert box is not None
    place = """() => {
      const chart = report.charts.roofline, series = chart.getOption().series.length - 1;
      return chart.convertToPixel({ seriesIndex: series }, chart.getOption().series[series].data[1].value);
    }"""
    x, y = shown.ask(place)
    shown.page.mouse.click(box["x"] + x, box["y"] + y)
    assert "k2_rows" in shown.panel()


def test_the_table_sorts_and_chooses(shown: Opened) -> None:
    shown.page.locator("#kernel-table th button", has_text="phase").click()
    last = shown.ask("report.model.kernels.length - 1")
    assert shown.page.locator("#kernel-table tbody tr").first.locator("td").nth(2).inner_text() == str(last)
    shown.page.locator("#kernel-table tbody tr").first.click()
    assert f"k{last + 1}_rows" in shown.panel()


def test_the_theme_is_switched(shown: Opened) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    before = shown.ask(ground)
    shown.page.locator("#theme").click()
    assert shown.ask(ground) != before
    shown.page.locator("#theme").click()
    assert shown.ask(ground) == before
    assert shown.complaints == []


def test_search_finds_a_node_and_its_name_stays_text(shown: Opened) -> None:
    shown.page.locator("#search").fill("onerror")
    shown.page.locator(".found button").first.click()
    assert HOSTILE in shown.panel()
    assert shown.page.locator("img").count() == 0
    assert shown.page.title() == "layers · opweld"


def test_what_the_system_prefers_is_the_theme(browser: Browser, tmp_path: Path) -> None:
    dark = opened(browser, tmp_path, document(), color_scheme="dark")
    assert dark.ask("getComputedStyle(document.documentElement).colorScheme") == "dark"


def test_what_is_missing_is_said(browser: Browser, tmp_path: Path) -> None:
    page = opened(browser, tmp_path, bare())
    assert page.complaints == []
    text = page.page.locator("main").inner_text()
    for words in ("No timeline", "No memory", "No roofs", "Not compared", "an artifact holds no graph"):
        assert words in text
    page.click("after", 0)
    assert "Not measured" in page.panel() and "opweld machine" in page.panel()


def test_a_model_without_kernels_is_shown(browser: Browser, tmp_path: Path) -> None:
    empty = bare(0)
    empty["account"]["near_misses"] = []
    file = tmp_path / "report.html"
    file.write_text(page_of(empty), encoding="utf-8")
    page = browser.new_page()
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(file.as_uri())
    page.locator(".graph-message", has_text="nothing to draw").first.wait_for()
    assert complaints == []


def test_sizes_that_were_not_bound_have_no_arena(browser: Browser, tmp_path: Path) -> None:
    given = document()
    given["analysis"]["memory"]["arena"] = None
    page = opened(browser, tmp_path, given)
    assert page.complaints == []
    assert "largest live set" in page.page.locator("#memory").inner_text()
