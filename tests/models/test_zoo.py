"""The zoo: its catalogue holds together, nothing unverified enters the cache, every model takes its example inputs."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.zoo import fetch, inputs, pictures, signals
from benchmarks.zoo.catalogue import MINILM, MODELS, Export, Member, Model, Wheel, ZooError
from tests.patience import PATIENCE_S

REPOSITORY = Path(__file__).parents[2]
TRAINED = [name for name, model in MODELS.items() if isinstance(model.source, Member)]
EXPORTED = [name for name, model in MODELS.items() if isinstance(model.source, Export)]


@pytest.fixture
def empty_zoo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of this test's own."""
    monkeypatch.setenv("OPWELD_ZOO", str(tmp_path / "zoo"))
    return fetch.cache_folder()


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """A wheel with one member, models/small.onnx, of known content."""
    file = tmp_path / "small-1.0-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as members:
        members.writestr("models/small.onnx", b"content")
    return file


def small_model(sha256: str, path: str = "models/small.onnx") -> Model:
    source = Member(Wheel("small", "1.0", "0" * 64, 1), path)
    return Model("small", source, sha256, "sentences", "a test")


CONTENT_SHA256 = "ed7002b439e9ac845f22357d822bac1444730fbdb6016d3ec9432297b9ec9f73"


def run_zoo(*arguments: str, zoo: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"OPWELD_ZOO": str(zoo), "PYTHONPATH": str(REPOSITORY / "src")}
    command = [sys.executable, "-m", "benchmarks.zoo", *arguments]
    return subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=PATIENCE_S)


# The catalogue


@pytest.mark.parametrize("name", MODELS)
def test_every_model_is_pinned_named_and_fed(name: str) -> None:
    model = MODELS[name]
    assert model.name == name
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name)
    assert re.fullmatch(r"[0-9a-f]{64}", model.sha256)
    assert model.feeds in inputs.VARIANTS
    assert model.about
    if isinstance(model.source, Member):
        assert re.fullmatch(r"[0-9a-f]{64}", model.source.wheel.sha256)
        assert model.source.path.endswith(".onnx")


def test_no_two_models_are_the_same_file() -> None:
    assert len({model.sha256 for model in MODELS.values()}) == len(MODELS)


def test_every_architecture_is_there_optimised_and_raw() -> None:
    flavours = {
        (model.source.architecture, model.source.raw) for model in MODELS.values() if isinstance(model.source, Export)
    }
    names = {"resnet50", "mobilenetv2", "convnext-tiny", "vit-base", "bert-base", "llama-160m"}
    assert flavours == {(name, raw) for name in names for raw in (False, True)}


def test_every_kind_of_feed_serves_a_model() -> None:
    assert set(inputs.VARIANTS) == {model.feeds for model in MODELS.values()}


# The cache


def test_a_model_comes_out_of_its_wheel(wheel: Path, tmp_path: Path) -> None:
    file = fetch.extract(wheel, small_model(CONTENT_SHA256), tmp_path)
    assert file.read_bytes() == b"content"


def test_a_changed_model_is_refused(wheel: Path, tmp_path: Path) -> None:
    with pytest.raises(ZooError, match=r"has SHA-256 ed7002b4.*expects aaaa"):
        fetch.extract(wheel, small_model("a" * 64), tmp_path)


def test_a_missing_member_is_named(wheel: Path, tmp_path: Path) -> None:
    with pytest.raises(ZooError, match=re.escape("does not hold models/other.onnx")):
        fetch.extract(wheel, small_model(CONTENT_SHA256, "models/other.onnx"), tmp_path)


def test_what_is_no_wheel_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "small-1.0-py3-none-any.whl"
    file.write_bytes(b"not a zip archive")
    with pytest.raises(ZooError, match="does not hold"):
        fetch.extract(file, small_model(CONTENT_SHA256), tmp_path)


def test_a_wheel_with_another_hash_leaves_the_cache_empty(empty_zoo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def serve_another_build(command: list[str], task: str, staging: Path, progress: object) -> None:
        folder = Path(command[command.index("--dest") + 1])
        folder.mkdir()
        with zipfile.ZipFile(folder / "other.whl", "w") as members:
            members.writestr("anything", b"")

    monkeypatch.setattr(fetch, "_run", serve_another_build)
    with pytest.raises(ZooError, match=f"expects {MINILM.sha256}"):
        fetch.path("minilm")
    assert list(empty_zoo.iterdir()) == []


def test_an_export_with_another_hash_is_refused_with_the_versions(
    empty_zoo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def export_something_else(command: list[str], task: str, staging: Path, progress: object) -> None:
        (staging / "export.onnx").write_bytes(b"other weights")

    monkeypatch.setattr(fetch, "_run", export_something_else)
    with pytest.raises(ZooError, match=r"the export of resnet50 has SHA-256 .* torch 2\.13\.0"):
        fetch.path("resnet50")
    assert list(empty_zoo.iterdir()) == []


def test_an_interrupted_fetch_leaves_the_cache_as_it_was(empty_zoo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (empty_zoo / "minilm.onnx").write_bytes(b"an older version")

    def be_interrupted(command: list[str], task: str, staging: Path, progress: object) -> None:
        (staging / "half.whl").write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(fetch, "_run", be_interrupted)
    with pytest.raises(KeyboardInterrupt):
        fetch.path("minilm")
    assert [file.name for file in empty_zoo.iterdir()] == ["minilm.onnx"]
    assert (empty_zoo / "minilm.onnx").read_bytes() == b"an older version"


def test_a_failed_child_is_reported_with_its_last_lines(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import sys; print('no room on the device'); sys.exit(3)"]
    with pytest.raises(ZooError, match=r"(?s)cannot try: it ended with status 3.*no room on the device"):
        fetch._run(command, "try", tmp_path, None)


def test_a_child_that_never_ends_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "EXPORT_SECONDS", 0.2)
    with pytest.raises(ZooError, match="cannot wait: not done after"):
        fetch._run([sys.executable, "-c", "import time; time.sleep(60)"], "wait", tmp_path, None)


def test_a_cached_file_is_trusted_until_it_changes(empty_zoo: Path) -> None:
    model = replace(MODELS["minilm"], sha256=CONTENT_SHA256)
    file = fetch.cached_path(model)
    assert not fetch.is_cached(model)
    file.write_bytes(b"content")
    assert fetch.is_cached(model)
    assert not fetch.is_cached(replace(model, sha256="a" * 64)), "another pin asks for another file"
    file.write_bytes(b"changed")
    assert not fetch.is_cached(model)


def test_the_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OPWELD_ZOO", str(tmp_path / "chosen"))
    assert fetch.cache_folder() == tmp_path / "chosen"
    monkeypatch.delenv("OPWELD_ZOO")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    assert fetch.cache_folder() == tmp_path / "user" / "opweld" / "zoo"


def test_a_folder_that_cannot_be_made_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("OPWELD_ZOO", str(tmp_path / "file" / "zoo"))
    with pytest.raises(ZooError, match="set OPWELD_ZOO"):
        fetch.cache_folder()


# The command line


def test_the_list_is_json_with_a_row_for_each_model(tmp_path: Path) -> None:
    result = run_zoo("list", "--json", zoo=tmp_path)
    rows = json.loads(result.stdout)
    assert [row["name"] for row in rows] == list(MODELS)
    assert not any(row["cached"] for row in rows)
    assert all(row["variants"] for row in rows)


def test_an_unknown_model_is_one_line_on_stderr(tmp_path: Path) -> None:
    result = run_zoo("path", "resnet51", zoo=tmp_path)
    assert result.returncode == 1
    assert result.stderr.startswith("zoo: the zoo has no model 'resnet51'; it has ppocrv4-det,")
    assert result.stderr.count("\n") == 1


# The inputs


@pytest.mark.parametrize("name", MODELS)
def test_examples_are_repeatable_contiguous_and_finite(name: str) -> None:
    for position, variant in enumerate(inputs.variants(name)):
        first, again = inputs.example(name, position), inputs.example(name, variant.label)
        other = inputs.example(name, position, seed=1)
        assert first.keys() == again.keys() == other.keys()
        for key, array in first.items():
            np.testing.assert_array_equal(array, again[key])
            assert array.shape == other[key].shape and array.dtype == other[key].dtype
            assert array.flags.c_contiguous
            assert np.isfinite(array.astype(np.float64)).all()


def test_an_unknown_variant_lists_the_known_ones() -> None:
    with pytest.raises(ZooError, match=r"minilm has no variant 'batch 9'.*'batch 2 x 64'"):
        inputs.example("minilm", "batch 9")
    with pytest.raises(ZooError, match="minilm has no variant 99"):
        inputs.example("minilm", 99)


def test_batches_of_sentences_are_padded() -> None:
    feed = inputs.example("minilm", "batch 3 x 16")
    ids, mask = feed["input_ids"], feed["attention_mask"]
    assert mask.sum(axis=1).tolist() == [16, 12, 8]
    assert not ids[mask == 0].any()
    assert ids[:, 0].tolist() == [101, 101, 101]


def test_file_features_pad_short_files_and_strip_space() -> None:
    features = signals.byte_features(b"  \n abc \n")
    assert features.shape == (2048,) and features.dtype == np.int32
    assert features[:6].tolist() == [*b"abc \n", 256], "stripped on the left, padded after"
    assert features[-8:].tolist() == [256, *b"  \n abc"], "stripped on the right, padded before"
    assert (features[6:-8] == 256).all()


def test_file_features_take_both_ends_of_a_long_file() -> None:
    content = bytes(range(1, 251)) * 40
    features = signals.byte_features(content)
    assert features[:1024].tolist() == list(content.lstrip()[:1024])
    assert features[1024:].tolist() == list(content[-1024:])


def test_made_up_files_are_what_they_claim() -> None:
    random = np.random.default_rng(0)
    assert zipfile.ZipFile(io.BytesIO(signals.archive(random))).testzip() is None
    assert signals.portable_network_graphics(random).startswith(b"\x89PNG\r\n\x1a\n")


def test_pictures_are_not_noise() -> None:
    picture = pictures.street_signs(320, 320, np.random.default_rng(0))
    assert picture.shape == (320, 320, 3) and picture.min() >= 0 and picture.max() <= 1
    between_neighbours = np.abs(np.diff(picture, axis=1)).mean()
    assert between_neighbours < 0.25 * picture.std(), "neighbours resemble each other"


# The models themselves


def check_with_onnxruntime(name: str) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="the second opinion on shapes; extra 'onnxruntime'")
    onnxruntime.set_default_logger_severity(4)
    session = onnxruntime.InferenceSession(str(fetch.path(name)), providers=["CPUExecutionProvider"])
    for variant in inputs.variants(name):
        feed = inputs.example(name, variant.label)
        if not variant.valid:
            with pytest.raises(Exception, match="Non-zero status code"):
                session.run(None, feed)
            continue
        for output in session.run(None, feed):
            assert np.isfinite(output).all() and output.size, f"{name}, {variant.label}"


@pytest.mark.models
@pytest.mark.parametrize("name", TRAINED)
def test_trained_models_take_their_inputs(name: str) -> None:
    check_with_onnxruntime(name)


@pytest.mark.models
@pytest.mark.slow
@pytest.mark.parametrize("name", EXPORTED)
def test_exported_models_take_their_inputs(name: str) -> None:
    check_with_onnxruntime(name)


@pytest.mark.models
def test_the_detector_sees_the_signs_and_nothing_in_noise() -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="runs the detector; extra 'onnxruntime'")
    session = onnxruntime.InferenceSession(str(fetch.path("ppocrv4-det")), providers=["CPUExecutionProvider"])
    (signs,) = session.run(None, inputs.example("ppocrv4-det", "320 x 320"))
    (noise,) = session.run(None, inputs.example("ppocrv4-det", "noise 64 x 64"))
    assert 0.01 < (signs > 0.5).mean() < 0.2
    assert not (noise > 0.5).any()


@pytest.mark.models
@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["resnet50", "mobilenetv2"])
def test_raw_exports_keep_batch_normalization(architecture: str) -> None:
    onnx = pytest.importorskip("onnx", reason="reads the graph")
    counts = {
        name: sum(node.op_type == "BatchNormalization" for node in onnx.load(fetch.path(name)).graph.node)
        for name in (architecture, f"{architecture}-raw")
    }
    assert counts[architecture] == 0
    assert counts[f"{architecture}-raw"] >= 50
