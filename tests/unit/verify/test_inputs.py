from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from opweld.build.artifact import TensorInfo
from opweld.errors import AssumptionError, InputError, OptionError
from opweld.verify.inputs import fitting_inputs, make_inputs

IMAGE = TensorInfo("x", "float32", ("n", 3, "h", "w"))
WORDS = TensorInfo("ids", "int64", ("n", "length"))
RATE = TensorInfo("sr", "int64", ())


def test_dims_are_given_declared_or_usual() -> None:
    feeds = make_inputs([IMAGE, WORDS, RATE], given={}, dims={"h": 64}, seed=1)
    assert {name: values.shape for name, values in feeds.items()} == {"x": (1, 3, 64, 320), "ids": (1, 64), "sr": ()}
    assert feeds["x"].dtype == np.float32
    assert feeds["ids"].dtype == np.int64
    assert set(np.unique(feeds["ids"])) <= {0, 1}


def test_a_dim_of_one_name_has_one_size_in_all_inputs() -> None:
    feeds = make_inputs([IMAGE, WORDS], given={}, dims={"n": 3})
    assert feeds["x"].shape[0] == feeds["ids"].shape[0] == 3


@pytest.mark.parametrize("dim", ["", "?", -1])
def test_dims_without_a_name_get_a_usual_size(dim: str | int) -> None:
    assert make_inputs([TensorInfo("s", "float32", (1, dim))], given={}, dims={})["s"].shape == (1, 512)


def test_the_same_seed_gives_the_same_inputs() -> None:
    one, two, other = (make_inputs([IMAGE], given={}, dims={}, seed=seed)["x"] for seed in (1, 1, 2))
    assert np.array_equal(one, two)
    assert not np.array_equal(one, other)


def test_given_files_numbers_and_shapes(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((2, 3, 4, 4), np.float32))
    given = {"x": str(tmp_path / "x.npy"), "ids": "2x7", "sr": "16000"}
    feeds = make_inputs([IMAGE, WORDS, RATE], given=given, dims={})
    assert feeds["x"].shape == (2, 3, 4, 4)
    assert feeds["ids"].shape == (2, 7)
    assert feeds["sr"].shape == () and feeds["sr"] == 16000
    assert float(make_inputs([IMAGE], given={"x": "-1.5"}, dims={})["x"].mean()) == -1.5


@pytest.mark.parametrize(
    ("given", "dims", "error", "message"),
    [
        ({"y": "1"}, {}, OptionError, "--input 'y': the model's inputs are x, ids"),
        ({}, {"depth": 1}, OptionError, "--dim 'depth': the inputs' symbolic dims are h, length, n, w"),
        ({"x": "absent.npy"}, {}, InputError, "--input x=absent.npy: no array in that file"),
        ({"x": "{folder}/text.npy"}, {}, InputError, "no array in that file"),
        ({"x": "{folder}/pickle.npy"}, {}, InputError, "no array in that file"),
        ({"ids": "1.5"}, {}, OptionError, "expected a .npy file, a int64 number, or a shape"),
        ({"ids": "99999999999999999999"}, {}, OptionError, "expected a .npy file"),
        ({"ids": "1x2x3"}, {}, InputError, "declares rank 2, this is rank 3"),
        ({}, {"h": 1 << 40}, InputError, "give it as a .npy file"),
    ],
)
def test_what_cannot_be_is_refused(
    given: dict[str, str], dims: dict[str, int], error: type[Exception], message: str, tmp_path: Path
) -> None:
    (tmp_path / "text.npy").write_text("hello")
    np.save(tmp_path / "pickle.npy", np.array([{}], object), allow_pickle=True)
    texts = {name: text.format(folder=tmp_path) for name, text in given.items()}
    with pytest.raises(error, match=message):
        make_inputs([IMAGE, WORDS], given=texts, dims=dims)


def test_an_input_of_any_rank_must_be_given() -> None:
    with pytest.raises(InputError, match="no declared rank"):
        make_inputs([TensorInfo("x", "float32", None)], given={}, dims={})


def binding(fits: Callable[[tuple[int, ...]], bool], tried: list[tuple[int, ...]]) -> Callable[..., None]:
    def bind(feeds: Mapping[str, np.ndarray]) -> None:
        tried.append(feeds["x"].shape)
        if not fits(feeds["x"].shape):
            raise AssumptionError("no")

    return bind


def test_sizes_that_fit_are_found() -> None:
    tried: list[tuple[int, ...]] = []
    feeds, found = fitting_inputs([IMAGE], binding(lambda s: s[2] == 48, tried), given={}, dims={})
    assert feeds["x"].shape == (1, 3, 48, 320)
    assert found
    assert not fitting_inputs([IMAGE], binding(lambda s: True, tried), given={}, dims={})[1]
    both = fitting_inputs([IMAGE], binding(lambda s: s[2] == 2 * s[3] == 96, tried), given={}, dims={})[0]
    assert both["x"].shape[2:] == (96, 48)
    unnamed = TensorInfo("x", "float32", (-1, "", 4))
    assert fitting_inputs([unnamed], binding(lambda s: s[1] == 7, tried), given={}, dims={})[0]["x"].shape == (1, 7, 4)


def test_what_is_given_is_not_changed() -> None:
    tried: list[tuple[int, ...]] = []
    with pytest.raises(AssumptionError):
        fitting_inputs([IMAGE], binding(lambda s: s[2] == 48, tried), given={}, dims={"h": 64})
    assert {shape[2] for shape in tried} == {64}
    with pytest.raises(AssumptionError):
        fitting_inputs([IMAGE], binding(lambda s: False, tried), given={"x": "1x3x8x8"}, dims={})
