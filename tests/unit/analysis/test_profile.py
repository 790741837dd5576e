"""Many runs put together: what is divided adds up, whatever it is divided among."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from opweld.account.account import Account
from opweld.analysis.bound import Bound
from opweld.analysis.profile import Judgement, ModelProfile, model_profile
from opweld.analysis.profile_data import COLUMNS, profile_json, profile_rows
from opweld.analysis.profile_text import SORTS, kernel_text, kernels_called, summary_text, table_rows
from opweld.errors import OptionError
from opweld.ledger import Ledger
from opweld.record import Record
from opweld.schedules_file import SchedulesFile
from tests.schemas import faults
from tests.unit.analysis.sampled import ACCOUNT, samples

NS = 1e-9


@pytest.fixture(scope="module")
def profile() -> ModelProfile:
    return model_profile(samples(), ACCOUNT)


def test_a_phase_is_divided_by_what_threads_were_busy_with(profile: ModelProfile) -> None:
    contraction, of_map, rows, halo = profile.kernels
    # The phase lasts from 100 to 1000; 1280 of 1600 busy nanoseconds are the contraction's.
    assert contraction.seconds.median == pytest.approx(900 * 1280 / 1600 * NS)
    assert of_map.seconds.median == pytest.approx(900 * 320 / 1600 * NS)
    assert rows.seconds.median == pytest.approx(500 * NS)
    assert (contraction.wall, contraction.busy, contraction.threads) == (
        pytest.approx(900 * NS), pytest.approx(1280 * NS), 2,
    )  # fmt: skip
    assert contraction.waiting + of_map.waiting == pytest.approx((2 * 900 - 1600) * NS)
    assert (rows.waiting, rows.threads) == (0, 1)
    assert (halo.seconds.median, halo.threads, halo.flops_per_s) == (0, 0, 0)


def test_kernels_and_what_is_idle_add_up_to_a_run(profile: ModelProfile) -> None:
    idle = profile.idle
    assert (idle.before, idle.between, idle.after) == pytest.approx((100 * NS, 200 * NS, 100 * NS))
    assert idle.call == pytest.approx(200 * NS)
    kernels = sum(kernel.seconds.median for kernel in profile.kernels)
    assert kernels + sum(vars(idle).values()) == pytest.approx(2000 * NS)
    assert profile.accounted == pytest.approx(1400 / 2000)
    assert (profile.overhead.added, profile.overhead.noise) == (pytest.approx(50 / 1950), 0)
    assert sum(kernel.share for kernel in profile.kernels) == pytest.approx(1)


def test_a_few_interrupted_runs_move_no_time_of_a_kernel() -> None:
    profile = model_profile(samples((1.0, 1.0, 1.0, 1.0, 9.0)), ACCOUNT)
    for kernel, quiet in zip(profile.kernels, model_profile(samples(), ACCOUNT).kernels, strict=True):
        assert kernel.seconds.best <= kernel.seconds.median <= kernel.seconds.p90
        assert kernel.seconds.median == pytest.approx(quiet.seconds.median)
    assert sum(kernel.share for kernel in profile.kernels) == pytest.approx(1)


def test_every_time_of_the_table_is_a_median_and_none_exceeds_its_p90() -> None:
    profile = model_profile(samples((1.0, 1.1, 1.2, 1.3, 30.0)), ACCOUNT)
    columns, rows = table_rows(profile, "order", 0)
    for row in rows[: len(profile.kernels)]:
        cells = dict(zip(columns, row, strict=True))
        assert float(cells["us"]) <= float(cells["p90"])
    assert float(rows[-1][2]) == pytest.approx(np.median(profile.timed) * 1e6, abs=1e-3)


@pytest.mark.parametrize("slower", [(-0.3, -0.2, -0.28, -0.25), (0.3, -0.2, 0.01, 0.02), (0.0, 0.0, 0.0, 0.0)])
def test_what_clocks_add_is_never_less_than_nothing(slower: tuple[float, ...]) -> None:
    made = samples((1.0, 1.0, 1.0, 1.0))
    made.timed[:] = made.plain * (1 + np.array(slower))
    profile = model_profile(made, ACCOUNT)
    assert profile.overhead.added is None
    text = summary_text(profile, "m", "t", ACCOUNT)
    assert "not measurable" in text and "-2" not in text.split("with clocks")[1].split("differ by")[1][:6]
    assert faults("profile", json.loads(json.dumps(profile_json(profile, "m", "t")))) == []


def test_what_clocks_add_is_told_with_its_noise_where_it_is_larger() -> None:
    made = samples((1.0, 1.0, 1.0, 1.0))
    made.timed[:] = made.plain * (1 + np.array([0.10, 0.12, 0.11, 0.13]))
    overhead = model_profile(made, ACCOUNT).overhead
    assert overhead.added == pytest.approx(0.115) and overhead.noise == pytest.approx(0.0075)


def test_no_kernel_shows_more_than_the_threads_of_the_run_could_do(profile: ModelProfile) -> None:
    for kernel in profile.kernels:
        assert kernel.seconds.median * profile.threads >= kernel.busy * 0.999


def test_kernels_are_mapped_to_nodes_and_lines(profile: ModelProfile) -> None:
    contraction = profile.kernels[0]
    assert (contraction.nodes, contraction.sources) == (("product", "add"), ("net.py:7", ""))
    assert (contraction.region, contraction.schedule) == ("add 0", "contraction lane=i1; loop unroll=4")
    assert profile.variant == "main"


def test_without_a_record_the_plan_names_the_nodes() -> None:
    profile = model_profile(samples(), Account(Ledger(), SchedulesFile("", {}, {}), Record()))
    assert profile.kernels[0].nodes == ("product", "add")
    assert (profile.kernels[0].sources, profile.kernels[0].schedule) == (("", ""), "")


def test_the_typical_run_is_the_one_nearest_the_median() -> None:
    profile = model_profile(samples((1.0, 2.0, 4.0)), ACCOUNT)
    assert profile.typical.wall == 3600
    assert [part.thread for part in profile.typical.parts] == [0, 0, 1, 1]


def test_json_is_as_its_schema_says(profile: ModelProfile) -> None:
    bound = Bound("memory", "L2", "", 0.1, 0.9, 1e-7, "it reads more than it computes", "fuse it")
    judged = profile.judged(lambda kernel: Judgement(bound, None, "predicted nothing"))
    for made in (profile, judged):
        data = profile_json(made, "m.onnx", "x86-64-v3")
        assert faults("profile", json.loads(json.dumps(data, allow_nan=False))) == []
    assert profile_json(judged, "m", "t")["kernels"][0]["bound"]["level"] == "L2"
    assert profile_json(profile, "m", "t")["kernels"][0]["bound"] is None


def test_rows_hold_a_kernel_each(profile: ModelProfile) -> None:
    rows = profile_rows(profile)
    assert [row[0] for row in rows] == ["k1_contraction", "k2_map", "k3_rows", "k4_halo"]
    first = dict(zip(COLUMNS, rows[0], strict=True))
    assert (first["nodes"], first["sources"], first["bound"]) == ("product add", "net.py:7", "")
    assert first["seconds_median"] == pytest.approx(720 * NS)


def test_the_table_is_sorted_and_ends_with_the_run(profile: ModelProfile) -> None:
    columns, rows = table_rows(profile, "time", 2)
    assert all(len(row) == len(columns) for row in rows)
    names = [row[0] for row in rows]
    assert names[:4] == ["k1_contraction", "k3_rows", "(2 more)", "all kernels"]
    assert (rows[-1][0], rows[-1][2]) == ("a timed run", "2.000")
    assert (columns[-1], rows[0][-1]) == ("nodes", "add +1")
    for sort in SORTS:
        assert len(table_rows(profile, sort, 0)[1]) == 4 + 6
    assert table_rows(profile, "order", 1)[1][0][0] == "k1_contraction"
    assert table_rows(profile, "waiting", 1)[1][0][0] == "k1_contraction"


def test_the_summary_says_what_clocks_add_and_why_nothing_was_counted(profile: ModelProfile) -> None:
    text = summary_text(profile, "m.onnx", "x86-64-v3", ACCOUNT)
    assert "clocks add 2.6%, give or take 0.0%" in text
    assert "70.0% of a run is in kernels" in text
    assert "no hardware counters: not requested" in text
    assert "2 threads, inputs x 2x3, variant main" in text


def test_the_summary_names_kernels_that_denormal_numbers_slow_down(profile: ModelProfile) -> None:
    """Those that take as long as predicted are none of them."""
    first, *rest = profile.kernels
    slow = replace(first, denormals=True, predicted=first.busy / 100)
    text = summary_text(replace(profile, kernels=(slow, *rest)), "m.onnx", "x86-64-v3", ACCOUNT)
    assert "1 kernel that compute with denormal numbers" in text
    assert f"{slow.name} (" in text and "--denormals zero" in text
    fast = replace(first, denormals=True, predicted=first.busy)
    assert "denormal" not in summary_text(replace(profile, kernels=(fast, *rest)), "m.onnx", "x86-64-v3", ACCOUNT)


def test_steps_that_met_denormal_numbers_are_those_of_their_kernel() -> None:
    made = model_profile(samples(), ACCOUNT, denormals=(0,))
    assert [kernel.denormals for kernel in made.kernels] == [step == 0 for step in range(len(made.kernels))]


def test_one_kernel_in_full(profile: ModelProfile) -> None:
    text = kernel_text(profile, ACCOUNT, profile.kernels[0])
    assert "kernel k1_contraction of main, phase 0, beside k2_map" in text
    assert "    contraction lane=i1\n    loop unroll=4\n" in text
    assert "MatMul /net/product (here product), from net.py:7" in text
    assert "900 ns" in text and "1.42 times the prediction" in text
    assert "111 GOP/s" in text


def test_kernels_are_found_by_name_and_by_node(profile: ModelProfile) -> None:
    def found(name: str) -> list[str]:
        return [kernel.name for kernel in kernels_called(profile, ACCOUNT, name)]

    assert found("k2_map") == ["k2_map"]
    assert found("/net/product") == found("product") == ["k1_contraction"]
    assert found("norm") == ["k3_rows", "k4_halo"]
    with pytest.raises(OptionError, match="did you mean k2_map"):
        found("k2_mop")
