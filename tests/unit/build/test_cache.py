from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from opweld.build import cache as cache_module
from opweld.build.cache import Cache


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


@pytest.fixture
def temporary_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A fresh temporary folder for what the cache cannot hold."""
    cache_module._temporary_root.cache_clear()
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    yield folder
    cache_module._temporary_root.cache_clear()


@pytest.fixture
def unwritable(tmp_path: Path) -> Cache:
    """A cache whose root is a file, so that nothing can be made below it, not even by root."""
    (tmp_path / "file").touch()
    return Cache(tmp_path / "file")


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_files_are_found_by_key_and_kind(cache: Cache, tmp_path: Path) -> None:
    assert cache.find_file("objects", "abcd", ".o") is None
    place = cache.publish_file("objects", "abcd", ".o", write(tmp_path / "x", "content"))
    assert place.read_text() == "content"
    assert cache.find_file("objects", "abcd", ".o") == place
    assert cache.find_file("objects", "abcd", ".so") is None
    assert cache.find_file("others", "abcd", ".o") is None
    assert cache.find_file("objects", "abc", ".o") is None, "a part of a key is another key"


@pytest.mark.parametrize("damage", [b"", b"conten", b"Content", b"contentcontent"])
def test_a_damaged_file_is_not_found_and_can_be_published_again(cache: Cache, tmp_path: Path, damage: bytes) -> None:
    source = write(tmp_path / "x", "content")
    place = cache.publish_file("objects", "abcd", ".o", source)
    place.write_bytes(damage)
    assert cache.find_file("objects", "abcd", ".o") is None
    assert not place.exists()
    cache.publish_file("objects", "abcd", ".o", source)
    assert cache.find_file("objects", "abcd", ".o") == place


def test_publishing_leaves_nothing_half_done(cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    source = write(tmp_path / "x", "content")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(os, "replace", interrupt)
        cache.publish_file("objects", "abcd", ".o", source)
    assert [p for p in cache.root.rglob("*") if p.is_file()] == []
    assert cache.find_file("objects", "abcd", ".o") is None


def test_folders_appear_complete(cache: Cache) -> None:
    def fill(folder: Path) -> None:
        assert cache.find_folder("models", "key") is None
        (folder / "a").write_text("1")

    place = cache.publish_folder("models", "key", fill)
    assert place == cache.find_folder("models", "key")
    assert (place / "a").read_text() == "1"
    assert [p.name for p in place.parent.iterdir()] == ["key"]


def test_a_failed_folder_leaves_nothing(cache: Cache) -> None:
    def fail(folder: Path) -> None:
        (folder / "a").write_text("1")
        raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        cache.publish_folder("models", "key", fail)
    assert [p for p in cache.root.rglob("*") if p.is_file()] == []


def test_the_first_of_two_processes_wins(cache: Cache) -> None:
    def second(folder: Path) -> None:
        cache.publish_folder("models", "key", lambda first: write(first / "a", "first") and None)
        (folder / "a").write_text("second")

    place = cache.publish_folder("models", "key", second)
    assert (place / "a").read_text() == "first"


def test_the_last_text_of_a_key_stands(cache: Cache) -> None:
    assert cache.find_text("machines", "ab12") is None
    for text in ("slow\n", "schnell über alles\n"):
        assert cache.publish_text("machines", "ab12", text).read_text(encoding="utf-8") == text
        assert cache.find_text("machines", "ab12") == text
    assert cache.find_text("machines", "ab13") is None
    assert len(cache.entries()) == 1


def test_a_text_is_kept_for_this_process_where_nothing_can_be_written(unwritable: Cache, temporary_root: Path) -> None:
    unwritable.publish_text("machines", "ab12", "fast")
    assert unwritable.find_text("machines", "ab12") == "fast"
    assert not unwritable.entries()


def test_discarded_folders_are_gone(cache: Cache) -> None:
    cache.publish_folder("models", "key", lambda folder: write(folder / "a", "1") and None)
    cache.discard("models", "key")
    assert cache.find_folder("models", "key") is None
    assert [p for p in cache.root.rglob("*") if p.is_file()] == []
    cache.discard("models", "key")


def test_an_unwritable_root_falls_back_to_a_temporary_one(
    unwritable: Cache, tmp_path: Path, temporary_root: Path
) -> None:
    source = write(tmp_path / "x", "content")
    place = unwritable.publish_file("objects", "abcd", ".o", source)
    assert place.is_relative_to(temporary_root)
    assert unwritable.find_file("objects", "abcd", ".o") == place
    folder = unwritable.publish_folder("models", "key", lambda folder: write(folder / "a", "1") and None)
    assert folder.is_relative_to(temporary_root)
    assert unwritable.find_folder("models", "key") == folder
    assert unwritable.writable_folder("zig").is_relative_to(temporary_root)


def test_a_full_disk_falls_back_to_a_temporary_one(
    cache: Cache, tmp_path: Path, temporary_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = os.replace

    def full(source: str, target: Path) -> None:
        if cache.root in Path(target).parents:
            raise OSError(28, "No space left on device")
        replace(source, target)

    monkeypatch.setattr(os, "replace", full)
    place = cache.publish_file("objects", "abcd", ".o", write(tmp_path / "x", "content"))
    assert place.is_relative_to(temporary_root)
    assert [p for p in cache.root.rglob("*") if p.is_file()] == []


def test_digests_are_those_of_the_content(cache: Cache, tmp_path: Path) -> None:
    file = write(tmp_path / "x", "content")
    assert cache.file_digest(file) == "ed7002b439e9ac845f22357d822bac1444730fbdb6016d3ec9432297b9ec9f73"


def test_digests_of_old_files_are_remembered_until_they_change(
    cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path / "x", "content")
    old = time.time_ns() - 10**10
    os.utime(file, ns=(old, old))
    first = cache.file_digest(file)

    def refuse(*_: object) -> None:
        raise AssertionError("read again")

    with monkeypatch.context() as patch:
        patch.setattr("hashlib.file_digest", refuse)
        assert cache.file_digest(file) == first
    file.write_text("CONTENT")
    os.utime(file, ns=(old, old))  # the same size, the same time of change: only the inode's own time tells
    assert cache.file_digest(file) != first


def test_digests_of_fresh_files_are_not_remembered(cache: Cache, tmp_path: Path) -> None:
    cache.file_digest(write(tmp_path / "x", "content"))
    assert not (cache.root / "digests").exists()


def test_damaged_digests_are_computed_again(cache: Cache, tmp_path: Path) -> None:
    file = write(tmp_path / "x", "content")
    old = time.time_ns() - 10**10
    os.utime(file, ns=(old, old))
    right = cache.file_digest(file)
    (entry,) = [p for p in (cache.root / "digests").rglob("*") if p.is_file()]
    for damage in ("", "one line", entry.read_text()[:-10], "\x00\n\x00\n"):
        entry.write_text(damage)
        assert cache.file_digest(file) == right


def test_root_comes_from_the_environment(cache_folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert Cache.open().root == cache_folder
    monkeypatch.delenv("OPWELD_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert Cache.open().root == tmp_path / "opweld"
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert Cache.open().root == Path("/home/somebody/.cache/opweld")


# Whose folder it is: what is found in it is run.


def test_a_new_root_is_for_its_user_alone(cache: Cache, tmp_path: Path) -> None:
    cache.publish_file("objects", "abcd", ".o", write(tmp_path / "x", "content"))
    assert cache.root.stat().st_mode & 0o777 == 0o700


def test_a_root_that_others_may_read_is_closed(cache: Cache, tmp_path: Path) -> None:
    place = cache.publish_file("objects", "abcd", ".o", write(tmp_path / "x", "content"))
    cache.root.chmod(0o755)
    assert cache.find_file("objects", "abcd", ".o") == place
    assert cache.root.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("damage", ["mode", "owner"])
def test_a_root_that_others_may_write_to_is_not_used(
    cache: Cache, tmp_path: Path, temporary_root: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    source = write(tmp_path / "x", "content")
    cache.publish_file("objects", "abcd", ".o", source)
    if damage == "mode":
        cache.root.chmod(0o777)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: cache.root.stat().st_uid + 1)
    with pytest.warns(RuntimeWarning, match="is not used.*OPWELD_CACHE"):
        assert cache.find_file("objects", "abcd", ".o") is None
    with pytest.warns(RuntimeWarning, match="is not used"):
        assert cache.publish_file("objects", "abcd", ".o", source).is_relative_to(temporary_root)
    with pytest.warns(RuntimeWarning, match="is not used"):
        assert cache.writable_folder("zig").is_relative_to(temporary_root)


def test_what_a_killed_process_left_is_removed_later(cache: Cache, tmp_path: Path) -> None:
    source = write(tmp_path / "x", "content")
    place = cache.publish_file("objects", "abcd", ".o", source)
    old, young = place.parent / ".new-old", place.parent / ".new-young"
    old.mkdir()
    write(old / "half", "cont")
    young.touch()
    hours_ago = time.time() - 7200
    os.utime(old, (hours_ago, hours_ago))
    cache.publish_file("objects", "abef", ".o", source)
    assert not old.exists() and young.exists()


def test_digests_of_what_was_just_written_can_be_told(
    cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path / "x", "content")
    cache.remember_digest(file, "0" * 64)
    assert cache.file_digest(file) == "0" * 64
    file.write_text("CONTENT")
    assert cache.file_digest(file) != "0" * 64


def fill(cache: Cache, key: str, size: int, age: float) -> Path:
    """A model of so many bytes, last used so many seconds ago."""

    def write_model(folder: Path) -> None:
        (folder / "weights.bin").write_bytes(b"\1" * size)

    folder = cache.publish_folder("models", key, write_model)
    used = time.time() - age
    os.utime(folder, (used, used))
    return folder


def test_the_least_recently_used_goes_first(cache: Cache) -> None:
    old, new, newest = (fill(cache, f"{i}a", 1 << 20, age) for i, age in enumerate((9000.0, 8000.0, 60.0)))
    assert [entry.path for entry in cache.entries()] == [old, new, newest]
    assert cache.find_folder("models", "0a") == old  # used, now the newest
    assert [entry.path for entry in cache.entries()] == [new, newest, old]
    assert all(1 << 20 <= entry.bytes < (1 << 20) + 32768 for entry in cache.entries())
    assert cache.prune(1 << 30) == []
    removed = cache.prune(5 << 19)
    assert [entry.path for entry in removed] == [new]
    assert not new.exists() and old.exists() and newest.exists()
    assert cache.prune(0) == [], "what was just used stays"
    assert list(new.parent.iterdir()) == []


def test_what_nobody_used_for_long_goes_in_any_case(cache: Cache) -> None:
    old, new = fill(cache, "aa", 10, 5 * 86400), fill(cache, "bb", 10, 86400)
    assert [entry.path for entry in cache.prune(1 << 30, unused=2 * 86400)] == [old]
    assert new.exists()


def test_files_count_and_go_too(cache: Cache, tmp_path: Path) -> None:
    path = cache.publish_file("objects", "abc", ".o", write(tmp_path / "x.o", "text"))
    os.utime(path, (0, 0))
    assert cache.find_file("objects", "abc", ".o") == path
    assert path.stat().st_mtime > 0, "use is remembered"
    os.utime(path, (0, 0))
    (entry,) = cache.prune(0)
    assert (entry.kind, entry.path) == ("objects", path) and not path.exists()


def test_what_was_interrupted_is_swept_up(cache: Cache) -> None:
    model = fill(cache, "aa", 10, 86400)
    debris = model.parent / ".new-xyz"
    debris.mkdir()
    os.utime(debris, (0, 0))
    assert [entry.path for entry in cache.prune(1 << 30, unused=2 * 86400)] == [debris]


def test_clear_leaves_what_others_put_there(cache: Cache) -> None:
    fill(cache, "aa", 10, 0)
    other = write(cache.root / "mine.txt", "x")
    cache.clear()
    cache.clear()
    assert cache.entries() == [] and other.exists()


def test_pruning_looks_rarely(cache: Cache) -> None:
    old = fill(cache, "aa", 10, 86400)
    cache.prune_at_times(0)
    assert not old.exists()
    again = fill(cache, "bb", 10, 86400)
    cache.prune_at_times(0)
    assert again.exists()
    os.utime(cache.root / "pruned", (0, 0))
    cache.prune_at_times(0)
    assert not again.exists()


def test_a_cache_that_cannot_be_written_is_not_pruned(unwritable: Cache) -> None:
    unwritable.prune_at_times(0)
    assert unwritable.entries() == [] and unwritable.prune(0) == []


def test_clear_takes_whole_folders_out_of_the_way(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(cache, "aa", 10, 0)
    remove, seen = shutil.rmtree, list[Cache]()

    def look(path: Path, **options: Any) -> None:
        if path.name.startswith(".old-"):
            assert cache.entries() == [], "nobody finds half of an entry"
            seen.append(cache)
            fill(cache, "bb", 10, 0)  # another process compiles meanwhile
        remove(path, **options)

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", look)
        cache.clear()
    assert seen and [entry.path.name for entry in cache.entries()] == ["bb"]
    assert list(cache.root.glob(".*")) == []


def test_clear_removes_what_an_interrupted_one_left(cache: Cache) -> None:
    fill(cache, "aa", 10, 0)
    write(make(cache.root / ".old-xyz" / "models") / "weights.bin", "x")
    cache.clear()
    assert list(cache.root.iterdir()) == []


def make(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder
