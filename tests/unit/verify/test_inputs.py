from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import opweld
from opweld.build.artifact import TensorInfo
from opweld.errors import AssumptionError, InputError, OptionError
from opweld.verification.expected import Expectation, expectation_of
from opweld.verification.inputs import described, fitting_inputs, make_inputs
from tests.unit.cli.test_main import opweld as command

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


def test_a_name_has_the_usual_size_of_its_first_place_wherever_it_stands() -> None:
    state = TensorInfo("state", "float32", (2, "batch", 128))
    sound = TensorInfo("sound", "float32", ("batch", "samples"))
    feeds = make_inputs([sound, state], given={}, dims={})
    assert (feeds["sound"].shape, feeds["state"].shape) == ((1, 512), (2, 1, 128))


SOUND = [
    TensorInfo("sound", "float32", ("", "")),
    TensorInfo("state", "float32", (2, "", 128)),
    TensorInfo("rate", "int64", ()),
]
EXPECTED = Expectation({("sound", 0): 1, ("sound", 1): 256}, {("rate", 0): 16000})


def takes(length: int, rate: int) -> Callable[[Mapping[str, np.ndarray]], object]:
    """A model of two branches, which the rate decides; the first takes sound of a length."""

    def binds(feeds: Mapping[str, np.ndarray]) -> None:
        sound, state = feeds["sound"], feeds["state"]
        if state.shape[1] != sound.shape[0] or (feeds["rate"] == rate) != (sound.shape[1] == length):
            raise AssumptionError("not these sizes")

    return binds


@pytest.mark.parametrize(("length", "searched"), [(512, True), (256, True), (96, True)])
def test_the_likeliest_variant_is_fed_at_usual_or_expected_sizes(length: int, searched: bool) -> None:
    feeds, found = fitting_inputs(SOUND, takes(length, 16000), given={}, dims={}, expected=EXPECTED)
    assert feeds["rate"] == 16000, "the branch of the likeliest variant"
    assert feeds["sound"].shape[1] == length and feeds["state"].shape[1] == feeds["sound"].shape[0]
    assert length == 96 or feeds["sound"].shape[0] == 1
    assert found == searched


def test_what_is_given_is_stronger_than_what_is_expected() -> None:
    given = {"rate": "8000"}
    feeds, _ = fitting_inputs(SOUND, takes(512, 8000), given=given, dims={}, expected=EXPECTED)
    assert feeds["rate"] == 8000 and feeds["sound"].shape == (1, 512)


def test_what_was_fed_is_described() -> None:
    feeds = {"x": np.zeros((1, 3), np.float32), "rate": np.array(16000), "z": np.zeros(4, np.int64)}
    text = described(feeds, {"z": "z.npy"})
    assert "1x3" in text and "rate 16000" in text and "z 4 as given" in text


def test_a_compiled_model_expects_the_number_of_its_first_branch(tmp_path: Path) -> None:
    """A rate of 16000 halves what it is fed, any other doubles it."""
    branches = {
        name: helper.make_graph(
            [helper.make_node("Mul", ["x", name], [f"{name}_out"])],
            name,
            [],
            [helper.make_tensor_value_info(f"{name}_out", TensorProto.FLOAT, ["n", "m"])],
        )
        for name in ("half", "two")
    }
    graph = helper.make_graph(
        [
            helper.make_node("Equal", ["rate", "fast"], ["is_fast"]),
            helper.make_node("If", ["is_fast"], ["y"], then_branch=branches["half"], else_branch=branches["two"]),
        ],
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", "m"]),
            helper.make_tensor_value_info("rate", TensorProto.INT64, []),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", "m"])],
        [
            helper.make_tensor("fast", TensorProto.INT64, [], [16000]),
            helper.make_tensor("half", TensorProto.FLOAT, [], [0.5]),
            helper.make_tensor("two", TensorProto.FLOAT, [], [2.0]),
        ],
    )
    model = opweld.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9))
    expected = expectation_of(model.path)
    assert expected.numbers == {("rate", 0): 16000}
    feeds, _ = fitting_inputs(model.inputs, model.session.check, given={}, dims={}, expected=expected)
    np.testing.assert_array_equal(model.run(feeds)["y"], feeds["x"] / 2)


def graph_network(path: Path, nodes: int | str = "nodes") -> Path:
    """Messages along edges [2, n], from nodes to nodes."""
    made = [
        helper.make_node("Constant", [], ["first"], value_int=0),
        helper.make_node("Constant", [], ["second"], value_int=1),
        helper.make_node("Constant", [], ["behind"], value_ints=[1]),
        helper.make_node("Gather", ["edges", "first"], ["from"], axis=0),
        helper.make_node("Gather", ["edges", "second"], ["into"], axis=0),
        helper.make_node("Gather", ["x", "from"], ["messages"], axis=0, name="take"),
        helper.make_node("Unsqueeze", ["into", "behind"], ["places"]),
        helper.make_node("Sub", ["x", "x"], ["nothing"]),
        helper.make_node("ScatterND", ["nothing", "places", "messages"], ["y"], reduction="add", name="put"),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [nodes, 4]),
        helper.make_tensor_value_info("edges", TensorProto.INT64, [2, "edges"]),
    ]
    graph = helper.make_graph(made, "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


@pytest.mark.parametrize("nodes", ["nodes", 1])
def test_integers_that_choose_elements_stay_within_them(tmp_path: Path, nodes: int | str) -> None:
    """A graph of one node has edges from it to itself alone."""
    model = opweld.compile(graph_network(tmp_path / "m.onnx", nodes))
    expected = expectation_of(model.path)
    assert expected.indexed["edges"] == (((("x", 0), 1),) if nodes == "nodes" else (1,))
    feeds, _ = fitting_inputs(model.inputs, model.session.check, given={}, dims={}, expected=expected)
    assert feeds["x"].shape[0] == 1 and not feeds["edges"].any()
    assert model.run(feeds)["y"].shape == (1, 4)
    if nodes == "nodes":
        feeds, _ = fitting_inputs(model.inputs, model.session.check, given={}, dims={"nodes": 2}, expected=expected)
        assert set(np.unique(feeds["edges"])) == {0, 1}


def test_who_made_up_inputs_says_so_where_they_fail(tmp_path: Path) -> None:
    path = graph_network(tmp_path / "m.onnx", 1)
    np.save(tmp_path / "edges.npy", np.full((2, 3), 7))
    failed = command("run", path, "--input", f"edges={tmp_path / 'edges.npy'}")
    assert failed.returncode == 1 and "'x' were made up" in failed.stderr and "--input x=FILE.npy" in failed.stderr
    np.save(tmp_path / "x.npy", np.zeros((1, 4), np.float32))
    given = [f"{name}={tmp_path / name}.npy" for name in ("edges", "x")]
    failed = command("run", path, "--input", given[0], "--input", given[1])
    assert failed.returncode == 1 and "made up" not in failed.stderr
