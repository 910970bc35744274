// Defines open_gguf, which presents the tensors of a GGUF file as those of a Hugging Face checkpoint.
#pragma once

#include <filesystem>
#include <vector>

#include "checkpoint/tensor_file.h"

namespace fettle {

// Returns the file's path without links. The name of a first part NAME-00001-of-0000N.gguf stays, even when it is a
// link (in a hub's cache, to a blob), because the other parts lie beside that name.
std::filesystem::path gguf_path(const std::filesystem::path& file);
// Returns the paths of all parts when the file's name is that of a first part; else the file alone.
std::vector<std::filesystem::path> gguf_parts(const std::filesystem::path& file);

// Opens the file, or with its first part all parts NAME-00001-of-0000N.gguf. The tensors have Hugging Face's names,
// shapes and values: rows are in Hugging Face's order, norms as Hugging Face has them, experts apart. Quantised ones
// have the dtype bfloat16 and are decoded as they are read. Throws UserError as read_gguf_header and gguf_family_of,
// and for a type that Fettle does not read, an unknown tensor, and a part that is missing.
std::vector<TensorFile> open_gguf(const std::filesystem::path& path);

}  // namespace fettle
