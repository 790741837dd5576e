"""Models of diffusers in tiny configurations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from tests.pytorch.families import diffusers_clips
from tests.pytorch.families.family import Family, Inputs
from tests.pytorch.families.packages import imported

_UNET: dict[str, Any] = {
    "sample_size": 16,
    "block_out_channels": (16, 32),
    "layers_per_block": 1,
    "norm_num_groups": 8,
    "attention_head_dim": 8,
}
_VAE: dict[str, Any] = {
    "block_out_channels": (16, 32),
    "down_block_types": ("DownEncoderBlock2D",) * 2,
    "up_block_types": ("UpDecoderBlock2D",) * 2,
    "norm_num_groups": 8,
    "layers_per_block": 1,
}
_LATENT: dict[str, Any] = {"sample_size": 16, "patch_size": 2, "num_attention_heads": 2, "attention_head_dim": 16}
_FLUX: dict[str, Any] = {"num_layers": 1, "num_single_layers": 1, "num_attention_heads": 2, "attention_head_dim": 16}

_MODELS: dict[str, dict[str, Any]] = {
    "UNet2DModel": {
        **_UNET,
        "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
        "up_block_types": ("AttnUpBlock2D", "UpBlock2D"),
    },
    "UNet2DConditionModel": {
        **_UNET,
        "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
        "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"),
        "cross_attention_dim": 24,
    },
    "AutoencoderKL": _VAE,
    "AsymmetricAutoencoderKL": {
        "down_block_types": ("DownEncoderBlock2D",) * 2,
        "up_block_types": ("UpDecoderBlock2D",) * 2,
        "down_block_out_channels": (16, 32),
        "up_block_out_channels": (16, 32),
        "norm_num_groups": 8,
    },
    "AutoencoderTiny": {"encoder_block_out_channels": (8,) * 4, "decoder_block_out_channels": (8,) * 4},
    "VQModel": {**_VAE, "num_vq_embeddings": 20},
    "DiTTransformer2DModel": {**_LATENT, "num_layers": 2, "num_embeds_ada_norm": 10, "in_channels": 4},
    "PixArtTransformer2DModel": {**_LATENT, "num_layers": 2, "cross_attention_dim": 32, "caption_channels": 24},
    "Transformer2DModel": {
        "num_attention_heads": 2,
        "attention_head_dim": 16,
        "in_channels": 4,
        "num_layers": 1,
        "norm_num_groups": 2,
        "cross_attention_dim": 24,
    },
    "SD3Transformer2DModel": {
        **_LATENT,
        "num_layers": 2,
        "joint_attention_dim": 24,
        "caption_projection_dim": 32,
        "pooled_projection_dim": 20,
        "pos_embed_max_size": 16,
        "in_channels": 4,
        "out_channels": 4,
    },
    "FluxTransformer2DModel": {
        **_FLUX,
        "joint_attention_dim": 24,
        "pooled_projection_dim": 20,
        "in_channels": 4,
        "axes_dims_rope": (4, 4, 8),
    },
    "SanaTransformer2DModel": {
        "sample_size": 16,
        "in_channels": 4,
        "out_channels": 4,
        "num_layers": 1,
        "num_attention_heads": 2,
        "attention_head_dim": 16,
        "num_cross_attention_heads": 2,
        "cross_attention_head_dim": 16,
        "cross_attention_dim": 32,
        "caption_channels": 24,
    },
    "ControlNetModel": {
        "block_out_channels": (16, 32),
        "layers_per_block": 1,
        "norm_num_groups": 8,
        "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"),
        "cross_attention_dim": 24,
        "attention_head_dim": 8,
        "conditioning_embedding_out_channels": (8, 16),
    },
    "T2IAdapter": {"channels": [8, 16], "num_res_blocks": 1, "downscale_factor": 4},
    "UNet3DConditionModel": {
        "block_out_channels": (16, 32),
        "layers_per_block": 1,
        "norm_num_groups": 8,
        "down_block_types": ("CrossAttnDownBlock3D", "DownBlock3D"),
        "up_block_types": ("UpBlock3D", "CrossAttnUpBlock3D"),
        "cross_attention_dim": 24,
        "attention_head_dim": 8,
    },
    "PriorTransformer": {
        "num_attention_heads": 2,
        "attention_head_dim": 16,
        "num_layers": 2,
        "embedding_dim": 24,
        "num_embeddings": 5,
        "additional_embeddings": 4,
    },
    "AuraFlowTransformer2DModel": {
        **_LATENT,
        "in_channels": 4,
        "num_mmdit_layers": 1,
        "num_single_dit_layers": 1,
        "joint_attention_dim": 24,
        "caption_projection_dim": 32,
        "pos_embed_max_size": 64,
    },
    "AutoencoderDC": {
        "latent_channels": 4,
        "attention_head_dim": 4,
        "encoder_block_types": ("ResBlock", "EfficientViTBlock"),
        "decoder_block_types": ("ResBlock", "EfficientViTBlock"),
        "encoder_block_out_channels": (8, 8),
        "decoder_block_out_channels": (8, 8),
        "encoder_layers_per_block": (1, 1),
        "decoder_layers_per_block": (1, 1),
        "encoder_qkv_multiscales": ((), (5,)),
        "decoder_qkv_multiscales": ((), (5,)),
    },
    "Kandinsky3UNet": {
        "time_embedding_dim": 32,
        "groups": 4,
        "attention_head_dim": 4,
        "layers_per_block": 2,
        "block_out_channels": (8, 16, 32, 64),
        "cross_attention_dim": 16,
        "encoder_hid_dim": 24,
    },
    "UVit2DModel": {
        "hidden_size": 32,
        "cond_embed_dim": 24,
        "micro_cond_encode_dim": 8,
        "micro_cond_embed_dim": 40,
        "encoder_hidden_size": 24,
        "vocab_size": 40,
        "codebook_size": 32,
        "in_channels": 16,
        "block_out_channels": 16,
        "num_res_blocks": 1,
        "block_num_heads": 2,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 48,
        "sample_size": 8,
    },
    "StableCascadeUNet": {
        "in_channels": 4,
        "out_channels": 4,
        "timestep_ratio_embedding_dim": 8,
        "conditioning_dim": 16,
        "block_out_channels": (16, 32),
        "num_attention_heads": (2, 4),
        "down_num_layers_per_block": (1, 1),
        "up_num_layers_per_block": (1, 1),
        "clip_text_pooled_in_channels": 20,
        "clip_seq": 2,
    },
    "CogView3PlusTransformer2DModel": {
        **_LATENT,
        "in_channels": 4,
        "out_channels": 4,
        "num_layers": 1,
        "text_embed_dim": 24,
        "time_embed_dim": 16,
        "condition_dim": 8,
        "pos_embed_max_size": 16,
    },
    "Lumina2Transformer2DModel": {
        "sample_size": 16,
        "in_channels": 4,
        "hidden_size": 32,
        "num_layers": 1,
        "num_refiner_layers": 1,
        "num_attention_heads": 2,
        "num_kv_heads": 1,
        "multiple_of": 16,
        "axes_dim_rope": (4, 4, 8),
        "axes_lens": (32, 16, 16),
        "cap_feat_dim": 24,
    },
    "SD3ControlNetModel": {
        **_LATENT,
        "num_layers": 2,
        "joint_attention_dim": 24,
        "caption_projection_dim": 32,
        "pooled_projection_dim": 20,
        "pos_embed_max_size": 16,
        "in_channels": 4,
        "out_channels": 4,
    },
    "QwenImageTransformer2DModel": {
        "num_layers": 1,
        "num_attention_heads": 2,
        "attention_head_dim": 16,
        "joint_attention_dim": 24,
        "in_channels": 16,
        "out_channels": 4,
        "axes_dims_rope": (4, 4, 8),
    },
    "WanTransformer3DModel": {
        "num_attention_heads": 2,
        "attention_head_dim": 12,
        "in_channels": 4,
        "out_channels": 4,
        "text_dim": 24,
        "freq_dim": 16,
        "ffn_dim": 32,
        "num_layers": 2,
        "rope_max_seq_len": 32,
    },
}


def families() -> Iterator[Family]:
    """A family is a class of diffusers."""
    models = {name: (options, partial(_inputs, name)) for name, options in _MODELS.items()} | diffusers_clips.MODELS
    for name, (options, inputs) in models.items():

        def make(
            name: str = name, options: dict[str, Any] = options, inputs: Callable[[int], Inputs] = inputs
        ) -> tuple[torch.nn.Module, list[Inputs]]:
            module = getattr(imported("diffusers"), name)(**options).eval()
            return module, [{**inputs(batch), **_constants(name)} for batch in (2, 3)]

        yield Family("diffusers", name, make)


def _constants(name: str) -> Inputs:
    """What says that the answer is a tuple, where the class is asked so."""
    if name in ("AutoencoderTiny", "T2IAdapter", "UVit2DModel"):
        return {}
    return {"return_dict": False}


def _inputs(name: str, batch: int) -> Inputs:
    channels = 4 if "Transformer" in name else 3
    latents = torch.randn(batch, channels, 16, 16)
    steps, texts = torch.tensor([7, 3, 5])[:batch], torch.randn(batch, 5, 24)
    match name:
        case "UNet2DModel":
            return {"sample": latents, "timestep": torch.tensor(7)}
        case "UNet2DConditionModel":
            conditioned = torch.randn(batch, 4, 16, 16)
            return {"sample": conditioned, "timestep": torch.tensor(7), "encoder_hidden_states": texts}
        case "ControlNetModel":
            seen = {"sample": torch.randn(batch, 4, 8, 8), "controlnet_cond": torch.randn(batch, 3, 16, 16)}
            return {**seen, "timestep": torch.tensor(7), "encoder_hidden_states": texts}
        case "T2IAdapter":
            return {"x": latents}
        case "UNet3DConditionModel":
            clips = torch.randn(batch, 4, 3, 8, 8)
            return {"sample": clips, "timestep": torch.tensor(7), "encoder_hidden_states": texts}
        case "PriorTransformer":
            seen = {"hidden_states": torch.randn(batch, 24), "proj_embedding": torch.randn(batch, 24)}
            return {**seen, "timestep": steps, "encoder_hidden_states": texts}
        case "AuraFlowTransformer2DModel":
            return {"hidden_states": latents, "encoder_hidden_states": texts, "timestep": steps / 10}
        case "WanTransformer3DModel":
            clips = torch.randn(batch, 4, 3, 8, 8)
            return {"hidden_states": clips, "timestep": steps, "encoder_hidden_states": texts}
        case "Kandinsky3UNet":
            told = {"encoder_hidden_states": texts, "encoder_attention_mask": torch.ones(batch, 5)}
            return {"sample": torch.randn(batch, 4, 16, 16), "timestep": steps, **told}
        case "UVit2DModel":
            told = {"encoder_hidden_states": texts, "pooled_text_emb": torch.randn(batch, 24)}
            return {"input_ids": torch.randint(0, 32, (batch, 8, 8)), **told, "micro_conds": torch.rand(batch, 5)}
        case "StableCascadeUNet":
            seen = {"sample": torch.randn(batch, 4, 8, 8), "timestep_ratio": torch.rand(batch)}
            return {**seen, "clip_text_pooled": torch.randn(batch, 1, 20)}
        case "CogView3PlusTransformer2DModel":
            sizes = dict.fromkeys(("original_size", "target_size", "crop_coords"), torch.full((batch, 2), 16.0))
            return {"hidden_states": latents, "timestep": steps, "encoder_hidden_states": texts, **sizes}
        case "Lumina2Transformer2DModel":
            told = {"encoder_hidden_states": texts, "encoder_attention_mask": torch.ones(batch, 5, dtype=torch.bool)}
            return {"hidden_states": latents, "timestep": steps, **told}
        case "SD3ControlNetModel":
            told = {"encoder_hidden_states": texts, "pooled_projections": torch.randn(batch, 20), "timestep": steps}
            seen = {"hidden_states": torch.randn(batch, 4, 16, 16), "controlnet_cond": torch.randn(batch, 4, 16, 16)}
            return {**seen, **told}
        case "QwenImageTransformer2DModel":
            told = {"encoder_hidden_states": texts, "encoder_hidden_states_mask": torch.ones(batch, 5)}
            places = {"img_shapes": [(1, 4, 4)]}
            return {"hidden_states": torch.randn(batch, 16, 16), "timestep": steps / 10, **told, **places}
        case "DiTTransformer2DModel":
            return {"hidden_states": latents, "timestep": steps, "class_labels": steps}
        case "Transformer2DModel":
            return {"hidden_states": latents, "encoder_hidden_states": texts}
        case "PixArtTransformer2DModel" | "SanaTransformer2DModel":
            more = {"added_cond_kwargs": {"resolution": None, "aspect_ratio": None}} if name.startswith("Pix") else {}
            return {"hidden_states": latents, "timestep": steps, "encoder_hidden_states": texts, **more}
        case "SD3Transformer2DModel":
            pooled = torch.randn(batch, 20)
            told = {"encoder_hidden_states": texts, "pooled_projections": pooled, "timestep": steps}
            return {"hidden_states": latents, **told}
        case "FluxTransformer2DModel":
            return {
                "hidden_states": torch.randn(batch, 16, 4),
                "encoder_hidden_states": texts,
                "pooled_projections": torch.randn(batch, 20),
                "timestep": torch.tensor([0.7, 0.3, 0.5])[:batch],
                "img_ids": torch.cartesian_prod(torch.zeros(1), torch.arange(4.0), torch.arange(4.0)),
                "txt_ids": torch.zeros(5, 3),
            }
        case _:
            return {"sample": latents}
