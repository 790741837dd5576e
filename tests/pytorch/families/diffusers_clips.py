"""Models of diffusers for clips and sound, in tiny configurations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tests.pytorch.families.family import Inputs

_HEADS: dict[str, Any] = {"num_attention_heads": 2, "attention_head_dim": 16}
_LATENTS: dict[str, Any] = {**_HEADS, "in_channels": 4, "out_channels": 4, "num_layers": 1}


def _texts(batch: int) -> torch.Tensor:
    return torch.randn(batch, 5, 24)


def _steps(batch: int) -> torch.Tensor:
    return torch.tensor([7, 3, 5])[:batch]


def _motion(batch: int) -> Inputs:
    clips, texts = torch.randn(batch, 4, 3, 8, 8), torch.randn(3 * batch, 5, 24)
    return {"sample": clips, "timestep": torch.tensor(7), "encoder_hidden_states": texts}


def _stable_video(batch: int) -> Inputs:
    told = {"timestep": torch.tensor(7), "encoder_hidden_states": torch.randn(batch, 1, 24)}
    return {"sample": torch.randn(batch, 3, 8, 8, 8), **told, "added_time_ids": torch.rand(batch, 3)}


def _frames_first(batch: int) -> Inputs:
    clips = torch.randn(batch, 3, 4, 8, 8)
    return {"hidden_states": clips, "encoder_hidden_states": _texts(batch), "timestep": _steps(batch)}


def _channels_first(batch: int) -> Inputs:
    clips, masks = torch.randn(batch, 4, 3, 8, 8), torch.ones(batch, 5)
    told = {"encoder_hidden_states": _texts(batch), "encoder_attention_mask": masks}
    return {"hidden_states": clips, "timestep": _steps(batch), **told}


def _ltx(batch: int) -> Inputs:
    told = {"encoder_hidden_states": _texts(batch), "encoder_attention_mask": torch.ones(batch, 5)}
    sizes = {"num_frames": 3, "height": 4, "width": 4}
    return {"hidden_states": torch.randn(batch, 48, 4), "timestep": _steps(batch), **told, **sizes}


def _stable_audio(batch: int) -> Inputs:
    angles = torch.randn(17, 8)
    return {
        "hidden_states": torch.randn(batch, 4, 16),
        "timestep": _steps(batch),
        "encoder_hidden_states": _texts(batch),
        "global_hidden_states": torch.randn(batch, 1, 20),
        "rotary_embedding": (angles.cos(), angles.sin()),
    }


MODELS: dict[str, tuple[dict[str, Any], Callable[[int], Inputs]]] = {
    "UNetMotionModel": (
        {
            "block_out_channels": (16, 32),
            "layers_per_block": 1,
            "norm_num_groups": 8,
            "down_block_types": ("CrossAttnDownBlockMotion", "DownBlockMotion"),
            "up_block_types": ("UpBlockMotion", "CrossAttnUpBlockMotion"),
            "cross_attention_dim": 24,
            "num_attention_heads": 2,
            "motion_num_attention_heads": 2,
        },
        _motion,
    ),
    "UNetSpatioTemporalConditionModel": (
        {
            "block_out_channels": (32, 64),
            "layers_per_block": 1,
            "down_block_types": ("CrossAttnDownBlockSpatioTemporal", "DownBlockSpatioTemporal"),
            "up_block_types": ("UpBlockSpatioTemporal", "CrossAttnUpBlockSpatioTemporal"),
            "cross_attention_dim": 24,
            "num_attention_heads": (2, 4),
            "addition_time_embed_dim": 8,
            "projection_class_embeddings_input_dim": 24,
            "num_frames": 3,
        },
        _stable_video,
    ),
    "CogVideoXTransformer3DModel": (
        {
            **_LATENTS,
            "time_embed_dim": 16,
            "text_embed_dim": 24,
            "sample_width": 8,
            "sample_height": 8,
            "sample_frames": 9,
            "max_text_seq_length": 5,
        },
        _frames_first,
    ),
    "LTXVideoTransformer3DModel": (
        {**_LATENTS, "cross_attention_dim": 32, "caption_channels": 24},
        _ltx,
    ),
    "MochiTransformer3DModel": (
        {**_LATENTS, "pooled_projection_dim": 16, "text_embed_dim": 24, "time_embed_dim": 16},
        _channels_first,
    ),
    "UNet1DModel": (
        {"sample_size": 64, "extra_in_channels": 64, "block_out_channels": (32, 32, 64)},
        lambda batch: {"sample": torch.randn(batch, 2, 64), "timestep": _steps(batch)},
    ),
    "StableAudioDiTModel": (
        {
            **_LATENTS,
            "sample_size": 16,
            "num_key_value_attention_heads": 2,
            "cross_attention_dim": 32,
            "time_proj_dim": 16,
            "global_states_input_dim": 20,
            "cross_attention_input_dim": 24,
        },
        _stable_audio,
    ),
    "AutoencoderKLTemporalDecoder": (
        {
            "block_out_channels": (32, 32),
            "down_block_types": ("DownEncoderBlock2D",) * 2,
            "layers_per_block": 1,
        },
        lambda batch: {"sample": torch.randn(2 * batch, 3, 16, 16), "num_frames": 2},
    ),
    "AutoencoderKLWan": (
        {"base_dim": 8, "z_dim": 16, "dim_mult": [1, 2], "num_res_blocks": 1, "temperal_downsample": [True]},
        lambda batch: {"sample": torch.randn(batch, 3, 5, 16, 16)},
    ),
    "AutoencoderOobleck": (
        {
            "encoder_hidden_size": 16,
            "downsampling_ratios": [2, 4],
            "channel_multiples": [1, 2],
            "decoder_channels": 12,
            "decoder_input_channels": 8,
        },
        lambda batch: {"sample": torch.randn(batch, 2, 256)},
    ),
}
"""Options of each class, and what it is fed with so many clips."""
