// Defines gguf_folder, which makes a model folder in Hugging Face's layout for a GGUF file.
#pragma once

#include <filesystem>
#include <optional>

namespace fettle {

// The name of the weights in such a folder, which is a link to the GGUF file.
inline constexpr const char* kGgufWeights = "model.gguf";

// Returns the GGUF file that `model` means: the file `model`, or the only GGUF file in the folder `model` if that has
// no other weights. Image projectors (mmproj) and parts after the first do not count. Returns nothing when `model` is
// anything else. Throws UserError, which lists the files, when there are several.
std::optional<std::filesystem::path> find_gguf(const std::filesystem::path& model);

// Returns a folder in Fettle's cache with the config, the tokenizer and the chat template of the file, written when the
// file or one of its parts is new or has changed, and a link to the file. Throws UserError as read_gguf_header,
// gguf_family_of, gguf_config and write_gguf_tokenizer, and when the cache cannot be written.
std::filesystem::path gguf_folder(const std::filesystem::path& file);

// Writes such a folder, without the cache, to `folder`, which it makes.
void write_gguf_folder(const std::filesystem::path& file, const std::filesystem::path& folder);

}  // namespace fettle
