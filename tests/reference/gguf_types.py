"""Writes gguf/types.json: the types that llama.cpp's quantize gives the tensors of several models.

    python3 gguf_types.py LLAMA_CPP

LLAMA_CPP is llama.cpp's source folder (gguf_files.py says where it comes from). The script takes the functions that
choose types out of src/llama-quant.cpp, compiles them with g++ without the rest of llama.cpp, and calls them with names
and dims of tensors. It needs no packages.
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
LLAMA_CPP = pathlib.Path(sys.argv[1])
# The types' numbers in the enum llama_ftype of llama.h.
FILES = dict(q8_0=7, q6_k=18, q5_k_m=17, q5_k_s=16, q5_1=9, q5_0=8, q4_k_m=15, q4_k_s=14, q4_1=3, q4_0=2, mxfp4_moe=38,
             q3_k_l=13, q3_k_m=12, q3_k_s=11, q2_k=10)  # fmt: skip

# Declarations from the rest of llama.cpp that the functions use.
BEFORE = """
#include "ggml.h"
#include "llama.h"
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <regex>
#include <string>
#include <vector>
#define LLAMA_LOG_WARN(...)
enum llm_arch { LLM_ARCH_FALCON, LLM_ARCH_GLM5_NEXT, LLM_ARCH_BAILINGMOE3, LLM_ARCH_LLAMA };
enum llm_type { LLM_TYPE_70B, LLM_TYPE_UNKNOWN };
struct Hparams { uint32_t n_expert = 0, n_layer_all = 0, gqa = 1; uint32_t n_gqa() const { return gqa; } };
struct Model { llm_arch arch = LLM_ARCH_LLAMA; llm_type type = LLM_TYPE_UNKNOWN; Hparams hparams; };
struct quantize_state_impl {
  Model model;
  llama_model_quantize_params settings{};
  const llama_model_quantize_params* params = &settings;
  int n_attention_wv = 0, n_ffn_down = 0, n_ffn_gate = 0, n_ffn_up = 0;
  int i_attention_wv = 0, i_ffn_down = 0, i_ffn_gate = 0, i_ffn_up = 0;
  int n_k_quantized = 0, n_fallback = 0;
  bool has_imatrix = false, has_tied_embeddings = true;
};
static std::string format(const char*, ...) { return "error"; }
extern "C" const char* ggml_get_name(const ggml_tensor* t) { return t->name; }
extern "C" int64_t ggml_blck_size(ggml_type t) {
  if (t <= GGML_TYPE_F16 || t == GGML_TYPE_BF16) return 1;
  return t <= GGML_TYPE_Q8_1 || t == GGML_TYPE_MXFP4 || t == GGML_TYPE_IQ4_NL ? 32 : 256;
}
extern "C" const char* ggml_type_name(ggml_type) { return ""; }
"""
AFTER = """
int main() {
  quantize_state_impl qs;
  int ftype, large;
  size_t count;
  std::cin >> ftype >> qs.model.hparams.n_layer_all >> qs.model.hparams.n_expert >> qs.model.hparams.gqa >> large >> count;
  if (large) qs.model.type = LLM_TYPE_70B;
  qs.settings.output_tensor_type = qs.settings.token_embedding_type = GGML_TYPE_COUNT;
  std::vector<ggml_tensor> tensors(count);
  for (ggml_tensor& t : tensors) {
    t.ne[3] = 1;
    std::cin >> t.name >> t.ne[0] >> t.ne[1] >> t.ne[2];
    const tensor_category category = tensor_get_category(t.name);
    if (category_is_attn_v(category)) ++qs.n_attention_wv;
    if (category == tensor_category::OUTPUT) qs.has_tied_embeddings = false;
  }
  qs.n_ffn_down = qs.n_ffn_gate = qs.n_ffn_up = qs.model.hparams.n_layer_all;
  const ggml_type usual = llama_ftype_get_default_type(llama_ftype(ftype));
  for (ggml_tensor& t : tensors) {
    const ggml_type type = llama_tensor_get_type_impl(qs, usual, &t, llama_ftype(ftype), tensor_get_category(t.name));
    std::cout << int(tensor_type_fallback(qs, &t, type)) << "\\n";
  }
}
"""


def function(source: str, start: str) -> str:
    """Returns the text from the line that begins with `start` to the next line that begins with a closing brace."""
    return re.search(rf"^{re.escape(start)}.*?^}};?\n", source, re.M | re.S).group(0)


def build(folder: pathlib.Path) -> pathlib.Path:
    source = (LLAMA_CPP / "src/llama-quant.cpp").read_text()
    parts = [function(source, start) for start in (
        "enum class tensor_category", "static bool tensor_name_match_token_embd", "static bool tensor_name_match_output_weight",
        "static tensor_category tensor_get_category", "static bool category_is_attn_v", "ggml_type llama_ftype_get_default_type",
        "static ggml_type tensor_type_fallback", "static ggml_type llama_tensor_get_type_impl")]  # fmt: skip
    (folder / "types.cpp").write_text(BEFORE + "\n".join(parts) + AFTER)
    subprocess.run(["g++", "-std=c++17", "-O0", "-w", f"-I{LLAMA_CPP}/ggml/include", f"-I{LLAMA_CPP}/include",
                    str(folder / "types.cpp"), "-o", str(folder / "types")], check=True)  # fmt: skip
    return folder / "types"


def attention(width: int):
    return {"attn_q": (width, width), "attn_k": (width, width), "attn_v": (width, width), "attn_output": (width, width)}


def mlp(width: int, ending: str = "", experts: int = 0):
    first = (experts,) if experts else ()
    return {f"ffn_{part}{ending}": (*first, width, width) for part in ("gate", "up", "down")}


def model(layers: int, layer, head: bool = True, experts: int = 0, group: int = 1, large: bool = False, width: int = 512):
    """Returns a model for types.json. layer(number) returns {name: dims} of that layer, with row-major dims."""
    tensors = [["token_embd.weight", [512, width]]] + ([["output.weight", [512, width]]] if head else [])
    for number in range(layers):
        tensors += [[f"blk.{number}.{name}.weight", list(dims)] for name, dims in sorted(layer(number).items())]
    return dict(layers=layers, experts=experts, queries_per_key=group, is_70b=large, tied=not head, tensors=tensors)


def mixer(number: int):  # a layer has Mamba2, attention or an MLP
    return [{"ssm_in": (512, 512), "ssm_out": (512, 512)}, attention(512), mlp(512)][number % 3]


MODELS = dict(
    dense=model(18, lambda _: attention(512) | mlp(512)),
    tied=model(22, lambda _: attention(512) | mlp(512), head=False, group=4),
    eight_experts=model(16, lambda _: attention(512) | mlp(512, "_exps", 8), experts=8, group=4),
    many_experts=model(17, lambda n: attention(512) | (mlp(512) if n == 0 else mlp(512, "_exps", 64) | mlp(512, "_shexp")), experts=64, group=8),
    large=model(80, lambda _: attention(512) | mlp(512), large=True, group=8),
    fused=model(16, lambda _: {"attn_qkv": (1536, 512), "attn_output": (512, 512), "ffn_up": (512, 512), "ffn_down": (512, 512)}),
    mixed=model(32, mixer, group=0),
    narrow=model(8, lambda _: attention(96) | mlp(96), width=96),
    odd=model(8, lambda _: attention(40) | mlp(40), width=40),
)  # fmt: skip


def types_of(program: pathlib.Path, file: int, case: dict) -> list[int]:
    lines = [f"{file} {case['layers']} {case['experts']} {case['queries_per_key']} {int(case['is_70b'])} {len(case['tensors'])}"]
    for name, dims in case["tensors"]:
        lines.append(" ".join(map(str, [name, *reversed(dims), *[1] * (3 - len(dims))])))
    done = subprocess.run([program], input="\n".join(lines), capture_output=True, text=True, check=True)
    return [int(word) for word in done.stdout.split()]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as work:
        built = build(pathlib.Path(work))
        for each in MODELS.values():
            each["types"] = {key: types_of(built, number, each) for key, number in FILES.items()}
    text = json.dumps(MODELS, separators=(",", ":")).replace('"tensors"', '\n"tensors"').replace('"types"', '\n"types"')
    (HERE / "gguf/types.json").write_text(text + "\n")
