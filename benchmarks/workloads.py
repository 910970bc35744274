"""The work that bench.py measures. A new line here is a new line of its table."""

from dataclasses import dataclass

SHAPES = {  # flags of make_model.py; the 135M shape is SmolLM2's, the 1.1B shape TinyLlama's, the 8B shape Llama 3.1's
    "135m": [],
    "1.1b": ["--hidden=2048", "--layers=22", "--heads=32", "--kv-heads=4", "--mlp=5632", "--vocab=32000", "--untied"],
    "8b": ["--hidden=4096", "--layers=32", "--heads=32", "--kv-heads=8", "--mlp=14336", "--vocab=128256", "--untied"],
}


@dataclass(frozen=True)
class Workload:
    kind: str  # lora, full, qlora, chat, eval or generate
    shape: str
    dtype: str = "bfloat16"
    rows: int = 1  # per step
    length: int = 512  # tokens per row; chat and eval: tokens of the longest row
    remat: str = "none"
    steps: int = 6  # timed steps, after two untimed steps
    short: bool = False  # measured also without --all
    real: bool = False  # chat: the rows have the lengths of a published data set (REAL_CHAT)

    def title(self):
        work = {
            "lora": f"LoRA, {self.rows} x {self.length}",
            "full": f"full tuning, {self.rows} x {self.length}",
            "qlora": f"QLoRA nf4, {self.rows} x {self.length}",
            "chat": f"LoRA, {self.rows} rows of a real chat set"
            if self.real
            else f"LoRA, {self.rows} chat rows of 20 to {self.length} tokens",
            "eval": f"evaluation of chat rows, {self.rows} at a time",
            "generate": f"greedy reply of 64 tokens to {self.length}",
        }[self.kind]
        policy = ", full recomputation" if self.remat == "full" else ""
        return f"{self.shape} {'bf16' if self.dtype == 'bfloat16' else 'f32'}: {work}{policy}"


# The rows of LLaMA-Factory's data/identity.json: tokens of the prompt and of the reply, counted with the tokenizer and
# the chat template of SmolLM2-135M-Instruct.
REAL_CHAT = [
    (31, 26), (31, 26), (34, 24), (35, 21), (36, 20), (35, 17), (40, 17), (35, 17), (34, 17), (34, 13), (34, 13),
    (35, 15), (39, 15), (37, 19), (36, 19), (31, 16), (34, 71), (34, 62), (35, 77), (36, 91), (38, 91), (49, 77),
    (51, 85), (39, 75), (35, 62), (39, 65), (49, 83), (49, 62), (43, 68), (48, 85), (45, 56), (58, 41), (46, 71),
    (58, 174), (33, 56), (41, 59), (52, 48), (58, 200), (36, 42), (44, 89), (51, 69), (47, 60), (43, 64), (48, 73),
    (45, 64), (55, 78), (54, 69), (47, 65), (45, 76), (44, 81), (57, 69), (50, 66), (51, 80), (50, 55), (53, 71),
    (55, 70), (64, 69), (54, 67), (41, 43), (42, 45), (42, 47), (38, 51), (39, 54), (44, 76), (47, 60), (47, 114),
    (45, 105), (44, 96), (42, 106), (43, 96), (43, 90), (43, 77), (44, 102), (43, 106), (41, 90), (43, 109),
    (45, 108), (43, 103), (43, 90), (46, 104), (50, 93), (43, 92), (50, 116), (45, 98), (53, 106), (54, 95),
    (47, 102), (46, 50), (48, 57), (45, 67), (46, 63),
]

WORKLOADS = [
    Workload("lora", "135m", "bfloat16", short=True),
    Workload("lora", "135m", "float32", short=True),
    Workload("lora", "135m", "bfloat16", remat="full"),
    Workload("lora", "135m", "float32", remat="full"),
    Workload("lora", "135m", "bfloat16", rows=4, remat="full", steps=3, short=True),
    Workload("lora", "135m", "float32", rows=4, remat="full", steps=3),
    Workload("lora", "135m", "bfloat16", length=2048, steps=3, short=True),
    Workload("lora", "135m", "float32", length=2048, steps=3),
    Workload("full", "135m", "bfloat16", short=True),
    Workload("full", "135m", "float32"),
    Workload("qlora", "135m", "bfloat16", short=True),
    Workload("qlora", "135m", "float32"),
    Workload("chat", "135m", "bfloat16", rows=8, length=700, steps=8, real=True),
    Workload("chat", "135m", "float32", rows=8, length=700, steps=8, real=True, short=True),
    Workload("chat", "135m", "bfloat16", rows=8, length=700, steps=4),
    Workload("chat", "135m", "float32", rows=8, length=700, steps=4),
    Workload("lora", "1.1b", "bfloat16", steps=2, short=True),
    Workload("lora", "1.1b", "float32", steps=2),
    Workload("lora", "1.1b", "bfloat16", rows=4, remat="full", steps=2),
    Workload("lora", "1.1b", "float32", rows=4, remat="full", steps=2),
    Workload("lora", "1.1b", "bfloat16", length=2048, steps=2),
    Workload("lora", "1.1b", "float32", length=2048, steps=2),
    Workload("eval", "135m", "bfloat16", rows=8, length=700, short=True),
    Workload("eval", "135m", "float32", rows=8, length=700),
    Workload("generate", "135m", "bfloat16", short=True),
    Workload("generate", "135m", "float32"),
]
