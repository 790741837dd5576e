from __future__ import annotations

import io
import json
import logging
import re
from pathlib import Path

import pytest

from opweld.cli import show
from opweld.errors import OptionError
from opweld.table import Column, of_names


def test_tables_on_a_pipe_are_plain_and_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    show.table("title", (of_names("name"), Column("ms")), [("a", "1.0"), ("long name", "12.5")], ["a note"])
    assert capsys.readouterr().out.splitlines() == [
        "title",
        "name         ms",
        "---------  ----",
        "a           1.0",
        "long name  12.5",
        "a note",
    ]


def test_tables_on_a_terminal_take_names_as_they_are(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "24")
    columns = (of_names("name"), Column("ms"), Column("p90", 1), Column("best", 2))
    show.table("", columns, [("[bold]x[/bold]", "1.0", "0.125", "0.25")], ["a note of some length"])
    assert capsys.readouterr().out.splitlines() == [
        "name             ms",
        "--------------  ---",
        "[bold]x[/bold]  1.0",
        "a note of some length",
        "not shown at this width:",
        "  p90, best; --json has",
        "  all",
    ]


def test_progress_on_a_pipe_is_a_line_at_times(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(show, "LINE_S", 0.01)
    said = ""
    with show.progress() as tell:
        assert tell is not None
        tell("fusing", 2, 7)
        while said.count("\n") < 2:
            said += capsys.readouterr().err
        tell("waiting for process 4711", 0, 0)
        while "waiting" not in said:
            said += capsys.readouterr().err
    for line in said.splitlines():
        assert re.fullmatch(r"opweld: (fusing, 2 of 7|waiting for process 4711) \(\d+ s\)", line)


def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Standard error as a terminal of 40 columns."""
    shown = io.StringIO()
    shown.isatty = lambda: True
    monkeypatch.setattr("sys.stderr", shown)
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")
    return shown


def test_a_bar_has_words_from_the_beginning_and_a_count_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = terminal(monkeypatch)
    with show.progress():
        pass
    assert "starting" in shown.getvalue()
    with show.progress() as tell:
        assert tell is not None
        tell("looking", 0, 0)
    assert "looking" in shown.getvalue()
    assert "0/" not in shown.getvalue()
    with show.progress() as tell:
        assert tell is not None
        tell("fusing", 2, 7)
    assert "2/7" in shown.getvalue()


def test_what_was_fed_is_broken_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = terminal(monkeypatch)
    logging.getLogger("opweld.fed").info("fed: prefix 1x64 of random int64, memory 1x64x256 of random float32")
    assert shown.getvalue().splitlines() == [
        "fed: prefix 1x64 of random int64, memory",
        "  1x64x256 of random float32",
    ]


def test_what_takes_no_time_says_nothing_on_a_pipe(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(show, "LINE_S", 1000.0)
    with show.progress() as tell:
        assert tell is not None
        tell("fusing", 2, 7)
    assert capsys.readouterr() == ("", "")


def test_who_is_quiet_shows_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    with show.quiet(), show.progress() as tell:
        assert tell is None


def test_json_goes_to_a_file_or_to_stdout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show.write_json({"a": [1]}, tmp_path / "a.json")
    assert json.loads((tmp_path / "a.json").read_text()) == {"a": [1]}
    show.write_json([2], Path("-"))
    assert json.loads(capsys.readouterr().out) == [2]
    with pytest.raises(OptionError, match="cannot write there"):
        show.write_json([], tmp_path / "no" / "a.json")


@pytest.mark.parametrize(("seconds", "text"), [(62.3e-6, "0.062"), (6.2134e-3, "6.21"), (81.26e-3, "81.3")])
def test_milliseconds_have_three_digits(seconds: float, text: str) -> None:
    assert show.milliseconds(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(None, "-"), (0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (3 << 20, "3.0 MiB"), (5 << 40, "5120.0 GiB")],
)
def test_byte_counts(count: int | None, text: str) -> None:
    assert show.byte_count(count) == text
