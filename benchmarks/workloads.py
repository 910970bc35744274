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

    def title(self):
        work = {
            "lora": f"LoRA, {self.rows} x {self.length}",
            "full": f"full tuning, {self.rows} x {self.length}",
            "qlora": f"QLoRA nf4, {self.rows} x {self.length}",
            "chat": f"LoRA, {self.rows} chat rows of 20 to {self.length} tokens",
            "eval": f"evaluation of chat rows, {self.rows} at a time",
            "generate": f"greedy reply of 64 tokens to {self.length}",
        }[self.kind]
        policy = ", full recomputation" if self.remat == "full" else ""
        return f"{self.shape} {'bf16' if self.dtype == 'bfloat16' else 'f32'}: {work}{policy}"


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
    Workload("chat", "135m", "bfloat16", rows=8, length=700, steps=4),
    Workload("chat", "135m", "float32", rows=8, length=700, steps=4, short=True),
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
