#include "tokenizer/tokenizer.h"

#include <algorithm>

#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe.h"
#include "tokenizer/decoder.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/post_processor.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/text.h"
#include "tokenizer/tokenizer_config.h"
#include "tokenizer/unigram.h"
#include "tokenizer/wordpiece.h"

namespace fettle {

struct Tokenizer::State {
  std::unique_ptr<Model> model;
  AddedTokens added;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  PostProcessor post_processor;
  Decoder decoder;
  TokenizerConfig config;
  std::vector<std::filesystem::path> files;

  std::optional<int32_t> id_of(const std::string& token) const {
    if (token.empty()) return std::nullopt;
    if (const AddedToken* added_token = added.find(token)) return added_token->id;
    return model->vocabulary().id(token);
  }

  void read_added_tokens(const JsonField& file);
  void add_configured_tokens();
};

namespace {

namespace fs = std::filesystem;

std::unique_ptr<Model> read_bpe(const JsonField& field) {
  return Bpe::read(field);
}

std::unique_ptr<Model> read_model(const JsonField& field) {
  static const std::map<std::string, std::unique_ptr<Model> (*)(const JsonField&)> readers = {
      {"BPE", read_bpe}, {"Unigram", Unigram::read}, {"WordPiece", WordPiece::read}};
  // Files from before types were written hold a BPE when they have merges.
  if (!field.find("type") && field.find("merges")) return read_bpe(field);
  return read_by_type(field, "model", readers);
}

}  // namespace

void Tokenizer::State::read_added_tokens(const JsonField& file) {
  const auto list = file.find("added_tokens");
  if (!list) return;
  for (const JsonField& field : list->elements()) {
    const int64_t id = field.at("id").integer();
    if (id < 0 || id >= 1 << 28) field.fail("id {} is no token id", id);
    AddedToken token = AddedTokens::read(field, static_cast<int32_t>(id));
    const AddedToken* same = added.find(token.id);
    if (same != nullptr && same->content != token.content) {
      field.fail("id {} belongs to '{}' and to '{}'; every token needs an id of its own", id, same->content,
                 token.content);
    }
    if (auto known = model->vocabulary().id(token.content)) {
      token.id = *known;
    } else if (const std::string* other = model->vocabulary().token(token.id)) {
      field.fail("id {} belongs to '{}' in model.vocab and to the added token '{}'", id, *other, token.content);
    }
    added.add(std::move(token));
  }
}

// Tokens that only the files beside tokenizer.json know, as Transformers adds them.
void Tokenizer::State::add_configured_tokens() {
  for (AddedToken token : config.added_tokens) {
    const auto known = id_of(token.content);
    const bool taken = added.find(token.id) != nullptr || model->vocabulary().token(token.id) != nullptr;
    if (!known && taken) continue;
    token.id = known.value_or(token.id);
    added.add(std::move(token));
  }
  for (const std::string& token : config.special_tokens) {
    const auto id = id_of(token);
    if (id && added.find(token) == nullptr) added.add({*id, token, false, false, false, false, true});
  }
}

Tokenizer Tokenizer::open(const fs::path& model_dir) {
  const fs::path path = model_dir / "tokenizer.json";
  if (!fs::is_regular_file(path)) {
    throw UserError("{}: there is no tokenizer.json here; a model folder as Hugging Face has it is wanted",
                    model_dir.string());
  }
  auto state = std::make_unique<State>();
  const JsonField file = JsonField::read_file(path);
  state->config = TokenizerConfig::read(model_dir);
  state->files = {path};
  state->files.insert(state->files.end(), state->config.files.begin(), state->config.files.end());

  state->model = read_model(file.at("model"));
  if (auto field = file.find("normalizer")) state->normalizer = read_normalizer(*field);
  if (auto field = file.find("pre_tokenizer")) state->pre_tokenizer = read_pre_tokenizer(*field);
  if (auto field = file.find("post_processor")) state->post_processor = PostProcessor::read(*field);
  if (auto field = file.find("decoder")) state->decoder = read_decoder(*field);
  if (state->pre_tokenizer.to_bytes) {
    auto* bpe = dynamic_cast<Bpe*>(state->model.get());
    if (bpe == nullptr || !bpe->take_bytes()) state->pre_tokenizer.steps.push_back(spell_in_alphabet);
  }
  state->read_added_tokens(file);
  state->add_configured_tokens();
  state->added.prepare(state->normalizer);

  const TokenizerConfig& config = state->config;
  if (config.add_bos_token || config.add_eos_token) {
    std::vector<int32_t> before, after;
    const auto bos = state->id_of(config.bos_token), eos = state->id_of(config.eos_token);
    if (config.add_bos_token.value_or(false) && bos) before.push_back(*bos);
    if (config.add_eos_token.value_or(false) && eos) after.push_back(*eos);
    state->post_processor = PostProcessor::around(std::move(before), std::move(after));
  }
  return Tokenizer(std::move(state));
}

Tokenizer::Tokenizer(std::unique_ptr<State> state) : state_(std::move(state)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool add_special_tokens) const {
  std::string valid;
  if (!is_valid_utf8(text)) text = valid = replace_invalid_utf8(text);
  Pieces pieces(text);
  state_->added.split_given(pieces);
  if (state_->normalizer) pieces.transform([&](std::string& part, const Piece&) { state_->normalizer(part); });
  state_->added.split_normalized(pieces);
  state_->pre_tokenizer.apply(pieces);
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 3 + 8);
  state_->model->encode(pieces.list(), ids);
  state_->post_processor.apply(ids, add_special_tokens);
  return ids;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  for (int32_t id : ids) {
    if (const AddedToken* token = state_->added.find(id)) {
      if (!skip_special_tokens || !token->special) tokens.push_back(state_->added.decoded_spelling(*token));
    } else if (const std::string* spelling = state_->model->vocabulary().token(id)) {
      if (!skip_special_tokens || !state_->added.is_special(*spelling)) tokens.push_back(*spelling);
    }
  }
  std::string text;
  if (state_->decoder) {
    state_->decoder(tokens);
    for (const std::string& token : tokens) text += token;
  } else {
    for (size_t i = 0; i < tokens.size(); ++i) text.append(i == 0 ? "" : " ").append(tokens[i]);
  }
  return text;
}

std::optional<int32_t> Tokenizer::token_id(std::string_view token) const {
  return state_->id_of(std::string(token));
}

std::string Tokenizer::token(int32_t id) const {
  if (const AddedToken* added = state_->added.find(id)) return added->content;
  const std::string* spelling = state_->model->vocabulary().token(id);
  return spelling == nullptr ? "" : *spelling;
}

bool Tokenizer::is_special(int32_t id) const {
  const AddedToken* added = state_->added.find(id);
  return added != nullptr && added->special;
}

int64_t Tokenizer::vocab_size() const {
  const auto& added = state_->added.by_id();
  const int64_t largest_added = added.empty() ? -1 : added.rbegin()->first;
  return std::max(state_->model->vocabulary().size(), largest_added + 1);
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
std::optional<int32_t> Tokenizer::bos_id() const {
  return state_->id_of(bos_token());
}
std::optional<int32_t> Tokenizer::eos_id() const {
  return state_->id_of(eos_token());
}
std::optional<int32_t> Tokenizer::pad_id() const {
  return state_->id_of(pad_token());
}

std::optional<std::string> Tokenizer::chat_template(std::string_view name) const {
  const auto found = state_->config.chat_templates.find(std::string(name));
  return found == state_->config.chat_templates.end() ? std::nullopt : std::optional(found->second);
}

const std::vector<std::filesystem::path>& Tokenizer::files() const {
  return state_->files;
}

}  // namespace fettle
