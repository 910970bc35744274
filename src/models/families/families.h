// Declares the families, one file each; model.cpp lists them in its table.
#pragma once

#include "models/model.h"

namespace fettle {

Family llama_family();
Family mistral_family();
Family qwen2_family();
Family qwen3_family();
Family qwen3_moe_family();
Family mixtral_family();
Family gemma2_family();
Family gemma3_family();
Family phi3_family();
Family starcoder2_family();
Family baichuan_family();
Family gpt2_family();
Family gpt_bigcode_family();
Family bert_family();
Family roberta_family();
Family xlm_roberta_family();

}  // namespace fettle
