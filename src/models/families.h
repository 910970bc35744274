// Declares the families, one file each; model.cpp lists them in its table.
#pragma once

#include "models/model.h"

namespace fettle {

Family llama_family();
Family mistral_family();
Family qwen2_family();
Family qwen3_family();
Family gpt2_family();

}  // namespace fettle
