#include "tokenizer/pipeline.h"

#include <algorithm>

#include "base/files/mapped_file.h"
#include "tokenizer/models/bpe.h"
#include "tokenizer/models/unigram.h"
#include "tokenizer/models/wordpiece.h"
#include "tokenizer/text/unicode.h"

namespace fettle {
namespace {

std::unique_ptr<TokenModel> read_bpe(const JsonField& field) {
  return Bpe::read(field);
}

std::unique_ptr<TokenModel> read_model(const JsonField& field) {
  static const std::map<std::string, std::unique_ptr<TokenModel> (*)(const JsonField&)> readers = {
      {"BPE", read_bpe}, {"Unigram", Unigram::read}, {"WordPiece", WordPiece::read}};
  // Old files have no type. Those with merges contain a BPE model.
  if (!field.find("type") && field.find("merges")) return read_bpe(field);
  return read_by_type(field, "model", readers);
}

void read_added_tokens(const JsonField& list, Pipeline& pipeline) {
  const Vocabulary& vocabulary = pipeline.model->vocabulary();
  for (const JsonField& field : list.elements()) {
    const int64_t id = field.at("id").integer();
    if (id < 0 || id >= 1 << 28) field.fail("id {} is not a valid token id", id);
    AddedToken token = AddedTokens::read(field, static_cast<int32_t>(id));
    const AddedToken* same = pipeline.added.find(token.id);
    if (same != nullptr && same->content != token.content) {
      field.fail("id {} belongs to '{}' and to '{}'; every token needs its own id", id, same->content, token.content);
    }
    if (auto known = vocabulary.id(token.content)) {
      token.id = *known;
    } else if (const std::string* other = vocabulary.token(token.id)) {
      field.fail("id {} belongs to '{}' in model.vocab and to the added token '{}'", id, *other, token.content);
    }
    pipeline.added.add(std::move(token));
  }
}

// `normalized` is the normalized `text`. The start of `text` ends with the first character that `precompiled` does not
// remove. Returns how many leading bytes of `normalized` come from this start. If normalizing changes `text`, also
// normalizes the rest of `text` alone. The longest common suffix of this result and `normalized` comes from the rest.
// All bytes before the suffix come from the start.
size_t bytes_of_start(std::string_view text, const std::string& normalized, const Normalizer& normalizer,
                      const Normalizer& precompiled) {
  size_t first = 0;
  std::string character;
  do {
    const size_t begin = first;
    next_char(text, first);
    character = text.substr(begin, first - begin);
    if (precompiled) precompiled(character);
  } while (character.empty() && first < text.size());
  if (normalized == text) return first;
  std::string rest(text.substr(first));
  normalizer(rest);
  const auto common = std::mismatch(normalized.rbegin(), normalized.rend(), rest.rbegin(), rest.rend());
  return static_cast<size_t>(normalized.rend() - common.first);
}

// Returns the Precompiled normalizer in `field`: `field` itself, or a member of its Sequence. Returns an empty function
// when there is none.
Normalizer find_precompiled(const JsonField& field) {
  if (const auto list = field.find("normalizers"))
    for (const JsonField& one : list->elements())
      if (Normalizer found = find_precompiled(one)) return found;
  const auto type = field.find("type");
  return type && type->string() == "Precompiled" ? read_normalizer(field) : Normalizer();
}

}  // namespace

Pipeline read_tokenizer_json(const JsonField& file) {
  file.expect_only({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor",
                    "decoder", "model"});
  Pipeline pipeline;
  pipeline.model = read_model(file.at("model"));
  if (auto field = file.find("normalizer")) {
    pipeline.normalizer = read_normalizer(*field);
    pipeline.precompiled = find_precompiled(*field);
  }
  if (auto field = file.find("pre_tokenizer")) pipeline.pre_tokenizer = read_pre_tokenizer(*field);
  if (auto field = file.find("post_processor")) pipeline.post_processor = PostProcessor::read(*field);
  if (auto field = file.find("decoder")) pipeline.decoder = read_decoder(*field);
  if (pipeline.pre_tokenizer.to_bytes) {
    auto* bpe = dynamic_cast<Bpe*>(pipeline.model.get());
    if (bpe == nullptr || !bpe->take_bytes()) pipeline.pre_tokenizer.steps.push_back(spell_in_alphabet);
  }
  if (auto field = file.find("added_tokens")) read_added_tokens(*field, pipeline);
  return pipeline;
}

void Pipeline::cut_into_words() {
  constexpr std::string_view kMark = "\xE2\x96\x81";
  const auto* bpe = dynamic_cast<const Bpe*>(model.get());
  if (bpe != nullptr && bpe->may_cut_before(kMark)) pre_tokenizer.steps.push_back(cut_before_runs(std::string(kMark)));
}

std::optional<int32_t> Pipeline::id_of(const std::string& token) const {
  if (token.empty()) return std::nullopt;
  if (const AddedToken* added_token = added.find(token)) return added_token->id;
  return model->vocabulary().id(token);
}

void Pipeline::encode(std::string_view text, bool add_special_tokens, std::vector<int32_t>& ids) const {
  encode_alone(text, ids);
  post_processor.apply(ids, add_special_tokens);
}

void Pipeline::encode_alone(std::string_view text, std::vector<int32_t>& ids) const {
  Pieces pieces(text);
  added.split_given(pieces);
  if (normalizer || !prefix.empty()) {
    pieces.split([&](const Piece& piece, auto& emit) {
      std::string part(piece.text);
      if (normalizer) normalizer(part);
      const bool asked = pre_tokenizer.asks_for_start && normalizer && piece.at_start();
      const size_t start_bytes = asked ? bytes_of_start(piece.text, part, normalizer, precompiled) : piece.start_bytes;
      if ((prefix_alone || !part.empty()) && (prefix_always || piece.at_start())) part.insert(0, prefix);
      emit(Piece{pieces.own(std::move(part)), Piece::kNoId, start_bytes});
    });
  }
  added.split_normalized(pieces);
  pre_tokenizer.apply(pieces);
  ids.reserve(text.size() / 3 + 8);
  model->encode(pieces.list(), ids);
}

std::string Pipeline::decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  for (int32_t id : ids) {
    const AddedToken* token = added.find(id);
    const std::string* spelling = token != nullptr ? &added.decoded_spelling(*token) : model->vocabulary().token(id);
    if (spelling != nullptr && !(skip_special_tokens && added.is_special(*spelling))) tokens.push_back(*spelling);
  }
  std::string text;
  if (decoder) {
    decoder(tokens);
    for (const std::string& token : tokens) text += token;
  } else {
    for (size_t i = 0; i < tokens.size(); ++i) text.append(i == 0 ? "" : " ").append(tokens[i]);
  }
  return text;
}

}  // namespace fettle
