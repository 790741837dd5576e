"""The architectures: those of `transformers` in tiny configurations, and plain modules of modules.py.

Sizes are small, odd, and different from each other, so that a size taken for another shows. The first sizes are those
of the export: none is 1, which exporters take for a constant. Dropout is off, weights are random
(`benchmarks.zoo.export`).
"""

from __future__ import annotations

from typing import Any

from tests.architectures.architecture import EXPORTERS, Architecture, Input, Sizes

VOCABULARY = 60
SEQUENCES: tuple[Sizes, ...] = ({"batch": 2, "sequence": 9}, {"batch": 1, "sequence": 5}, {"batch": 3, "sequence": 16})
BATCHES: tuple[Sizes, ...] = ({"batch": 2}, {"batch": 1}, {"batch": 3})
IMAGES: tuple[Sizes, ...] = (
    {"batch": 2, "height": 32, "width": 64},
    {"batch": 1, "height": 64, "width": 32},
    {"batch": 3, "height": 96, "width": 64},
)


def ids(name: str = "input_ids", dims: tuple[int | str, ...] = ("batch", "sequence"), below: int = VOCABULARY) -> Input:
    return Input(name, dims, "ids", below)


def mask(name: str = "attention_mask", dims: tuple[int | str, ...] = ("batch", "sequence")) -> Input:
    return Input(name, dims, "mask")


def text(
    name: str,
    family: str,
    kind: str = "Model",
    *,
    inputs: tuple[Input, ...] = (),
    fixed: dict[str, Any] | None = None,
    exporters: tuple[str, ...] = EXPORTERS,
    why: str = "",
    **options: Any,
) -> Architecture:
    """A model of tokens, in a configuration whose parameters have the usual names."""
    usual = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 48,
        "max_position_embeddings": 40,
    }
    return Architecture(
        name,
        f"{family}{kind}",
        f"{family}Config",
        {k: v for k, v in {**usual, **options}.items() if v is not None},
        inputs or (ids(), mask()),
        SEQUENCES,
        fixed or {},
        exporters,
        why,
    )


def decoder(name: str, family: str, kind: str = "ForCausalLM", **options: Any) -> Architecture:
    """A causal language model without a cache: every token's logits."""
    usual: dict[str, Any] = {"num_key_value_heads": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    fixed = {"use_cache": False}
    return text(name, family, kind, fixed=fixed, **{**usual, **options})


def step(name: str, family: str, heads: int, size: int, kind: str = "ForCausalLM", **options: Any) -> Architecture:
    """A causal language model with a key-value cache: one or more tokens after those of the cache."""
    cached = tuple(
        Input(f"past_{what}_{layer}", ("batch", heads, "past", size)) for layer in (0, 1) for what in ("key", "value")
    )
    entry = decoder(name, family, kind, **options)
    inputs = (ids(), mask(dims=("batch", "total")), *cached)
    sizes = tuple(
        {"batch": batch, "sequence": sequence, "past": past, "total": sequence + past}
        for batch, sequence, past in ((2, 3, 6), (1, 1, 11), (3, 5, 2))
    )
    return Architecture(name, entry.module, entry.config, entry.options, inputs, sizes)


def pair(name: str, family: str, kind: str = "Model", *, source: Input | None = None, **options: Any) -> Architecture:
    """An encoder and a decoder, fed with a source and what is known of the target."""
    usual = {
        "vocab_size": VOCABULARY,
        "d_model": 32,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 48,
        "decoder_ffn_dim": 48,
        "max_position_embeddings": 40,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "decoder_start_token_id": 2,
    }
    inputs = (*((source,) if source else (ids(), mask())), ids("decoder_input_ids", ("batch", "target")))
    sizes = tuple({**sizes, "target": target} for sizes, target in zip(SEQUENCES, (4, 1, 7), strict=True))
    options = {k: v for k, v in {**usual, **options}.items() if v is not None}
    return Architecture(name, f"{family}{kind}", f"{family}Config", options, inputs, sizes, {"use_cache": False})


def picture(
    name: str,
    family: str,
    kind: str = "ForImageClassification",
    *,
    side: int = 32,
    free: bool = False,
    inputs: tuple[Input, ...] = (),
    fixed: dict[str, Any] | None = None,
    sizes: tuple[Sizes, ...] = (),
    **options: Any,
) -> Architecture:
    """A model of images: square ones of a side, or of free height and width."""
    image = Input("pixel_values", ("batch", 3, "height", "width") if free else ("batch", 3, side, side))
    return Architecture(
        name,
        f"{family}{kind}",
        f"{family}Config",
        options,
        (image, *inputs),
        sizes or (IMAGES if free else BATCHES),
        fixed or {},
    )


def transformer(**options: Any) -> dict[str, Any]:
    """The usual parameters of a vision transformer."""
    usual = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    return {**usual, "image_size": 32, "patch_size": 8, **options}


def sound(name: str, family: str, **options: Any) -> Architecture:
    """A model of waveforms."""
    usual = {
        "vocab_size": 32,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 48,
        "conv_dim": (16, 16, 16),
        "conv_stride": (5, 2, 2),
        "conv_kernel": (10, 3, 2),
        "num_conv_pos_embeddings": 16,
        "num_conv_pos_embedding_groups": 4,
    }
    inputs = (Input("input_values", ("batch", "samples")),)
    sizes = ({"batch": 2, "samples": 400}, {"batch": 1, "samples": 333}, {"batch": 3, "samples": 801})
    return Architecture(name, f"{family}Model", f"{family}Config", {**usual, **options}, inputs, sizes)


def plain(name: str, module: str, inputs: tuple[Input, ...], sizes: tuple[Sizes, ...], **options: Any) -> Architecture:
    """A module of modules.py."""
    return Architecture(name, module, "", options, inputs, sizes)


IMAGE = Input("image", ("batch", 3, "height", "width"))
ODD_IMAGES: tuple[Sizes, ...] = (
    {"batch": 2, "height": 16, "width": 24},
    {"batch": 1, "height": 19, "width": 13},
    {"batch": 3, "height": 32, "width": 40},
)
EVEN_IMAGES: tuple[Sizes, ...] = (
    {"batch": 2, "height": 16, "width": 24},
    {"batch": 1, "height": 8, "width": 32},
    {"batch": 3, "height": 32, "width": 40},
)
SERIES = Input("series", ("batch", "time", 8))
TIMES: tuple[Sizes, ...] = ({"batch": 2, "time": 12}, {"batch": 1, "time": 7}, {"batch": 3, "time": 31})

ENCODERS = (
    text("bert", "Bert", inputs=(ids(), mask(), ids("token_type_ids", below=2))),
    text("roberta", "Roberta", pad_token_id=0),
    text("xlm-roberta", "XLMRoberta", pad_token_id=0),
    text("camembert", "Camembert", pad_token_id=0),
    text("distilbert", "DistilBert", dim=32, hidden_dim=48, n_layers=2, n_heads=4),
    text("albert", "Albert", embedding_size=16),
    text("electra", "Electra", embedding_size=16),
    text("deberta", "Deberta", relative_attention=True, pos_att_type=["c2p", "p2c"], max_relative_positions=12),
    text("deberta-v2", "DebertaV2", relative_attention=True, pos_att_type=["c2p", "p2c"], max_relative_positions=12),
    text("mpnet", "MPNet", pad_token_id=0),
    text("mobilebert", "MobileBert", embedding_size=16, intra_bottleneck_size=16, true_hidden_size=16),
    text("squeezebert", "SqueezeBert", embedding_size=32),
    text("convbert", "ConvBert", embedding_size=32, head_ratio=2, conv_kernel_size=3),
    text("rembert", "RemBert", input_embedding_size=16),
    text("roformer", "RoFormer", embedding_size=32),
    text(
        "nystromformer",
        "Nystromformer",
        inputs=(ids(dims=("batch", 16)),),
        num_landmarks=16,
        segment_means_seq_len=16,
    ),
    text("fnet", "FNet", inputs=(ids(),), num_attention_heads=None),
    text("esm", "Esm", pad_token_id=0, mask_token_id=3, position_embedding_type="rotary"),
    text("ernie", "Ernie", pad_token_id=0),
    text(
        "xlnet",
        "XLNet",
        max_position_embeddings=None,
        d_model=32,
        n_layer=2,
        n_head=4,
        d_inner=48,
        fixed={"use_mems": False},
    ),
    text("longformer", "Longformer", attention_window=4, pad_token_id=0),
    text("ibert", "IBert", pad_token_id=0),
    text("modernbert", "ModernBert", pad_token_id=0, global_attn_every_n_layers=2, local_attention=8),
    text("nomic-bert", "NomicBert", pad_token_id=0),
    text(
        "layoutlm",
        "LayoutLM",
        inputs=(ids(), Input("bbox", ("batch", "sequence", 4), "boxes", 40), mask()),
        max_2d_position_embeddings=48,
    ),
    text(
        "lilt",
        "Lilt",
        hidden_size=48,
        inputs=(ids(), Input("bbox", ("batch", "sequence", 4), "boxes", 40), mask()),
        max_2d_position_embeddings=48,
        pad_token_id=0,
    ),
    text(
        "tapas",
        "Tapas",
        inputs=(ids(), mask(), Input("token_type_ids", ("batch", "sequence", 7), "ids", 2)),
        type_vocab_sizes=[3, 8, 8, 2, 8, 8, 4],
        reset_position_index_per_cell=False,
    ),
    text("big-bird", "BigBird", attention_type="original_full", pad_token_id=0),
    text("flaubert", "Flaubert", emb_dim=32, n_layers=2, n_heads=4),
    text(
        "perceiver",
        "Perceiver",
        inputs=(Input("inputs", ("batch", "sequence", 20)),),
        num_latents=6,
        d_latents=16,
        d_model=20,
        num_blocks=1,
        num_self_attends_per_block=2,
        num_self_attention_heads=2,
        num_cross_attention_heads=2,
    ),
)

DECODERS = (
    text("gpt2", "GPT2", "LMHeadModel", fixed={"use_cache": False}, n_embd=32, n_layer=2, n_head=4, n_positions=40),
    decoder("gpt-neo", "GPTNeo", num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]], window_size=4),
    decoder("gptj", "GPTJ", n_embd=32, n_layer=2, n_head=4, n_positions=40, rotary_dim=4),
    decoder("gpt-neox", "GPTNeoX"),
    decoder("gpt-bigcode", "GPTBigCode", n_embd=32, n_layer=2, n_head=4, n_positions=40),
    decoder("codegen", "CodeGen", n_embd=32, n_layer=2, n_head=4, n_positions=40, rotary_dim=4),
    decoder("opt", "OPT", ffn_dim=48, word_embed_proj_dim=32),
    decoder("llama", "Llama"),
    decoder("mistral", "Mistral", sliding_window=4),
    decoder("mixtral", "Mixtral", num_local_experts=3, sliding_window=4),
    decoder("qwen2", "Qwen2"),
    decoder("qwen3", "Qwen3", head_dim=8),
    decoder("gemma", "Gemma", head_dim=8),
    decoder("gemma2", "Gemma2", head_dim=8, sliding_window=4, query_pre_attn_scalar=8),
    decoder("gemma3", "Gemma3", head_dim=8, sliding_window=4, query_pre_attn_scalar=8).using("Gemma3TextConfig"),
    decoder("phi", "Phi", partial_rotary_factor=0.5),
    decoder("phi3", "Phi3"),
    decoder("falcon", "Falcon", num_kv_heads=2, new_decoder_architecture=True),
    decoder("bloom", "Bloom", n_layer=2, n_head=4),
    decoder("mpt", "Mpt", d_model=32, n_layers=2, n_heads=4, max_seq_len=40),
    decoder("mamba", "Mamba", state_size=4, time_step_rank=4),
    decoder("starcoder2", "Starcoder2", sliding_window=None),
    decoder("stablelm", "StableLm"),
    decoder("olmo", "Olmo"),
    decoder("olmo2", "Olmo2"),
    decoder("granite", "Granite"),
    decoder("cohere", "Cohere"),
    decoder("glm", "Glm", head_dim=8),
    decoder("nemotron", "Nemotron"),
    decoder("smollm3", "SmolLM3"),
    decoder("biogpt", "BioGpt"),
    decoder("xglm", "XGLM", d_model=32, num_layers=2, attention_heads=4, ffn_dim=48),
    decoder("helium", "Helium", head_dim=8),
    text(
        "ctrl",
        "CTRL",
        "LMHeadModel",
        fixed={"use_cache": False},
        n_embd=32,
        n_layer=2,
        n_head=4,
        n_positions=40,
        dff=48,
    ),
    step("llama-cached", "Llama", 2, 8),
    step("gpt2-cached", "GPT2", 4, 8, "LMHeadModel", n_embd=32, n_layer=2, n_head=4, n_positions=40),
    step("qwen3-cached", "Qwen3", 2, 8, head_dim=8),
    step("opt-cached", "OPT", 4, 8, ffn_dim=48, word_embed_proj_dim=32),
    step("phi-cached", "Phi", 2, 8, partial_rotary_factor=0.5),
    Architecture(
        "decision-transformer",
        "DecisionTransformerModel",
        "DecisionTransformerConfig",
        {"state_dim": 5, "act_dim": 3, "hidden_size": 32, "n_layer": 2, "n_head": 4, "n_positions": 64},
        (
            Input("states", ("batch", "sequence", 5)),
            Input("actions", ("batch", "sequence", 3)),
            Input("rewards", ("batch", "sequence", 1)),
            Input("returns_to_go", ("batch", "sequence", 1)),
            Input("timesteps", ("batch", "sequence"), "ids", 30),
            Input("attention_mask", ("batch", "sequence"), "mask"),
        ),
        SEQUENCES,
    ),
)

PAIRS = (
    pair("t5", "T5", d_kv=8, d_ff=48, num_layers=2, num_heads=4, relative_attention_num_buckets=8),
    pair("umt5", "UMT5", d_kv=8, d_ff=48, num_layers=2, num_heads=4, relative_attention_num_buckets=8),
    pair("bart", "Bart"),
    pair("mbart", "MBart"),
    pair("marian", "Marian"),
    pair("pegasus", "Pegasus"),
    pair("m2m100", "M2M100"),
    pair("blenderbot", "Blenderbot"),
    pair(
        "whisper",
        "Whisper",
        source=Input("input_features", ("batch", 10, 24)),
        num_mel_bins=10,
        max_source_positions=12,
        max_target_positions=20,
    ),
    pair(
        "speech-to-text",
        "Speech2Text",
        source=Input("input_features", ("batch", "frames", 10)),
        input_feat_per_channel=10,
        input_channels=1,
        conv_channels=16,
        max_source_positions=64,
        max_target_positions=20,
        num_conv_layers=2,
    ).at("frames", 32, 20, 44),
)

VISION = (
    picture("vit", "ViT", **transformer()),
    picture("deit", "DeiT", **transformer()),
    picture("beit", "Beit", use_relative_position_bias=True, **transformer()),
    picture("data2vec-vision", "Data2VecVision", use_relative_position_bias=True, **transformer()),
    picture("dinov2", "Dinov2", mlp_ratio=2, **transformer(image_size=16)),
    picture("dinov2-free", "Dinov2", mlp_ratio=2, free=True, **transformer(image_size=16)),
    picture("swin", "Swin", image_size=32, patch_size=2, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4),
    picture(
        "swinv2",
        "Swinv2",
        image_size=32,
        patch_size=2,
        embed_dim=16,
        depths=[2, 2],
        num_heads=[2, 4],
        window_size=4,
        pretrained_window_sizes=[0, 0],
    ),
    picture("convnext", "ConvNext", free=True, hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 2, 1]),
    picture("convnextv2", "ConvNextV2", free=True, hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 2, 1]),
    picture("resnet", "ResNet", free=True, embedding_size=8, hidden_sizes=[16, 24, 32], depths=[1, 2, 1]),
    picture(
        "resnet-basic", "ResNet", free=True, embedding_size=8, hidden_sizes=[8, 16], depths=[2, 1], layer_type="basic"
    ),
    picture(
        "regnet", "RegNet", free=True, embedding_size=8, hidden_sizes=[16, 24, 32], depths=[1, 1, 2], groups_width=8
    ),
    picture("bit", "Bit", free=True, embedding_size=16, hidden_sizes=[32, 64], depths=[1, 2], num_groups=8),
    picture("mobilenet-v1", "MobileNetV1", free=True, depth_multiplier=0.25),
    picture("mobilenet-v2", "MobileNetV2", free=True, depth_multiplier=0.25, last_hidden_size=64),
    picture(
        "mobilevit",
        "MobileViT",
        side=64,
        hidden_sizes=[24, 32, 40],
        neck_hidden_sizes=[8, 16, 24, 24, 32, 40, 64],
        num_attention_heads=4,
        expand_ratio=2.0,
    ),
    picture("mobilevitv2", "MobileViTV2", side=64, width_multiplier=0.25, n_attn_blocks=[1, 1, 1]),
    picture("efficientnet", "EfficientNet", free=True, width_coefficient=0.25, depth_coefficient=0.25, hidden_dim=320),
    picture("poolformer", "PoolFormer", free=True, hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1]),
    picture(
        "levit",
        "Levit",
        side=64,
        image_size=64,
        hidden_sizes=[16, 24, 32],
        num_attention_heads=[2, 3, 4],
        depths=[1, 1, 1],
        key_dim=[8, 8, 8],
        down_ops=[["Subsample", 8, 2, 2, 2, 2], ["Subsample", 8, 3, 2, 2, 2]],
    ),
    picture("cvt", "Cvt", free=True, embed_dim=[8, 16, 32], num_heads=[1, 2, 4], depth=[1, 2, 3]),
    picture(
        "pvt",
        "Pvt",
        side=64,
        image_size=64,
        hidden_sizes=[8, 16, 24, 32],
        depths=[1, 1, 1, 1],
        num_attention_heads=[1, 2, 3, 4],
    ),
    picture(
        "pvt-v2",
        "PvtV2",
        side=64,
        image_size=64,
        hidden_sizes=[8, 16, 24, 32],
        depths=[1, 1, 1, 1],
        num_attention_heads=[1, 2, 3, 4],
    ),
    picture(
        "focalnet",
        "FocalNet",
        image_size=32,
        patch_size=4,
        embed_dim=16,
        depths=[1, 1],
        focal_levels=[2, 2],
        focal_windows=[3, 3],
    ),
    picture("swiftformer", "SwiftFormer", side=64, depths=[1, 1, 1, 1], embed_dims=[8, 16, 24, 32]),
    picture("vit-mae", "ViTMAE", "Model", inputs=(Input("noise", ("batch", 16), "uniform"),), **transformer()),
    picture("vit-msn", "ViTMSN", **transformer()),
    picture("ijepa", "IJepa", **transformer()),
    picture(
        "hiera",
        "Hiera",
        side=64,
        image_size=[64, 64],
        patch_stride=[4, 4],
        embed_dim=16,
        depths=[1, 1, 1],
        num_heads=[1, 2, 4],
        query_stride=[2, 2],
        num_query_pool=2,
        masked_unit_size=[4, 4],
        masked_unit_attention=[True, False, False],
    ),
    picture(
        "segformer",
        "Segformer",
        "ForSemanticSegmentation",
        free=True,
        hidden_sizes=[8, 16, 24, 32],
        depths=[1, 1, 1, 1],
        num_attention_heads=[1, 2, 3, 4],
        decoder_hidden_size=16,
        num_labels=5,
    ),
    picture(
        "glpn",
        "GLPN",
        "ForDepthEstimation",
        free=True,
        hidden_sizes=[8, 16, 24, 32],
        depths=[1, 1, 1, 1],
        num_attention_heads=[1, 2, 3, 4],
        decoder_hidden_size=16,
    ),
    picture(
        "dpt",
        "DPT",
        "ForDepthEstimation",
        neck_hidden_sizes=[8, 16, 16, 32],
        fusion_hidden_size=16,
        backbone_out_indices=[0, 1, 2, 3],
        is_hybrid=False,
        **transformer(num_hidden_layers=4),
    ),
    picture(
        "depth-anything",
        "DepthAnything",
        "ForDepthEstimation",
        reassemble_hidden_size=32,
        patch_size=8,
        neck_hidden_sizes=[8, 16],
        reassemble_factors=[2, 1],
        fusion_hidden_size=16,
        head_hidden_size=8,
        backbone_config={
            "model_type": "dinov2",
            "out_indices": [1, 2],
            "reshape_hidden_states": False,
            "apply_layernorm": True,
            "mlp_ratio": 2,
            **transformer(image_size=32),
        },
    ),
    picture("yolos", "Yolos", "ForObjectDetection", num_detection_tokens=5, **transformer(image_size=[32, 32])),
    picture(
        "detr",
        "Detr",
        "ForObjectDetection",
        side=64,
        num_queries=5,
        d_model=32,
        encoder_layers=1,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=48,
        decoder_ffn_dim=48,
        use_timm_backbone=False,
        use_pretrained_backbone=False,
        backbone=None,
        backbone_config={
            "model_type": "resnet",
            "embedding_size": 8,
            "hidden_sizes": [16, 24],
            "depths": [1, 1],
            "out_features": ["stage2"],
        },
    ),
    picture(
        "table-transformer",
        "TableTransformer",
        "ForObjectDetection",
        side=64,
        num_queries=5,
        d_model=32,
        encoder_layers=1,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=48,
        decoder_ffn_dim=48,
        use_timm_backbone=False,
        use_pretrained_backbone=False,
        backbone=None,
        backbone_config={
            "model_type": "resnet",
            "embedding_size": 8,
            "hidden_sizes": [16, 24],
            "depths": [1, 1],
            "out_features": ["stage2"],
        },
    ),
    picture(
        "upernet",
        "UperNet",
        "ForSemanticSegmentation",
        side=64,
        hidden_size=16,
        pool_scales=[1, 2, 3],
        auxiliary_in_channels=24,
        auxiliary_channels=8,
        num_labels=5,
        backbone_config={
            "model_type": "convnext",
            "hidden_sizes": [8, 16, 24, 32],
            "depths": [1, 1, 1, 1],
            "out_features": ["stage1", "stage2", "stage3", "stage4"],
        },
    ),
    picture("siglip-vision", "SiglipVision", "Model", **transformer()),
    picture("clip-vision", "CLIPVision", "Model", **transformer()),
    picture("blip-vision", "BlipVision", "Model", **transformer()),
    picture(
        "groupvit-vision",
        "GroupViTVision",
        "Model",
        depths=[1, 1, 1],
        num_group_tokens=[6, 3, 0],
        num_output_groups=[6, 3, 0],
        **transformer(),
    ),
    picture(
        "swin2sr",
        "Swin2SR",
        "ForImageSuperResolution",
        image_size=16,
        side=16,
        patch_size=1,
        num_channels=3,
        embed_dim=16,
        depths=[1, 1],
        num_heads=[2, 2],
        window_size=4,
        upscale=2,
    ),
    picture(
        "superpoint",
        "SuperPoint",
        "ForKeypointDetection",
        side=64,
        encoder_hidden_sizes=[8, 8, 16, 16],
        decoder_hidden_size=16,
        keypoint_decoder_dim=65,
        descriptor_decoder_dim=16,
    ),
    picture(
        "vitmatte-like-vitdet",
        "VitDet",
        "Model",
        use_relative_position_embeddings=True,
        window_size=2,
        window_block_indices=[0],
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        mlp_ratio=2,
        image_size=32,
        patch_size=8,
        pretrain_image_size=32,
    ),
    picture("textnet", "TextNet", free=True, stem_out_channels=8, hidden_sizes=[8, 8, 16, 16, 16]),
    Architecture(
        "clip",
        "CLIPModel",
        "CLIPConfig",
        {
            "text_config": {
                "vocab_size": VOCABULARY,
                "hidden_size": 32,
                "num_hidden_layers": 2,
                "num_attention_heads": 4,
                "intermediate_size": 48,
                "max_position_embeddings": 20,
                "eos_token_id": 59,
            },
            "vision_config": transformer(),
            "projection_dim": 16,
        },
        (
            ids(dims=("texts", "sequence")),
            Input("pixel_values", ("batch", 3, 32, 32)),
            mask(dims=("texts", "sequence")),
        ),
        ({"texts": 3, "sequence": 9, "batch": 2}, {"texts": 2, "sequence": 5, "batch": 1}),
    ),
    Architecture(
        "owlvit",
        "OwlViTForObjectDetection",
        "OwlViTConfig",
        {
            "text_config": {
                "vocab_size": VOCABULARY,
                "hidden_size": 32,
                "num_hidden_layers": 2,
                "num_attention_heads": 4,
                "intermediate_size": 48,
                "max_position_embeddings": 16,
            },
            "vision_config": transformer(),
            "projection_dim": 32,
        },
        (ids(dims=("texts", 16)), Input("pixel_values", ("batch", 3, 32, 32)), mask(dims=("texts", 16))),
        ({"texts": 4, "batch": 2}, {"texts": 3, "batch": 1}),
    ),
    Architecture(
        "layoutlmv3",
        "LayoutLMv3Model",
        "LayoutLMv3Config",
        {
            "vocab_size": VOCABULARY,
            "max_position_embeddings": 40,
            "max_2d_position_embeddings": 64,
            "coordinate_size": 6,
            "shape_size": 4,
            "input_size": 32,
            "pad_token_id": 0,
            **transformer(),
        },
        (
            ids(),
            Input("bbox", ("batch", "sequence", 4), "boxes", 40),
            mask(),
            Input("pixel_values", ("batch", 3, 32, 32)),
        ),
        SEQUENCES,
    ),
    Architecture(
        "vilt",
        "ViltModel",
        "ViltConfig",
        {"vocab_size": VOCABULARY, "max_position_embeddings": 40, "max_image_length": -1, **transformer()},
        (
            ids(),
            mask(),
            Input("token_type_ids", ("batch", "sequence"), "zeros"),
            Input("pixel_values", ("batch", 3, 32, 32)),
            Input("pixel_mask", ("batch", 32, 32), "ones"),
        ),
        SEQUENCES,
    ),
    Architecture(
        "timesformer",
        "TimesformerModel",
        "TimesformerConfig",
        {"num_frames": 3, **transformer()},
        (Input("pixel_values", ("batch", 3, 3, 32, 32)),),
        BATCHES,
    ),
    Architecture(
        "videomae",
        "VideoMAEForVideoClassification",
        "VideoMAEConfig",
        {"num_frames": 4, "tubelet_size": 2, **transformer()},
        (Input("pixel_values", ("batch", 4, 3, 32, 32)),),
        BATCHES,
    ),
    Architecture(
        "vivit",
        "VivitModel",
        "VivitConfig",
        {"num_frames": 4, "tubelet_size": [2, 8, 8], **transformer()},
        (Input("pixel_values", ("batch", 4, 3, 32, 32)),),
        BATCHES,
    ),
    text("clip-text", "CLIPText", eos_token_id=59),
    text("siglip-text", "SiglipText"),
    text("blip-text", "BlipText", encoder_hidden_size=32, is_decoder=False),
)

SOUND = (
    sound("wav2vec2", "Wav2Vec2"),
    sound("wav2vec2-stable", "Wav2Vec2", do_stable_layer_norm=True, feat_extract_norm="layer"),
    sound("hubert", "Hubert"),
    sound("wavlm", "WavLM", num_buckets=16, max_bucket_distance=24),
    sound("unispeech", "UniSpeech"),
    sound("unispeech-sat", "UniSpeechSat"),
    sound("sew", "SEW", squeeze_factor=2),
    sound("data2vec-audio", "Data2VecAudio", conv_pos_kernel_size=5),
    sound("wav2vec2-conformer", "Wav2Vec2Conformer", conv_depthwise_kernel_size=7),
    Architecture(
        "audio-spectrogram-transformer",
        "ASTForAudioClassification",
        "ASTConfig",
        {
            "max_length": 24,
            "num_mel_bins": 16,
            "frequency_stride": 6,
            "time_stride": 6,
            **transformer(),
            "image_size": None,
        },
        (Input("input_values", ("batch", 24, 16)),),
        BATCHES,
    ),
    Architecture(
        "encodec",
        "EncodecModel",
        "EncodecConfig",
        {
            "num_filters": 4,
            "hidden_size": 16,
            "codebook_size": 32,
            "codebook_dim": 16,
            "upsampling_ratios": [4, 2],
            "num_lstm_layers": 1,
            "target_bandwidths": [24.0],
        },
        (Input("input_values", ("batch", 1, "samples")),),
        ({"batch": 2, "samples": 320}, {"batch": 1, "samples": 200}),
    ),
    Architecture(
        "clap-audio",
        "ClapAudioModel",
        "ClapAudioConfig",
        {
            "window_size": 4,
            "num_mel_bins": 16,
            "spec_size": 64,
            "patch_size": 4,
            "patch_stride": [4, 4],
            "hidden_size": 32,
            "patch_embeds_hidden_size": 8,
            "depths": [1, 1],
            "num_attention_heads": [2, 2],
            "num_hidden_layers": 2,
            "projection_dim": 16,
        },
        (Input("input_features", ("batch", 1, 200, 16)),),
        BATCHES,
    ),
    Architecture(
        "moonshine",
        "MoonshineModel",
        "MoonshineConfig",
        {
            "vocab_size": VOCABULARY,
            "hidden_size": 32,
            "intermediate_size": 48,
            "encoder_num_hidden_layers": 2,
            "decoder_num_hidden_layers": 2,
            "encoder_num_attention_heads": 4,
            "decoder_num_attention_heads": 4,
            "pad_head_dim_to_multiple_of": None,
            "max_position_embeddings": 64,
        },
        (Input("input_values", ("batch", "samples")), ids("decoder_input_ids", ("batch", "target"))),
        ({"batch": 2, "samples": 2400, "target": 4}, {"batch": 1, "samples": 1800, "target": 2}),
        {"use_cache": False},
    ),
    Architecture(
        "univnet",
        "UnivNetModel",
        "UnivNetConfig",
        {
            "model_in_channels": 8,
            "model_hidden_channels": 8,
            "num_mel_bins": 10,
            "resblock_kernel_sizes": [3],
            "resblock_stride_sizes": [4],
            "resblock_dilation_sizes": [[1, 3]],
            "kernel_predictor_num_blocks": 1,
            "kernel_predictor_hidden_channels": 8,
        },
        (Input("input_features", ("batch", "frames", 10)), Input("noise_sequence", ("batch", "frames", 8))),
        ({"batch": 2, "frames": 6}, {"batch": 1, "frames": 9}),
    ),
)

TIME = (
    Architecture(
        "patchtst",
        "PatchTSTForPrediction",
        "PatchTSTConfig",
        {
            "num_input_channels": 3,
            "context_length": 24,
            "patch_length": 4,
            "patch_stride": 4,
            "d_model": 16,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "ffn_dim": 32,
            "prediction_length": 6,
            "loss": "mse",
        },
        (Input("past_values", ("batch", 24, 3)),),
        BATCHES,
    ),
    Architecture(
        "patchtsmixer",
        "PatchTSMixerForPrediction",
        "PatchTSMixerConfig",
        {
            "num_input_channels": 3,
            "context_length": 24,
            "patch_length": 4,
            "patch_stride": 4,
            "d_model": 16,
            "num_layers": 2,
            "prediction_length": 6,
        },
        (Input("past_values", ("batch", 24, 3)),),
        BATCHES,
    ),
    *(
        Architecture(
            name,
            f"{family}Model",
            f"{family}Config",
            {
                "prediction_length": 6,
                "context_length": 12,
                "lags_sequence": [1, 2, 3],
                "d_model": 16,
                "num_time_features": 2,
                "encoder_layers": 2,
                "decoder_layers": 2,
                "encoder_attention_heads": 2,
                "decoder_attention_heads": 2,
                "encoder_ffn_dim": 32,
                "decoder_ffn_dim": 32,
                **options,
            },
            (
                Input("past_values", ("batch", 15)),
                Input("past_time_features", ("batch", 15, 2)),
                Input("past_observed_mask", ("batch", 15), "uniform"),
                Input("future_values", ("batch", 6)),
                Input("future_time_features", ("batch", 6, 2)),
            ),
            BATCHES,
        )
        for name, family, options in (
            ("time-series-transformer", "TimeSeriesTransformer", {}),
            ("informer", "Informer", {"attention_type": "full", "distil": False}),
            ("autoformer", "Autoformer", {"moving_average": 5, "label_length": 4, "autocorrelation_factor": 2}),
        )
    ),
)

PLAIN = (
    plain("lstm-tagger", "LstmTagger", (ids(),), SEQUENCES),
    plain("gru-tagger", "GruTagger", (ids(),), SEQUENCES),
    plain("gru-with-state", "GruWithState", (SERIES, Input("state", (2, "batch", 16))), TIMES),
    plain("rnn", "PlainRnn", (SERIES,), TIMES),
    plain("lstm-by-cells", "LstmByCells", (Input("series", ("batch", 5, 8)),), BATCHES),
    plain("conv1d", "Conv1dNet", (Input("signal", ("batch", 4, "time")),), TIMES),
    plain("temporal-conv", "TemporalConvNet", (Input("signal", ("batch", 4, "time")),), TIMES),
    plain("wavenet", "WaveNet", (Input("signal", ("batch", 1, "time")),), TIMES),
    plain("depthwise", "DepthwiseNet", (IMAGE,), ODD_IMAGES),
    plain("mobilenet-v3", "MobileNetV3", (IMAGE,), ODD_IMAGES),
    plain("inception", "Inception", (IMAGE,), ODD_IMAGES),
    plain("densenet", "DenseNet", (IMAGE,), ODD_IMAGES),
    plain("shufflenet", "ShuffleNet", (IMAGE,), ODD_IMAGES),
    plain("vgg", "Vgg", (IMAGE,), EVEN_IMAGES),
    plain("unet", "Unet", (IMAGE,), EVEN_IMAGES),
    plain("unet-cropping", "UnetCropping", (IMAGE,), ODD_IMAGES),
    plain("pyramid", "FeaturePyramid", (IMAGE,), ODD_IMAGES),
    plain("pyramid-pooling", "PyramidPooling", (Input("image", ("batch", 3, 24, 24)),), BATCHES),
    plain("transposed-decoder", "TransposedDecoder", (Input("latent", ("batch", 6)),), BATCHES),
    plain(
        "autoencoder-1d",
        "Autoencoder1d",
        (Input("signal", ("batch", 2, "time")),),
        ({"batch": 2, "time": 16}, {"batch": 1, "time": 8}, {"batch": 3, "time": 36}),
    ),
    plain(
        "conv3d",
        "Conv3dNet",
        (Input("video", ("batch", 2, "time", 8, 10)),),
        ({"batch": 2, "time": 6}, {"batch": 1, "time": 4}),
    ),
    plain("masked-pooling", "MaskedPooling", (Input("values", ("batch", "sequence", 8)), mask("mask")), SEQUENCES),
    plain("attention-pooling", "AttentionPooling", (SERIES,), TIMES),
    plain("transformer-encoder", "TransformerEncoder", (SERIES,), TIMES),
    plain(
        "transformer-pair",
        "TransformerPair",
        (SERIES, Input("target", ("batch", "steps", 8))),
        ({"batch": 2, "time": 12, "steps": 5}, {"batch": 1, "time": 7, "steps": 3}),
    ),
    plain("multihead-attention", "MultiheadAttention", (SERIES,), TIMES),
    plain("top-k", "TopK", (Input("scores", ("batch", 23)),), BATCHES),
    plain(
        "mixture-of-experts",
        "MixtureOfExperts",
        (Input("tokens", ("tokens", 8)),),
        ({"tokens": 9}, {"tokens": 4}, {"tokens": 20}),
    ),
    plain(
        "gather-scatter",
        "GatherScatter",
        (Input("values", ("batch", 7, 5)), Input("places", ("batch", 4), "ids", 7)),
        BATCHES,
    ),
    plain(
        "message-passing",
        "MessagePassing",
        (Input("nodes", ("nodes", 6)), Input("edges", (2, "edges"), "ids", 5)),
        ({"nodes": 7, "edges": 12}, {"nodes": 5, "edges": 4}, {"nodes": 11, "edges": 30}),
    ),
    plain("nonzero", "NonZero", (Input("values", ("rows", 6)),), ({"rows": 5}, {"rows": 9})),
    plain(
        "masked-select",
        "MaskedSelect",
        (Input("values", ("rows", 6)), Input("keep", ("rows",), "flags")),
        ({"rows": 7}, {"rows": 4}),
    ),
    plain("embedding-bag", "EmbeddingBag", (ids(),), SEQUENCES),
    plain("grid-sample", "GridSample", (IMAGE, Input("grid", ("batch", 5, 6, 2), "coordinates")), ODD_IMAGES),
    plain("spatial-transformer", "SpatialTransformer", (Input("image", ("batch", 3, 16, 16)),), BATCHES),
    *(
        plain(f"interpolate-{mode}{suffix}", "Interpolate", (IMAGE,), ODD_IMAGES, mode=mode, corners=corners)
        for mode, corners, suffix in (
            ("nearest", None, ""),
            ("bilinear", False, ""),
            ("bilinear", True, "-corners"),
            ("bicubic", False, ""),
        )
    ),
    plain("interpolate-to-size", "InterpolateToSize", (IMAGE,), ODD_IMAGES),
    plain("pixel-shuffle", "PixelShuffle", (IMAGE,), EVEN_IMAGES),
    plain("einsum", "EinsumNet", (Input("left", ("batch", 5, 8)), Input("right", ("batch", 7, 8))), BATCHES),
    plain("norm-zoo", "NormZoo", (IMAGE,), ODD_IMAGES),
    plain("norm-zoo-1d", "NormZoo1d", (SERIES,), TIMES),
    plain("activation-zoo", "ActivationZoo", (SERIES,), TIMES),
    plain("pool-zoo", "PoolZoo", (IMAGE,), ODD_IMAGES),
    plain("pad-zoo", "PadZoo", (IMAGE,), ODD_IMAGES),
    plain("reduce-zoo", "ReduceZoo", (SERIES,), TIMES),
    plain("index-zoo", "IndexZoo", (SERIES,), TIMES),
    plain("mlp-mixer", "MlpMixer", (Input("image", ("batch", 3, 16, 16)),), BATCHES),
    plain("residual-quantizer", "ResidualQuantizer", (SERIES,), TIMES),
    plain("spectral-mixer", "SpectralMixer", (Input("series", ("batch", 16, 8)),), BATCHES),
    plain("cumulative", "Cumulative", (SERIES,), TIMES),
    plain("unfold-fold", "UnfoldFold", (Input("image", ("batch", 3, 12, 16)),), BATCHES),
    plain(
        "distance",
        "Distance",
        (Input("points", ("points", 3)), Input("centres", ("centres", 3))),
        ({"points": 7, "centres": 4}, {"points": 3, "centres": 9}),
    ),
    plain(
        "deep-sets",
        "DeepSets",
        (Input("points", ("batch", "points", 3)),),
        ({"batch": 2, "points": 9}, {"batch": 1, "points": 4}),
    ),
    plain("cosine-retrieval", "CosineRetrieval", (Input("queries", ("queries", 8)),), ({"queries": 3}, {"queries": 6})),
    plain("triangular-attention", "TriangularAttention", (SERIES,), TIMES),
    plain("scripted-loop", "ScriptedLoop", (SERIES, Input("steps", (), "steps")), TIMES).only("script"),
    plain("scripted-while", "ScriptedWhile", (Input("values", ("batch", 4)),), BATCHES).only("script"),
    plain("scripted-branch", "ScriptedBranch", (SERIES,), TIMES).only("script"),
    plain("scripted-decoder", "ScriptedDecoder", (Input("state", ("batch", 8)),), BATCHES).only("script"),
)

CATALOGUE = (*ENCODERS, *DECODERS, *PAIRS, *VISION, *SOUND, *TIME, *PLAIN)
