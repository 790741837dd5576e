"""The pictures of docs/guides/see.md: a report of a model of the zoo, seen in a browser.

    python -m benchmarks.pictures                      PP-OCRv4's detector, into docs/pictures
    python -m benchmarks.pictures minilm --folder DIR  another model, elsewhere

Needs a chromium (apt install chromium) and a machine that is quiet while it runs.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from playwright.sync_api import Page, sync_playwright

from benchmarks.zoo import fetch, inputs

WIDTH, HEIGHT = 1400, 900
DARK = ("timeline", "ledger")
NAMES = {"ledger": "decisions"}
SECTIONS = ("summary", "graph", "roofline", "timeline", "memory", "ledger")


def report(model: str, folder: Path) -> Path:
    """The report of a model on its first example, beside ONNX Runtime."""
    page, command = folder / "report.html", [sys.executable, "-m", "opweld.cli.main", "report", str(fetch.path(model))]
    feeds: Any = inputs.example(model)
    for number, (name, array) in enumerate(feeds.items()):
        np.save(folder / f"{number}.npy", array)
        command += ["--input", f"{name}={folder / f'{number}.npy'}"]
    subprocess.run([*command, "-o", str(page), "--vs", "onnxruntime"], check=True, timeout=600)
    return page


def picture(page: Page, section: str, file: Path) -> None:
    """Saves what a reader sees who goes to a section; of the graph, with the most expensive kernel selected."""
    if section == "graph":
        page.click('nav a[href="#summary"]')
        page.locator("#summary a, #summary button").filter(has_text="_contraction").first.click()
    page.click(f'nav a[href="#{section}"]')
    page.wait_for_timeout(1500)
    page.screenshot(path=file)


def main() -> None:
    """Writes a picture for each section."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="ppocrv4-det", help="of the zoo")
    parser.add_argument("--folder", type=Path, default=Path(__file__).parents[1] / "docs" / "pictures")
    arguments = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        raise SystemExit("no browser: apt install chromium")
    arguments.folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as folder, sync_playwright() as playwright:
        file = report(arguments.model, Path(folder))
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for section in SECTIONS:
            scheme = "dark" if section in DARK else "light"
            page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme=scheme)
            page.goto(file.as_uri())
            page.locator(".graph-view[data-boxes]").nth(1).wait_for(timeout=60_000)
            target = arguments.folder / f"{NAMES.get(section, section)}.png"
            picture(page, section, target)
            page.close()
            print(target)
        browser.close()


if __name__ == "__main__":
    main()
