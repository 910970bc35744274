"""Makes weights that are stored as integers with a scale and a zero for each group of inputs: GPTQ, AWQ and
compressed-tensors.

The values come from the formats' formula, (code - zero) * scale, and the words from their specification: a word is the
sum of its codes, each shifted to its place. Sources: AutoGPTQ's qlinear_cuda_old, AutoAWQ's gemm, compressed-tensors'
pack_quantized.
"""

import safetensors.torch
import torch

GROUP = dict(qwen3_gptq=16, qwen2_awq=32, qwen3_moe_packed=16)
CONFIGS = dict(
    qwen3_gptq=dict(
        quant_method="gptq", bits=4, group_size=16, desc_act=True, sym=False, checkpoint_format="gptq", true_sequential=True,
        damp_percent=0.1, static_groups=False,
    ),
    qwen2_awq=dict(
        quant_method="awq", bits=4, group_size=32, zero_point=True, version="gemm", modules_to_not_convert=["lm_head"]
    ),
    qwen3_moe_packed=dict(
        quant_method="compressed-tensors", format="pack-quantized", quantization_status="compressed",
        config_groups=dict(
            group_0=dict(
                targets=["Linear"], input_activations=None, output_activations=None,
                weights=dict(num_bits=4, type="int", strategy="group", group_size=16, symmetric=True, actorder=None),
            )
        ),
        ignore=["lm_head", "re:.*mlp.gate$"],
    ),
)  # fmt: skip
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


def has_groups(name, parameter):
    return ".layers." in name and parameter.ndim >= 2 and name.removesuffix(".weight").endswith("_proj")


def random_groups(family, value):
    """Returns codes, zeros, scales and each input's group for a weight [.., out, in], and the values by the formula."""
    size = GROUP[family]
    inputs = value.shape[-1]
    order = torch.arange(inputs) // size
    if family == "qwen3_gptq":
        order = order[torch.randperm(inputs)]
    groups = torch.stack([value[..., order == group] for group in range(inputs // size)], -2)
    low, high = groups.amin(-1).clamp(max=0), groups.amax(-1).clamp(min=0)
    if family == "qwen3_moe_packed":  # symmetric
        low, high = -groups.abs().amax(-1), groups.abs().amax(-1)
    scales = ((high - low) / 15).half().float()
    zeros = (-low / scales).round().clamp(0, 15) if family != "qwen3_moe_packed" else torch.full_like(scales, 8)
    codes = (value / scales[..., order] + zeros[..., order]).round().clamp(0, 15)
    return (codes.long(), zeros.long(), scales, order), (codes - zeros[..., order]) * scales[..., order]


def pack(codes, dim, order=range(8)):
    """Packs eight codes along `dim` into a word. Code order[i] is in the bits 4 i to 4 i + 3."""
    codes = codes.movedim(dim, -1)
    codes = torch.nn.functional.pad(codes, (0, -codes.shape[-1] % 8)).unflatten(-1, (-1, 8))
    words = sum(codes[..., place] << 4 * i for i, place in enumerate(order))
    words = torch.where(words >= 2**31, words - 2**32, words)
    return words.to(torch.int32).movedim(-1, dim).contiguous()


def tensors_of(family, module, codes, zeros, scales, order):
    """Returns the stored tensors of one linear layer [out, in]."""
    if family == "qwen3_gptq":
        parts = dict(
            qweight=pack(codes.T, 0), qzeros=pack((zeros.T - 1) % 16, 1), scales=scales.T.half().contiguous(), g_idx=order.int()
        )
    elif family == "qwen2_awq":
        parts = dict(
            qweight=pack(codes.T, 1, AWQ_ORDER), qzeros=pack(zeros.T, 1, AWQ_ORDER), scales=scales.T.half().contiguous()
        )
    else:
        parts = dict(weight_packed=pack(codes, 1), weight_scale=scales.half(), weight_shape=torch.tensor(codes.shape))
    return {f"{module}.{name}": part for name, part in parts.items()}


def store(model, family, folder):
    """Replaces the weights of linear layers in a saved model by packed words, zeros and scales."""
    state = safetensors.torch.load_file(folder / "model.safetensors")
    for name, (codes, zeros, scales, order) in model.grouped.items():
        if codes.ndim == 2:
            del state[name]
            state |= tensors_of(family, name.removesuffix(".weight"), codes, zeros, scales, order)
            continue
        head, _, kind = name.rpartition(".")  # the weights of all experts
        for expert, of_expert in enumerate(zip(codes, zeros, scales)):
            parts = dict(down_proj=of_expert)
            if kind == "gate_up_proj":
                halves = [part.chunk(2) for part in of_expert]
                parts = dict(gate_proj=[half[0] for half in halves], up_proj=[half[1] for half in halves])
            for part, of_part in parts.items():
                module = f"{head}.{expert}.{part}"
                del state[f"{module}.weight"]
                state |= tensors_of(family, module, *of_part, order)
    state = {name: value.contiguous() for name, value in state.items()}
    safetensors.torch.save_file(state, folder / "model.safetensors", metadata=dict(format="pt"))
