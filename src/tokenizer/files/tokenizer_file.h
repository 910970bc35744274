// Finds the file in which a model folder has its tokenizer, and reads byte-level BPE of every form as one form.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tokenizer/tokenizer_config.h"

namespace fettle {

struct TokenizerFile {
  enum class Kind { kJson, kPieces, kRanks, kOther };
  Kind kind = Kind::kOther;    // kOther: files of read_vocabulary_files, or no tokenizer
  std::filesystem::path path;  // of the file; for kOther the folder
};

// Finds tokenizer.json, tokenizer.model, tekken.json, tiktoken.model or *.tiktoken, in this order.
TokenizerFile find_tokenizer_file(const std::filesystem::path& model_dir);

// Returns the content of tokenizer.json, or what a tokenizer.json with the same meaning contains. Returns null when the
// folder has only a SentencePiece model or no tokenizer. Sets `file` to the file that was read. Throws UserError like
// Tokenizer::open.
nlohmann::json tokenizer_json_of(const std::filesystem::path& model_dir, TokenizerConfig& config,
                                 std::filesystem::path& file);

}  // namespace fettle
