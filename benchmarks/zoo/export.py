"""Exports one architecture with random weights to ONNX: `python -m benchmarks.zoo.export ARCHITECTURE OUT [--raw]`.

The weights are drawn by NumPy's Philox generator, keyed by parameter name, from uniform distributions: integer
arithmetic and single roundings only, so that every machine draws the same bits (torch's normal_ does not promise it).
They keep activations in a useful range and make nothing trivial: no zero bias, no identity normalisation, BatchNorm
statistics included. Runs in a process of its own, because torch holds gigabytes once it has exported.
"""

from __future__ import annotations

import argparse
import hashlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
import transformers

TOKENS = 128
SIDE = 224


class ImageClassifier(torch.nn.Module):
    """A classifier with plain tensors in and out, as an exporter wants it."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        """pixel_values float32 [1, 3, 224, 224] -> logits float32 [1, 1000]."""
        return self.model(pixel_values=pixel_values).logits


class Encoder(torch.nn.Module):
    """An encoder with plain tensors in and out."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, token_type_ids: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Three int64 [1, 128] -> last_hidden_state float32 [1, 128, 768], pooled float32 [1, 768]."""
        output = self.model(input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids)
        return output.last_hidden_state, output.pooler_output


class Decoder(torch.nn.Module):
    """A decoder without a key-value cache, plain tensors in and out."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Two int64 [1, 128] -> logits float32 [1, 128, 32000], every position (prefill)."""
        return self.model(input_ids=input_ids, attention_mask=attention_mask, use_cache=False).logits


@dataclass(frozen=True)
class Architecture:
    """How one module is built and what its inputs and outputs are called."""

    build: Callable[[], torch.nn.Module]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def _image(model: Callable[[Any], torch.nn.Module], config: Callable[..., Any], **options: Any) -> Architecture:
    return Architecture(
        lambda: ImageClassifier(model(config(num_labels=1000, **options))), ("pixel_values",), ("logits",)
    )


def _llama_160m() -> torch.nn.Module:
    config = transformers.LlamaConfig(
        vocab_size=32000,
        hidden_size=768,
        intermediate_size=3072,
        num_hidden_layers=12,
        num_attention_heads=12,
        num_key_value_heads=12,
        max_position_embeddings=2048,
    )
    return Decoder(transformers.LlamaForCausalLM(config))


ARCHITECTURES: dict[str, Architecture] = {
    "resnet50": _image(transformers.ResNetForImageClassification, transformers.ResNetConfig),
    "mobilenetv2": _image(transformers.MobileNetV2ForImageClassification, transformers.MobileNetV2Config),
    "convnext-tiny": _image(transformers.ConvNextForImageClassification, transformers.ConvNextConfig),
    "vit-base": _image(transformers.ViTForImageClassification, transformers.ViTConfig),
    "bert-base": Architecture(
        lambda: Encoder(transformers.BertModel(transformers.BertConfig())),
        ("input_ids", "attention_mask", "token_type_ids"),
        ("last_hidden_state", "pooled"),
    ),
    "llama-160m": Architecture(_llama_160m, ("input_ids", "attention_mask"), ("logits",)),
}


def export(architecture: str, out: Path, *, raw: bool, batch: int = 1) -> None:
    """Writes the model to `out`; `raw` switches the exporter's own optimisation off, so BatchNorm nodes stay. `batch`
    is fixed in it."""
    recipe = ARCHITECTURES[architecture]
    module = _built(architecture)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        made: Any = torch.onnx.export(
            module,
            tuple(example(name, batch) for name in recipe.inputs),
            dynamo=True,
            optimize=not raw,
            input_names=list(recipe.inputs),
            output_names=list(recipe.outputs),
            verbose=False,
        )
    proto: onnx.ModelProto = made.model_proto
    strip_provenance(proto)
    out.write_bytes(proto.SerializeToString(deterministic=True))


def program(architecture: str, out: Path, batch: int = 1) -> None:
    """Writes the module itself to `out`, for torch.export.load: what Inductor compiles."""
    recipe = ARCHITECTURES[architecture]
    with torch.no_grad():
        values = {name: example(name, batch) for name in recipe.inputs}
        torch.export.save(torch.export.export(_built(architecture), (), values), out)


def _built(architecture: str) -> torch.nn.Module:
    torch.manual_seed(0)
    module = ARCHITECTURES[architecture].build().eval()
    randomise(module, architecture)
    return module


def randomise(module: torch.nn.Module, seed: str) -> None:
    """Fills every parameter and running statistic in place from (seed, its name)."""
    modules = dict(module.named_modules())
    tensors = dict(module.named_parameters())
    tensors |= {name: buffer for name, buffer in module.named_buffers() if "running_" in name}
    with torch.no_grad():
        for name, tensor in tensors.items():
            owner, _, leaf = name.rpartition(".")
            low, high = _bounds(modules[owner], leaf, tensor)
            key = int.from_bytes(hashlib.sha256(f"{seed}/{name}".encode()).digest()[:8], "little")
            random = np.random.Generator(np.random.Philox(key))
            unit = random.random(tuple(tensor.shape), dtype=np.float32)
            tensor.copy_(torch.from_numpy(np.asarray(unit * np.float32(high - low) + np.float32(low))))


def _bounds(owner: torch.nn.Module, leaf: str, tensor: torch.Tensor) -> tuple[float, float]:
    """The interval a parameter is drawn from: it keeps the scale of activations, and norms are not the identity.

    Convolutions draw a little wider, for the ReLU after them; offsets stay small, so that what the network was fed
    still decides its output and not the sum of its biases.
    """
    if leaf == "running_var" or (leaf == "weight" and tensor.dim() == 1):
        return 0.5, 1.5
    if isinstance(owner, torch.nn.Embedding):
        return -0.5, 0.5
    if leaf == "weight" and tensor.dim() >= 2:
        gain = 4.0 if isinstance(owner, torch.nn.Conv2d) else 3.0
        reach = float(np.sqrt(gain / tensor[0].numel()))
        return -reach, reach
    return -0.1, 0.1


def strip_provenance(proto: onnx.ModelProto) -> None:
    """Drops stack traces, source paths and doc strings: they differ from machine to machine and name its folders."""
    proto.producer_version = torch.__version__.partition("+")[0]
    proto.doc_string = ""
    del proto.metadata_props[:]
    graph = proto.graph
    graph.doc_string = ""
    del graph.metadata_props[:]
    for item in (*graph.node, *graph.initializer, *graph.input, *graph.output, *graph.value_info):
        item.doc_string = ""
        del item.metadata_props[:]


def example(name: str, batch: int) -> torch.Tensor:
    """An input by its name."""
    if name == "pixel_values":
        return torch.zeros(batch, 3, SIDE, SIDE)
    if name == "input_ids":
        return torch.arange(TOKENS, dtype=torch.int64).repeat(batch, 1) + 1000
    if name == "attention_mask":
        return torch.ones(batch, TOKENS, dtype=torch.int64)
    return torch.zeros(batch, TOKENS, dtype=torch.int64)


def main() -> None:
    """The command line of the export process."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.zoo.export", description=export.__doc__)
    parser.add_argument("architecture", choices=sorted(ARCHITECTURES))
    parser.add_argument("out", type=Path)
    parser.add_argument("--raw", action="store_true")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--program", action="store_true", help="a torch.export file instead of ONNX")
    arguments = parser.parse_args()
    if arguments.program:
        program(arguments.architecture, arguments.out, arguments.batch)
    else:
        export(arguments.architecture, arguments.out, raw=arguments.raw, batch=arguments.batch)


if __name__ == "__main__":
    main()
