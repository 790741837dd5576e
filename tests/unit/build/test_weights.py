"""The weights file: where images are, and which of them share memory."""

from pathlib import Path

import numpy as np

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
    assert places == [0, 20032, 0, 20032]
    data = path.read_bytes()
    assert len(data) == weights.size == 40064 and not any(place % ALIGNMENT for place in places)
    assert [np.frombuffer(data, np.float32, 5000, place).tobytes() for place in places[:2]] == [
        one.tobytes(),
        two.tobytes(),
    ]
