from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

import opweld
from opweld.analysis.sources import kernel_sources
from opweld.report.document import Document, times_of
from opweld.report.page import MODULES, page
from tests.report.documents import HOSTILE, bare, document, document_of, held
from tests.schemas import faults

REPORT = Path(opweld.__file__).parent / "report"


class Elements(HTMLParser):
    """The elements of a page: their tags, attributes and texts."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, dict[str, str | None], str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs), ""))

    def handle_data(self, data: str) -> None:
        if self.found:
            tag, attributes, text = self.found[-1]
            self.found[-1] = (tag, attributes, text + data)


def elements(text: str) -> list[tuple[str, dict[str, str | None], str]]:
    parser = Elements()
    parser.feed(text)
    return parser.found


def test_the_documents_of_these_tests_are_as_the_schema_says() -> None:
    assert faults("explain", document()["account"]) == []


@pytest.mark.parametrize("name", ["x", HOSTILE, "a\u2028b", "\ud800", "schön"])
def test_the_document_comes_back_from_the_page(name: str) -> None:
    given = document(title=name.encode("utf-8", "replace").decode(), notes=[name])
    assert document_of(page(given)) == given


def test_names_of_a_model_are_never_markup() -> None:
    text = page(document(title=HOSTILE, model=HOSTILE))
    tags = [tag for tag, _, _ in elements(text)]
    assert set(tags) == {"html", "head", "meta", "title", "style", "body", "p", "script"}


def test_libraries_come_back_as_they_are_vendored() -> None:
    for name, file in (("echarts", "echarts.min.js"), ("viz", "viz-global.js")):
        assert held(page(bare()), name) == (REPORT / "vendor" / file).read_text(encoding="utf-8")


def test_what_repeats_takes_little_room() -> None:
    few, many = (len(page(document(layers))) for layers in (2, 200))
    grown = len(json.dumps(document(200))) - len(json.dumps(document(2)))
    assert many - few < grown / 5
    assert (
        few < sum(len((REPORT / "vendor" / name).read_bytes()) for name in ("echarts.min.js", "viz-global.js")) * 0.55
    )


def test_numbers_that_json_has_not_are_refused() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        page(document(notes=[float("inf")]))


def test_nothing_is_asked_of_a_network() -> None:
    text = page(document())
    for tag, attributes, _ in elements(text):
        assert not {"src", "href"} & set(attributes), tag
    (policy,) = (a["content"] for _, a, _ in elements(text) if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None and policy.startswith("default-src 'none';")
    assert "http" not in policy and "unsafe-eval" not in policy.replace("wasm-unsafe-eval", "")


def test_the_policy_names_the_scripts_that_run() -> None:
    text = page(bare())
    (policy,) = (a["content"] or "" for _, a, _ in elements(text) if a.get("http-equiv"))
    plain: list[str] = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    assert len(plain) == 1
    assert hashed(plain[0].encode()) in policy


def hashed(data: bytes) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(data).digest()).decode()}'"


def test_all_of_the_page_s_own_code_is_in_it() -> None:
    files = {path.stem for path in (REPORT / "static").glob("*.js")}
    assert files == {*MODULES, "layout-worker"}


def test_the_page_s_code_makes_no_markup_of_texts() -> None:
    for path in (REPORT / "static").glob("*.js"):
        code = path.read_text(encoding="utf-8")
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
            assert word not in code, f"{path.name}: {word}"


def test_vendored_files_are_those_that_are_listed() -> None:
    folder = REPORT / "vendor"
    listed: set[str] = {"vendored.json"}
    for library in json.loads((folder / "vendored.json").read_text(encoding="utf-8")):
        assert library["integrity"].startswith("sha512-") and library["version"] in library["origin"]
        for name, file in library["files"].items():
            assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == file["sha256"], name
        listed |= {*library["files"], *library["licences"]}
    assert {path.name for path in folder.iterdir()} == listed


def test_a_document_holds_what_the_page_takes() -> None:
    shown = Document("a", "a.onnx", "0.1.0", "x86-64-v3", account=document()["account"])
    assert shown.to_json().keys() == document().keys()
    assert "Content-Security-Policy" in page(shown.to_json())


def test_sources_are_found_by_variant_and_kernel(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "kernels_0.c").write_text(
        '#include "opweld_kernel.h"\n\n'
        "// k1_map  (a)\n// grid: n\nvoid opw_k1_a(void *const *buffers) {\n    return;\n}\n\n"
        "// k2_map  (b)\nvoid opw_k2_b(void *const *buffers) {\n}\n"
    )
    (tmp_path / "source" / "module.c").write_text(
        'static const opw_step v0_steps[] = {\n    {opw_k1_a, 0, "k1_map", "a"},\n'
        '    {opw_k2_b, 0, "k2_map", "b"},\n};\n'
        'static const opw_step v1_steps[] = {\n    {opw_k1_a, 0, "k1_map", "c"},\n};\n'
        'static const opw_variant variants[] = {\n    {"first", 2, v0_bind, 2, v0_steps},\n'
        '    {"second", 1, v1_steps},\n};\n'
    )
    found = kernel_sources(tmp_path)
    assert list(found) == ["first/k1_map", "first/k2_map", "second/k1_map"]
    assert found["first/k1_map"] == found["second/k1_map"]
    assert found["first/k1_map"].startswith("// k1_map  (a)\n// grid: n\nvoid opw_k1_a(")
    assert found["first/k2_map"].endswith("}\n")


def test_an_artifact_without_sources_has_none(tmp_path: Path) -> None:
    assert kernel_sources(tmp_path) == {}


def test_the_times_of_a_report_add_up() -> None:
    """What is predicted of a model is the sum of what is shown of its kernels, and waiting is a part of a run."""
    shown = document(3)
    for kernel in shown["profile"]["kernels"]:
        kernel["predicted_seconds"] = 17.0  # on one core: no part of a sum over threads
    shown["analysis"]["kernels"][0]["predicted"]["threads"] = 2
    times = times_of(shown["account"], shown["analysis"], shown["profile"])
    assert times["predicted"]["all"] == pytest.approx(sum(took for *_, took in times["predicted"]["kernels"]))
    assert {took for *_, took in times["predicted"]["kernels"]} == {
        kernel["predicted"]["seconds"] for kernel in shown["analysis"]["kernels"]
    }
    assert times["predicted"]["threads"] == 2
    measured = times["measured"]
    assert measured["run"] == shown["profile"]["timed"]["median"]
    parts = sum(took for *_, took in measured["kernels"]) + sum(measured["idle"].values())
    assert parts == pytest.approx(measured["run"])
    assert measured["idle"]["between"] == shown["profile"]["idle"]["between"]


def test_what_was_not_run_has_predicted_times_alone() -> None:
    shown = bare()
    assert shown["times"]["measured"] is None and shown["times"]["predicted"]["threads"] == 1
    assert shown["times"]["predicted"]["all"] == pytest.approx(
        sum(kernel["seconds"] for kernel in shown["account"]["kernels"])
    )


def test_a_report_of_a_busy_machine_says_so_first() -> None:
    given = document()
    given["profile"]["disturbance"] |= {"busy": True, "warning": "this machine is too busy"}
    shown = Document("a", "a.onnx", "1", "t", account=given["account"], profile=given["profile"], notes=("other",))
    assert shown.to_json()["notes"] == ["this machine is too busy", "other"]
    quiet = Document("a", "a.onnx", "1", "t", account=given["account"], profile=document()["profile"])
    assert quiet.to_json()["notes"] == []
