#include "tokenizer/tokenizer.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/files/json_file.h"
#include "tokenizer/files/class_tokens.h"
#include "tokenizer/files/tokenizer_file.h"
#include "tokenizer/files/vocabulary_files.h"
#include "tokenizer/pipeline.h"
#include "tokenizer/text/unicode.h"

namespace fettle {

namespace fs = std::filesystem;

struct Tokenizer::State {
  Pipeline pipeline;
  TokenizerConfig config;
  std::vector<fs::path> files;
};

namespace {

// Reads tokenizer.json. As in Transformers, the settings of BertTokenizer, and of classes that are the same, in
// tokenizer_config.json take precedence.
Pipeline read_fast(const fs::path& file, const TokenizerConfig& config) {
  const JsonField json = JsonField::read_file(file);
  Pipeline pipeline = read_tokenizer_json(json);
  const auto field = json.find("normalizer");
  if (!config.bert_normalizer.empty() && field && field->string_or("type", "") == "BertNormalizer" &&
      tokenizer_json_class_of(file.parent_path(), config) == "BertTokenizer") {
    nlohmann::json normalizer = field->value();
    normalizer.update(config.bert_normalizer);
    pipeline.normalizer = read_normalizer(JsonField::of_value(std::move(normalizer), field->where()));
  }
  return pipeline;
}

// Reads the first tokenizer file that exists, in the order of Tokenizer::open. Appends what it reads to `files`.
Pipeline read_pipeline(const fs::path& model_dir, TokenizerConfig& config, std::vector<fs::path>& files) {
  using Kind = TokenizerFile::Kind;
  const TokenizerFile found = find_tokenizer_file(model_dir);
  if (found.kind != Kind::kOther) files.push_back(found.path);
  if (found.kind == Kind::kJson) return read_fast(found.path, config);
  if (found.kind == Kind::kPieces) return read_sentencepiece(found.path, config);
  if (found.kind == Kind::kRanks) return read_ranks(found.path, config);
  if (auto vocabulary = read_vocabulary_files(model_dir, config)) {
    files = std::move(vocabulary->files);
    return read_tokenizer_json(JsonField::of_value(std::move(vocabulary->tokenizer), files.front().string()));
  }
  throw UserError(
      "{}: there is no tokenizer in this folder; use a model folder with tokenizer.json, tokenizer.model, tekken.json, "
      "tiktoken.model, a *.tiktoken file, vocab.txt, vocab.json with merges.txt, or sentencepiece.bpe.model",
      model_dir.string());
}

// Returns the added token whose id is eos_token_id of config.json, or the first of several; empty when there is none.
std::string end_token_of_model(const fs::path& model_dir, const Pipeline& pipeline) {
  const fs::path file = model_dir / "config.json";
  if (!fs::is_regular_file(file)) return "";
  const nlohmann::json model = read_json_file(file);
  const auto found = model.is_object() ? model.find("eos_token_id") : model.end();
  if (found == model.end()) return "";
  const nlohmann::json& id = found->is_array() && !found->empty() ? found->front() : *found;
  const AddedToken* token = id.is_number_integer() ? pipeline.added.find(id.get<int32_t>()) : nullptr;
  return token == nullptr ? "" : token->content;
}

// Names the tokens that no file names: a tokenizer.json gets the tokens of its class in Transformers. A model without
// eos_token does not learn to stop. So if there is still none, eos_token_id of config.json names it, or else the
// declared class, also if Transformers does not use this class.
void name_missing_tokens(const fs::path& model_dir, bool json, const Pipeline& pipeline, TokenizerConfig& config) {
  const auto in_vocabulary = [&](const std::string& token) { return pipeline.id_of(token).has_value(); };
  if (json) name_class_tokens(tokenizer_json_class_of(model_dir, config), in_vocabulary, config);
  if (!config.eos_token.empty() || config.null_tokens.contains("eos_token")) return;
  std::string token = end_token_of_model(model_dir, pipeline);
  if (token.empty() && json && !config.empty_tokens.contains("eos_token"))
    token = end_token_of_class(tokenizer_class_of(model_dir, config));
  if (token.empty() || !in_vocabulary(token)) return;
  config.eos_token = token;
  config.add_special(token);
}

// Adds the tokens that are not in the tokenizer file but in tokenizer_config.json, special_tokens_map.json or
// added_tokens.json. Tokens with a name become special. Both is as in Transformers.
void add_configured_tokens(const TokenizerConfig& config, Pipeline& pipeline) {
  for (AddedToken token : config.added_tokens) {
    const auto known = pipeline.id_of(token.content);
    const bool taken =
        pipeline.added.find(token.id) != nullptr || pipeline.model->vocabulary().token(token.id) != nullptr;
    if (!known && taken) continue;
    token.id = known.value_or(token.id);
    pipeline.added.add(std::move(token));
  }
  for (const std::string& token : config.special_tokens) {
    const auto id = pipeline.id_of(token);
    if (id && pipeline.added.find(token) == nullptr) {
      pipeline.added.add({*id, token, false, false, false, false, true});
    }
  }
  for (const auto& [key, token] : config.named_tokens()) {
    const AddedToken* known = pipeline.added.find(token);
    if (known == nullptr || known->special) continue;
    AddedToken special = *known;
    special.special = true;
    pipeline.added.add(std::move(special));
  }
}

// Returns whether add_bos_token and add_eos_token of tokenizer_config.json have an effect. If there is a
// tokenizer.json, they have one only with these tokenizer classes of Transformers 4, and with none in Transformers 5.
// Of the classes that read_vocabulary_files reads, only GPT-2's does not put its own tokens around a text.
bool obeys_flags(const TokenizerConfig& config, const fs::path& read) {
  for (const char* name : {"vocab.txt", "vocab.json", "sentencepiece.bpe.model"})
    if (read.filename() == name) return tokenizer_class_of(read.parent_path(), config) == "GPT2Tokenizer";
  if (read.filename() != "tokenizer.json") return true;
  return std::ranges::any_of(std::array{"Llama", "CodeLlama", "Gemma", "Cohere"},
                             [&](const char* name) { return config.tokenizer_class.starts_with(name); });
}

}  // namespace

Tokenizer Tokenizer::open(const fs::path& model_dir) {
  auto state = std::make_unique<State>();
  TokenizerConfig& config = state->config;
  Pipeline& pipeline = state->pipeline;
  config = TokenizerConfig::read(model_dir);
  pipeline = read_pipeline(model_dir, config, state->files);
  state->files.insert(state->files.end(), config.files.begin(), config.files.end());
  name_missing_tokens(model_dir, state->files.front().filename() == "tokenizer.json", pipeline, config);
  add_configured_tokens(config, pipeline);
  pipeline.added.prepare(pipeline.normalizer);
  pipeline.cut_into_words();
  if ((config.add_bos_token || config.add_eos_token) && obeys_flags(config, state->files.front())) {
    // If the config has no add_bos_token, the post-processor's own tokens before the text stay. If the config has no
    // add_eos_token, the post-processor's own tokens after the text stay.
    auto [before, after] = pipeline.post_processor.ids_around();
    const auto bos = pipeline.id_of(config.bos_token), eos = pipeline.id_of(config.eos_token);
    if (config.add_bos_token == false) before.clear();
    if (config.add_bos_token == true && bos) before = {*bos};
    if (config.add_eos_token == false) after.clear();
    if (config.add_eos_token == true && eos) after = {*eos};
    pipeline.post_processor = PostProcessor::around(std::move(before), std::move(after));
  }
  return Tokenizer(std::move(state));
}

bool Tokenizer::is_in(const fs::path& model_dir) {
  return find_tokenizer_file(model_dir).kind != TokenizerFile::Kind::kOther || has_vocabulary_files(model_dir);
}

Tokenizer::Tokenizer(std::unique_ptr<State> state) : state_(std::move(state)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool add_special_tokens) const {
  std::string valid;
  if (!is_valid_utf8(text)) text = valid = replace_invalid_utf8(text);
  std::vector<int32_t> ids;
  state_->pipeline.encode(text, add_special_tokens, ids);
  return ids;
}

Tokenizer::Texts Tokenizer::encode_texts(std::string_view first, const std::optional<std::string>& second,
                                         int64_t max_length) const {
  using Kind = PostProcessor::PairPiece::Kind;
  const PostProcessor& post = state_->pipeline.post_processor;
  auto alone = [&](std::string_view text) {
    std::string valid;
    if (!is_valid_utf8(text)) text = valid = replace_invalid_utf8(text);
    std::vector<int32_t> ids;
    state_->pipeline.encode_alone(text, ids);
    return ids;
  };
  auto cut = [](std::vector<int32_t>& ids, int64_t length) {
    if (static_cast<int64_t>(ids.size()) > length) ids.resize(static_cast<size_t>(length));
  };
  std::vector<int32_t> a = alone(first), b;
  std::vector<PostProcessor::PairPiece> pieces;
  std::vector<int32_t> around;
  if (second) {
    b = alone(*second);
    pieces = post.pair();
  } else {
    post.apply(around, true);
  }
  const auto special = second ? std::ranges::count(pieces, Kind::kToken, &PostProcessor::PairPiece::kind)
                              : static_cast<int64_t>(around.size());
  const auto length_a = static_cast<int64_t>(a.size()), length_b = static_cast<int64_t>(b.size());
  const int64_t room = max_length - special;
  if (room < 1)
    throw UserError(
        "cutoff_len: {} tokens leave no room for text, because the row has {} special tokens; raise cutoff_len",
        max_length, special);
  Texts out{.whole = length_a + length_b + special};
  if (out.whole > max_length) {
    // The longer text may use the length that the shorter text leaves. If the shorter text needs more than half of
    // `room`, each text gets half of it.
    const int64_t shorter = std::min(length_a, length_b), half = room / 2;
    const bool both = second && shorter > half;
    const int64_t small = both ? half : shorter, large = room - small;
    const bool a_is_longer = length_a > length_b;
    cut(a, a_is_longer ? large : small);
    cut(b, a_is_longer ? small : large);
  }
  if (!second) {
    post.apply(a, true);
    out.types.assign(a.size(), 0);
    out.ids = std::move(a);
    return out;
  }
  for (const PostProcessor::PairPiece& piece : pieces) {
    const std::vector<int32_t> token = {piece.id};
    const std::vector<int32_t>& ids = piece.kind == Kind::kToken ? token : piece.kind == Kind::kFirst ? a : b;
    out.ids.insert(out.ids.end(), ids.begin(), ids.end());
    out.types.resize(out.ids.size(), piece.type);
  }
  return out;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  return state_->pipeline.decode(ids, skip_special_tokens);
}

std::optional<int32_t> Tokenizer::token_id(std::string_view token) const {
  return state_->pipeline.id_of(std::string(token));
}

std::string Tokenizer::token(int32_t id) const {
  if (const AddedToken* added = state_->pipeline.added.find(id)) return added->content;
  const std::string* spelling = state_->pipeline.model->vocabulary().token(id);
  return spelling == nullptr ? "" : *spelling;
}

std::string Tokenizer::token_bytes(int32_t id) const {
  const std::string own = token(id);
  std::string bytes;
  if (own.size() == 6 && own.starts_with("<0x") && own.ends_with('>'))
    return std::string(1, static_cast<char>(std::stoi(own.substr(3, 2), nullptr, 16)));
  return from_alphabet(own, bytes) ? bytes : own;
}

bool Tokenizer::is_special(int32_t id) const {
  const AddedToken* added = state_->pipeline.added.find(id);
  return added != nullptr && added->special;
}

int64_t Tokenizer::vocab_size() const {
  const auto& added = state_->pipeline.added.by_id();
  const int64_t largest_added = added.empty() ? -1 : added.rbegin()->first;
  return std::max(state_->pipeline.model->vocabulary().size(), largest_added + 1);
}

const std::string& Tokenizer::bos_token() const {
  return state_->config.bos_token;
}
const std::string& Tokenizer::eos_token() const {
  return state_->config.eos_token;
}
const std::string& Tokenizer::pad_token() const {
  return state_->config.pad_token;
}
const std::string& Tokenizer::unk_token() const {
  return state_->config.unk_token;
}
std::map<std::string, std::string> Tokenizer::named_tokens() const {
  return state_->config.named_tokens();
}
std::optional<int32_t> Tokenizer::bos_id() const {
  return state_->pipeline.id_of(bos_token());
}
std::optional<int32_t> Tokenizer::eos_id() const {
  return state_->pipeline.id_of(eos_token());
}
std::optional<int32_t> Tokenizer::pad_id() const {
  return state_->pipeline.id_of(pad_token());
}

std::optional<std::string> Tokenizer::chat_template(std::string_view name) const {
  const auto found = state_->config.chat_templates.find(std::string(name));
  return found == state_->config.chat_templates.end() ? std::nullopt : std::optional(found->second);
}

void Tokenizer::set_chat_templates(std::map<std::string, std::string> templates) {
  state_->config.chat_templates = std::move(templates);
}

const std::vector<std::filesystem::path>& Tokenizer::files() const {
  return state_->files;
}

}  // namespace fettle
