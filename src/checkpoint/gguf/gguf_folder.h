// Defines gguf_folder, which makes a model folder in Hugging Face's layout for a GGUF file.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace fettle {

// The name of the weights in a folder that gguf_folder makes. It is a link to the GGUF file.
inline constexpr const char* kGgufWeights = "model.gguf";

// Returns whether the name is that of a GGUF model. Returns false for image projectors (mmproj) and for parts after the
// first ("x-00002-of-00003.gguf").
bool is_gguf_model(const std::string& name);

// Returns the GGUF file for the path `model`: `model` itself, or the only GGUF model in the folder `model` if the
// folder has no other weights. Returns nullopt for any other path. Throws UserError, which lists the files, when there
// are several.
std::optional<std::filesystem::path> find_gguf(const std::filesystem::path& model);

// Returns a folder in Fettle's cache with the config, the tokenizer and the chat template of the file, and a link to
// the file. If chat_template.jinja is beside the file, and the file is the only GGUF model in its folder, this template
// replaces the file's own. Writes the folder when the file, one of its parts or the template is new or has changed.
// Throws UserError like read_gguf_header, existing_parts, gguf_family_of, gguf_config and write_gguf_tokenizer, and
// when the cache cannot be written.
std::filesystem::path gguf_folder(const std::filesystem::path& file);

// Writes the same files as gguf_folder, but to `folder` instead of the cache. Makes `folder` if it is missing.
void write_gguf_folder(const std::filesystem::path& file, const std::filesystem::path& folder);

}  // namespace fettle
