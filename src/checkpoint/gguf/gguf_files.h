// Defines open_gguf, which presents the tensors of a GGUF file as those of a Hugging Face checkpoint.
#pragma once

#include <filesystem>
#include <vector>

#include "checkpoint/tensor_file.h"

namespace fettle {

// Opens the file. If `path` is the first part NAME-00001-of-0000N.gguf, opens all parts. The tensors have Hugging
// Face's names, shapes and values: rows in Hugging Face's order, norms without llama.cpp's changes, and each expert in
// its own tensor. Quantised tensors have the dtype bfloat16 and are decoded while they are read. Throws UserError like
// read_gguf_header and gguf_family_of, and for a type that Fettle does not read, an unknown tensor, and a part that is
// missing.
std::vector<TensorFile> open_gguf(const std::filesystem::path& path);

}  // namespace fettle
