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

    def until(self, expression: str, argument: Any = None) -> None:
        """Waits for something to be true; the page's policy forbids what playwright would do for it."""
        for _ in range(PATIENCE // 50):
            if self.ask(expression, argument):
                return
            self.page.wait_for_timeout(50)
        raise TimeoutError(expression)

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


def opened(browser: Browser, folder: Path, given: dict[str, Any], width: int = 1500, **settings: Any) -> Opened:
    file = folder / "report.html"
    file.write_text(page_of(given), encoding="utf-8")
    return Opened(browser.new_page(viewport={"width": width, "height": 950}, **settings), file)


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
    working = shown.ask("report.model.kernels.filter((kernel) => kernel.flops > 0).length")
    assert shown.ask(series.format("roofline", "kernels")) == working
    assert shown.ask(series.format("timeline", "parts")) == 2 * kernels
    assert shown.ask(series.format("memory", "buffers")) == kernels
    assert shown.ask(series.format("numerics", "error")) == kernels
    assert shown.ask("report.charts.roofline.getOption().series.length") == 7  # four levels, the peak, kernels, movers
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
      const chart = report.charts.roofline, series = chart.getOption().series.length - 2;
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


@pytest.fixture(scope="module")
def large(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Opened:
    return opened(browser, tmp_path_factory.mktemp("large"), document(LARGE))


def test_a_graph_too_small_for_text_has_names_beside_its_boxes(large: Opened) -> None:
    large.page.locator(".graph-pane.before button[title='Show all']").click()
    large.until("Boolean(report.graphs.before.labels)")
    labels = large.ask("report.graphs.before.labels.placed")
    assert len(labels) > 20
    words = large.ask("report.model.nodes.map((node) => node.operator)") + large.ask(
        "report.model.kernels.map((kernel) => kernel.name.split('_')[0])"
    )
    assert all(label["text"].split()[0] in words for label in labels)
    for i, one in enumerate(labels):
        for other in labels[i + 1 :]:
            apart = abs(one["y"] - other["y"]) >= 12, one["x"] >= other["x"] + other["width"]
            assert any(apart) or other["x"] >= one["x"] + one["width"], (one, other)


def test_kernels_beside_each_other_differ_in_colour(shown: Opened) -> None:
    pairs = shown.ask("report.graphs.after.drawing.edges.map((edge) => [edge.from, edge.to])")
    hues = shown.ask("report.graphs.after.items.map((kernel) => kernel.hue)")
    for a, b in pairs:
        apart = abs(hues[a] - hues[b])
        assert min(apart, 360 - apart) >= 60
    words = shown.page.locator("#graph .legend").inner_text()
    assert ("One colour a kernel" in words) == (len(set(hues)) == len(hues))


def without_flops() -> dict[str, Any]:
    """A document whose second kernel of each layer computes nothing in floating point."""
    given = document(4)
    for part in (given["account"], given["analysis"], given["profile"]):
        for kernel in part["kernels"]:
            if kernel["name"].endswith("_rows"):
                kernel["flops"] = {"value": 0, "formula": "0"} if isinstance(kernel["flops"], dict) else 0
    return given


def test_kernels_without_flops_have_a_strip_of_their_own(browser: Browser, tmp_path: Path) -> None:
    page = opened(browser, tmp_path, without_flops())
    points = "report.charts.roofline.getOption().series.find((one) => one.name === '{}').data.map((one) => one.value)"
    assert len(page.ask(points.format("kernels"))) == len(page.ask(points.format("moving"))) == 4
    assert all(intensity > 0 for intensity, _ in page.ask(points.format("kernels")))
    assert page.ask("report.charts.roofline.getOption().xAxis[1].name").startswith("4 kernels without")
    assert page.complaints == []


def test_roofs_are_named_where_nothing_overlaps(shown: Opened) -> None:
    names = shown.page.locator("#roofline .legend").nth(1).locator("span").all_inner_texts()
    assert [name.split()[0] for name in names] == ["L1", "L2", "L3", "DRAM", "float32"]


@pytest.mark.parametrize("width", [420, 900, 1400])
def test_nothing_is_wider_than_the_window_and_sections_are_reached(
    browser: Browser, tmp_path: Path, width: int
) -> None:
    page = opened(browser, tmp_path, document(8), width)
    assert page.ask("document.documentElement.scrollWidth") <= width
    page.page.locator("nav a", has_text="Decisions").click()
    page.until("document.querySelector('#ledger').getBoundingClientRect().top < innerHeight / 2")
    header = page.ask("document.querySelector('.top').getBoundingClientRect().bottom")
    assert page.ask("document.querySelector('#ledger h2').getBoundingClientRect().top") >= header


def test_the_table_of_kernels_is_whole_in_1400_pixels(browser: Browser, tmp_path: Path) -> None:
    given = document(12)
    for kernel in given["profile"]["kernels"]:
        kernel["bound"] = {**kernel["bound"], "kind": "latency", "level": "", "cause": "too little work"}
    page = opened(browser, tmp_path, given, 1400)
    beyond = "(one) => one.scrollWidth - one.clientWidth"
    assert page.page.locator("#kernels .scroll").evaluate(beyond) == 0
    assert "too little work" in page.page.locator("#kernel-table tbody tr").first.inner_text()


def test_what_is_counted_in_decisions_has_a_heading(shown: Opened) -> None:
    heading = shown.page.locator("#ledger .heading")
    assert "bytes" in heading.inner_text()
    columns = heading.locator(".cost").count()
    assert shown.page.locator("#ledger .miss summary").first.locator(".cost").count() == columns
