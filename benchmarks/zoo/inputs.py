"""Example inputs: for every model the feeds that it would meet in use, at several shapes where its dims are dynamic.

`example("minilm", 1)` and `example("minilm", "batch 2 x 64")` are the same arrays, and
the same in every run: they depend on variant and seed alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.zoo import pictures, signals
from benchmarks.zoo.catalogue import MODELS, ZooError

Feed = dict[str, NDArray[np.generic]]
Maker = Callable[[np.random.Generator], Feed]

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_DEVIATION = (0.229, 0.224, 0.225)
HALF = (0.5, 0.5, 0.5)


@dataclass(frozen=True)
class Variant:
    """One way to feed a model."""

    label: str
    make: Maker
    valid: bool = True
    """False: the model itself refuses this shape, and so must every runtime, with a clear error."""


def variants(name: str) -> tuple[Variant, ...]:
    """The variants of a model, the one to benchmark first. Raises ZooError when there is no such model."""
    if name not in MODELS:
        raise ZooError(f"the zoo has no model {name!r}; it has {', '.join(MODELS)}")
    return VARIANTS[MODELS[name].feeds]


def example(name: str, variant: int | str = 0, seed: int = 0) -> Feed:
    """The feed of a model for one variant, by position or label.

    Raises ZooError when the model or the variant does not exist.
    """
    known = variants(name)
    if isinstance(variant, int) and 0 <= variant < len(known):
        chosen = known[variant]
    else:
        matching = [candidate for candidate in known if candidate.label == variant]
        if not matching:
            labels = ", ".join(repr(candidate.label) for candidate in known)
            raise ZooError(f"{name} has no variant {variant!r}; it has 0 to {len(known) - 1}: {labels}")
        chosen = matching[0]
    key = hashlib.sha256(f"{MODELS[name].feeds}/{chosen.label}/{seed}".encode()).digest()
    return chosen.make(np.random.Generator(np.random.Philox(int.from_bytes(key[:8], "little"))))


def _signs(name: str, height: int, width: int, batch: int = 1) -> Maker:
    def make(random: np.random.Generator) -> Feed:
        scenes = [pictures.street_signs(height, width, random) for _ in range(batch)]
        rows = [pictures.normalised(scene, HALF, HALF) for scene in scenes]
        return {name: np.concatenate(rows)}

    return make


def _line(name: str, width: int, text: str, *, flipped: bool = False, batch: int = 1) -> Maker:
    def make(random: np.random.Generator) -> Feed:
        rows: list[NDArray[np.float32]] = []
        for _ in range(batch):
            picture = pictures.text_line(48, width, text, random)
            rows.append(pictures.normalised(picture[::-1, ::-1] if flipped else picture, HALF, HALF))
        return {name: np.concatenate(rows)}

    return make


def _captcha(width: int, text: str) -> Maker:
    def make(random: np.random.Generator) -> Feed:
        grey = pictures.text_line(64, width, text, random).mean(axis=2, dtype=np.float32)
        return {"input1": grey[None, None]}

    return make


def _page(random: np.random.Generator) -> Feed:
    page = pictures.document(800, 608, random)
    return {"image": pictures.normalised(page, IMAGENET_MEAN, IMAGENET_DEVIATION)}


def _photograph(side: int, mean: tuple[float, ...], deviation: tuple[float, ...]) -> Maker:
    def make(random: np.random.Generator) -> Feed:
        return {"pixel_values": pictures.normalised(pictures.photograph(side, side, random), mean, deviation)}

    return make


def _noise(name: str, shape: tuple[int, ...]) -> Maker:
    def make(random: np.random.Generator) -> Feed:
        return {name: random.standard_normal(shape, dtype=np.float32)}

    return make


def _sentences(batch: int, length: int, *, segments: bool = False) -> Maker:
    def make(random: np.random.Generator) -> Feed:
        ids, mask = signals.sentences(batch, length, random)
        feed: Feed = {"input_ids": ids, "attention_mask": mask}
        if segments:
            feed["token_type_ids"] = (mask * (np.arange(length) >= length // 2)).astype(np.int64)
        return feed

    return make


def _prompt(used: int) -> Maker:
    """A prompt for the decoder: ids below 32000, padded on the left as decoders are."""

    def make(random: np.random.Generator) -> Feed:
        mask = (np.arange(128) >= 128 - used).astype(np.int64)[None]
        return {"input_ids": random.integers(3, 32000, (1, 128)) * mask, "attention_mask": mask}

    return make


def _speech(samples: int, rate: int, batch: int = 1, *, quiet: bool = False) -> Maker:
    """A chunk of sound with the state that the model would have left behind."""

    def make(random: np.random.Generator) -> Feed:
        sound = signals.voiced_sound(samples, rate, random, batch=batch)
        state = np.zeros((2, batch, 128)) if quiet else np.tanh(random.normal(0.0, 0.5, (2, batch, 128)))
        return {
            "input": sound * np.float32(0.01 if quiet else 1.0),
            "state": state.astype(np.float32),
            "sr": np.array(rate, dtype=np.int64),
        }

    return make


def _without(make: Maker, *names: str) -> Maker:
    def trimmed(random: np.random.Generator) -> Feed:
        return {name: array for name, array in make(random).items() if name not in names}

    return trimmed


def _speech_sequence(chunks: int) -> Maker:
    def make(random: np.random.Generator) -> Feed:
        states = np.tanh(random.normal(0.0, 0.5, (2, 1, 1, 128))).astype(np.float32)
        sound = signals.voiced_sound(576 * chunks, 16000, random).reshape(chunks, 576)
        return {"input": sound, "h": states[0], "c": states[1]}

    return make


def _files(*contents: bytes | Callable[[np.random.Generator], bytes]) -> Maker:
    def make(random: np.random.Generator) -> Feed:
        files = [content if isinstance(content, bytes) else content(random) for content in contents]
        return {"bytes": np.stack([signals.byte_features(file) for file in files])}

    return make


_SPEECH = (
    Variant("16 kHz", _speech(576, 16000)),
    Variant("16 kHz, batch 3", _speech(576, 16000, batch=3)),
    Variant("16 kHz, near silence", _speech(576, 16000, quiet=True)),
)

_SPEECH_BOTH_RATES = (
    Variant("16 kHz", _speech(576, 16000)),
    Variant("8 kHz", _speech(288, 8000)),
    *_SPEECH[1:],
    Variant("chunk without context", _speech(512, 16000)),
)

VARIANTS: dict[str, tuple[Variant, ...]] = {
    "text-detector": (
        Variant("640 x 480", _signs("x", 640, 480)),
        Variant("320 x 320", _signs("x", 320, 320)),
        Variant("736 x 1280", _signs("x", 736, 1280)),
        Variant("batch 2 of 96 x 160", _signs("x", 96, 160, batch=2)),
        Variant("dims agree by rounding: 94 x 159", _signs("x", 94, 159)),
        Variant("noise 64 x 64", _noise("x", (1, 3, 64, 64))),
        Variant("not divisible: 330 x 250", _signs("x", 330, 250), valid=False),
    ),
    "text-recogniser": (
        Variant("320 wide", _line("x", 320, "HOTEL 128")),
        Variant("160 wide", _line("x", 160, "CAFE")),
        Variant("batch 2 of 488", _line("x", 488, "NORTH STATION", batch=2)),
        Variant("noise 100 wide", _noise("x", (1, 3, 48, 100))),
    ),
    "text-direction": (
        Variant("upright", _line("x", 192, "HOTEL")),
        Variant("upside down", _line("x", 192, "HOTEL", flipped=True)),
        Variant("batch 6", _line("x", 192, "OPEN", batch=6)),
        Variant("noise", _noise("x", (1, 3, 48, 192))),
    ),
    "captcha": (
        Variant("160 wide", _captcha(160, "K7XW")),
        Variant("120 wide", _captcha(120, "A2C")),
        Variant("250 wide", _captcha(250, "NORTH")),
        Variant("noise 128 wide", _noise("input1", (1, 1, 64, 128))),
    ),
    "page": (Variant("document", _page), Variant("noise", _noise("image", (1, 3, 800, 608)))),
    "image-imagenet": (
        Variant("photograph", _photograph(224, IMAGENET_MEAN, IMAGENET_DEVIATION)),
        Variant("noise", _noise("pixel_values", (1, 3, 224, 224))),
    ),
    "image-half": (
        Variant("photograph", _photograph(224, HALF, HALF)),
        Variant("noise", _noise("pixel_values", (1, 3, 224, 224))),
    ),
    "sentences": (
        Variant("batch 1 x 128", _sentences(1, 128)),
        Variant("batch 2 x 64", _sentences(2, 64)),
        Variant("batch 3 x 16", _sentences(3, 16)),
        Variant("batch 1 x 7", _sentences(1, 7)),
    ),
    "sentence-pair": (
        Variant("128 tokens", _sentences(1, 128, segments=True)),
        Variant(
            "padded",
            lambda random: {name: rows[1:] for name, rows in _sentences(2, 128, segments=True)(random).items()},
        ),
    ),
    "prompt": (Variant("128 tokens", _prompt(128)), Variant("padded", _prompt(90))),
    "speech": (*_SPEECH_BOTH_RATES, Variant("chunk too long: 1600", _speech(1600, 16000), valid=False)),
    "speech-any-length": (*_SPEECH_BOTH_RATES, Variant("long chunk: 1600", _speech(1600, 16000))),
    "speech-16k": _SPEECH,
    "speech-16k-rateless": tuple(Variant(each.label, _without(each.make, "sr")) for each in _SPEECH),
    "speech-16k-single": (Variant("16 kHz", _without(_SPEECH[0].make, "sr")),),
    "speech-sequence": (
        Variant("30 chunks", _speech_sequence(30)),
        Variant("1 chunk", _speech_sequence(1)),
        Variant("97 chunks", _speech_sequence(97)),
    ),
    "file": (
        Variant("python source", _files(signals.SOURCE_TEXT)),
        Variant(
            "batch 4", _files(signals.PAGE_TEXT, signals.portable_network_graphics, signals.archive, b"a,b\n1,2\n3,4\n")
        ),
        Variant("batch 2, random bytes", _files(lambda random: random.bytes(5000), lambda random: random.bytes(100))),
    ),
}
"""The variants of each kind of feed; several models share a kind (`Model.feeds`)."""
