#include "tokenizer/models/unigram.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tokenizer/text/unicode.h"

namespace fettle {
namespace {

// The score of an unknown character is lower than the lowest score by this number, as in SentencePiece.
constexpr double kUnknownPenalty = 10.0;
// When the absolute value of a sum in single precision is larger than this, the sums restart at zero, as in
// SentencePiece.
constexpr double kLargestSum = 100'000;

}  // namespace

std::unique_ptr<TokenModel> Unigram::read(const JsonField& field) {
  field.expect_only({"type", "unk_id", "byte_fallback", "vocab"});
  const JsonField vocab = field.at("vocab");
  Vocabulary vocabulary;
  std::vector<double> scores;
  for (const JsonField& entry : vocab.elements()) {
    const std::vector<JsonField> pair = entry.elements();
    if (pair.size() != 2) entry.fail("wanted a token and its score");
    vocabulary.add(pair[0].string(), static_cast<int64_t>(scores.size()));
    scores.push_back(pair[1].number());
  }
  std::optional<int32_t> unk_id;
  if (auto id = field.find("unk_id")) unk_id = static_cast<int32_t>(id->integer());
  const Options options{unk_id, field.boolean_or("byte_fallback", false), false};
  return std::make_unique<Unigram>(std::move(vocabulary), std::move(scores), options, field.where());
}

Unigram::Unigram(Vocabulary vocabulary, std::vector<double> scores, const Options& options, const std::string& origin)
    : TokenModel(std::move(vocabulary)), origin_(origin), scores_(std::move(scores)), options_(options) {
  if (options.unk_id && vocabulary_.token(*options.unk_id) == nullptr) {
    throw UserError("{}: unk_id is {}, but there are {} tokens", origin, *options.unk_id, vocabulary_.size());
  }
  double least = std::numeric_limits<double>::infinity();
  for (double score : scores_) least = std::fmin(least, score);
  unk_score_ = least - kUnknownPenalty;
  if (options.single_precision) unk_score_ = static_cast<float>(unk_score_);
  byte_ids_.fill(-1);
  for (int byte = 0; options_.byte_fallback && byte < 256; ++byte) {
    byte_ids_[byte] = vocabulary_.id(fmt::format("<0x{:02X}>", byte)).value_or(-1);
  }
  build_trie();
}

void Unigram::build_trie() {
  std::vector<std::pair<std::string_view, int32_t>> tokens;
  for (int32_t id = 0; id < vocabulary_.size(); ++id) {
    const std::string* token = vocabulary_.token(id);
    // If a token occurs twice, the vocabulary finds one of its ids. The trie must find the same id.
    if (token == nullptr || token->empty() || vocabulary_.id(*token) != id || std::isnan(scores_[id])) continue;
    tokens.emplace_back(*token, id);
  }
  std::sort(tokens.begin(), tokens.end());
  // The nodes are made breadth first, so that the edges of a node are adjacent.
  struct Range {
    size_t first, last, depth;
  };
  std::vector<Range> ranges = {{0, tokens.size(), 0}};
  nodes_.resize(1);
  for (size_t node = 0; node < ranges.size(); ++node) {
    auto [first, last, depth] = ranges[node];
    if (first < last && tokens[first].first.size() == depth) nodes_[node].id = tokens[first++].second;
    nodes_[node].first_edge = static_cast<int32_t>(edges_.size());
    while (first < last) {
      const auto byte = static_cast<uint8_t>(tokens[first].first[depth]);
      size_t end = first + 1;
      while (end < last && static_cast<uint8_t>(tokens[end].first[depth]) == byte) ++end;
      edges_.push_back({byte, static_cast<int32_t>(nodes_.size())});
      nodes_.emplace_back();
      ranges.push_back({first, end, depth + 1});
      first = end;
    }
    nodes_[node].edge_count = static_cast<int32_t>(edges_.size()) - nodes_[node].first_edge;
  }
}

int32_t Unigram::child(int32_t node, uint8_t byte) const {
  const Edge* const first = edges_.data() + nodes_[node].first_edge;
  const Edge* const last = first + nodes_[node].edge_count;
  const Edge* const found = std::lower_bound(first, last, byte, [](const Edge& e, uint8_t b) { return e.byte < b; });
  return found != last && found->byte == byte ? found->node : -1;
}

void Unigram::encode_word(std::string_view word, std::vector<int32_t>& ids) const {
  struct Best {  // the best split of the text up to the end of a character
    double score = 0;
    int64_t start = -1;
    int32_t id = 0;
  };
  thread_local std::vector<Best> best;
  best.assign(word.size() + 1, {});
  size_t frontier = 0;  // the furthest end that a token reaches so far
  auto offer = [&](size_t start, size_t end, double score, int32_t id) {
    frontier = std::max(frontier, end);
    score += best[start].score;
    if (options_.single_precision) score = static_cast<float>(score);
    if (best[end].start < 0 || score > best[end].score) best[end] = {score, static_cast<int64_t>(start), id};
  };
  for (size_t start = 0, next = 0; start < word.size(); start = next) {
    next_char(word, next);
    if (options_.single_precision && std::abs(best[start].score) > kLargestSum) {
      const double offset = best[start].score;
      for (size_t i = start; i <= frontier; ++i) best[i].score = static_cast<float>(best[i].score - offset);
    }
    bool has_single = false;
    int32_t node = 0;
    for (size_t at = start; at < word.size();) {
      node = child(node, static_cast<uint8_t>(word[at++]));
      if (node < 0) break;
      const int32_t id = nodes_[node].id;
      if (id < 0) continue;
      offer(start, at, scores_[id], id);
      has_single |= at == next;
    }
    if (has_single) continue;
    if (!options_.unk_id) {
      throw UserError(
          "{}: the text contains the character '{}', which is not in the vocabulary, and the tokenizer has no unk_id "
          "for unknown characters; remove the character from the text",
          origin_, word.substr(start, next - start));
    }
    offer(start, next, unk_score_, *options_.unk_id);
  }
  const size_t before = ids.size();
  for (auto end = static_cast<int64_t>(word.size()); end > 0;) {
    const int32_t id = best[end].id;
    int64_t start = best[end].start;
    if (options_.unk_id && id == *options_.unk_id) {
      while (start > 0 && best[start].id == *options_.unk_id) start = best[start].start;
      const std::string_view unknown = word.substr(start, end - start);
      auto has_id = [&](char byte) { return byte_ids_[static_cast<uint8_t>(byte)] >= 0; };
      if (auto known = vocabulary_.id(unknown)) {
        ids.push_back(*known);
      } else if (options_.byte_fallback && std::all_of(unknown.begin(), unknown.end(), has_id)) {
        for (size_t i = unknown.size(); i > 0; --i) ids.push_back(byte_ids_[static_cast<uint8_t>(unknown[i - 1])]);
      } else {
        ids.push_back(id);
      }
    } else {
      ids.push_back(id);
    }
    end = start;
  }
  std::reverse(ids.begin() + static_cast<std::ptrdiff_t>(before), ids.end());
}

}  // namespace fettle
