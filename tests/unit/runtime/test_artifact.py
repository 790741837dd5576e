"""The artifact folder: written whole or not at all, read with every damage named."""

from __future__ import annotations

import dataclasses
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opweld.build import artifact
from opweld.build.artifact import FileInfo, Manifest, VariantInfo
from opweld.build.cache import Cache
from opweld.errors import ArtifactError
from opweld.interface import ModelMetadata, TensorInfo
from tests.unit.runtime.files import files_in

SMALL = Manifest("0.1.0", "x86-64-v3", "all", 2, (TensorInfo("x", "float32", ("N", 4)),), ())


def write(folder: Path, manifest: Manifest = SMALL, **changes: Any) -> Manifest:
    binary = folder.parent / "binary"
    binary.write_bytes(b"binary")
    files = files_in(folder.parent, binary, binary, {"kernel.c": "int x;"}, {"opweld.h": "/* */"})
    arguments: dict[str, Any] = {"files": files, "weights": [b"ab", memoryview(b"cd")], "ledger_json": "[]"}
    return artifact.write(folder, manifest=manifest, **(arguments | changes))


def leftovers(folder: Path) -> list[str]:
    return [
        name
        for name in os.listdir(folder.parent)
        if name not in (folder.name, "binary") and not name.startswith(".files")
    ]


def test_layout(tmp_path: Path) -> None:
    folder = tmp_path / "m.opweld"
    manifest = write(folder)
    assert artifact.read(folder, verify=True) == manifest
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert files == {
        "manifest.json", "module.so", "runtime.so", "weights.bin", "ledger.json", "schedules.txt",
        "graph.json",
        "source/kernel.c", "include/opweld.h",
    }  # fmt: skip
    assert (folder / "weights.bin").read_bytes() == b"abcd"
    assert leftovers(folder) == []
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755


def test_weights_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"binary")
    write(tmp_path / "m.opweld", weights=tmp_path / "binary")
    assert (tmp_path / "m.opweld" / "weights.bin").read_bytes() == b"binary"


texts = st.text(max_size=20)


@given(
    st.builds(
        Manifest,
        opweld=texts,
        target=texts,
        level=texts,
        threads=st.integers(0, 99),
        inputs=st.tuples(st.builds(TensorInfo, texts, texts, st.none() | st.tuples(texts | st.integers(0), texts))),
        outputs=st.just(()),
        metadata=st.builds(ModelMetadata, description=texts, custom=st.dictionaries(texts, texts)),
        variants=st.tuples(st.builds(VariantInfo, texts, st.tuples(texts))),
        files=st.dictionaries(texts, st.builds(FileInfo, st.integers(0), texts)),
    )
)
def test_manifest_round_trips(manifest: Manifest) -> None:
    text = manifest.to_json()
    try:
        text.encode()
    except UnicodeEncodeError:
        return  # a lone surrogate: no model's protobuf string holds one
    assert Manifest.from_json(text) == manifest


def test_replaces_an_artifact(tmp_path: Path) -> None:
    folder = tmp_path / "m.opweld"
    write(folder)
    (folder / "stale").touch()
    write(folder, weights=[b"new"])
    assert (folder / "weights.bin").read_bytes() == b"new"
    assert not (folder / "stale").exists()
    assert leftovers(folder) == []


def test_copy(tmp_path: Path) -> None:
    manifest = write(tmp_path / "m.opweld")
    for _ in range(2):
        artifact.copy(tmp_path / "m.opweld", tmp_path / "deep" / "n.opweld", 3)
    artifact.copy(tmp_path / "m.opweld", tmp_path / "m.opweld", 3)
    assert artifact.read(tmp_path / "m.opweld") == manifest
    assert artifact.read(tmp_path / "deep" / "n.opweld", verify=True) == dataclasses.replace(manifest, threads=3)
    assert os.listdir(tmp_path / "deep") == ["n.opweld"]
    (tmp_path / "deep" / "n.opweld" / "weights.bin").unlink()
    with pytest.raises(ArtifactError, match=r"weights\.bin"):
        artifact.copy(tmp_path / "deep" / "n.opweld", tmp_path / "o.opweld", 0)
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").touch()
    with pytest.raises(ArtifactError, match="is no opweld artifact"):
        artifact.copy(tmp_path / "m.opweld", tmp_path / "photos", 0)


def test_never_replaces_anything_else(tmp_path: Path) -> None:
    precious = tmp_path / "photos"
    precious.mkdir()
    (precious / "a.jpg").touch()
    (tmp_path / "link").symlink_to(precious)
    (tmp_path / "file").touch()
    for name in ("photos", "link", "file"):
        with pytest.raises(ArtifactError, match="is no opweld artifact; remove it, or name another place"):
            write(tmp_path / name)
    assert (precious / "a.jpg").exists()


def test_failure_leaves_what_was_there(tmp_path: Path) -> None:
    folder = tmp_path / "m.opweld"
    before = write(folder)

    def broken() -> Any:
        yield b"half"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(folder, weights=broken())
    with pytest.raises(ArtifactError, match=r"cannot write .*: No such file"):
        write(folder, dataclasses.replace(SMALL, needed=("missing.so",)))
    assert artifact.read(folder, verify=True) == before
    assert leftovers(folder) == []


def test_what_a_backend_needs_is_described_and_checked(tmp_path: Path) -> None:
    folder = tmp_path / "m.opweld"
    needed = ("source/kernel.c", "weights.bin")
    manifest = write(folder, dataclasses.replace(SMALL, backend="other", needed=needed))
    assert set(manifest.files) == {*needed, *artifact.TOLD}
    (folder / "module.so").unlink()
    assert artifact.read(folder, verify=True) == manifest
    (folder / "source" / "kernel.c").write_text("int y;")
    with pytest.raises(ArtifactError, match=r"kernel\.c has another content"):
        artifact.read(folder, verify=True)


@pytest.mark.parametrize("name", ["../x.c", "/x.c", "a/../../b.c", "..", ""])
def test_names_that_leave_the_folder(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "m.opweld"
    manifest = dataclasses.replace(write(folder), needed=(name,))
    (folder / "manifest.json").write_text(manifest.to_json())
    with pytest.raises(ArtifactError, match="which is no file of the artifact"):
        artifact.read(folder)


def test_unwritable_places(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ArtifactError, match="name another place"):
        write_below = tmp_path / "file" / "m.opweld"
        artifact.write(
            write_below,
            manifest=SMALL,
            files=tmp_path / "none",
            weights=[],
            ledger_json="",
        )
    with pytest.raises(ArtifactError, match="cannot write"):
        artifact.write(
            Path("/proc/m.opweld"),
            manifest=SMALL,
            files=tmp_path / "none",
            weights=[],
            ledger_json="",
        )


# ---- reading ----


def test_not_there(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"does not exist; an artifact is a folder that `opweld compile"):
        artifact.read(tmp_path / "none.opweld")
    (tmp_path / "file").touch()
    with pytest.raises(ArtifactError, match="is a file"):
        artifact.read(tmp_path / "file")
    with pytest.raises(ArtifactError, match=r"has no manifest.json"):
        artifact.read(tmp_path)


@pytest.mark.parametrize("name", ["module.so", "runtime.so", "weights.bin"])
def test_damaged_files(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "m.opweld"
    write(folder)
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[:-1] + b"!")
    artifact.read(folder)
    with pytest.raises(ArtifactError, match=f"{name} has another content than when it was written"):
        artifact.read(folder, verify=True)
    (folder / name).write_bytes(content[:-1])
    with pytest.raises(ArtifactError, match=f"{name} has {len(content) - 1} bytes, expected {len(content)}"):
        artifact.read(folder)
    (folder / name).unlink()
    with pytest.raises(ArtifactError, match=f"cannot read .*{name}: No such file or directory; compile the model"):
        artifact.read(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, "has format 2, this opweld reads 1; compile the model again"),
        ({"threads": "two"}, r"manifest.json: threads should be int, but is 'two'"),
        ({"threads": True}, r"threads should be int"),
        ({"inputs": {}}, r"inputs should be a list"),
        ({"inputs": [{"name": "x"}]}, r"inputs\[0\] lacks 'dtype'"),
        ({"inputs": [{"name": "x", "dtype": "float32", "shape": [None]}]}, r"inputs\[0\]: shape should be tuple"),
        ({"files": {}}, r"does not describe module.so"),
        ({"metadata": []}, r"metadata should be an object"),
    ],
)
def test_damaged_manifest(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    folder = tmp_path / "m.opweld"
    write(folder)
    data = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(data | change))
    with pytest.raises(ArtifactError, match=message):
        artifact.read(folder)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100_000])
def test_garbage_for_a_manifest(tmp_path: Path, content: bytes) -> None:
    folder = tmp_path / "m.opweld"
    write(folder)
    (folder / "manifest.json").write_bytes(content)
    with pytest.raises(ArtifactError, match="compile the model again"):
        artifact.read(folder)


def test_fields_of_later_versions_are_ignored() -> None:
    data = json.loads(SMALL.to_json()) | {"colour": "green"}
    assert Manifest.from_json(json.dumps(data)) == SMALL
    assert dataclasses.replace(SMALL, files={}) == SMALL


# Content


@pytest.mark.parametrize("name", ["module.so", "runtime.so", "weights.bin"])
def test_a_file_of_the_same_size_but_other_content_is_found(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "m.opweld"
    write(folder)
    artifact.remember(folder, Cache.open())
    status = (folder / name).stat()
    data = bytearray((folder / name).read_bytes())
    data[0] ^= 1
    (folder / name).write_bytes(data)
    os.utime(folder / name, ns=(status.st_atime_ns, status.st_mtime_ns))
    artifact.read(folder)
    with pytest.raises(ArtifactError, match=name):
        artifact.read(folder, verify=True)


def test_a_verified_artifact_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "m.opweld"
    write(folder)
    artifact.remember(folder, Cache.open())

    def refuse(*_: object) -> None:
        raise AssertionError("read again")

    monkeypatch.setattr("hashlib.file_digest", refuse)
    artifact.read(folder, verify=True)


def test_what_a_killed_process_left_is_removed_later(tmp_path: Path) -> None:
    left = tmp_path / ".opweld-new-left"
    left.mkdir()
    os.utime(left, (0, 0))
    write(tmp_path / "m.opweld")
    assert leftovers(tmp_path / "m.opweld") == []
