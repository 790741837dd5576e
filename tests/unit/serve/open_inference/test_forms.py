"""The JSON of requests is read once, and what is behind it is checked each time."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from opweld.errors import InputError
from opweld.serve.inference.model import TensorModel
from opweld.serve.open_inference import json_fields
from opweld.serve.open_inference.forms import Forms
from opweld.serve.open_inference.http_infer import Asked, asked
from opweld.serve.open_inference.regions import Regions
from opweld.serve.refusal import Refusal
from tests.unit.serve.open_inference.running import tensor
from tests.unit.serve.tensor_models import FakeRepository

MODELS = FakeRepository()


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of what is read as JSON."""
    sizes: list[int] = []
    parsed = json_fields.parsed

    def counted(raw: Any) -> Any:
        sizes.append(len(raw))
        return parsed(raw)

    monkeypatch.setattr(json_fields, "parsed", counted)
    return sizes


def ask(forms: Forms, model: TensorModel, request: dict[str, Any], *tensors: bytes) -> Asked:
    text = json.dumps(request).encode()
    return asked(model, text + b"".join(tensors), len(text), forms, Regions(allowed=True), 1000)


def of_bytes(datatype: str, count: int, size: int, **fields: Any) -> dict[str, Any]:
    return {"inputs": [tensor("x", datatype, [count], binary_data_size=size)], **fields}


def test_the_same_json_is_read_once(read: list[int]) -> None:
    forms, model = Forms(), MODELS.get("same_FP32")
    for value in (1.0, 2.0, 3.0):
        request = of_bytes("FP32", 2, 8, id="a", outputs=[{"name": "y"}], parameters={"timeout": 5})
        found = ask(forms, model, request, np.full(2, value, np.float32).tobytes())
        assert found.feeds["x"].tolist() == [value, value]
        assert (found.id, found.parameters, found.binary) == ("a", {"timeout": 5}, False)
        assert found.wanted is not None and [one.name for one in found.wanted] == ["y"]
    assert len(read) == 1
    assert ask(forms, model, of_bytes("FP32", 1, 4), bytes(4)).feeds["x"].shape == (1,)
    assert len(read) == 2


@pytest.mark.parametrize(
    ("datatype", "count", "size", "right", "wrong", "said"),
    [
        ("FP32", 2, 8, bytes(8), bytes(7), "but 7 bytes of the body are left"),
        ("FP32", 2, 8, bytes(8), bytes(9), "1 bytes at the end of the body belong to no input"),
        ("BOOL", 2, 2, b"\0\1", b"\0\2", "neither 0 nor 1"),
        ("BYTES", 1, 5, b"\1\0\0\0a", b"\2\0\0\0a", "said to have 2 bytes, but 1 are left"),
    ],
)
def test_what_is_behind_known_json_is_checked(
    read: list[int], datatype: str, count: int, size: int, right: bytes, wrong: bytes, said: str
) -> None:
    forms, model = Forms(), MODELS.get(f"same_{datatype}")
    request = of_bytes(datatype, count, size)
    ask(forms, model, request, right)
    with pytest.raises(InputError, match=said):
        ask(forms, model, request, wrong)
    ask(forms, model, request, right)
    assert len(read) == 1


def test_shared_memory_of_known_json_is_looked_up_each_time(read: list[int]) -> None:
    forms, model = Forms(), MODELS.get("same_FP32")
    place = {"shared_memory_region": "gone", "shared_memory_byte_size": 8}
    for _ in range(2):
        with pytest.raises(Refusal, match="no shared memory region gone"):
            ask(forms, model, {"inputs": [tensor("x", "FP32", [2], **place)]})
    assert len(read) == 1


def test_another_model_reads_the_same_json_itself() -> None:
    forms, request = Forms(), of_bytes("FP32", 2, 8)
    ask(forms, MODELS.get("same_FP32"), request, bytes(8))
    for _ in range(2):
        with pytest.raises(InputError, match="x is sent as FP32; the model takes FP64"):
            ask(forms, MODELS.get("same_FP64"), request, bytes(8))


def test_few_forms_are_kept_and_none_that_is_long() -> None:
    forms, model = Forms(), MODELS.get("same_FP32")
    for number in range(200):
        ask(forms, model, of_bytes("FP32", 1, 4, id=f"{number}"), bytes(4))
    kept = len(forms)
    assert 0 < kept < 100
    forms = Forms()
    ask(forms, model, of_bytes("FP32", 1, 4, id="x" * 5000), bytes(4))
    assert len(forms) == 0
