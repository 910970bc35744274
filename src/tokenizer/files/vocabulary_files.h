// Reads the vocabulary files that older repositories have instead of a tokenizer.json: vocab.txt, vocab.json with
// merges.txt, and sentencepiece.bpe.model.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tokenizer/tokenizer_config.h"

namespace fettle {

struct VocabularyFiles {
  nlohmann::json tokenizer;                  // what a tokenizer.json with the same meaning contains
  std::vector<std::filesystem::path> files;  // the files that were read
};

// Returns whether the folder has files that read_vocabulary_files reads or refuses.
bool has_vocabulary_files(const std::filesystem::path& model_dir);

// Reads the files of BertTokenizer, RobertaTokenizer, GPT2Tokenizer and XLMRobertaTokenizer, with the settings of
// tokenizer_config.json. Fills in the class's names of the special tokens that are empty in `config`. Returns nullopt
// when the folder has no such file. Throws UserError when the class is another one, or when a file is invalid.
std::optional<VocabularyFiles> read_vocabulary_files(const std::filesystem::path& model_dir, TokenizerConfig& config);

}  // namespace fettle
