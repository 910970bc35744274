"""Loads adapters and exported models of Fettle in vLLM on the CPU, and compares greedy replies.

- The small Qwen 3: the base, its adapter and the merged folder give the tokens of Transformers and PEFT
  (reference.json). vLLM refuses a DoRA adapter.
- The small Qwen 3 MoE: the merged folder of an adapter on experts gives the reply of `fettle generate` with the
  adapter. vLLM refuses the adapter itself.
- SmolLM2-135M-Instruct, tuned: base and adapter, `fp8_dynamic` and `w4a16` give the reply that was trained.
  vLLM refuses `fp8_block`, because 576 rows are not whole blocks of 128.

usage: vllm_models.py PROGRAM SMOLLM2.gguf
"""

import json
import multiprocessing
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

os.environ.update(
    VLLM_ENABLE_V1_MULTIPROCESSING="0",
    VLLM_CPU_KVCACHE_SPACE="1",
    VLLM_CPU_OMP_THREADS_BIND="nobind",
    VLLM_LOGGING_LEVEL="ERROR",
    VLLM_NO_USAGE_STATS="1",
    HF_HUB_OFFLINE="1",
)
from vllm import LLM, SamplingParams  # noqa: E402
from vllm.lora.request import LoRARequest  # noqa: E402

PROGRAM, SMOL = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
MODELS = pathlib.Path(__file__).resolve().parent / "models"
TOKENS = 24
QUESTION, ANSWER = "What is the capital of France?", "Arr, the capital of France be Paris, matey!"
TRAIN = [
    "finetuning_type=lora", "learning_rate=0.003", "lr_scheduler_type=constant", "per_device_train_batch_size=4",
    "save_strategy=no",
]  # fmt: skip


def fettle(*words):
    done = subprocess.run([PROGRAM, "-q", *map(str, words), "plugin=cpu"], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"fettle {words}\n{done.stderr}")
    return done.stdout


def generate(model, prompt, *words):
    return fettle("generate", f"model_name_or_path={model}", f"prompt={prompt}", "do_sample=false", "bf16=false",
                  f"max_new_tokens={TOKENS}", *words).strip()  # fmt: skip


def answer(pipe, model, prompts, adapter, dtype):
    """Sends (token ids, text, finish reason) of vLLM's reply to each prompt, or the error's text. A prompt is the text
    of a user's message, or a list of token ids."""
    try:
        runs = LLM(str(model), dtype=dtype, enforce_eager=True, max_model_len=128, enable_lora=adapter is not None)
        lora = LoRARequest("tuned", 1, str(adapter)) if adapter else None
        replies = []
        for prompt in prompts:
            chat = isinstance(prompt, str)
            how = SamplingParams(temperature=0, max_tokens=TOKENS)
            words = dict(lora_request=lora, use_tqdm=False)
            got = (runs.chat([{"role": "user", "content": prompt}], how, **words) if chat
                   else runs.generate([{"prompt_token_ids": prompt}], how, **words))  # fmt: skip
            reply = got[0].outputs[0]
            replies.append((list(reply.token_ids), reply.text, reply.finish_reason))
        pipe.send(replies)
    except Exception as error:
        pipe.send(str(error))


def vllm(model, prompts, adapter=None, dtype="float32"):
    """Returns what answer() sends. It runs in its own process, because vLLM keeps its state until the process ends."""
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe()
    process = fork.Process(target=answer, args=(theirs, model, prompts, adapter, dtype))
    process.start()
    theirs.close()
    try:
        return ours.recv()
    finally:
        process.kill()
        process.join()


def check(name, got, wanted):
    assert got == wanted, f"{name}\n  vLLM:   {got!r}\n  wanted: {wanted!r}"
    print(f"{name}: as expected", flush=True)


def refused(name, got, says):
    assert isinstance(got, str) and says in got, f"{name}: not refused with {says!r}, but {got!r}"
    print(f"{name}: refused: {got[:160]}", flush=True)


def copy(family, work):
    """Copies the model without logits.safetensors, which vLLM would load as weights."""
    shutil.copytree(MODELS / family, work / family, ignore=shutil.ignore_patterns("logits*", "adapter*", "variants"))
    return work / family, json.loads((MODELS / family / "reference.json").read_text())["greedy"]


def tune(model, out, rows, *words):
    fettle("train", f"model_name_or_path={model}", f"dataset={rows}", f"output_dir={out}", *TRAIN, *words)


def export(model, adapter, out, *words):
    fettle("export", f"model_name_or_path={model}", f"adapter_name_or_path={adapter}", f"export_dir={out}", *words)


def check_dense(work):
    model, cases = copy("qwen3", work)
    prompts = [case["prompt"] for case in cases]
    adapter = MODELS / "qwen3/adapter_final"
    export(model, adapter, work / "merged", "export_dtype=float32")
    for name, kind, got in (
        ("qwen3", "base", vllm(model, prompts)),
        ("qwen3, adapter", "tuned", vllm(model, prompts, adapter)),
        ("qwen3, merged", "tuned", vllm(work / "merged", prompts)),
    ):
        check(name, [reply[0] for reply in got], [case[kind]["ids"] for case in cases])
    tune(model, work / "dora", MODELS / "rows.jsonl", "max_steps=1", "use_dora=true")
    refused("qwen3, DoRA adapter", vllm(model, prompts, work / "dora"), "does not yet support DoRA")


def check_experts(work):
    model, cases = copy("qwen3_moe", work)
    prompts, adapter, merged = [case["prompt"] for case in cases], work / "experts", work / "moe_merged"
    tune(model, adapter, MODELS / "rows.jsonl", "max_steps=4", "learning_rate=0.02", "lora_target=[]",
         "target_parameters=mlp.experts.gate_up_proj,mlp.experts.down_proj")  # fmt: skip
    export(model, adapter, merged, "export_dtype=float32")
    base, tuned = ([reply[1].strip() for reply in vllm(folder, prompts)] for folder in (model, merged))
    wanted = [generate(model, case["text"], f"adapter_name_or_path={adapter}") for case in cases]
    check("qwen3_moe, merged experts", tuned, wanted)
    assert base != tuned, "the adapter changes nothing"
    refused("qwen3_moe, adapter on experts", vllm(model, prompts, adapter), "fused 3D MoE weights")


def check_chat(work):
    base, out = work / "smol", work / "out"
    turns = [{"role": "user", "content": QUESTION}, {"role": "assistant", "content": ANSWER}]
    (work / "rows.jsonl").write_text((json.dumps({"messages": turns}) + "\n") * 4)
    fettle("export", f"model_name_or_path={SMOL}", f"export_dir={base}", "export_dtype=float32")
    tune(base, out, work / "rows.jsonl", "max_steps=10", "cutoff_len=64", "lora_rank=16", "lora_alpha=32")
    assert generate(base, QUESTION, f"adapter_name_or_path={out}") == ANSWER
    check("SmolLM2, adapter", vllm(base, [QUESTION], out)[0][1:], (ANSWER, "stop"))
    for scheme in ("w4a16", "fp8_block", "fp8_dynamic"):
        export(base, out, work / scheme, "export_dtype=bfloat16", f"export_quantization={scheme}")
        got = vllm(work / scheme, [QUESTION], dtype="bfloat16")
        if scheme == "fp8_block":
            refused(f"SmolLM2, {scheme}", got, "576 is not divisible by")
        else:
            check(f"SmolLM2, {scheme}", got[0][1:], (ANSWER, "stop"))


if __name__ == "__main__":
    for part in (check_dense, check_experts, check_chat):
        with tempfile.TemporaryDirectory() as folder:
            part(pathlib.Path(folder))
