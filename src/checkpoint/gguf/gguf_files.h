// Defines open_gguf, which presents the tensors of a GGUF file as those of a Hugging Face checkpoint.
#pragma once

#include <filesystem>
#include <vector>

#include "checkpoint/gguf/fields.h"
#include "checkpoint/tensor_file.h"

namespace fettle {

// Returns the file's path with links resolved. A first part NAME-00001-of-0000N.gguf keeps its name, even when it is a
// link (to a blob, in a hub's cache), because the other parts are next to that name.
std::filesystem::path gguf_path(const std::filesystem::path& file);
// Returns the paths of all parts when `file` has the name of a first part; else only `file`.
std::vector<std::filesystem::path> gguf_parts(const std::filesystem::path& file);
// Returns the paths of all parts of a model whose first file is `first` and has these fields. Throws UserError when a
// part is missing, and when `first` is not the first part.
std::vector<std::filesystem::path> existing_parts(const std::filesystem::path& first, const GgufFields& fields);

// Opens the file, and if it is a first part, all parts NAME-00001-of-0000N.gguf. The tensors have Hugging Face's names,
// shapes, row order and values, and each expert is a tensor of its own. If several tensors of the file make up one
// tensor of Hugging Face's checkpoint, returns its pieces (GgufPiece), which ModelRepository joins. Quantised tensors
// have the dtype bfloat16 and are decoded when they are read. Throws UserError like read_gguf_header and
// gguf_family_of, and for a type that Fettle does not read, an unknown tensor or a missing part.
std::vector<TensorFile> open_gguf(const std::filesystem::path& path);

}  // namespace fettle
