"""The programs: what to install, and which models of the zoo they are given."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Program:
    """A package from PyPI that runs models with onnxruntime.

    Attributes:
        name: of its driver.
        requires: what is asked of pip; its lock file holds what that came to.
        about: what it does.
        models: names of zoo models that are laid into its folder, for programs that bring none.
        environment: of its virtual environment and its lock file, where that is not its name.
        tolerance: how far numbers may be apart, as a part of the largest of their array.
    """

    name: str
    requires: tuple[str, ...]
    about: str
    models: tuple[str, ...] = ()
    environment: str = ""
    tolerance: float = 1e-3


_TORCH = "torch==2.13.0"
_SPEECHMOS = ("speechmos==0.0.1.1", "librosa", "pandas", "tqdm")

PROGRAMS = (
    Program("magika", ("magika==1.0.3",), "types of files"),
    Program("silero_vad", ("silero-vad==6.2.3", _TORCH), "speech in sound"),
    Program("faster_whisper", ("faster-whisper==1.2.1",), "speech in sound, all windows at once"),
    # Its quantised model moves half as far from one level of onnxruntime to the next.
    Program("pipecat", ("pipecat-ai==1.14.0",), "has the speaker finished?", tolerance=5e-3),
    Program("speechmos", _SPEECHMOS, "quality of speech: DNSMOS, AECMOS"),
    Program("plcmos", _SPEECHMOS, "quality of speech: PLCMOS", environment="speechmos"),
    Program("swift_f0", ("swift-f0==0.3.0",), "pitch of sound"),
    Program("onnx_asr", ("onnx-asr==0.12.0",), "features of speech by convolutions, resampling"),
    # onnxruntime's transform is 2.2e-3 from its own convolution of the same features, from which opweld's is 1.7e-5.
    Program(
        "onnx_asr_stft",
        ("onnx-asr==0.12.0",),
        "features of speech by transforms",
        environment="onnx_asr",
        tolerance=5e-3,
    ),
    Program("rapidocr", ("rapidocr==3.10.0",), "text in pictures, PP-OCRv6"),
    Program("rapidocr_onnxruntime", ("rapidocr-onnxruntime==1.4.4",), "text in pictures, PP-OCRv4"),
    Program("rapid_layout", ("rapid-layout==1.2.1",), "layout of pages"),
    Program("ddddocr", ("ddddocr==1.6.1",), "captchas: text, objects, slides"),
    Program("ddddocr_text", ("ddddocr==1.6.1",), "captchas: text, with a quantised model", environment="ddddocr"),
    Program("nudenet", ("nudenet==3.4.2",), "detector, YOLO"),
    Program("rembg", ("rembg==2.0.86",), "backgrounds, with a model made here"),
    Program("fastembed", ("fastembed==0.9.1",), "embeddings of text", models=("minilm",)),
    Program("optimum", ("optimum-onnx[onnxruntime]==0.1.0", _TORCH), "Transformers on onnxruntime, tiny models"),
    Program("onnxslim", ("onnxslim==0.1.98",), "simplifies a model, and checks it", models=("ppocrv4-cls",)),
    Program("polygraphy", ("polygraphy==0.53.6",), "runs and compares models", models=("ppocrv4-cls",)),
)
