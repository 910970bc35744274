#include <algorithm>
#include <charconv>
#include <limits>

#include "base/files/mapped_file.h"
#include "tokenizer/models/bpe.h"
#include "tokenizer/models/sentencepiece_file.h"
#include "tokenizer/models/unigram.h"
#include "tokenizer/pipeline.h"
#include "tokenizer/text/charsmap.h"
#include "tokenizer/text/unicode.h"

namespace fettle {
namespace {

constexpr std::string_view kMark = "\xE2\x96\x81";  // U+2581 stands for a space

using sentencepiece::ModelProto;
using sentencepiece::SentencePiece;
using sentencepiece::TrainerSpec;

bool is_of_text(SentencePiece::Type type) {
  return type == SentencePiece::NORMAL || type == SentencePiece::USER_DEFINED;
}

std::unique_ptr<TokenModel> make_model(const ModelProto& proto, const std::string& origin) {
  const TrainerSpec& spec = proto.trainer_spec();
  Vocabulary vocabulary;
  for (int id = 0; id < proto.pieces_size(); ++id) vocabulary.add(proto.pieces(id).piece(), id);
  std::optional<int32_t> unk_id;
  if (spec.unk_id() >= 0 && spec.unk_id() < vocabulary.size()) unk_id = spec.unk_id();
  if (spec.model_type() == TrainerSpec::UNIGRAM) {
    std::vector<double> scores;
    for (const SentencePiece& piece : proto.pieces()) {
      // A user-defined symbol gets such a high score that the best split contains the symbol.
      const auto bonus = static_cast<float>(0.1 * (static_cast<double>(piece.piece().size()) - 1));
      scores.push_back(piece.type() == SentencePiece::NORMAL         ? piece.score()
                       : piece.type() == SentencePiece::USER_DEFINED ? bonus
                                                                     : std::numeric_limits<double>::quiet_NaN());
    }
    const Unigram::Options options{unk_id, spec.byte_fallback(), true};
    return std::make_unique<Unigram>(std::move(vocabulary), std::move(scores), options, origin);
  }
  if (spec.model_type() != TrainerSpec::BPE) {
    throw UserError("{}: its model type is {}, supported are 1 (Unigram) and 2 (BPE)", origin,
                    static_cast<int>(spec.model_type()));
  }
  // Pieces with equal scores get equal ranks.
  std::vector<float> order;
  for (const SentencePiece& piece : proto.pieces()) order.push_back(piece.score());
  std::sort(order.begin(), order.end(), std::greater<>());
  order.erase(std::unique(order.begin(), order.end()), order.end());
  std::vector<int64_t> ranks;
  for (const SentencePiece& piece : proto.pieces()) {
    const auto rank = std::lower_bound(order.begin(), order.end(), piece.score(), std::greater<>()) - order.begin();
    ranks.push_back(is_of_text(piece.type()) ? rank : -1);
  }
  return Bpe::of_ranks(std::move(vocabulary), ranks, {unk_id, true, spec.byte_fallback(), false});
}

// Returns a normalizer that replaces the longest match of the charsmap at each position, except in user-defined
// symbols. With remove_extra_whitespaces, the normalizer also removes extra spaces. With escape_whitespaces, it writes
// spaces as U+2581.
Normalizer make_normalizer(const ModelProto& proto, const std::string& origin) {
  const sentencepiece::NormalizerSpec& spec = proto.normalizer_spec();
  std::shared_ptr<const Charsmap> map;
  if (!spec.precompiled_charsmap().empty()) {
    map = std::make_shared<const Charsmap>(spec.precompiled_charsmap(), origin);
  }
  TokenFinder symbols;
  for (const SentencePiece& piece : proto.pieces()) {
    if (piece.type() == SentencePiece::USER_DEFINED) symbols.add(piece.piece(), 0);
  }
  const bool removes = spec.remove_extra_whitespaces();
  const std::string_view space = spec.escape_whitespaces() ? kMark : std::string_view(" ");
  return [map, symbols, removes, space](std::string& text) {
    std::string out;
    out.reserve(text.size() + text.size() / 2);
    bool after_space = removes;
    for (size_t at = 0; at < text.size();) {
      size_t next = at;
      next_char(text, next);
      int32_t unused = 0;
      const size_t symbol = symbols.match(text, at, unused);
      if (symbol > 0) next = at + symbol;
      std::string_view part(text.data() + at, next - at);
      if (map && symbol == 0) {
        const Charsmap::Match match = map->find_longest(std::string_view(text).substr(at));
        if (match.length > 0) part = match.replacement, next = at + match.length;
      }
      at = next;
      while (after_space && part.starts_with(' ')) part.remove_prefix(1);
      for (char c : part) c == ' ' ? void(out += space) : out.push_back(c);
      if (!part.empty()) after_space = removes && part.ends_with(' ');
    }
    while (removes && out.ends_with(space)) out.resize(out.size() - space.size());
    text = std::move(out);
  };
}

// Returns the byte that a token such as <0x0A> means; -1 for other tokens.
int spelled_byte(std::string_view token) {
  int byte = -1;
  if (token.size() != 6 || !token.starts_with("<0x") || !token.ends_with('>')) return -1;
  const char* end = token.data() + 5;
  return std::from_chars(token.data() + 3, end, byte, 16).ptr == end ? byte : -1;
}

// Returns the text of neighbouring byte tokens. Each byte that is not part of a valid character becomes U+FFFD.
std::string text_of_bytes(std::string_view bytes) {
  std::string text;
  for (size_t at = 0; at < bytes.size();) {
    size_t length = 1;
    while (length <= 4 && !is_valid_utf8(bytes.substr(at, length))) ++length;
    const bool whole = length <= 4 && at + length <= bytes.size();
    text += whole ? bytes.substr(at, length) : kReplacementText;
    at += whole ? length : 1;
  }
  return text;
}

// `prefixes` is false when tokenizer_config.json turns the dummy prefix off.
Decoder make_decoder(const sentencepiece::NormalizerSpec& spec, bool prefixes) {
  // With remove_extra_whitespaces, each token loses one leading space while the text is still empty. Otherwise only the
  // first token can lose its leading space (the dummy prefix).
  const bool removes = spec.remove_extra_whitespaces() && prefixes;
  const bool strips = removes || (spec.add_dummy_prefix() && prefixes);
  return [removes, strips](std::vector<std::string>& tokens) {
    std::string text, bytes;
    bool begins = strips;  // true: if the next token begins with a space, the encoder has added that space
    auto flush = [&] {
      text += text_of_bytes(bytes);
      bytes.clear();
    };
    for (std::string_view token : tokens) {
      if (const int byte = spelled_byte(token); byte >= 0) {
        bytes.push_back(static_cast<char>(byte));
        continue;
      }
      flush();
      begins &= text.empty();
      if (begins && token.starts_with(kMark)) {
        token.remove_prefix(kMark.size());
        begins = removes;
      }
      for (size_t at = 0; at < token.size();) {
        const bool mark = token.substr(at).starts_with(kMark);
        text += mark ? ' ' : token[at];
        at += mark ? kMark.size() : 1;
      }
    }
    flush();
    tokens = {std::move(text)};
  };
}

}  // namespace

ModelProto read_sentencepiece_file(const std::filesystem::path& path) {
  const std::string origin = path.string();
  const std::string bytes = read_file(path);
  ModelProto proto;
  if (!proto.ParseFromString(bytes)) {
    throw UserError("{}: not a SentencePiece model: its {} bytes cannot be parsed; fetch the file again", origin,
                    bytes.size());
  }
  if (proto.pieces().empty()) throw UserError("{}: not a SentencePiece model: it has no pieces", origin);
  for (int id = 0; id < proto.pieces_size(); ++id) {
    if (!is_valid_utf8(proto.pieces(id).piece())) {
      throw UserError("{}: not a SentencePiece model: piece {} is not UTF-8; fetch the file again", origin, id);
    }
  }
  return proto;
}

Pipeline read_sentencepiece(const std::filesystem::path& path, TokenizerConfig& config) {
  const std::string origin = path.string();
  const ModelProto proto = read_sentencepiece_file(path);
  const TrainerSpec& trainer = proto.trainer_spec();
  const sentencepiece::NormalizerSpec& spaces = proto.normalizer_spec();
  for (std::string_view shifted : {"XLMRoberta", "Camembert", "Barthez", "XLMProphetNet"}) {
    if (!config.tokenizer_class.starts_with(shifted)) continue;
    throw UserError("{}: a {} uses other ids than this SentencePiece file; use the model's tokenizer.json", origin,
                    config.tokenizer_class);
  }
  if (trainer.treat_whitespace_as_suffix()) throw UserError("{}: treat_whitespace_as_suffix is not supported", origin);

  Pipeline pipeline;
  pipeline.model = make_model(proto, origin);
  pipeline.normalizer = make_normalizer(proto, origin);
  const bool prefixes = config.add_prefix_space.value_or(true);
  pipeline.prefix = spaces.add_dummy_prefix() && prefixes ? kMark : std::string_view();
  pipeline.prefix_alone = !spaces.remove_extra_whitespaces();
  pipeline.prefix_always = config.legacy.value_or(false);
  pipeline.decoder = make_decoder(spaces, prefixes);
  for (int id = 0; id < proto.pieces_size(); ++id) {
    const SentencePiece& piece = proto.pieces(id);
    const bool control = piece.type() == SentencePiece::CONTROL || piece.type() == SentencePiece::UNKNOWN;
    // With escape_whitespaces, SentencePiece replaces the spaces of the text by U+2581 before the model searches for
    // symbols. So a symbol that contains a space never matches.
    const bool symbol = piece.type() == SentencePiece::USER_DEFINED && trainer.model_type() == TrainerSpec::BPE &&
                        !(spaces.escape_whitespaces() && piece.piece().find(' ') != std::string::npos);
    if (!control && !symbol) continue;
    pipeline.added.add({id, piece.piece(), false, false, false, !control, control});
  }

  auto name = [&](int32_t id, std::string& token) {
    if (token.empty() && id >= 0 && id < proto.pieces_size()) token = proto.pieces(id).piece();
  };
  name(trainer.unk_id(), config.unk_token);
  name(trainer.bos_id(), config.bos_token);
  name(trainer.eos_id(), config.eos_token);
  name(trainer.pad_id(), config.pad_token);
  const bool is_t5 = config.tokenizer_class.starts_with("T5");
  if (!config.add_bos_token) config.add_bos_token = !is_t5 && trainer.bos_id() >= 0;
  if (!config.add_eos_token) config.add_eos_token = is_t5;
  return pipeline;
}

}  // namespace fettle
