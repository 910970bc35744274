// Defines set_tokenizer_metadata, which stores a model folder's tokenizer and chat templates as keys of a GGUF file.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "checkpoint/gguf/write/metadata.h"

namespace fettle {

// Sets tokenizer.ggml.* and tokenizer.chat_template like llama.cpp's conversion. `vocab_size` is the number of rows of
// the embedding; an id without a token gets an unused token. `json` is config.json; `generation` is
// generation_config.json or null. If the tokenizer's files do not name a special token, its id comes from `json`. If
// eos_token_id in these two files has further ids, the first becomes eot and the second eom. Throws UserError when the
// folder has no BPE tokenizer and no SentencePiece tokenizer.model, when llama.cpp has no tokenizer of this kind, and
// when the id of a token is `vocab_size` or larger.
void set_tokenizer_metadata(const std::filesystem::path& folder, int64_t vocab_size, const nlohmann::json& json,
                            const nlohmann::json& generation, GgufMetadata& metadata);

// Writes the tokenizer of the metadata to files in the folder `scratch`, reads it from there, and compares its ids for
// many texts with those of the tokenizer in `folder`. Throws UserError that shows the first text whose ids differ.
void check_tokenizer(const std::filesystem::path& folder, const GgufMetadata& metadata,
                     const std::filesystem::path& scratch);

// Returns the texts of the tokens that end a reply: eos, eot and eom of the metadata.
std::vector<std::string> stop_texts(const GgufMetadata& metadata);

}  // namespace fettle
