"""Small configs of the families after the first fifteen, with fields, flags and layer patterns of published models."""

import safetensors.torch
import torch
import transformers
from transformers.integrations import finegrained_fp8, mxfp4

YARN = dict(
    rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=32, beta_fast=32.0,
    beta_slow=1.0,
)  # fmt: skip
# The modules that the records adapt where PEFT's all-linear would adapt others too, such as experts. If a checkpoint
# has a tensor for each expert, the targets gate_proj, up_proj and down_proj match the experts in PEFT, too.
MLP = ["gate_proj", "up_proj", "down_proj"]
TARGETS = dict(
    qwen2_moe=["q_proj", "k_proj", "v_proj", "o_proj", *MLP, "shared_expert_gate"],
    deepseek_v3=["q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"],
    qwen2_moe_sparse=["q_proj", "k_proj", "v_proj", "o_proj", "shared_expert_gate"],
    deepseek_r1=["q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"],
    deepseek_v2=["q_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"],
    deepseek_v2_lite=["q_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"],
    moonlight=["q_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"],
    kimi_k2=["q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"],
    glm4_moe_lite=["q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"],
    qwen3_next=["q_proj", "k_proj", "v_proj", "o_proj", "in_proj_qkvz", "in_proj_ba", "out_proj", "shared_expert_gate"],
    qwen3_next_sparse=["q_proj", "k_proj", "v_proj", "o_proj", "in_proj_qkvz", "in_proj_ba", "out_proj", "shared_expert_gate"],
    gemma4_moe=r"model\.language_model\.layers\.\d+\.((self_attn|mlp)\.\w+_proj|router\.proj)",
    gemma4_e2b=r"model\.language_model\.(layers\.\d+\.((self_attn|mlp)\.\w+_proj|per_layer_input_gate|per_layer_projection)|per_layer_model_projection)",
    lfm2_moe=["q_proj", "k_proj", "v_proj", "out_proj", "in_proj"],
    granite4=r".*\.(self_attn|mamba|shared_mlp)\.\w+_(proj|linear)",
    falcon_h1=["q_proj", "k_proj", "v_proj", "o_proj", "in_proj", *MLP],  # PEFT refuses out_proj of Mamba2
    falcon_h1_gated=["q_proj", "k_proj", "v_proj", "o_proj", "in_proj", *MLP],
    nemotron_h=["q_proj", "k_proj", "v_proj", "o_proj", "in_proj", "up_proj", "down_proj"],
    nemotron_h_moe=["q_proj", "k_proj", "v_proj", "o_proj", "in_proj", "fc1_latent_proj", "fc2_latent_proj"],
    nemotron_h_nano=["q_proj", "k_proj", "v_proj", "o_proj", "in_proj"],
    llama4=r"language_model\.model\.layers\.\d+\.(self_attn|feed_forward|feed_forward\.shared_expert)\.\w+_proj",
    llama4_scout=r"language_model\.model\.layers\.\d+\.(self_attn|feed_forward\.shared_expert)\.\w+_proj",
    llama4_maverick=r"language_model\.model\.layers\.\d+\.(self_attn|feed_forward|feed_forward\.shared_expert)\.\w+_proj",
    qwen3_5_moe_small=r"model\.language_model\.layers\.\d+\.(self_attn|linear_attn|mlp|mlp\.shared_expert)\.\w+_(proj\w*|gate)",
    qwen3_5_moe=r"model\.language_model\.layers\.\d+\.(self_attn|linear_attn|mlp|mlp\.shared_expert)\.\w+_(proj\w*|gate)",
)  # fmt: skip
# These models also have a tower for images. Only their text model is recorded.
WRAPPED = (
    "gemma3_wrapped", "mistral3", "qwen3_5", "qwen3_5_moe", "qwen3_5_moe_small", "gemma4", "gemma4_moe", "gemma4_e2b", "gemma4_unified",
    "llama4", "llama4_scout", "llama4_maverick", "mistral_small",
)  # fmt: skip
# One tensor of the checkpoint has the weights of all experts of a layer.
FUSED = ("gpt_oss", "qwen3_5_moe", "gemma4", "llama4", "granitemoe", "granitemoehybrid")
# In these families, the weights of all experts are [experts, in, out]. In other families, they are [experts, out, in].
IN_FIRST = ("gpt_oss", "llama4")
# Maps names of parameters in Transformers to their names in checkpoints. Transformers renames them when it loads a
# checkpoint.
GRANITE_EXPERTS = {
    "experts.gate_up_proj": "input_linear.weight", "experts.down_proj": "output_linear.weight",
    "router.weight": "router.layer.weight",
}  # fmt: skip
IN_FILES = dict(
    granitemoe=GRANITE_EXPERTS,
    granitemoehybrid=GRANITE_EXPERTS,
    nemotron_h={"model.": "backbone."},
)  # fmt: skip
# Transformers does not know the model_type of these models. Their code is that of the config that is recorded here.
UNKNOWN_TYPES = ("kimi_k2",)
# The experts are stored in MXFP4.
MXFP4 = "gpt_oss_mxfp4"
# The linear layers are stored in 8-bit floats.
FLOAT8 = "qwen3_fp8"
TOWER = (
    "vision_tower.", "vision_model.", "multi_modal_projector.", "visual.", "embed_vision.", "vision_embedder.", "audio_tower.", "embed_audio.",
)  # fmt: skip
# Norms of these families multiply by 1 + weight, as Gemma's do.
NORMS_OF_ZERO = ("qwen3_5", "qwen3_next")


def gemma(common):
    return transformers.GemmaConfig(
        **common | dict(tie_word_embeddings=True, num_key_value_heads=1), head_dim=32, hidden_act="gelu",
        pad_token_id=None,
    )  # fmt: skip


def olmo2(common):
    rope = dict(rope_type="default", rope_theta=500000.0)
    return transformers.Olmo2Config(**common, rope_parameters=rope, rms_norm_eps=1e-6, pad_token_id=None)


def olmo3(common):  # windows on three of four layers; yarn on the fourth layer only
    rope = dict(full_attention=YARN, sliding_attention=dict(rope_type="default", rope_theta=10000.0))
    return transformers.Olmo3Config(
        **common | dict(num_hidden_layers=4), rope_parameters=rope, sliding_window=12, rms_norm_eps=1e-6,
        pad_token_id=None,
    )  # fmt: skip


def exaone4(common):  # as the 32B: windows on three of four layers; no rope on the fourth
    rope = dict(rope_type="llama3", rope_theta=1000000.0, factor=16.0, low_freq_factor=1.0, high_freq_factor=4.0,
                original_max_position_embeddings=32)  # fmt: skip
    return transformers.Exaone4Config(
        **common | dict(num_hidden_layers=4), head_dim=32, rope_parameters=rope, sliding_window=12,
        sliding_window_pattern="LLLG", layer_types=["sliding_attention"] * 3 + ["full_attention"], pad_token_id=None,
    )  # fmt: skip


def exaone4_small(common):  # as the 1.2B: no windows, rope on all layers, a tied head
    return transformers.Exaone4Config(
        **common | dict(tie_word_embeddings=True), head_dim=32, sliding_window=None, sliding_window_pattern=None,
        rope_parameters=dict(rope_type="default", rope_theta=1000000.0), layer_types=["full_attention"] * 2,
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


def granitemoe(common):
    return transformers.GraniteMoeConfig(
        **common | dict(tie_word_embeddings=True, intermediate_size=32), embedding_multiplier=6.0,
        attention_multiplier=0.125, residual_multiplier=0.22, logits_scaling=2.0, rms_norm_eps=1e-6,
        num_local_experts=6, num_experts_per_tok=3, rope_parameters=dict(rope_type="default", rope_theta=10000000.0),
    )  # fmt: skip


def seed_oss(common):
    return transformers.SeedOssConfig(
        **common, head_dim=32, attention_dropout=0.0, residual_dropout=0.0, pad_token_id=None
    )


def ernie4_5(common):
    return transformers.Ernie4_5Config(**common | dict(tie_word_embeddings=True), head_dim=32, pad_token_id=None)


def ernie4_5_moe(common):  # a dense layer first; the correction changes which experts are chosen
    return transformers.Ernie4_5_MoeConfig(
        **common | dict(tie_word_embeddings=True, num_hidden_layers=3), moe_num_experts=8, moe_k=3, moe_intermediate_size=32,
        moe_num_shared_experts=2, moe_layer_start_index=1, pad_token_id=None,
    )  # fmt: skip


def glm(common):
    return transformers.GlmConfig(**common, head_dim=32, pad_token_id=None)


def glm4(common):
    return transformers.Glm4Config(**common, head_dim=32, pad_token_id=None)


def cohere2(common):  # the last of three layers has neither window nor rope
    return transformers.Cohere2Config(
        **common | dict(num_hidden_layers=3, tie_word_embeddings=True), sliding_window=12, sliding_window_pattern=3,
        logit_scale=0.25, pad_token_id=None,
    )  # fmt: skip


def gpt_neox(common):
    keys = {key: value for key, value in common.items() if key != "num_key_value_heads"}
    return transformers.GPTNeoXConfig(**keys)


def gpt_neox_sequential(common):  # the MLP after attention; all dims rotated
    keys = {key: value for key, value in common.items() if key != "num_key_value_heads"}
    rope = dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=1.0)
    return transformers.GPTNeoXConfig(**keys, use_parallel_residual=False, rope_parameters=rope)


def ministral3(common):
    rope = YARN | dict(mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.1, original_max_position_embeddings=16)
    return transformers.Ministral3Config(**common, head_dim=32, rope_parameters=rope, pad_token_id=None)


def text_keys(common, family, **more):
    return transformers.AutoConfig.for_model(family, **common | more).to_dict()


def gemma3_wrapped(common):
    """Like the 4B to 27B models: a window on five of six layers and then two further layers, rope_scaling on full
    layers. Only the outer config ties the head."""
    rope = dict(
        full_attention=dict(rope_type="linear", rope_theta=50000.0, factor=4.0),
        sliding_attention=dict(rope_type="default", rope_theta=1000.0),
    )
    text = text_keys(
        common | dict(tie_word_embeddings=True, num_hidden_layers=8), "gemma3_text", head_dim=32,
        query_pre_attn_scalar=24, sliding_window=12, sliding_window_pattern=6, rope_parameters=rope, pad_token_id=None,
    )  # fmt: skip
    vision = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2, image_size=28, patch_size=14)
    return transformers.Gemma3Config(
        text_config=text, vision_config=vision, mm_tokens_per_image=4, boi_token_index=250, eoi_token_index=251,
        image_token_index=252, eos_token_id=[common["eos_token_id"], 106], bos_token_id=common["bos_token_id"],
        pad_token_id=None,
    )  # fmt: skip


def with_pixtral(common, text):
    vision = dict(
        model_type="pixtral", hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2,
        head_dim=16, image_size=28, patch_size=14, vocab_size=common["vocab_size"],
    )  # fmt: skip
    return transformers.Mistral3Config(
        text_config=text, vision_config=vision, image_token_index=252, tie_word_embeddings=False
    )


def mistral3(common):
    rope = YARN | dict(mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.1, original_max_position_embeddings=16)
    return with_pixtral(common, text_keys(common, "ministral3", head_dim=32, rope_parameters=rope, pad_token_id=None))


def mistral_small(common):  # Mistral Small 3.1 and 3.2: the text part is of type mistral, without a window
    rope = dict(rope_type="default", rope_theta=1000000000.0)
    text = text_keys(common, "mistral", head_dim=32, sliding_window=None, rope_parameters=rope, pad_token_id=None)
    return with_pixtral(common, text)


def gpt_oss(common):  # a window on the first layer; yarn whose blend ends between two dims
    return transformers.GptOssConfig(
        **common, head_dim=16, num_local_experts=8, num_experts_per_tok=3, sliding_window=12,
        rope_parameters=YARN | dict(truncate=False), pad_token_id=None,
    )  # fmt: skip


def qwen3_5_keys(common):  # twice: two linear layers and a full one; then two linear layers
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


VISION = dict(
    depth=1, hidden_size=32, intermediate_size=48, num_heads=2, patch_size=8, out_hidden_size=64,
    num_position_embeddings=16,
)  # fmt: skip


def qwen3_5(common):
    text = transformers.Qwen3_5TextConfig(**qwen3_5_keys(common | dict(tie_word_embeddings=True))).to_dict()
    return transformers.Qwen3_5Config(text_config=text, vision_config=VISION, tie_word_embeddings=True)


def qwen2_moe(common):  # the middle of three layers is dense
    return transformers.Qwen2MoeConfig(
        **common | dict(num_hidden_layers=3), num_experts=8, num_experts_per_tok=2, moe_intermediate_size=32,
        shared_expert_intermediate_size=48, mlp_only_layers=[1], pad_token_id=None,
    )  # fmt: skip


def qwen2_moe_sparse(common):  # like the published models: experts in all layers
    return transformers.Qwen2MoeConfig(
        **common, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32, shared_expert_intermediate_size=64,
        pad_token_id=None,
    )  # fmt: skip


def glm4_moe(common):  # a dense layer, then two with experts; the correction bias changes which experts are chosen
    return transformers.Glm4MoeConfig(
        **common | dict(num_hidden_layers=3), head_dim=16, n_routed_experts=8, num_experts_per_tok=2,
        moe_intermediate_size=32, first_k_dense_replace=1, use_qk_norm=True, routed_scaling_factor=1.5,
        pad_token_id=None,
    )  # fmt: skip


def glm4_moe_air(common):  # GLM-4.5 Air: biases on q, k and v, no norms on q and k
    return transformers.Glm4MoeConfig(
        **common, head_dim=32, n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=32,
        first_k_dense_replace=1, attention_bias=True, use_qk_norm=False, routed_scaling_factor=1.0, pad_token_id=None,
    )  # fmt: skip


def deepseek_v3(common):  # the best 2 of 4 groups of experts, latent attention, yarn that also scales the scores
    rope = YARN | dict(mscale=1.0, mscale_all_dim=0.8)
    return transformers.DeepseekV3Config(
        **common | dict(num_hidden_layers=3, num_key_value_heads=4), n_routed_experts=16, num_experts_per_tok=3,
        moe_intermediate_size=32, n_group=4, topk_group=2, first_k_dense_replace=1, routed_scaling_factor=2.5,
        q_lora_rank=24, kv_lora_rank=32, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=12,
        rope_parameters=rope, pad_token_id=None,
    )  # fmt: skip


def deepseek_r1(common):  # like V3 and R1: equal mscale and mscale_all_dim
    config = deepseek_v3(common)
    rope = YARN | dict(mscale=1.0, mscale_all_dim=1.0)
    keys = dict(n_routed_experts=8, kv_lora_rank=32, v_head_dim=16, num_hidden_layers=2, rope_parameters=rope)
    return transformers.DeepseekV3Config(**config.to_dict() | keys)


LATENT = dict(
    num_hidden_layers=3, num_key_value_heads=4, kv_lora_rank=32, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=12,
    moe_intermediate_size=32, pad_token_id=None,
)  # fmt: skip


def deepseek_v2(common):  # queries without a low-rank projection, the best 2 of 4 groups, two shared experts
    return transformers.DeepseekV2Config(
        **common | LATENT, q_lora_rank=None, n_routed_experts=16, num_experts_per_tok=3, n_group=4, topk_group=2,
        topk_method="group_limited_greedy", n_shared_experts=2, first_k_dense_replace=1, routed_scaling_factor=4.0,
        rope_parameters=YARN | dict(mscale=0.7, mscale_all_dim=0.7),
    )  # fmt: skip


def deepseek_v2_lite(common):  # no groups of experts
    return transformers.DeepseekV2Config(
        **common | LATENT | dict(num_hidden_layers=2), q_lora_rank=None, n_routed_experts=6, num_experts_per_tok=3,
        n_group=1, topk_group=1, topk_method="greedy", n_shared_experts=2, first_k_dense_replace=1,
        routed_scaling_factor=1.0, rope_parameters=YARN | dict(mscale=0.707, mscale_all_dim=0.707),
    )  # fmt: skip


def moonlight(common):  # DeepSeek V3 without a low-rank projection of queries, groups and yarn; two shared experts
    return transformers.DeepseekV3Config(
        **common | LATENT | dict(num_hidden_layers=2), q_lora_rank=None, n_routed_experts=6, num_experts_per_tok=3,
        n_group=1, topk_group=1, n_shared_experts=2, first_k_dense_replace=1, routed_scaling_factor=2.446,
        rope_parameters=dict(rope_type="default", rope_theta=50000.0),
    )  # fmt: skip


def kimi_k2(common):  # equal beta_fast and beta_slow: yarn's blend is a step
    rope = YARN | dict(mscale=1.0, mscale_all_dim=1.0, rope_theta=50000.0, beta_fast=1.0)
    return transformers.DeepseekV3Config(
        **common | LATENT | dict(num_hidden_layers=2), q_lora_rank=24, n_routed_experts=6, num_experts_per_tok=3,
        n_group=1, topk_group=1, n_shared_experts=1, first_k_dense_replace=1, routed_scaling_factor=2.827,
        rope_parameters=rope,
    )  # fmt: skip


def glm4_moe_lite(common):
    return transformers.Glm4MoeLiteConfig(
        **common | LATENT, q_lora_rank=24, n_routed_experts=8, num_experts_per_tok=2,
        mlp_layer_types=["dense", "sparse", "sparse"],
    )  # fmt: skip


def minimax_m2(common):
    rope = dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5)
    return transformers.MiniMaxM2Config(
        **common, head_dim=32, num_local_experts=8, num_experts_per_tok=2, rope_parameters=rope, pad_token_id=None
    )


def delta_experts(common):
    return qwen3_5_keys(common) | dict(
        num_experts=8, num_experts_per_tok=2, moe_intermediate_size=32, shared_expert_intermediate_size=48
    )


def qwen3_next(common):  # the second layer is dense
    rope = dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.25)
    return transformers.Qwen3NextConfig(**delta_experts(common) | dict(mlp_only_layers=[1], rope_parameters=rope))


def published_delta_keys(keys):  # keys and values have heads of one size, as in the published models
    return keys | dict(
        num_hidden_layers=4, layer_types=["linear_attention", "linear_attention", "full_attention", "linear_attention"],
        linear_value_head_dim=16,
    )  # fmt: skip


def qwen3_next_sparse(common):  # experts in all layers
    rope = dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.25)
    keys = published_delta_keys(delta_experts(common)) | dict(num_experts=4, rope_parameters=rope)
    return transformers.Qwen3NextConfig(**keys)


def qwen3_5_small(common):
    return transformers.Qwen3_5TextConfig(**published_delta_keys(qwen3_5_keys(common | dict(tie_word_embeddings=True))))


def qwen3_5_groups(common):  # like the published models: three linear layers, then a full one, repeated
    keys = published_delta_keys(qwen3_5_keys(common)) | dict(
        num_hidden_layers=8, layer_types=(["linear_attention"] * 3 + ["full_attention"]) * 2
    )
    return transformers.Qwen3_5TextConfig(**keys)


def qwen3_5_moe(common):
    keys = {key: value for key, value in delta_experts(common).items() if key != "intermediate_size"}
    text = transformers.Qwen3_5MoeTextConfig(**keys).to_dict()
    return transformers.Qwen3_5MoeConfig(text_config=text, vision_config=VISION, tie_word_embeddings=False)


def qwen3_5_moe_small(common):
    keys = published_delta_keys(delta_experts(common)) | dict(num_experts=4)
    del keys["intermediate_size"]
    text = transformers.Qwen3_5MoeTextConfig(**keys).to_dict()
    return transformers.Qwen3_5MoeConfig(text_config=text, vision_config=VISION, tie_word_embeddings=False)


def llama4(common, **more):  # experts on every second layer; the last layer without rope; rows longer than a chunk
    rope = dict(
        rope_type="llama3", rope_theta=500000.0, factor=16.0, low_freq_factor=1.0, high_freq_factor=1.0,
        original_max_position_embeddings=32,
    )  # fmt: skip
    keys = common | dict(
        num_hidden_layers=4, head_dim=32, intermediate_size=48, intermediate_size_mlp=96, num_local_experts=8,
        interleave_moe_layer_step=2, no_rope_layer_interval=4, attention_chunk_size=12, attn_temperature_tuning=True,
        floor_scale=8, attn_scale=0.1, rope_parameters=rope, pad_token_id=None,
    )  # fmt: skip
    text = text_keys(keys | more, "llama4_text")
    vision = dict(
        hidden_size=32, intermediate_size=128, num_hidden_layers=1, num_attention_heads=2, image_size=28, patch_size=14,
        vision_output_dim=32, projector_input_dim=32, projector_output_dim=32,
    )  # fmt: skip
    return transformers.Llama4Config(text_config=text, vision_config=vision, tie_word_embeddings=False)


def llama4_scout(common):  # experts on every layer
    return llama4(common, interleave_moe_layer_step=1, num_local_experts=4)


def llama4_maverick(common):  # no norms on q and k, no scaling of rope
    rope = dict(rope_type="default", rope_theta=500000.0)
    return llama4(common, use_qk_norm=False, num_local_experts=4, rope_parameters=rope)


def llama4_dense(common):  # as MobileLLM-R1: no experts, no chunks, rope on all layers, text only, a tied head
    rope = dict(rope_type="default", rope_theta=500000.0)
    return transformers.Llama4TextConfig(
        **common | dict(num_hidden_layers=4, tie_word_embeddings=True), head_dim=32, intermediate_size_mlp=96,
        num_local_experts=0, interleave_moe_layer_step=0, moe_layers=[], attention_chunk_size=12, floor_scale=8,
        no_rope_layers=[1] * 4, layer_types=["full_attention"] * 4,
        rope_parameters=rope, pad_token_id=None,
    )  # fmt: skip


def lfm2(common):  # an adjusted size of the MLP: 2/3 of 132, rounded up to a multiple of 48
    return transformers.Lfm2Config(
        **common | dict(tie_word_embeddings=True, num_hidden_layers=5, intermediate_size=132), block_multiple_of=48,
        layer_types=["conv", "conv", "full_attention", "conv", "full_attention"], pad_token_id=None,
        rope_parameters=dict(rope_type="default", rope_theta=10000.0),
    )  # fmt: skip


def lfm2_moe(common):  # a dense layer first; the bias changes the choice of experts
    return transformers.Lfm2MoeConfig(
        **common | dict(tie_word_embeddings=True, num_hidden_layers=4), num_dense_layers=1, num_experts=8,
        num_experts_per_tok=2, moe_intermediate_size=32, layer_types=["conv", "conv", "full_attention", "conv"],
        pad_token_id=None, rope_parameters=dict(rope_type="default", rope_theta=10000.0),
    )  # fmt: skip


GRANITE4 = dict(
    embedding_multiplier=6.0, attention_multiplier=0.125, residual_multiplier=0.22, logits_scaling=2.0,
    rms_norm_eps=1e-5, shared_intermediate_size=96, pad_token_id=None,
)  # fmt: skip


def granite4(common):  # like the H models: Mamba2 layers, attention without rope, experts
    return transformers.GraniteMoeHybridConfig(
        **common | dict(tie_word_embeddings=True, num_hidden_layers=5, intermediate_size=32), **GRANITE4,
        num_local_experts=8, num_experts_per_tok=2, position_embedding_type="nope",
        layer_types=["mamba", "mamba", "attention", "mamba", "mamba"], mamba_n_heads=8, mamba_d_head=16,
        mamba_d_state=16, mamba_n_groups=1, mamba_expand=2, mamba_chunk_size=16,
    )  # fmt: skip


def granite4_dense(common):  # like the Micro model: only attention, with rope; no experts
    return transformers.GraniteMoeHybridConfig(
        **common | dict(tie_word_embeddings=True), **GRANITE4, num_local_experts=0, num_experts_per_tok=0,
        position_embedding_type="rope", layer_types=["attention", "attention"], mamba_n_heads=8, mamba_d_head=16,
        rope_parameters=dict(rope_type="default", rope_theta=10000.0),
    )  # fmt: skip


def falcon_h1(common):  # attention and Mamba2 side by side; factors in many places
    return transformers.FalconH1Config(
        **common, head_dim=16, mamba_d_ssm=96, mamba_n_heads=6, mamba_d_head=16, mamba_d_state=16, mamba_n_groups=2,
        mamba_chunk_size=16, mamba_norm_before_gate=False, mamba_rms_norm=True, lm_head_multiplier=0.5,
        embedding_multiplier=2.0, mlp_multipliers=[0.9, 0.5], key_multiplier=0.7, attention_out_multiplier=0.6,
        attention_in_multiplier=1.2, ssm_multipliers=[0.8, 1.1, 0.9, 1.2, 0.7], ssm_in_multiplier=1.25,
        ssm_out_multiplier=0.4, pad_token_id=None, rope_parameters=dict(rope_type="default", rope_theta=1e11),
    )  # fmt: skip


def falcon_h1_gated(common):  # like the 0.5B model: no norm after Mamba2
    config = falcon_h1(common)
    config.mamba_rms_norm = False
    return config


NEMOTRON = dict(
    head_dim=32, mamba_num_heads=6, mamba_head_dim=16, ssm_state_size=16, n_groups=2, chunk_size=16, pad_token_id=None,
)  # fmt: skip


def nemotron_keys(common):
    return {key: value for key, value in common.items() if key != "num_hidden_layers"}


def nemotron_h(common):  # like Nemotron Nano 9B v2
    return transformers.NemotronHConfig(**nemotron_keys(common), **NEMOTRON, hybrid_override_pattern="M-M*-M-")


def nemotron_h_nano(common):  # like Nemotron 3 Nano
    return transformers.NemotronHConfig(
        **nemotron_keys(common), **NEMOTRON, hybrid_override_pattern="MEM*E", n_routed_experts=4,
        num_experts_per_tok=2, moe_intermediate_size=32, moe_shared_expert_intermediate_size=64,
        routed_scaling_factor=2.5,
    )  # fmt: skip


def nemotron_h_moe(common):  # like Nemotron 3 Super, whose experts read a smaller vector
    return transformers.NemotronHConfig(
        **nemotron_keys(common), **NEMOTRON, hybrid_override_pattern="MEM*EME", n_routed_experts=8,
        num_experts_per_tok=2, moe_intermediate_size=32, moe_shared_expert_intermediate_size=48,
        routed_scaling_factor=2.5, moe_latent_size=48,
    )  # fmt: skip


def phi(common):
    rope = dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5)
    return transformers.PhiConfig(**common | dict(num_key_value_heads=4), rope_parameters=rope, pad_token_id=None)


def phi_normed(common):  # norms on the heads of q and k, grouped heads
    rope = dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5)
    return transformers.PhiConfig(**common, rope_parameters=rope, qk_layernorm=True, pad_token_id=None)


def store_fused(model, folder):
    """Stores all experts of a layer in one tensor, as published. Transformers saves a tensor for each expert."""
    state = safetensors.torch.load_file(folder / "model.safetensors")
    state = {name: value for name, value in state.items() if ".mlp.experts." not in name}
    state |= {name: value.detach() for name, value in model.named_parameters() if ".mlp.experts." in name}
    safetensors.torch.save_file(state, folder / "model.safetensors", metadata=dict(format="pt"))


def store_in_mxfp4(model, folder):
    """Replaces the experts' weights in a saved model by MXFP4 blocks and scales."""
    state = safetensors.torch.load_file(folder / "model.safetensors")
    for name, parts in model.mxfp4.items():
        del state[name]
        state |= {f"{name}_blocks": parts[0], f"{name}_scales": parts[1]}
    safetensors.torch.save_file(state, folder / "model.safetensors", metadata=dict(format="pt"))


def qwen3_fp8(common):  # the MLP's weights have 2 x 1 or 1 x 2 blocks
    return transformers.Qwen3Config(**common | dict(intermediate_size=256), head_dim=32, rms_norm_eps=1e-6)


def qwen3_gptq(common):
    return transformers.Qwen3Config(**common, head_dim=32, rms_norm_eps=1e-6)


def qwen2_awq(common):
    return transformers.Qwen2Config(**common, rms_norm_eps=1e-6)


def qwen3_moe_packed(common):
    return transformers.Qwen3MoeConfig(
        **common, head_dim=32, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32, norm_topk_prob=True
    )


def store_in_float8(model, folder):
    """Replaces the weights of linear layers in a saved model by 8-bit codes and scales."""
    state = safetensors.torch.load_file(folder / "model.safetensors")
    for name, (codes, scales) in model.float8.items():
        state |= {name: codes, f"{name}_scale_inv": scales}
    safetensors.torch.save_file(state, folder / "model.safetensors", metadata=dict(format="pt"))


def check_float8(model, folder):
    """Checks that Transformers reads the values of `model` from the folder."""
    read = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, quantization_config=transformers.FineGrainedFP8Config(dequantize=True)
    )
    values = dict(read.named_parameters())
    assert all(torch.equal(values[name], parameter) for name, parameter in model.named_parameters())


def random_float8(value):
    """Returns codes and random scales of a weight, and their values by Transformers' formula."""
    grid = [(size + 127) // 128 for size in value.shape]
    scales = (0.5 + torch.rand(grid)) * value.abs().max() / 448
    repeated = scales.repeat_interleave(128, 0).repeat_interleave(128, 1)[: value.shape[0], : value.shape[1]]
    codes = (value / repeated).clamp(-448, 448).to(torch.float8_e4m3fn)
    return codes, scales, finegrained_fp8.Fp8Dequantize(None)._dequantize_one(codes, scales, torch.float32)


def random_mxfp4(parameter):
    """Returns random blocks and scales of a weight [E, in, out], and their values by Transformers' formula."""
    experts, inputs, outputs = parameter.shape
    blocks = torch.randint(0, 256, (experts, outputs, inputs // 32, 16), dtype=torch.uint8)
    scales = torch.randint(122, 126, (experts, outputs, inputs // 32), dtype=torch.uint8)
    return blocks, scales, mxfp4.convert_moe_packed_tensors(blocks, scales, dtype=torch.float32)


# Published checkpoints have these fields. Transformers 5 saves them in another form.
GEMMA4_HEADS = dict(global_head_dim=32, num_global_key_value_heads=1)


def gemma4_text_keys(common, **more):
    return common | dict(
        tie_word_embeddings=True, num_hidden_layers=6, head_dim=16, sliding_window=12,
        layer_types=["sliding_attention", "sliding_attention", "full_attention"] * 2, final_logit_softcapping=8.0,
        rope_parameters=dict(
            full_attention=dict(rope_type="proportional", rope_theta=50000.0, partial_rotary_factor=0.25),
            sliding_attention=dict(rope_type="default", rope_theta=1000.0),
        ),
        pad_token_id=common["eos_token_id"],  # Transformers does not train the padding's embedding; no row has this id
    ) | more  # fmt: skip


def gemma4_vision(**more):
    return dict(
        hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2,
        head_dim=16, patch_size=4, position_embedding_size=16, pooling_kernel_size=2,
    ) | more  # fmt: skip


def gemma4_config(common, **more):
    text = transformers.Gemma4TextConfig(**gemma4_text_keys(common, **more)).to_dict()
    return transformers.Gemma4Config(text_config=text, vision_config=gemma4_vision(), audio_config=None)


def gemma4(common):  # like the 31B model: full layers use the projection of keys for their values, too
    return gemma4_config(
        common, **GEMMA4_HEADS, attention_k_eq_v=True, hidden_size_per_layer_input=0,
        use_bidirectional_attention="vision",
    )  # fmt: skip


def gemma4_moe(common):  # like the 26B-A4B model: each layer has experts beside the MLP
    return gemma4_config(
        common, **GEMMA4_HEADS, attention_k_eq_v=True, hidden_size_per_layer_input=0, enable_moe_block=True,
        num_experts=8, top_k_experts=2, moe_intermediate_size=32,
    )  # fmt: skip


def gemma4_e2b(common):  # like the E2B model: four layers, then four that use the keys and values of the first four
    return gemma4_config(
        common, global_head_dim=32, num_hidden_layers=8, num_key_value_heads=1, hidden_size_per_layer_input=16,
        vocab_size_per_layer_input=common["vocab_size"], num_kv_shared_layers=4, use_double_wide_mlp=True,
        layer_types=["sliding_attention", "full_attention"] * 4,
    )  # fmt: skip


def gemma4_unified(common):  # like the 12B model, whose towers have a single layer
    text = transformers.Gemma4UnifiedTextConfig(
        **gemma4_text_keys(common, **GEMMA4_HEADS, attention_k_eq_v=True, num_hidden_layers=3, layer_types=None)
    ).to_dict()
    vision = dict(patch_size=4, pooling_kernel_size=2, mm_embed_dim=32, mm_posemb_size=8, output_proj_dims=64)
    return transformers.Gemma4UnifiedConfig(text_config=text, vision_config=vision, audio_config=None)


def as_published(config):
    """Gives config.json its published form: head sizes by kind of layer. Transformers 5 saves them by layer."""
    text = config.get("text_config", {})
    if "per_layer_config" in text:
        full = next(iter(text.pop("per_layer_config").values()))
        text["global_head_dim"] = full["head_dim"]
        text["num_global_key_value_heads"] = full.get("num_key_value_heads")


CONFIGS = dict(
    gemma=gemma, olmo2=olmo2, olmo3=olmo3, smollm3=smollm3, granite=granite, seed_oss=seed_oss, ernie4_5=ernie4_5,
    glm=glm, glm4=glm4, cohere2=cohere2, gpt_neox=gpt_neox, ministral3=ministral3, gemma3_wrapped=gemma3_wrapped,
    mistral3=mistral3, gpt_oss=gpt_oss, qwen3_5_text=qwen3_5_text, qwen3_5=qwen3_5, qwen2_moe=qwen2_moe,
    glm4_moe=glm4_moe, deepseek_v3=deepseek_v3, qwen3_next=qwen3_next, qwen3_5_moe=qwen3_5_moe,
    gpt_oss_mxfp4=gpt_oss, deepseek_v2=deepseek_v2, glm4_moe_lite=glm4_moe_lite, minimax_m2=minimax_m2,
    gemma4=gemma4, gemma4_moe=gemma4_moe, gemma4_e2b=gemma4_e2b, gemma4_unified=gemma4_unified,
    qwen3_fp8=qwen3_fp8, llama4=llama4, lfm2=lfm2, lfm2_moe=lfm2_moe, granite4=granite4, granite4_dense=granite4_dense,
    falcon_h1=falcon_h1, falcon_h1_gated=falcon_h1_gated, nemotron_h=nemotron_h, nemotron_h_moe=nemotron_h_moe, phi=phi,
    qwen3_gptq=qwen3_gptq, qwen2_awq=qwen2_awq, qwen3_moe_packed=qwen3_moe_packed, phi_normed=phi_normed,
    qwen2_moe_sparse=qwen2_moe_sparse, deepseek_r1=deepseek_r1, qwen3_next_sparse=qwen3_next_sparse,
    qwen3_5_small=qwen3_5_small, qwen3_5_moe_small=qwen3_5_moe_small, exaone4=exaone4, exaone4_small=exaone4_small,
    glm4_moe_air=glm4_moe_air, moonlight=moonlight, kimi_k2=kimi_k2, nemotron_h_nano=nemotron_h_nano,
    mistral_small=mistral_small, deepseek_v2_lite=deepseek_v2_lite, llama4_scout=llama4_scout,
    llama4_maverick=llama4_maverick, qwen3_5_groups=qwen3_5_groups,
    ernie4_5_moe=ernie4_5_moe, granitemoe=granitemoe, gpt_neox_sequential=gpt_neox_sequential,
    llama4_dense=llama4_dense,
)  # fmt: skip
