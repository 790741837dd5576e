"""A detector whose anchors count over the sizes of its features, as both of PyTorch's exporters write it."""

from __future__ import annotations

import copy
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor, nn

import opweld
from opweld.verification.compare import relative_error
from tests.unit.cli.test_main import opweld as command


class Detector(nn.Module):
    """Two levels of features, a head of boxes and classes a level, and boxes decoded with anchors from `arange`."""

    def __init__(self) -> None:
        super().__init__()
        self.near, self.far = nn.Conv2d(3, 8, 3, 8, 1), nn.Conv2d(8, 8, 3, 2, 1)
        self.heads = nn.ModuleList(nn.Conv2d(8, 4 + 3, 1) for _ in range(2))

    def forward(self, images: Tensor) -> Tensor:
        near = torch.nn.functional.silu(self.near(images))
        features = [near, torch.nn.functional.silu(self.far(near))]
        anchors: list[Tensor] = []
        strides: list[Tensor] = []
        for feature, stride in zip(features, (8, 16), strict=True):
            rows, columns = feature.shape[2], feature.shape[3]
            x = torch.arange(end=columns, dtype=torch.float32) + 0.5
            y = torch.arange(end=rows, dtype=torch.float32) + 0.5
            y, x = torch.meshgrid(y, x, indexing="ij")
            anchors.append(torch.stack((x, y), -1).view(-1, 2))
            strides.append(torch.full((rows * columns, 1), float(stride)))
        centres, scale = torch.cat(anchors).transpose(0, 1), torch.cat(strides).transpose(0, 1)
        found = torch.cat([head(f).flatten(2) for head, f in zip(self.heads, features, strict=True)], 2)
        boxes, classes = found.split((4, 3), 1)
        left, right = boxes.chunk(2, 1)
        first, last = centres - left, centres + right
        return torch.cat((torch.cat(((first + last) / 2, last - first), 1) * scale, classes.sigmoid()), 1)


@pytest.fixture(scope="module", params=["script", "dynamo"])
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Detector]:
    torch.manual_seed(0)
    made, images = Detector().eval(), torch.randn(1, 3, 64, 96)
    path = tmp_path_factory.mktemp("detector") / f"{request.param}.onnx"
    names: Any = {"input_names": ["images"], "output_names": ["found"]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what PyTorch will drop one day
        if request.param == "script":
            axes = {"images": {0: "batch", 2: "height", 3: "width"}}
            torch.onnx.export(made, (images,), str(path), dynamo=False, opset_version=17, dynamic_axes=axes, **names)
        else:
            sizes: Any = {"images": {2: torch.export.Dim.DYNAMIC, 3: torch.export.Dim.DYNAMIC}}
            torch.onnx.export(
                made, (images,), str(path), dynamo=True, dynamic_shapes=sizes, external_data=False, **names
            )
    return path, made


def test_anchors_over_sizes_are_one_plan_with_its_amounts(exported: tuple[Path, Detector]) -> None:
    path, made = exported
    model = opweld.compile(str(path))
    assert not model.session.has_dynamic_control_flow
    account = json.loads(command("explain", path, "--json", "-").stdout)
    for rows, columns in ((64, 96), (48, 40)):
        images = np.random.default_rng(rows).standard_normal((1, 3, rows, columns), np.float32)
        with torch.no_grad():
            right = copy.deepcopy(made).double()(torch.from_numpy(images).double()).numpy()
        assert relative_error(model.run({"images": images})["found"], right)[0] < 1e-5
        plan = model.session.plan({"images": images})
        assert plan.arena > 0 and sum(step.bytes for step in plan.steps) > images.nbytes
        assert len(plan.steps) == len(account["kernels"])


def test_it_is_profiled_and_compared_value_by_value(exported: tuple[Path, Detector]) -> None:
    path, _ = exported
    dims = onnx.load(path).graph.input[0].type.tensor_type.shape.dim
    named = zip(dims[2:], (64, 96), strict=True)
    sizes = [part for dim, size in named for part in ("--dim", f"{dim.dim_param}={size}")]
    data = json.loads(command("profile", path, "--runs", 3, *sizes, "--json", "-").stdout)
    assert {kernel["segment"] for kernel in data["kernels"]} == {0}
    seen = command("verify", path, "--intermediates", *sizes, "--json", "-")
    assert seen.returncode == 0, seen.stderr
    assert not any(value["wrong"] for value in json.loads(seen.stdout)["values"])
