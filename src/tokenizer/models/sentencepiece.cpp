#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

#include "tokenizer/models/bpe.h"
#include "tokenizer/models/unigram.h"
#include "tokenizer/pipeline.h"
#include "tokenizer/text/charsmap.h"
#include "tokenizer/text/unicode.h"

namespace fettle {
namespace {

constexpr std::string_view kMark = "\xE2\x96\x81";  // U+2581 stands for a space

// Walks over the fields of a protobuf message.
class Message {
 public:
  Message(std::string_view bytes, const std::string& origin) : bytes_(bytes), origin_(origin) {}

  // Moves to the next field; false at the end.
  bool next() {
    if (at_ == bytes_.size()) return false;
    const uint64_t key = varint();
    field_ = static_cast<int>(key >> 3);
    switch (key & 7) {
      case 0: number_ = varint(); break;
      case 1: content_ = take(8); break;
      case 2: content_ = take(varint()); break;
      case 5: content_ = take(4); break;
      default: fail();
    }
    return true;
  }
  int field() const { return field_; }
  int64_t number() const { return static_cast<int64_t>(number_); }
  std::string_view content() const { return content_; }
  float real() const {
    float value = 0;
    if (content_.size() == sizeof value) std::memcpy(&value, content_.data(), sizeof value);
    return value;
  }

 private:
  [[noreturn]] void fail() const {
    throw UserError("{}: not a SentencePiece model: broken at byte {}; fetch the file again", origin_, at_);
  }
  std::string_view take(uint64_t size) {
    if (size > bytes_.size() - at_) fail();
    at_ += size;
    return bytes_.substr(at_ - size, size);
  }
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<uint8_t>(take(1)[0]);
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    fail();
  }

  std::string_view bytes_;
  const std::string& origin_;
  size_t at_ = 0;
  int field_ = 0;
  uint64_t number_ = 0;
  std::string_view content_;
};

// The numbers are those of sentencepiece_model.proto.
enum class PieceType { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };
enum class Algorithm { kUnigram = 1, kBpe = 2 };

struct Entry {
  std::string text;
  float score = 0;
  PieceType type = PieceType::kNormal;
};

struct Proto {
  std::vector<Entry> entries;
  int64_t algorithm = 1;
  bool byte_fallback = false;
  bool space_is_suffix = false;
  int64_t unk_id = 0, bos_id = 1, eos_id = 2, pad_id = -1;
  std::string charsmap;
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
};

Proto parse(std::string_view bytes, const std::string& origin) {
  Proto proto;
  for (Message model(bytes, origin); model.next();) {
    Message part(model.content(), origin);
    if (model.field() == 1) {
      Entry& entry = proto.entries.emplace_back();
      while (part.next()) {
        if (part.field() == 1) entry.text = part.content();
        if (part.field() == 2) entry.score = part.real();
        if (part.field() == 3) entry.type = static_cast<PieceType>(part.number());
      }
    } else if (model.field() == 2) {
      while (part.next()) {
        switch (part.field()) {
          case 3: proto.algorithm = part.number(); break;
          case 24: proto.space_is_suffix = part.number() != 0; break;
          case 35: proto.byte_fallback = part.number() != 0; break;
          // Negative numbers have ten bytes, whatever the type.
          case 40: proto.unk_id = static_cast<int32_t>(part.number()); break;
          case 41: proto.bos_id = static_cast<int32_t>(part.number()); break;
          case 42: proto.eos_id = static_cast<int32_t>(part.number()); break;
          case 43: proto.pad_id = static_cast<int32_t>(part.number()); break;
          default: break;
        }
      }
    } else if (model.field() == 3) {
      while (part.next()) {
        switch (part.field()) {
          case 2: proto.charsmap = part.content(); break;
          case 3: proto.add_dummy_prefix = part.number() != 0; break;
          case 4: proto.remove_extra_whitespaces = part.number() != 0; break;
          case 5: proto.escape_whitespaces = part.number() != 0; break;
          default: break;
        }
      }
    }
  }
  for (size_t id = 0; id < proto.entries.size(); ++id) {
    if (!is_valid_utf8(proto.entries[id].text)) {
      throw UserError("{}: not a SentencePiece model: piece {} is not UTF-8; fetch the file again", origin, id);
    }
  }
  if (proto.entries.empty()) throw UserError("{}: not a SentencePiece model: it has no pieces", origin);
  return proto;
}

bool is_of_text(PieceType type) {
  return type == PieceType::kNormal || type == PieceType::kUserDefined;
}

std::unique_ptr<Model> make_model(const Proto& proto, const std::string& origin) {
  Vocabulary vocabulary;
  for (size_t id = 0; id < proto.entries.size(); ++id) vocabulary.add(proto.entries[id].text, static_cast<int64_t>(id));
  std::optional<int32_t> unk_id;
  if (proto.unk_id >= 0 && proto.unk_id < vocabulary.size()) unk_id = static_cast<int32_t>(proto.unk_id);
  if (proto.algorithm == static_cast<int64_t>(Algorithm::kUnigram)) {
    std::vector<double> scores;
    for (const Entry& entry : proto.entries) {
      // A user's symbol is to win over every other way.
      const auto bonus = static_cast<float>(0.1 * (static_cast<double>(entry.text.size()) - 1));
      scores.push_back(entry.type == PieceType::kNormal        ? entry.score
                       : entry.type == PieceType::kUserDefined ? bonus
                                                               : std::numeric_limits<double>::quiet_NaN());
    }
    const Unigram::Options options{unk_id, proto.byte_fallback, true};
    return std::make_unique<Unigram>(std::move(vocabulary), std::move(scores), options, origin);
  }
  if (proto.algorithm != static_cast<int64_t>(Algorithm::kBpe)) {
    throw UserError("{}: its model type is {}, supported are 1 (Unigram) and 2 (BPE)", origin, proto.algorithm);
  }
  // Pieces of the same score are of the same rank.
  std::vector<float> order;
  for (const Entry& entry : proto.entries) order.push_back(entry.score);
  std::sort(order.begin(), order.end(), std::greater<>());
  order.erase(std::unique(order.begin(), order.end()), order.end());
  std::vector<int64_t> ranks;
  for (const Entry& entry : proto.entries) {
    const auto rank = std::lower_bound(order.begin(), order.end(), entry.score, std::greater<>()) - order.begin();
    ranks.push_back(is_of_text(entry.type) ? rank : -1);
  }
  return Bpe::of_ranks(std::move(vocabulary), ranks, {unk_id, true, proto.byte_fallback, false});
}

// Replaces by the charsmap (the longest match at each place) all but the user's symbols, removes needless spaces and
// spells the others as U+2581.
Normalizer make_normalizer(const Proto& proto, const std::string& origin) {
  std::shared_ptr<const Charsmap> map;
  if (!proto.charsmap.empty()) map = std::make_shared<const Charsmap>(proto.charsmap, origin);
  TokenFinder symbols;
  for (const Entry& entry : proto.entries) {
    if (entry.type == PieceType::kUserDefined) symbols.add(entry.text, 0);
  }
  const bool removes = proto.remove_extra_whitespaces;
  const std::string_view space = proto.escape_whitespaces ? kMark : std::string_view(" ");
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

// The byte that <0x0A> spells; -1 for another token.
int spelled_byte(std::string_view token) {
  int byte = -1;
  if (token.size() == 6 && token.starts_with("<0x") && token.ends_with('>')) {
    std::from_chars(token.data() + 3, token.data() + 5, byte, 16);
  }
  return byte;
}

// The text of a run of byte tokens: each byte that is of no character becomes one U+FFFD.
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

Decoder make_decoder(const Proto& proto) {
  // Where no needless spaces go in, every token at the start loses one.
  const bool removes = proto.remove_extra_whitespaces;
  const bool strips = removes || proto.add_dummy_prefix;
  return [removes, strips](std::vector<std::string>& tokens) {
    std::string text, bytes;
    bool begins = strips;  // a space that comes now is one that was put there
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

Pipeline read_sentencepiece(const std::filesystem::path& path, TokenizerConfig& config) {
  const std::string origin = path.string();
  const std::string bytes = read_file_bytes(path);
  const Proto proto = parse(bytes, origin);
  for (std::string_view shifted : {"XLMRoberta", "Camembert", "Barthez", "XLMProphetNet"}) {
    if (!config.tokenizer_class.starts_with(shifted)) continue;
    throw UserError("{}: the ids of a {} are not those of its SentencePiece model; wanted is its tokenizer.json",
                    origin, config.tokenizer_class);
  }
  if (proto.space_is_suffix) throw UserError("{}: spaces at the end of words are not supported", origin);

  Pipeline pipeline;
  pipeline.model = make_model(proto, origin);
  pipeline.normalizer = make_normalizer(proto, origin);
  pipeline.prefix = proto.add_dummy_prefix ? kMark : std::string_view();
  pipeline.prefix_alone = !proto.remove_extra_whitespaces;
  pipeline.prefix_always = config.legacy.value_or(false);
  pipeline.decoder = make_decoder(proto);
  for (size_t id = 0; id < proto.entries.size(); ++id) {
    const Entry& entry = proto.entries[id];
    const bool control = entry.type == PieceType::kControl || entry.type == PieceType::kUnknown;
    // One with a space in it is never found: spaces are spelled otherwise by then.
    const bool symbol = entry.type == PieceType::kUserDefined &&
                        proto.algorithm == static_cast<int64_t>(Algorithm::kBpe) &&
                        !(proto.escape_whitespaces && entry.text.find(' ') != std::string::npos);
    if (!control && !symbol) continue;
    pipeline.added.add({static_cast<int32_t>(id), entry.text, false, false, false, !control, control});
  }

  auto name = [&](int64_t id, std::string& token) {
    const auto size = static_cast<int64_t>(proto.entries.size());
    if (token.empty() && id >= 0 && id < size) token = proto.entries[id].text;
  };
  name(proto.unk_id, config.unk_token);
  name(proto.bos_id, config.bos_token);
  name(proto.eos_id, config.eos_token);
  name(proto.pad_id, config.pad_token);
  const bool is_t5 = config.tokenizer_class.starts_with("T5");
  if (!config.add_bos_token) config.add_bos_token = !is_t5 && proto.bos_id >= 0;
  if (!config.add_eos_token) config.add_eos_token = is_t5;
  return pipeline;
}

}  // namespace fettle
