// Defines set_tokenizer_metadata: the tokenizer and the chat templates of a model folder as keys of a GGUF file.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "checkpoint/gguf/write/metadata.h"

namespace fettle {

// Sets tokenizer.ggml.* and tokenizer.chat_template as llama.cpp's conversion does. `vocab_size` is the number of rows
// of the embedding; ids without a token get unused ones. `json` is config.json, `generation` generation_config.json or
// null: their ids of special tokens count where the tokenizer's files name none. Throws UserError when the folder has
// no tokenizer.json and no SentencePiece tokenizer.model, when llama.cpp has no tokenizer of this kind, and when a
// token lies beyond vocab_size.
void set_tokenizer_metadata(const std::filesystem::path& folder, int64_t vocab_size, const nlohmann::json& json,
                            const nlohmann::json& generation, GgufMetadata& metadata);

// Reads the tokenizer back from the metadata, by way of files in the folder `scratch`, and compares the ids of many
// texts. Throws UserError that shows the first text whose ids differ.
void check_tokenizer(const std::filesystem::path& folder, const GgufMetadata& metadata,
                     const std::filesystem::path& scratch);

// The texts of the tokens with which the model ends its reply, as the metadata names them.
std::vector<std::string> stop_texts(const GgufMetadata& metadata);

}  // namespace fettle
