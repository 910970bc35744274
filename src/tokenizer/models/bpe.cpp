#include "tokenizer/models/bpe.h"

#include <algorithm>
#include <bit>
#include <queue>

#include "base/log.h"
#include "base/text.h"
#include "tokenizer/text/unicode.h"

namespace fettle {
namespace {

constexpr size_t kShortWord = 48;
constexpr int32_t kNone = -1;

}  // namespace

MergeTable::MergeTable(size_t count) : slots_(std::bit_ceil(std::max<size_t>(16, count * 2))) {}

size_t MergeTable::slot_of(uint64_t pair) const {
  const size_t mask = slots_.size() - 1;
  size_t at = (pair * 0x9E3779B97F4A7C15u >> 20) & mask;
  while (slots_[at].pair != pair && slots_[at].pair != UINT64_MAX) at = (at + 1) & mask;
  return at;
}

void MergeTable::add(int32_t left, int32_t right, Merge merge) {
  const uint64_t pair = static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
  slots_[slot_of(pair)] = {pair, merge};
}

MergeTable::Merge MergeTable::find(int32_t left, int32_t right) const {
  return slots_[slot_of(static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right))].merge;
}

Bpe::Bpe(Vocabulary vocabulary, size_t merges) : TokenModel(std::move(vocabulary)), merges_(merges) {}

std::unique_ptr<Bpe> Bpe::read(const JsonField& field) {
  field.expect_only({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
                     "byte_fallback", "ignore_merges", "vocab", "merges"});
  const JsonField merges = field.at("merges");
  if (!merges.is_array()) merges.fail("wanted a list of merges");
  std::unique_ptr<Bpe> model(new Bpe(Vocabulary::read(field.at("vocab")), merges.value().size()));
  if (auto dropout = field.find("dropout"); dropout && dropout->number() != 0) {
    warn("{} has no effect: Fettle encodes a text the same way every time", dropout->where());
  }
  model->prefix_ = field.string_or("continuing_subword_prefix", "");
  model->suffix_ = field.string_or("end_of_word_suffix", "");
  model->options_.fuse_unk = field.boolean_or("fuse_unk", false);
  model->options_.byte_fallback = field.boolean_or("byte_fallback", false);
  model->options_.ignore_merges = field.boolean_or("ignore_merges", false);
  if (auto unk = field.find("unk_token")) {
    model->options_.unk_id = model->vocabulary_.id(unk->string());
    if (!model->options_.unk_id) unk->fail("the token '{}' is not in the vocabulary", unk->string());
  }
  model->read_merges(merges);
  model->index_characters();
  return model;
}

std::unique_ptr<Bpe> Bpe::of_ranks(Vocabulary vocabulary, std::span<const int64_t> ranks, const Options& options) {
  struct Join {
    int32_t left, right;
    MergeTable::Merge merge;
  };
  auto rank_of = [&](std::string_view token) {
    const auto id = vocabulary.id(token);
    return id && static_cast<size_t>(*id) < ranks.size() && ranks[*id] >= 0 ? *id : kNone;
  };
  std::vector<Join> joins;
  for (int32_t id = 0; id < static_cast<int32_t>(ranks.size()); ++id) {
    const std::string* token = ranks[id] < 0 ? nullptr : vocabulary.token(id);
    if (token == nullptr) continue;
    size_t at = 0;
    for (next_char(*token, at); at < token->size(); next_char(*token, at)) {
      const int32_t left = rank_of(std::string_view(*token).substr(0, at));
      const int32_t right = rank_of(std::string_view(*token).substr(at));
      if (left != kNone && right != kNone) joins.push_back({left, right, {static_cast<uint32_t>(ranks[id]), id}});
    }
  }
  std::unique_ptr<Bpe> model(new Bpe(std::move(vocabulary), joins.size()));
  for (const Join& join : joins) model->merges_.add(join.left, join.right, join.merge);
  model->options_ = options;
  model->index_characters();
  return model;
}

void Bpe::read_merges(const JsonField& field) {
  uint32_t rank = 0;
  size_t index = 0;
  std::string joined;
  for (const nlohmann::json& merge : field.value()) {
    std::string_view left, right;
    if (merge.is_string()) {
      const std::string_view text = merge.get_ref<const std::string&>();
      if (text.starts_with("#version") && ++index) continue;
      const size_t space = text.find(' ');
      if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) {
        field.fail("merge {} is '{}', wanted two tokens with one space between them", index, text);
      }
      left = text.substr(0, space);
      right = text.substr(space + 1);
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      left = merge[0].get_ref<const std::string&>();
      right = merge[1].get_ref<const std::string&>();
    } else {
      field.fail("merge {} is {}, wanted \"a b\" or [\"a\", \"b\"]", index, merge.dump());
    }
    auto id_of = [&](std::string_view token) {
      if (auto id = vocabulary_.id(token)) return *id;
      field.fail("merge {} ('{}' and '{}') needs the token '{}', which is not in the vocabulary", index, left, right,
                 token);
    };
    joined.assign(left).append(right.substr(std::min(right.size(), prefix_.size())));
    const int32_t left_id = id_of(left);
    const int32_t right_id = id_of(right);
    merges_.add(left_id, right_id, {rank++, id_of(joined)});
    ++index;
  }
}

void Bpe::index_characters() {
  character_ids_.assign(0x10000, kNone);
  std::string text;
  for (int32_t id = 0; id < vocabulary_.size(); ++id) {
    const std::string* token = vocabulary_.token(id);
    if (token == nullptr || token->empty() || token->size() > 3) continue;
    size_t at = 0;
    const char32_t c = next_char(*token, at);
    if (at == token->size()) character_ids_[c] = id;
  }
  byte_ids_.fill(kNone);
  for (int byte = 0; options_.byte_fallback && byte < 256; ++byte) {
    byte_ids_[byte] = vocabulary_.id(fmt::format("<0x{:02X}>", byte)).value_or(kNone);
  }
}

bool Bpe::take_bytes() {
  if (!prefix_.empty() || !suffix_.empty()) return false;
  for (int byte = 0; byte < 256; ++byte) {
    if (character_id(alphabet_char(static_cast<uint8_t>(byte))) == kNone) return false;
  }
  for (int byte = 0; byte < 256; ++byte) byte_ids_[byte] = character_id(alphabet_char(static_cast<uint8_t>(byte)));
  if (options_.ignore_merges) {
    word_texts_.reserve(vocabulary_.size());
    std::string bytes;
    for (int32_t id = 0; id < vocabulary_.size(); ++id) {
      const std::string* token = vocabulary_.token(id);
      if (token != nullptr && from_alphabet(*token, bytes)) words_[word_texts_.emplace_back(bytes)] = id;
    }
  }
  return takes_bytes_ = true;
}

bool Bpe::may_cut_before(std::string_view mark) const {
  if (takes_bytes_ || options_.ignore_merges || !prefix_.empty() || !suffix_.empty()) return false;
  if (!vocabulary_.id(mark)) return false;
  for (int32_t id = 0; id < vocabulary_.size(); ++id) {
    const std::string* token = vocabulary_.token(id);
    if (token == nullptr) continue;
    size_t run_end = 0;
    for (size_t at = 0; (at = token->find(mark, at)) != std::string::npos; run_end = at += mark.size()) {
      if (at != run_end) return false;
    }
  }
  return true;
}

int32_t Bpe::character_id(char32_t c) const {
  if (c < character_ids_.size()) return character_ids_[c];
  std::string text;
  append_utf8(text, c);
  return vocabulary_.id(text).value_or(kNone);
}

void Bpe::encode_word(std::string_view word, std::vector<int32_t>& ids) const {
  if (options_.ignore_merges) {
    if (takes_bytes_) {
      const auto found = words_.find(word);
      if (found != words_.end()) return ids.push_back(found->second);
    } else if (auto id = vocabulary_.id(word)) {
      return ids.push_back(*id);
    }
  }
  thread_local std::vector<int32_t> symbols;
  start_word(word, symbols);
  if (symbols.size() <= kShortWord) {
    merge_short(symbols);
  } else {
    merge_long(symbols);
  }
  ids.insert(ids.end(), symbols.begin(), symbols.end());
}

void Bpe::start_word(std::string_view word, std::vector<int32_t>& symbols) const {
  symbols.clear();
  if (takes_bytes_) {
    for (char byte : word) symbols.push_back(byte_ids_[static_cast<uint8_t>(byte)]);
  } else {
    start_characters(word, symbols);
  }
}

void Bpe::start_characters(std::string_view word, std::vector<int32_t>& symbols) const {
  bool unknown_waits = false;  // the previous character is unknown and has no symbol yet
  std::string spelling;
  for (size_t at = 0; at < word.size();) {
    const size_t start = at;
    const char32_t c = next_char(word, at);
    int32_t id = kNone;
    if (prefix_.empty() && suffix_.empty()) {
      id = character_id(c);
    } else {
      spelling = start == 0 ? "" : prefix_;
      spelling.append(word, start, at - start);
      if (at == word.size()) spelling += suffix_;
      id = vocabulary_.id(spelling).value_or(kNone);
    }
    if (id != kNone) {
      if (unknown_waits) symbols.push_back(*options_.unk_id);
      unknown_waits = false;
      symbols.push_back(id);
      continue;
    }
    if (options_.byte_fallback) {
      const std::string_view bytes =
          prefix_.empty() && suffix_.empty() ? word.substr(start, at - start) : std::string_view(spelling);
      auto has_id = [&](char byte) { return byte_ids_[static_cast<uint8_t>(byte)] != kNone; };
      if (std::all_of(bytes.begin(), bytes.end(), has_id)) {
        // An earlier unknown character may still have no symbol (unknown_waits). Its symbol is then added after the
        // symbols of these bytes, as in Hugging Face's library.
        for (char byte : bytes) symbols.push_back(byte_ids_[static_cast<uint8_t>(byte)]);
        continue;
      }
    }
    if (!options_.unk_id) continue;
    if (unknown_waits && !options_.fuse_unk) symbols.push_back(*options_.unk_id);
    unknown_waits = true;
  }
  if (unknown_waits) symbols.push_back(*options_.unk_id);
}

// Compares all pairs for each merge. This is fastest for a few symbols.
void Bpe::merge_short(std::vector<int32_t>& symbols) const {
  MergeTable::Merge merges[kShortWord];
  size_t count = symbols.size();
  for (size_t i = 0; i + 1 < count; ++i) merges[i] = merges_.find(symbols[i], symbols[i + 1]);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (merges[i].rank < merges[best].rank) best = i;
    }
    if (merges[best].rank == UINT32_MAX) break;
    symbols[best] = merges[best].id;
    std::copy(symbols.begin() + best + 2, symbols.begin() + count, symbols.begin() + best + 1);
    std::copy(merges + best + 2, merges + count, merges + best + 1);
    --count;
    if (best > 0) merges[best - 1] = merges_.find(symbols[best - 1], symbols[best]);
    if (best + 1 < count) merges[best] = merges_.find(symbols[best], symbols[best + 1]);
  }
  symbols.resize(count);
}

// Keeps the possible merges in a heap, so that a long word of n symbols takes O(n log n) steps.
void Bpe::merge_long(std::vector<int32_t>& symbols) const {
  struct Candidate {
    uint32_t rank;
    int32_t at;
    int32_t left;  // the symbols of the merge; if they have changed, the merge is stale
    int32_t right;
    int32_t id;
    bool operator<(const Candidate& other) const { return rank != other.rank ? rank > other.rank : at > other.at; }
  };
  const auto count = static_cast<int32_t>(symbols.size());
  std::vector<int32_t> previous(count);
  std::vector<int32_t> next(count);
  std::vector<Candidate> first;
  first.reserve(count);
  auto candidate_at = [&](int32_t at, auto put) {
    const int32_t left = symbols[at], right = symbols[next[at]];
    const MergeTable::Merge merge = merges_.find(left, right);
    if (merge.rank != UINT32_MAX) put({merge.rank, at, left, right, merge.id});
  };
  for (int32_t i = 0; i < count; ++i) previous[i] = i - 1, next[i] = i + 1 < count ? i + 1 : kNone;
  for (int32_t i = 0; i + 1 < count; ++i) candidate_at(i, [&](Candidate c) { first.push_back(c); });
  std::priority_queue<Candidate> queue(std::less<Candidate>(), std::move(first));
  while (!queue.empty()) {
    const Candidate top = queue.top();
    queue.pop();
    const int32_t right = next[top.at];
    if (symbols[top.at] != top.left || right == kNone || symbols[right] != top.right) continue;
    symbols[top.at] = top.id;
    symbols[right] = kNone;
    next[top.at] = next[right];
    if (next[right] != kNone) previous[next[right]] = top.at;
    auto push = [&](Candidate c) { queue.push(c); };
    if (previous[top.at] != kNone) candidate_at(previous[top.at], push);
    if (next[top.at] != kNone) candidate_at(top.at, push);
  }
  std::erase(symbols, kNone);
}

}  // namespace fettle
