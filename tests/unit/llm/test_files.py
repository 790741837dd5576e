"""Opening a model, whatever form its files have; and what is said of a folder that is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from opweld.errors import MissingModelError, ModelError
from opweld.llm.files import open_model
from tests.unit.llm.ggufs import made


def test_a_file_or_a_folder_with_one(tmp_path: Path) -> None:
    path = made("llama").write(tmp_path / "tiny.gguf")
    for given in (path, str(path), tmp_path):
        opened = open_model(given)
        assert opened.name == "tiny"
        assert opened.config.architecture == "llama"
        assert opened.tokenizer.vocabulary == 258


def test_what_is_no_model_is_told(tmp_path: Path) -> None:
    with pytest.raises(MissingModelError, match=r"there is no .*nowhere"):
        open_model(tmp_path / "nowhere")
    with pytest.raises(MissingModelError, match=r"neither config\.json nor a \.gguf"):
        open_model(tmp_path)
    made("llama").write(tmp_path / "a.gguf")
    made("llama").write(tmp_path / "b.gguf")
    with pytest.raises(ModelError, match=r"2 \.gguf files: a\.gguf, b\.gguf"):
        open_model(tmp_path)
