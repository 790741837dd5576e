"""Opens a language model, whatever form its files have."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from opweld.errors import MissingModelError, ModelError, UnsupportedError
from opweld.llm.config import Config
from opweld.llm.encoder_config import EncoderConfig
from opweld.llm.fields import Fields
from opweld.llm.folder import architectures as folder_architectures
from opweld.llm.folder import weights as folder_weights
from opweld.llm.folder.encoder_weights import read_encoder_weights
from opweld.llm.folder.encoders import ENCODERS, read_encoder
from opweld.llm.folder.safetensors import files_of, read_json, read_tensors
from opweld.llm.folder.tokenizer import read_tokenizer as folder_tokenizer
from opweld.llm.gguf import architectures as gguf_architectures
from opweld.llm.gguf import weights as gguf_weights
from opweld.llm.gguf.header import read_header
from opweld.llm.gguf.vocabulary import read_tokenizer as gguf_tokenizer
from opweld.llm.requests import Sampling
from opweld.llm.tokenizer import Tokenizer
from opweld.llm.weights import Weights


@dataclass(frozen=True, eq=False)
class Opened:
    """A language model in its files.

    Attributes:
        config, weights: what it computes; weights are mapped, and read when they are called for.
        tokenizer: between texts and tokens.
        generation: how tokens are chosen where a request does not say.
        name: what the model is called where nobody gives it a name: that of its file or folder.
        files: those that its weights lie in.
    """

    config: Config
    weights: Weights
    tokenizer: Tokenizer
    generation: Sampling
    name: str
    files: tuple[Path, ...]


@dataclass(frozen=True, eq=False)
class OpenedEncoder:
    """An encoder in its files; attributes as those of `Opened`."""

    config: EncoderConfig
    weights: Weights
    tokenizer: Tokenizer
    name: str
    files: tuple[Path, ...]


def open_model(path: str | Path, context: int | None = None) -> Opened:
    """Opens a .gguf file, a folder of Hugging Face, of Optimum or of ONNX Runtime GenAI, or one with one .gguf file.

    Args:
        path: of the file or folder.
        context: the most tokens that a sequence will have; None: what the model was made for. Models with factors of
            LongRoPE (Phi-3) take those for long contexts only where it says so.

    Raises:
        MissingModelError: there is no model, or a part of it is missing.
        DamagedModelError: a file is truncated, or not what its name says.
        ModelError: parts contradict each other, or lead out of the folder.
        UnsupportedError: the architecture, a format or a feature is none of opweld's, or a package is missing.
    """
    path = Path(path)
    if path.is_file():
        return _open_gguf(path, context)
    if not path.is_dir():
        raise MissingModelError(f"there is no {path}; give a .gguf file, or a folder with config.json")
    exported = exported_model(path)
    if exported is not None and not is_encoder(path):
        return _open_exported(path, exported, context)
    if (path / "config.json").is_file():
        return _open_folder(path, context)
    files = sorted(path.glob("*.gguf"))
    if len(files) == 1:
        return _open_gguf(files[0], context)
    if files:
        raise ModelError(f"{path} has {len(files)} .gguf files: {', '.join(file.name for file in files)}; give one")
    raise MissingModelError(f"{path} has neither config.json, genai_config.json nor a .gguf file")


def is_encoder(path: str | Path) -> bool:
    """Whether a folder holds an encoder, which `open_encoder` opens; else `open_model` does, or says why not. Raises
    ModelError and DamagedModelError where config.json makes no sense."""
    described = Path(path) / "config.json"
    return described.is_file() and read_json(described).text("model_type", "") in ENCODERS


def open_encoder(path: str | Path) -> OpenedEncoder:
    """Opens an encoder: a folder with config.json, safetensors and tokenizer.json, and perhaps with what
    sentence-transformers says of pooling. Raises what `open_model` does."""
    path = Path(path)
    described = read_json(path / "config.json")
    if not is_encoder(path):
        raise UnsupportedError(f"{path} is no encoder that opweld knows; it reads {', '.join(ENCODERS)}")
    config, tensors = read_encoder(path, described), read_tensors(path)
    weights = read_encoder_weights(tensors, config, str(path))
    tokenizer = folder_tokenizer(path, described)
    _matching(config, tokenizer, str(path))
    return OpenedEncoder(config, weights, tokenizer, path.resolve().name, files_of(tensors))


def _open_gguf(path: Path, context: int | None) -> Opened:
    header = read_header(path)
    config = gguf_architectures.read_config(header, context)
    weights = gguf_weights.read_weights(header, config)
    tokenizer = gguf_tokenizer(header.metadata, header.file)
    _matching(config, tokenizer, header.file)
    return Opened(config, weights, tokenizer, Sampling(), path.stem, (path,))


def _open_folder(path: Path, context: int | None) -> Opened:
    described = read_json(path / "config.json")
    if is_encoder(path):
        raise UnsupportedError(
            f"{path} is an encoder ({described.get('model_type')}), which writes no text: it makes vectors of texts "
            "or scores pairs of them; `opweld serve` does that, or opweld.llm.Encoder"
        )
    config = folder_architectures.read_config(described, context)
    tensors = read_tensors(path)
    weights = folder_weights.read_weights(tensors, config, str(path))
    tokenizer = folder_tokenizer(path, described)
    _matching(config, tokenizer, str(path))
    return Opened(config, weights, tokenizer, _generation(path), path.resolve().name, files_of(tensors))


def exported_model(path: Path) -> Path | None:
    """The ONNX file of a folder that has its weights in one; None where it has safetensors, or no such file."""
    if list(path.glob("*.safetensors")):
        return None
    if (path / "genai_config.json").is_file():
        name = read_json(path / "genai_config.json").inner("model").inner("decoder").text("filename")
        if Path(name).name != name or name in ("", ".", ".."):
            raise ModelError(f"{path / 'genai_config.json'} names {name!r}: files beside it are read, no others")
        return path / name
    return path / "model.onnx" if (path / "model.onnx").is_file() else None


def _open_exported(path: Path, file: Path, context: int | None) -> Opened:
    """A folder of ONNX Runtime GenAI, or of Optimum: its graph is a source of weights, and of what they are for."""
    from opweld.frontend.contents import read_contents  # brings in onnx
    from opweld.llm.exported.architectures import is_builders
    from opweld.llm.exported.architectures import read_config as read_builders_config
    from opweld.llm.exported.tensors import named_tensors

    contents = read_contents(file)
    if (path / "genai_config.json").is_file():
        whole = read_json(path / "genai_config.json")
        described, sampling = whole.inner("model"), _sampling(whole.inner("search"))
        config = read_builders_config(contents, described.text("type"), described.integer("context_length"))
    else:
        described, sampling = read_json(path / "config.json"), _generation(path)
        config = replace(folder_architectures.read_config(described, context), norm_offset=0.0)
        if is_builders(contents):
            config = read_builders_config(contents, config.architecture, config.context)
    weights = folder_weights.read_weights(named_tensors(contents), config, str(file))
    tokenizer = folder_tokenizer(path, described)
    _matching(config, tokenizer, str(path))
    return Opened(config, weights, tokenizer, sampling, path.resolve().name, contents.files)


def _generation(path: Path) -> Sampling:
    generation = path / "generation_config.json"
    return _sampling(read_json(generation)) if generation.is_file() else Sampling()


def _matching(config: Config | EncoderConfig, tokenizer: Tokenizer, file: str) -> None:
    """An embedding may be padded, and lack rows of tokens that were added to the vocabulary (Gemma 3 without pictures
    has the token of one); no other token may lie beyond it."""
    if tokenizer.words > config.vocabulary:
        raise ModelError(
            f"{file}: the tokenizer has {tokenizer.words} tokens, the embedding {config.vocabulary} rows; the "
            "files are not of one model"
        )


def _sampling(fields: Fields) -> Sampling:
    """generation_config.json; transformers takes the likeliest token unless do_sample is set."""
    if not fields.flag("do_sample"):
        return Sampling(temperature=0.0, repetition_penalty=fields.positive("repetition_penalty", 1.0))
    return Sampling(
        temperature=fields.number("temperature", 1.0),
        top_k=fields.integer("top_k", 50, least=0),
        top_p=fields.number("top_p", 1.0),
        min_p=fields.number("min_p", 0.0),
        repetition_penalty=fields.positive("repetition_penalty", 1.0),
    )
