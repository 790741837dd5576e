"""What is found at a path."""

from __future__ import annotations

import pytest

from opweld.serve.open_inference.paths import Paths

TEMPLATES = ("/v2", "/v2/models/stats", "/v2/models/{model}", "/v2/models/{model}/infer", "/v2/{any}/{model}/stats")
PATHS = Paths({template: template.upper() for template in TEMPLATES})


@pytest.mark.parametrize(
    ("path", "template", "names"),
    [
        ("/v2", "/v2", {}),
        ("/v2/models/stats", "/v2/models/stats", {}),
        ("/v2/models/resnet", "/v2/models/{model}", {"model": "resnet"}),
        ("/v2/models/{model}", "/v2/models/{model}", {"model": "{model}"}),
        # A word that leads nowhere is a name.
        ("/v2/models/stats/infer", "/v2/models/{model}/infer", {"model": "stats"}),
        ("/v2/models/one/stats", "/v2/{any}/{model}/stats", {"any": "models", "model": "one"}),
        ("/v2/models/stats/stats", "/v2/{any}/{model}/stats", {"any": "models", "model": "stats"}),
    ],
)
def test_found(path: str, template: str, names: dict[str, str]) -> None:
    assert PATHS.find(path) == (template, template.upper(), names)


@pytest.mark.parametrize(
    "path", ["", "/", "/v2/", "v2", "/v2/models", "/v2/models/", "/v2/models//infer", "/v2/models/a/infer/", "/v3" * 9]
)
def test_not_found(path: str) -> None:
    assert PATHS.find(path) is None


def test_what_is_kept_is_what_is_found() -> None:
    paths = Paths({template: template.upper() for template in TEMPLATES})
    for _ in range(2):
        for number in range(600):
            assert paths.find(f"/v2/models/{number}") == (TEMPLATES[2], TEMPLATES[2].upper(), {"model": str(number)})
        assert paths.find("/v2/models") is None
        long = "x" * 10_000
        assert paths.find(f"/v2/models/{long}") == (TEMPLATES[2], TEMPLATES[2].upper(), {"model": long})
