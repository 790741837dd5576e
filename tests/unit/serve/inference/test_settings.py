"""opweld.toml."""

from __future__ import annotations

from pathlib import Path

import pytest

from opweld.errors import OptionError
from opweld.serve.inference.settings import Padding, Settings, chosen, read_settings

USUAL = Settings(threads=2)


def read(folder: Path, text: str) -> Settings:
    file = folder / "opweld.toml"
    file.write_text(text, encoding="utf-8")
    return read_settings(file, USUAL)


def test_all_of_them(tmp_path: Path) -> None:
    text = """
        versions = {latest = 2}
        max_batch = 8
        target_ms = 20
        queue = 0
        pad = {dim = "seq", values = {input_ids = 1, attention_mask = 0}}
    """
    pad = Padding("seq", {"input_ids": 1, "attention_mask": 0})
    assert read(tmp_path, text) == Settings(2, 8, 0.02, 0, threads=2, pad=pad)
    assert read(tmp_path, "") == USUAL


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("max_bach = 1", "'max_bach' is no setting; there are versions, max_batch,"),
        ("max_batch = 0", "max_batch is 0, expected a whole number of rows, at least 1"),
        ("max_batch = true", "max_batch is True, expected"),
        ("target_ms = inf", "target_ms is inf, expected milliseconds, more than 0"),
        ("versions = []", r'versions is \[\], expected "all", {latest = 2} or \["1", "3"\]'),
        ('versions = ["01"]', "versions is"),
        ("versions = {latest = 0}", "versions is"),
        ("pad = {dim = 'seq'}", "pad is"),
        ("pad = {dim = 'seq', values = {x = 'a'}}", "pad is .*expected values that are a number"),
        ("max_batch", "cannot read settings"),
    ],
)
def test_what_is_wrong(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=f"opweld.toml: {words}"):
        read(tmp_path, text)


def test_versions_that_are_served() -> None:
    every = ["10", "2", "1"]
    assert chosen(every, 1) == ["10"] and chosen(every, 2) == ["2", "10"]
    assert chosen(every, "all") == ["1", "2", "10"] and chosen(every, ("1", "3")) == ["1"]
