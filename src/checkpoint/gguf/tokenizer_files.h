// Defines write_gguf_tokenizer, which writes the tokenizer of a GGUF file as Hugging Face's files.
#pragma once

#include <filesystem>

#include "checkpoint/gguf/fields.h"

namespace fettle {

// The types of tokens in tokenizer.ggml.token_type, which are SentencePiece's.
enum GgufTokenType : int32_t {
  kNormalToken = 1,
  kUnknownToken = 2,
  kControlToken = 3,
  kUserToken = 4,
  kUnusedToken = 5,
  kByteToken = 6
};

// Writes tokenizer.json (byte-level BPE) or tokenizer.model (SentencePiece), tokenizer_config.json,
// generation_config.json and the chat templates. Throws UserError when the file has no tokenizer, a damaged tokenizer,
// or a tokenizer of a kind that Fettle does not read.
void write_gguf_tokenizer(const GgufFields& fields, const std::filesystem::path& folder);

}  // namespace fettle
