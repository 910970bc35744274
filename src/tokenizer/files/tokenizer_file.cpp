#include "tokenizer/files/tokenizer_file.h"

#include "base/files/json_file.h"
#include "tokenizer/files/vocabulary_files.h"
#include "tokenizer/pipeline.h"

namespace fettle {

namespace fs = std::filesystem;

TokenizerFile find_tokenizer_file(const fs::path& model_dir) {
  using Kind = TokenizerFile::Kind;
  fs::path path;
  if (path = model_dir / "tokenizer.json"; fs::is_regular_file(path)) return {Kind::kJson, path};
  if (path = model_dir / "tokenizer.model"; fs::is_regular_file(path))
    return {is_rank_file(path) ? Kind::kRanks : Kind::kPieces, path};
  if (path = model_dir / "tekken.json"; fs::is_regular_file(path)) return {Kind::kRanks, path};
  if (fs::is_directory(model_dir)) {
    for (const auto& entry : fs::directory_iterator(model_dir))
      if (path = entry.path(); path.extension() == ".tiktoken" || path.filename() == "tiktoken.model")
        return {Kind::kRanks, path};
  }
  return {Kind::kOther, model_dir};
}

nlohmann::json tokenizer_json_of(const fs::path& model_dir, TokenizerConfig& config, fs::path& file) {
  const TokenizerFile found = find_tokenizer_file(model_dir);
  file = found.path;
  if (found.kind == TokenizerFile::Kind::kJson) return read_json_file(file);
  if (found.kind == TokenizerFile::Kind::kRanks) return tokenizer_json_of_ranks(file, config);
  if (found.kind == TokenizerFile::Kind::kPieces) return nullptr;
  auto vocabulary = read_vocabulary_files(model_dir, config);
  if (!vocabulary) return nullptr;
  file = vocabulary->files.front();
  return std::move(vocabulary->tokenizer);
}

}  // namespace fettle
