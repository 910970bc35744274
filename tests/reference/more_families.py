"""Configs of the families after the first fifteen: small, with the fields, flags and layer patterns of the published ones."""

import transformers

YARN = dict(
    rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=32, beta_fast=32.0,
    beta_slow=1.0,
)  # fmt: skip
# These have a tower for images; their text model is recorded.
WRAPPED = ("gemma3_wrapped", "mistral3", "qwen3_5")
TOWER = ("vision_tower.", "multi_modal_projector.", "visual.")
# Norms of these families multiply by 1 + weight, as Gemma's do.
NORMS_OF_ZERO = ("qwen3_5",)


def gemma(common):
    return transformers.GemmaConfig(
        **common | dict(tie_word_embeddings=True, num_key_value_heads=1), head_dim=32, hidden_act="gelu",
        pad_token_id=None,
    )  # fmt: skip


def olmo2(common):
    rope = dict(rope_type="default", rope_theta=500000.0)
    return transformers.Olmo2Config(**common, rope_parameters=rope, rms_norm_eps=1e-6, pad_token_id=None)


def olmo3(common):  # three layers of four with a window; yarn on the fourth only
    rope = dict(full_attention=YARN, sliding_attention=dict(rope_type="default", rope_theta=10000.0))
    return transformers.Olmo3Config(
        **common | dict(num_hidden_layers=4), rope_parameters=rope, sliding_window=12, rms_norm_eps=1e-6,
        pad_token_id=None,
    )  # fmt: skip


def smollm3(common):  # the second of three layers has no rope
    return transformers.SmolLM3Config(
        **common | dict(num_hidden_layers=3, tie_word_embeddings=True), no_rope_layer_interval=2,
        rope_parameters=dict(rope_type="default", rope_theta=5000.0), pad_token_id=None,
    )  # fmt: skip


def granite(common):
    return transformers.GraniteConfig(
        **common | dict(tie_word_embeddings=True), embedding_multiplier=6.0, attention_multiplier=0.125,
        residual_multiplier=0.22, logits_scaling=2.0, rms_norm_eps=1e-5,
    )  # fmt: skip


def seed_oss(common):
    return transformers.SeedOssConfig(
        **common, head_dim=32, attention_dropout=0.0, residual_dropout=0.0, pad_token_id=None
    )


def ernie4_5(common):
    return transformers.Ernie4_5Config(**common | dict(tie_word_embeddings=True), head_dim=32, pad_token_id=None)


def glm(common):
    return transformers.GlmConfig(**common, head_dim=32, pad_token_id=None)


def glm4(common):
    return transformers.Glm4Config(**common, head_dim=32, pad_token_id=None)


def cohere2(common):  # the third of three layers sees everything and has no rope
    return transformers.Cohere2Config(
        **common | dict(num_hidden_layers=3, tie_word_embeddings=True), sliding_window=12, sliding_window_pattern=3,
        logit_scale=0.25, pad_token_id=None,
    )  # fmt: skip


def gpt_neox(common):
    keys = {key: value for key, value in common.items() if key != "num_key_value_heads"}
    return transformers.GPTNeoXConfig(**keys)


def ministral3(common):
    rope = YARN | dict(mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.1, original_max_position_embeddings=16)
    return transformers.Ministral3Config(**common, head_dim=32, rope_parameters=rope, pad_token_id=None)


def text_keys(common, family, **more):
    return transformers.AutoConfig.for_model(family, **common | more).to_dict()


def gemma3_wrapped(common):  # as in the 4B: rope_scaling of the full layers, a head that the outer level ties
    rope = dict(
        full_attention=dict(rope_type="linear", rope_theta=50000.0, factor=4.0),
        sliding_attention=dict(rope_type="default", rope_theta=1000.0),
    )
    text = text_keys(
        common | dict(tie_word_embeddings=True, num_hidden_layers=3), "gemma3_text", head_dim=32,
        query_pre_attn_scalar=24, sliding_window=12, sliding_window_pattern=3, rope_parameters=rope, pad_token_id=None,
    )  # fmt: skip
    vision = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2, image_size=28, patch_size=14)
    return transformers.Gemma3Config(
        text_config=text, vision_config=vision, mm_tokens_per_image=4, boi_token_index=250, eoi_token_index=251,
        image_token_index=252, eos_token_id=[common["eos_token_id"], 106], bos_token_id=common["bos_token_id"],
        pad_token_id=None,
    )  # fmt: skip


def mistral3(common):
    rope = YARN | dict(mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.1, original_max_position_embeddings=16)
    text = text_keys(common, "ministral3", head_dim=32, rope_parameters=rope, pad_token_id=None)
    vision = dict(
        model_type="pixtral", hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2,
        head_dim=16, image_size=28, patch_size=14, vocab_size=common["vocab_size"],
    )  # fmt: skip
    return transformers.Mistral3Config(
        text_config=text, vision_config=vision, image_token_index=252, tie_word_embeddings=False
    )


def gpt_oss(common):  # a window on the first layer; yarn whose blend does not end at whole dims
    return transformers.GptOssConfig(
        **common, head_dim=16, num_local_experts=8, num_experts_per_tok=3, sliding_window=12,
        rope_parameters=YARN | dict(truncate=False), pad_token_id=None,
    )  # fmt: skip


def qwen3_5_keys(common):  # two linear layers, a full one, and two linear layers after the last full one
    kinds = ["linear_attention", "linear_attention", "full_attention"]
    return common | dict(
        num_hidden_layers=8, layer_types=[*kinds, *kinds, *kinds[:2]], head_dim=32, linear_num_key_heads=2,
        linear_num_value_heads=4, linear_key_head_dim=16, linear_value_head_dim=8, linear_conv_kernel_dim=4,
        rope_parameters=dict(
            rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.25, mrope_section=[2, 1, 1],
            mrope_interleaved=True,
        ),
        pad_token_id=None,
    )  # fmt: skip


def qwen3_5_text(common):
    return transformers.Qwen3_5TextConfig(**qwen3_5_keys(common))


def qwen3_5(common):
    text = transformers.Qwen3_5TextConfig(**qwen3_5_keys(common | dict(tie_word_embeddings=True))).to_dict()
    vision = dict(
        depth=1, hidden_size=32, intermediate_size=48, num_heads=2, patch_size=8, out_hidden_size=64,
        num_position_embeddings=16,
    )  # fmt: skip
    return transformers.Qwen3_5Config(text_config=text, vision_config=vision, tie_word_embeddings=True)


CONFIGS = dict(
    gemma=gemma, olmo2=olmo2, olmo3=olmo3, smollm3=smollm3, granite=granite, seed_oss=seed_oss, ernie4_5=ernie4_5,
    glm=glm, glm4=glm4, cohere2=cohere2, gpt_neox=gpt_neox, ministral3=ministral3, gemma3_wrapped=gemma3_wrapped, mistral3=mistral3, gpt_oss=gpt_oss, qwen3_5_text=qwen3_5_text, qwen3_5=qwen3_5,
)  # fmt: skip
