#include "checkpoint/changed/changed_folder.h"

#include <fmt/ranges.h>

#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/files/cache.h"
#include "base/files/file_error.h"
#include "base/files/json_file.h"
#include "base/files/output_file.h"
#include "base/log.h"
#include "checkpoint/changed/new_rows.h"
#include "checkpoint/model_files.h"
#include "checkpoint/saved/atomic_folder.h"
#include "checkpoint/table/joined_tensors.h"
#include "models/config.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kChangedVersion = "3";  // raise this when a new Fettle writes the folder's files differently

// Returns the files of a model folder by name, with links resolved.
std::map<std::string, fs::path> linked_files(const fs::path& model) {
  std::map<std::string, fs::path> files;
  std::error_code code;
  fs::directory_iterator it(model, code), end;
  if (code) throw_file_error("read", model, code.value());
  for (; it != end; ++it)
    if (it->is_regular_file(code)) files[it->path().filename().string()] = fs::canonical(it->path());
  return files;
}

// The changed contents of a model folder, before they are written.
struct Changed {
  Json config;
  std::map<std::string, fs::path> links;
  std::optional<GrownTokenizer> tokenizer;
  VocabularyRows rows;
};

std::string changed_key(const Changed& changed, const NewTokens& tokens, bool weights) {
  ContentKey key;
  key.add(kChangedVersion).add(changed.config.dump());
  for (const auto& [name, path] : changed.links) {
    std::error_code code;
    const auto time = fs::last_write_time(path, code).time_since_epoch().count();
    key.add(name).add(path.string()).add(std::to_string(fs::file_size(path, code))).add(std::to_string(time));
  }
  if (!changed.tokenizer) return key.text();
  for (const auto& [name, text] : changed.tokenizer->files) key.add(name).add(text);
  key.add(fmt::format("{} {} {} {}", weights, tokens.seed, tokens.from_descriptions, tokens.with_noise));
  if (tokens.from_descriptions)
    for (const auto& [token, ids] : changed.tokenizer->described)
      key.add(token).add(fmt::format("{}", fmt::join(ids, ",")));
  return key.text();
}

// Sets vocab_size at the top level of the config if it is there, and in text_config if the config has one.
void set_vocab_size(Json& config, int64_t size) {
  if (config.contains("vocab_size")) config["vocab_size"] = size;
  if (config.contains("text_config") && config["text_config"].is_object()) config["text_config"]["vocab_size"] = size;
}

// Puts the new eos_token before the eos tokens in `file` (generation_config.json), as Transformers does, so that
// generation ends at any of them.
void end_generation(GrownTokenizer& tokenizer, const fs::path& file) {
  if (!fs::exists(file)) return;
  Json generation = read_json_file(file), ids = Json::array({*tokenizer.eos});
  for (const int32_t id : end_ids(generation, file.string()))
    if (id != *tokenizer.eos) ids.push_back(id);
  generation["eos_token_id"] = ids;
  tokenizer.files["generation_config.json"] = generation.dump(2) + "\n";
}

// Adds the tokens to the tokenizer and the config of `changed`. Returns false when neither changes.
bool grow(Changed& changed, const fs::path& model, const NewTokens& tokens) {
  internal_check(!fs::exists(model / kNewRows), "{} has new tokens already", model.string());
  GrownTokenizer tokenizer = add_to_tokenizer(model, tokens);
  if (!tokens.resize && tokenizer.added.empty() && tokenizer.files.empty()) return false;
  const std::optional<int64_t> size = vocab_size_of(changed.config);
  if (!size)
    throw UserError("{}: {} lacks vocab_size, so no token can be added", tokens.at, (model / "config.json").string());
  changed.rows = vocabulary_rows(*size, tokenizer);
  const bool grows = changed.rows.after > changed.rows.before;
  if (tokenizer.files.empty() && !grows) return false;
  if (grows) set_vocab_size(changed.config, changed.rows.after);
  if (!tokenizer.added.empty())
    info("new tokens: {} from id {} on; the embedding has {} rows{}", tokenizer.added.size(), tokenizer.size_before,
         changed.rows.after, grows ? fmt::format(", {} before", changed.rows.before) : "");
  if (tokenizer.eos) {
    changed.config["eos_token_id"] = *tokenizer.eos;
    if (changed.config.contains("text_config") && changed.config["text_config"].contains("eos_token_id"))
      changed.config["text_config"]["eos_token_id"] = *tokenizer.eos;
    end_generation(tokenizer, model / "generation_config.json");
    info("{}: eos_token is {} from now on (id {})", tokens.at, tokens.eos, *tokenizer.eos);
  }
  changed.tokenizer = std::move(tokenizer);
  return true;
}

}  // namespace

fs::path changed_folder(const fs::path& model, const ModelChanges& changes, ModelRepository::Weights weights) {
  const fs::path file = model / "config.json";
  if (!changes.any() || !fs::exists(file)) return model;
  Changed changed{.config = read_json_file(file)};
  const bool scaled = changes.rope.asked() && scale_rope(changed.config, changes.rope, file.string());
  const bool grown = changes.tokens.asked() && grow(changed, model, changes.tokens);
  if (!scaled && !grown) return model;
  changed.links = linked_files(model);
  const bool with_rows = grown && weights == ModelRepository::Weights::kRequired &&
                         (!changed.tokenizer->added.empty() || changed.rows.after > changed.rows.before);
  const fs::path folder = cache_folder("models") / changed_key(changed, changes.tokens, with_rows);
  if (fs::exists(folder / "config.json")) return folder;
  require_writable(folder.parent_path());
  AtomicFolder made(folder, AtomicFolder::Existing::kReplace);
  if (grown)
    for (const auto& [name, text] : changed.tokenizer->files) write_file(made.path() / name, text);
  write_json_file(made.path() / "config.json", changed.config);
  if (const fs::path templates = model / kChatTemplates; fs::is_directory(templates)) {
    std::error_code code;
    fs::create_directory_symlink(fs::canonical(templates), made.path() / templates.filename(), code);
    if (code) throw_file_error("create", made.path() / templates.filename(), code.value());
  }
  for (const auto& [name, path] : changed.links) {
    if (fs::exists(made.path() / name)) continue;
    std::error_code code;
    fs::create_symlink(path, made.path() / name, code);
    if (code) throw_file_error("create", made.path() / name, code.value());
  }
  if (with_rows)
    write_new_rows(made.path(), ModelRepository::open(model), changed.rows, changes.tokens, *changed.tokenizer);
  made.commit();
  return folder;
}

}  // namespace fettle
