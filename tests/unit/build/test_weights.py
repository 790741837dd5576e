"""The weights file: where images are, and which of them share memory."""

import errno
import hashlib
from pathlib import Path

import numpy as np
import pytest

from opweld.build.weights import ALIGNMENT, WeightsFile


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
