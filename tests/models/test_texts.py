"""The stages of real models: every text comes back, and every verifier agrees."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from benchmarks.zoo import fetch
from opweld import pipeline
from opweld.backends.c_forms import FORMS
from opweld.build.weights import WeightsFile
from opweld.fuse.region import Regions
from opweld.fuse.text import parse_regions, print_regions
from opweld.fuse.verify import verify_regions
from opweld.ledger import Ledger
from opweld.options import Options
from opweld.place.placed import Placed
from opweld.place.text import parse_placed, print_placed
from opweld.place.verify import verify_placed
from opweld.stages import Watched
from opweld.target import Target
from opweld.tensor.intern import compilation
from opweld.tensor.program import TensorProgram
from opweld.tensor.text import parse_program, print_program
from opweld.tile.launches import parse_launches, print_launches
from opweld.tile.module import ModuleVariant

pytestmark = pytest.mark.models


def check(made: object) -> bool:
    """Whether there was a text; it comes back, and what it says is well formed."""
    if isinstance(made, TensorProgram):
        text = print_program(made)
        assert print_program(parse_program(text)) == text
    elif isinstance(made, Regions):
        text = print_regions(made)
        regions = parse_regions(text)
        verify_regions(regions)
        assert print_regions(regions) == text
    elif isinstance(made, Placed):
        text = print_placed(made)
        placed = parse_placed(text)
        verify_placed(placed)
        assert print_placed(placed) == text
    elif isinstance(made, ModuleVariant):
        text = print_launches(made)
        kernels = {launch.kernel.name: launch.kernel for launch in made.launches}
        assert print_launches(parse_launches(text, kernels)) == text
    else:
        return False
    return True


@pytest.mark.parametrize("level", ["none", "all"])
@pytest.mark.parametrize("name", ["silero-vad", "minilm", "mobilenetv2"])
def test_every_text_of_a_real_model_comes_back(name: str, level: str) -> None:
    watched, met = Watched(None, debug=True, forms=FORMS), list[str]()

    def checked(stage: str, run: Any, /, *args: Any, **kwargs: Any) -> Any:
        made = watched(stage, run, *args, **kwargs)
        if check(made):
            met.append(stage)
        return made

    options, target = Options(level=level), Target.of("x86-64-v3")
    with compilation(), WeightsFile(Path(os.devnull)) as weights:
        source = pipeline.read(fetch.path(name), options, Ledger(level=level), checked)
        pipeline.generate(source, options, target, weights, checked)
    assert set(met) == {"outputs", "fuse", "place", "pack", "split_k", "reuse", "assemble"}
