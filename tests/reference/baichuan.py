"""Baichuan 2 as a small PyTorch module. It computes the same as the published 7B and 13B, and has their weight names.

The 7B has rotary positions. The 13B has ALiBi, a penalty on the scores that grows with the distance; each head has its
own slope. Both have RMSNorm, one W_pack for q, k and v, a gated MLP, and a head whose rows are scaled to length 1
before each use (NormHead). Transformers does not have this family; `register()` adds it.
"""

import math

import torch
import transformers
from torch import nn
from transformers.modeling_outputs import CausalLMOutput


class Config(transformers.PretrainedConfig):
    model_type = "baichuan"

    def __init__(
        self, vocab_size=125696, hidden_size=4096, intermediate_size=11008, num_hidden_layers=32,
        num_attention_heads=32, hidden_act="silu", initializer_range=0.02, rms_norm_eps=1e-6, **rest,
    ):  # fmt: skip
        super().__init__(**rest)
        self.vocab_size, self.hidden_size, self.intermediate_size = vocab_size, hidden_size, intermediate_size
        self.num_hidden_layers, self.num_attention_heads = num_hidden_layers, num_attention_heads
        self.hidden_act, self.initializer_range, self.rms_norm_eps = hidden_act, initializer_range, rms_norm_eps

    def alibi(self):
        """Returns whether the model uses ALiBi, as the 13B does: its config has no number of positions."""
        return getattr(self, "max_position_embeddings", None) is None


def slopes(heads):
    """Returns ALiBi's slopes. If `heads` is a power of two, they are a geometric series. Otherwise, they are the
    slopes of the next smaller power of two, followed by every other slope of twice that power."""
    power = 2 ** math.floor(math.log2(heads))
    series = lambda count: [2 ** (-8 * (i + 1) / count) for i in range(count)]
    return series(power) + series(2 * power)[0::2][: heads - power]


class RMSNorm(nn.Module):
    def __init__(self, size, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps))


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.heads, self.alibi = config.num_attention_heads, config.alibi()
        self.head_dim = config.hidden_size // self.heads
        self.W_pack = nn.Linear(config.hidden_size, 3 * config.hidden_size, bias=False)
        self.o_proj = nn.Linear(config.hidden_size, config.hidden_size, bias=False)

    def rotate(self, x):
        half = self.head_dim // 2
        frequencies = 10000.0 ** (-torch.arange(0, self.head_dim, 2) / self.head_dim)
        angles = torch.arange(x.shape[2])[:, None] * frequencies
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)

    def forward(self, x):
        rows, length, size = x.shape
        packed = self.W_pack(x).view(rows, length, 3, self.heads, self.head_dim)
        q, k, v = packed.permute(2, 0, 3, 1, 4)
        if not self.alibi:
            q, k = self.rotate(q), self.rotate(k)
        scores = q @ k.transpose(2, 3) / math.sqrt(self.head_dim)
        place = torch.arange(length)
        if self.alibi:
            scores = scores + torch.tensor(slopes(self.heads))[:, None, None] * (place[None, :] - place[:, None])
        scores = scores.masked_fill(place[None, :] > place[:, None], float("-inf"))
        mixed = scores.softmax(-1) @ v
        return self.o_proj(mixed.transpose(1, 2).reshape(rows, length, size))


class MLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x):
        return self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.self_attn, self.mlp = Attention(config), MLP(config)
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class Body(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(self, ids):
        x = self.embed_tokens(ids)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


class NormHead(nn.Module):
    def __init__(self, size, vocab):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab, size))

    def forward(self, x):
        return nn.functional.linear(x, nn.functional.normalize(self.weight))


class Model(transformers.PreTrainedModel):
    config_class = Config
    base_model_prefix = "model"

    def __init__(self, config, **_):
        super().__init__(config)
        self.model = Body(config)
        self.lm_head = NormHead(config.hidden_size, config.vocab_size)
        self.post_init()

    def get_input_embeddings(self):
        return self.model.embed_tokens

    def get_output_embeddings(self):
        return self.lm_head

    def prepare_inputs_for_generation(self, input_ids, **_):  # PEFT calls this
        return dict(input_ids=input_ids)

    def forward(self, input_ids, attention_mask=None, labels=None, num_items_in_batch=None, **_):
        """Computes logits and loss. The mask is not needed, because padding is at the end of a row, where no earlier
        position can see it."""
        logits = self.lm_head(self.model(input_ids))
        loss = None
        if labels is not None:
            flat = logits[:, :-1].reshape(-1, logits.shape[-1]), labels[:, 1:].reshape(-1)
            loss = nn.functional.cross_entropy(*flat, ignore_index=-100, reduction="sum")
            loss = loss / (num_items_in_batch if num_items_in_batch is not None else (flat[1] != -100).sum())
        return CausalLMOutput(loss=loss, logits=logits)


Model.__name__ = "BaichuanForCausalLM"


def register():
    transformers.AutoConfig.register("baichuan", Config)
    transformers.AutoModelForCausalLM.register(Config, Model)
