"""PyTorch modules at real sizes, with random weights: what `benchmarks.pytorch` times."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import transformers

from benchmarks.zoo import export

INDUCTOR: Mapping[str, Mapping[str, bool]] = {
    "inductor": {"freezing": True},
    "inductor-cpp": {"freezing": True, "cpp_wrapper": True},
    "inductor-autotuned": {"freezing": True, "max_autotune": True},
}
"""Options of Inductor: weights frozen; what calls its kernels in C++ besides; its search for the best template of each
product."""

RUNTIMES = ("opweld", *INDUCTOR, "eager")
"""Backends of `torch.compile`, and PyTorch uncompiled."""

SAVED = ("opweld-saved", "inductor-saved")
"""Backends of `aot_compile`, which writes the file SAVED_FILE where there is none, and is loaded from it where there is
one. Inductor refuses to save frozen weights."""

SAVED_FILE = "OPWELD_BENCHMARK_SAVED"


class CachedStep(torch.nn.Module):
    """One token of GPT-2 behind a cache of keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.model = transformers.GPT2LMHeadModel(transformers.GPT2Config())

    def forward(self, input_ids: torch.Tensor, past: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """int64 [1, 1], float32 [layers, 2, 1, heads, tokens, 64] -> logits float32 [1, 1, 50257] and the cache with
        one token more."""
        cache = transformers.DynamicCache([(layer[0], layer[1]) for layer in past])
        output = self.model(input_ids=input_ids, past_key_values=cache, use_cache=True)
        longer = [torch.stack([layer.keys, layer.values]) for layer in output.past_key_values.layers]
        return output.logits, torch.stack(longer)


class Encoder(torch.nn.Module):
    """A model of transformers by its last hidden state alone."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """What `model` wants -> float32 [1, tokens, width]"""
        return self.model(x).last_hidden_state


class Denoiser(torch.nn.Module):
    """The U-Net of a latent diffusion model, as Stable Diffusion has it, at half of its widths."""

    def __init__(self) -> None:
        super().__init__()
        from diffusers import UNet2DConditionModel  # pyright: ignore[reportMissingImports]

        self.model: Any = UNet2DConditionModel(
            sample_size=32, block_out_channels=(160, 320, 640, 640), cross_attention_dim=768, attention_head_dim=8
        )

    def forward(self, sample: torch.Tensor, timestep: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        """float32 [1, 4, 32, 32], int64 [1], float32 [1, 77, 768] -> float32 [1, 4, 32, 32]"""
        return self.model(sample, timestep, words).sample


def _minilm() -> torch.nn.Module:
    config = transformers.BertConfig(
        hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536
    )
    return Encoder(transformers.BertModel(config))


def _whisper() -> torch.nn.Module:
    config = transformers.WhisperConfig(
        d_model=384, encoder_layers=4, encoder_attention_heads=6, encoder_ffn_dim=1536, decoder_layers=1
    )
    return Encoder(transformers.WhisperModel(config).encoder)


def _exported(name: str) -> torch.nn.Module:
    return export.ARCHITECTURES[name].build()


def _floats(*shape: int) -> torch.Tensor:
    return torch.randn(*shape)


def _words(*shape: int) -> torch.Tensor:
    return torch.randint(1000, 20000, shape)


def _own_inputs(name: str) -> dict[str, torch.Tensor]:
    return {given: export.example(given, 1) for given in export.ARCHITECTURES[name].inputs}


CATALOGUE: dict[str, tuple[Callable[[], torch.nn.Module], Callable[[], Mapping[str, torch.Tensor]]]] = {
    **{name: (partial(_exported, name), partial(_own_inputs, name)) for name in export.ARCHITECTURES},
    "minilm": (_minilm, lambda: {"x": _words(1, 64)}),
    "gpt2-decode": (CachedStep, lambda: {"input_ids": _words(1, 1), "past": _floats(12, 2, 1, 12, 512, 64)}),
    "whisper-tiny-encoder": (_whisper, lambda: {"x": _floats(1, 80, 3000)}),
    "sd-unet": (
        Denoiser,
        lambda: {
            "sample": _floats(1, 4, 32, 32),
            "timestep": torch.tensor([500]),
            "words": _floats(1, 77, 768),
        },
    ),
}
"""What makes a module, and what makes its inputs."""


def inputs(name: str) -> Mapping[str, torch.Tensor]:
    """The inputs of a module."""
    torch.manual_seed(1)
    return CATALOGUE[name][1]()


def opener(runtime: str, name: str, feeds: Mapping[str, Any], threads: int) -> Callable[[], Callable[[], object]]:
    """Makes the module; what it returns hands it to `torch.compile`, and returns what runs it."""
    values = {key: torch.from_numpy(array) for key, array in feeds.items()}
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    torch.manual_seed(0)
    module = CATALOGUE[name][0]().eval()
    export.randomise(module, name)
    if runtime in SAVED:
        return _ahead(runtime.removesuffix("-saved"), module, values)
    if runtime == "opweld":
        compiled = partial(torch.compile, module, backend="opweld", options={"strict": True})
    elif runtime == "eager":
        compiled = partial(_same, module)
    else:
        compiled = partial(torch.compile, module, options=dict(INDUCTOR[runtime]))
    return lambda: partial(compiled(), **values)


def _ahead(backend: str, module: torch.nn.Module, values: Mapping[str, Any]) -> Callable[[], Callable[[], object]]:
    """Loads what was saved into a process that has imported PyTorch's compiler; or saves it."""
    import_module("torch._functorch._aot_autograd.aot_autograd_result")  # for what is loaded, whatever the backend

    path = Path(os.environ[SAVED_FILE])

    def loaded() -> Callable[[], object]:
        with path.open("rb") as file:
            return partial(torch.compiler.load_compiled_function(file), module, **values)

    def saved() -> Callable[[], object]:
        # PyTorch cannot save all guards of transformers' modules; those of tensors are what answers need.
        guards: Any = {"guard_filter_fn": torch.compiler.keep_tensor_guards_unsafe}
        function: Any = torch.compile(_called, backend=backend, fullgraph=True, options=guards)
        made = function.aot_compile(((module,), dict(values)))
        made.save_compiled_function(str(path))
        return partial(made, module, **values)

    return loaded if path.exists() else saved


def _called(module: torch.nn.Module, **values: torch.Tensor) -> object:
    return module(**values)


def _same(module: torch.nn.Module) -> torch.nn.Module:
    return module
