"""Language models of target="cuda" in Triton's interpreter: what C answers, in steps of a few sizes."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
import pytest

from opweld.errors import RunError
from opweld.llm import LLM, Sampling
from opweld.llm.compiled import CompiledRunner
from opweld.llm.load import division_for_gpu
from opweld.llm.padded import padded, size_of
from opweld.llm.step import Span
from opweld.llm.work import Division, step_feeds, work_of
from opweld.runtime.cuda.opened import Cuda
from opweld.tensor.dtype import DType
from tests.unit.llm.decoder import Decoder
from tests.unit.llm.decoders import BLOCK, CONFIGS, runner_of, weights_of
from tests.unit.llm.test_load import PROMPT, written
from tests.unit.llm.test_paged import APART, BLOCKS, GROUP, KV_HEADS, SIZE, compiled, paged, pools

TOKENS = [int(token) for token in np.random.default_rng(0).integers(0, 97, 60)]


def on_gpu(name: str, pool: DType = DType.F32, precision: str = "fp32") -> CompiledRunner:
    config = CONFIGS[name]
    runner = runner_of(config, weights_of(config), 8, pool, True, target="sm_90", precision=precision)
    return CompiledRunner(runner.model, config, BLOCK, 8, config.context, division_for_gpu(config))


@pytest.mark.parametrize("name", ["llama", "gemma", "gpt2"])
def test_prompts_and_single_tokens_share_a_step(name: str) -> None:
    config = CONFIGS[name]
    right = Decoder(config, weights_of(config))
    runner = on_gpu(name)
    runner.run([Span(TOKENS[:37], 0, (5, 2), 0), Span(TOKENS[50:], 0, (1,), 1)])
    found = runner.run([Span(TOKENS[37:40], 37, (5, 2), 2), Span(TOKENS[40:41], 10, (1,), 1)])
    expected = [*right.logits(TOKENS[:40])[-2:], right.logits([*TOKENS[50:], TOKENS[40]])[-1]]
    np.testing.assert_allclose(found, expected, atol=2e-6 * np.abs(expected).max(), rtol=0)


def test_a_step_is_launches_of_kernels_alone() -> None:
    runner = on_gpu("llama")
    variants = json.loads((runner.model.path / "cuda.json").read_text())["variants"]
    assert {step["kind"] for variant in variants.values() for step in variant["steps"]} == {"kernel"}


def test_writes_compute_what_they_write_and_joins_round_what_they_join() -> None:
    runner = on_gpu("llama", DType.BF16, "bf16")
    (variant,) = json.loads((runner.model.path / "cuda.json").read_text())["variants"].values()
    kernels = [step["code"].rpartition("_")[0] for step in variant["steps"]]
    second = kernels[kernels.index("join") + 1 :]
    layer = second[second.index("rows") + 4 : second.index("join") + 2]
    rotated = "elementwise"
    assert layer == ["rows", "contraction", rotated, "scatter", "scatter", "attend", "join", "contraction"]


@pytest.mark.parametrize(("window", "causal"), [(0, 1), (40, 1), (0, 0)])
def test_keys_that_are_divided_among_programs_are_joined_to_the_same_bits(window: int, causal: int) -> None:
    model = compiled(window, causal, "sm_90")
    keys, values = (pool.astype(np.float32) for pool in pools())
    first = 300 if causal else 0
    spans = [Span([0] * 3, first, range(12, 2, -1)), Span([0], 32 if causal else 0, (9, 0)), Span([0] * 20, 0, (1,))]
    queries = np.random.default_rng(3).standard_normal((24, KV_HEADS * GROUP * SIZE)).astype(np.float32)
    found: list[np.ndarray] = []  # type: ignore[type-arg]
    for threads in (1, 64):
        work = work_of(spans, BLOCK, KV_HEADS, Division(threads, together=False), bool(causal))
        fed = {"work": work.work, "tables": work.tables, "owners": work.owners, "parts": work.parts}
        found.append(model.run({"queries": queries, "keys": keys, "values": values, **fed})["mixed"])
        right = paged(work, queries.astype(np.float64), bool(causal), window)
        np.testing.assert_allclose(found[-1], right, rtol=1e-5, atol=2e-6)
    assert work.work[:, APART].any() == bool(causal)
    np.testing.assert_array_equal(found[0], found[1])


def test_blocks_and_rows_of_work_that_are_not_there_are_told() -> None:
    model = compiled(0, 1, "sm_90")
    keys, values = (pool.astype(np.float32) for pool in pools())
    work = work_of([Span([0], 40, (3, 4))], BLOCK, KV_HEADS, Division(1, together=False))
    fed = {"queries": np.ones((1, KV_HEADS * GROUP * SIZE), np.float32), "keys": keys, "values": values}
    fed |= {"work": work.work, "tables": work.tables, "owners": work.owners, "parts": work.parts}
    with pytest.raises(RunError, match=r"PagedAttention.*a block of a table"):
        model.run(fed | {"tables": np.array([3, BLOCKS])})
    with pytest.raises(RunError, match=r"PagedAttention.*a row of work"):
        model.run(fed | {"tables": np.array([3])})
    with pytest.raises(RunError, match=r"PagedAttention.*parts"):
        model.run(fed | {"parts": np.array([[1, 1]])})


def test_what_is_rounded_to_bfloat16_is_near() -> None:
    config = CONFIGS["llama"]
    found = on_gpu("llama", DType.BF16, "bf16").run([Span(TOKENS[:9], 0, (0,), 9)])
    right = Decoder(config, weights_of(config)).logits(TOKENS[:9])
    # Weights, activations, keys and values have 8 bits: some of 2^-9 for each of two layers.
    assert 0 < np.linalg.norm(found - right) < 2e-2 * np.linalg.norm(right)


def test_sizes_of_steps_are_few_and_what_pads_them_changes_nothing() -> None:
    assert [size_of(n) for n in (1, 2, 3, 4, 5, 7, 9, 13, 17, 25, 33, 97)] == [
        1,
        2,
        3,
        4,
        6,
        8,
        12,
        16,
        24,
        32,
        48,
        128,
    ]
    runner, model = on_gpu("llama"), CONFIGS["llama"]
    spans = [Span(TOKENS[:5], 0, (3,), 1)]
    feeds = step_feeds(spans, BLOCK, model.kv_heads, Division(64, together=False)) | {
        "wanted": np.array([4]),
        "positions": np.arange(5),
    }
    made = padded(feeds, 8)
    assert {name: len(array) for name, array in made.items()} == {
        "tokens": 6, "positions": 6, "places": 6, "parts": 6, "work": 2, "owners": 6, "tables": 64, "wanted": 1,
    }  # fmt: skip
    assert made["places"][-1].tolist() == [8, 0], "a block that no sequence has"
    runner.run(spans)
    before = {name: array.copy() for name, array in runner.memory().items()}
    runner.run([Span(TOKENS[5:10], 5, (3,), 1)])
    for name, array in runner.memory().items():
        axis = -1 if name.startswith("keys") else -2
        old, new = (np.moveaxis(pool[3], axis, 0) for pool in (before[name], array))
        np.testing.assert_array_equal(old[:5], new[:5])
        np.testing.assert_array_equal(array[[0, 1, 2, 4, 5, 6, 7]], 0)


def test_greedy_answers_are_those_of_a_processor(tmp_path: Path) -> None:
    path = written("llama", tmp_path, gguf.GGMLQuantizationType.Q4_1)
    sampling = Sampling(temperature=0, limit=4, to_the_limit=True)
    prompts = [PROMPT, "another"]
    right = LLM(path, threads=2).generate(prompts, sampling)
    llm = LLM(path, target="sm_90", precision="fp32", memory=1 << 26)
    runner = llm.engine.runner
    assert isinstance(runner, CompiledRunner) and isinstance(runner.model.session._opened, Cuda)
    assert [answer.tokens for answer in llm.generate(prompts, sampling)] == [answer.tokens for answer in right]
