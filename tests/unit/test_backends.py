from __future__ import annotations

import dataclasses
import threading
from pathlib import Path

import pytest

from opweld.backends import BACKENDS, backend_of, target_of
from opweld.backends import c as c_backend
from opweld.backends.c import CStages
from opweld.errors import OptionError
from opweld.options import TARGETS
from opweld.target import Target


@pytest.mark.parametrize("name", TARGETS[1:])
def test_every_target_has_one_backend(name: str) -> None:
    assert [backend for backend in BACKENDS if name in backend.targets] == [backend_of(target_of(name))]


def test_a_machine_without_one_is_refused() -> None:
    machine = dataclasses.replace(Target.of("aarch64"), name="vax")
    with pytest.raises(OptionError, match="no backend compiles for 'vax'; there are some for x86-64-v3"):
        backend_of(machine)


def test_the_runtime_is_compiled_while_a_model_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    done, by = threading.Event(), list[str]()

    def build(out: Path, target: Target) -> Path:
        by.append(threading.current_thread().name)
        done.set()
        return out

    monkeypatch.setattr(c_backend, "build_runtime", build)
    with CStages().preparing(Target.of("x86-64-v3")):
        assert done.wait(60), "nobody waits for a program"
    assert by != [threading.current_thread().name]
