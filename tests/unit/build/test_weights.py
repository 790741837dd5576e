"""The weights file: where images are, and which of them share memory."""

import errno
import hashlib
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opweld.build.weights import ALIGNMENT, HUGE_PAGE, WeightsFile, by_pages


def test_equal_images_are_there_once_and_images_with_an_equal_sample_apart(tmp_path: Path) -> None:
    one = np.arange(5000, dtype=np.float32)
    two = one.copy()
    two[1] = 7  # between the bytes of the sample
    path = tmp_path / "weights.bin"
    with WeightsFile(path) as weights:
        places = [
            weights.put(name, lambda image=image: image)
            for name, image in zip("abcd", (one, two, one, two), strict=True)
        ]
        digest = weights.finish()
    assert places == [0, 20032, 0, 20032]
    data = path.read_bytes()
    assert digest == hashlib.sha256(data).hexdigest()
    assert len(data) == weights.size == 40064 and not any(place % ALIGNMENT for place in places)
    assert [np.frombuffer(data, np.float32, 5000, place).tobytes() for place in places[:2]] == [
        one.tobytes(),
        two.tobytes(),
    ]


def test_a_disk_that_is_full_is_told_by_the_next_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(data: memoryview) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with WeightsFile(tmp_path / "weights.bin") as weights:
        monkeypatch.setattr(weights, "_append", full)
        weights.put("a", lambda: np.arange(4))
        with pytest.raises(OSError, match="No space"):
            weights.finish()


@pytest.mark.parametrize("offset", [0, 64, HUGE_PAGE - 64, HUGE_PAGE])
@pytest.mark.parametrize("size", [0, 64, HUGE_PAGE, 3 * HUGE_PAGE + 192])
def test_pieces_end_where_huge_pages_do(offset: int, size: int) -> None:
    data = np.arange(size, dtype=np.uint8).data
    pieces = list(by_pages(data, offset))
    assert b"".join(pieces) == data.tobytes()
    ends = offset + np.cumsum([piece.nbytes for piece in pieces], dtype=int)
    assert not any(end % HUGE_PAGE for end in ends[:-1])
    assert all(0 < piece.nbytes <= HUGE_PAGE for piece in pieces)


def test_a_file_is_written_in_whole_huge_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = [np.arange(size, dtype=np.float32) for size in (16, HUGE_PAGE // 3, HUGE_PAGE, 16)]
    path = tmp_path / "weights.bin"
    written: list[int] = []

    class Raw(io.FileIO):
        def write(self, data: Any, /) -> int:
            written.append(memoryview(data).nbytes)
            return super().write(data)

    def opened(path: Path, mode: str, buffering: int) -> io.BufferedRandom:
        return io.BufferedRandom(Raw(path, mode), buffering)

    monkeypatch.setattr(Path, "open", opened)
    with WeightsFile(path) as weights:
        places = [weights.put(str(number), lambda image=image: image) for number, image in enumerate(images)]
        weights.finish()
    assert set(written[:-1]) == {HUGE_PAGE}, "all but the rest in the end"
    monkeypatch.undo()
    data = path.read_bytes()
    for place, image in zip(places, images, strict=True):
        assert data[place : place + image.nbytes] == image.tobytes()
