#include "config/keys.h"

namespace fettle {

std::vector<Key> export_keys() {
  return {
      {.name = "export_dir",
       .group = Group::kExport,
       .member = &Recipe::export_dir,
       .help = "Folder to which `export` writes the model.",
       .aliases = {"peft_config.export_dir"}},
      {.name = "export_size",
       .group = Group::kExport,
       .member = &Recipe::export_size,
       .help = "Largest size of one weight file, in GB (10^9 bytes).",
       .aliases = {"peft_config.export_size"},
       .min = 0,
       .above_min = true,
       .unset_differs = true},
      {.name = "export_dtype",
       .group = Group::kExport,
       .member = &Recipe::export_dtype,
       .help = "Dtype of the exported weights. If empty, the dtype of the base model.",
       .values = {"", "bfloat16", "float16", "float32"},
       .spellings = {{"bf16", "bfloat16"}, {"fp16", "float16"}, {"fp32", "float32"}, {"auto", ""}}},
      {.name = "export_quantization",
       .group = Group::kExport,
       .member = &Recipe::export_quantization,
       .help = "Store the weights of linear layers in few bits, as compressed-tensors does. fp8_dynamic: 8-bit floats "
               "with one factor for each row; fp8_block: 8-bit floats with one factor for each block of 128 x 128 "
               "values; w4a16: integers of 4 bits with one factor for each group of a row's values. If empty, no "
               "quantisation.",
       .values = {"", "fp8_dynamic", "fp8_block", "w4a16"},
       .spellings = {{"FP8_DYNAMIC", "fp8_dynamic"},
                     {"fp8", "fp8_dynamic"},
                     {"FP8_BLOCK", "fp8_block"},
                     {"W4A16", "w4a16"},
                     {"int4", "w4a16"}}},
      {.name = "export_gguf",
       .group = Group::kExport,
       .member = &Recipe::export_gguf,
       .help = "Write GGUF files of these types, for llama.cpp and Ollama, instead of safetensors. q8_0 is close to "
               "the original; q4_k_m is the usual small type.",
       .values = {"f32", "f16", "bf16", "q8_0", "q6_k", "q5_k_m", "q5_k_s", "q5_1", "q5_0", "q4_k_m", "q4_k_s", "q4_1",
                  "q4_0", "mxfp4_moe", "q3_k_l", "q3_k_m", "q3_k_s", "q2_k"},
       .spellings = {{"F32", "f32"},         {"F16", "f16"},       {"BF16", "bf16"},
                     {"float32", "f32"},     {"float16", "f16"},   {"bfloat16", "bf16"},
                     {"Q8_0", "q8_0"},       {"q6_K", "q6_k"},     {"Q6_K", "q6_k"},
                     {"q5_K_M", "q5_k_m"},   {"Q5_K_M", "q5_k_m"}, {"Q5_1", "q5_1"},
                     {"Q5_0", "q5_0"},       {"q5_K_S", "q5_k_s"}, {"Q5_K_S", "q5_k_s"},
                     {"q4_K_S", "q4_k_s"},   {"Q4_K_S", "q4_k_s"}, {"MXFP4_MOE", "mxfp4_moe"},
                     {"mxfp4", "mxfp4_moe"}, {"q3_K_L", "q3_k_l"}, {"Q3_K_L", "q3_k_l"},
                     {"q3_K_M", "q3_k_m"},   {"Q3_K_M", "q3_k_m"}, {"q3_K_S", "q3_k_s"},
                     {"Q3_K_S", "q3_k_s"},   {"q2_K", "q2_k"},     {"Q2_K", "q2_k"},
                     {"q4_K_M", "q4_k_m"},   {"Q4_K_M", "q4_k_m"}, {"Q4_1", "q4_1"},
                     {"Q4_0", "q4_0"}}},
  };
}

}  // namespace fettle
