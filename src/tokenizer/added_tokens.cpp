#include "tokenizer/added_tokens.h"

#include <algorithm>

#include "tokenizer/text/unicode.h"

namespace fettle {

void TokenFinder::add(std::string_view text, int32_t id) {
  if (text.empty()) return;
  int32_t node = 0;
  for (char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    int32_t next = child(node, byte);
    if (next < 0) {
      next = static_cast<int32_t>(nodes_.size());
      auto& edges = nodes_[node].next;
      edges.insert(std::upper_bound(edges.begin(), edges.end(), std::pair(byte, next)), {byte, next});
      nodes_.emplace_back();
    }
    node = next;
  }
  if (nodes_[node].id < 0) nodes_[node].id = id;
}

int32_t TokenFinder::child(int32_t node, uint8_t byte) const {
  const auto& edges = nodes_[node].next;
  const auto it =
      std::lower_bound(edges.begin(), edges.end(), byte, [](const auto& e, uint8_t b) { return e.first < b; });
  return it != edges.end() && it->first == byte ? it->second : -1;
}

bool TokenFinder::find(std::string_view text, size_t from, size_t& start, size_t& end, int32_t& id) const {
  const auto& first = nodes_[0].next;
  for (start = from; start < text.size(); ++start) {
    if (first.size() == 1) {
      start = text.find(static_cast<char>(first[0].first), start);
      if (start == std::string_view::npos) return false;
    }
    const size_t length = match(text, start, id);
    end = start + length;
    if (length > 0) return true;
  }
  return false;
}

size_t TokenFinder::match(std::string_view text, size_t at, int32_t& id) const {
  size_t length = 0;
  int32_t node = 0;
  for (size_t i = at; i < text.size(); ++i) {
    node = child(node, static_cast<uint8_t>(text[i]));
    if (node < 0) break;
    if (nodes_[node].id >= 0) id = nodes_[node].id, length = i + 1 - at;
  }
  return length;
}

AddedToken AddedTokens::read(const JsonField& field, int32_t id) {
  return {id,
          field.at("content").string(),
          field.boolean_or("single_word", false),
          field.boolean_or("lstrip", false),
          field.boolean_or("rstrip", false),
          field.boolean_or("normalized", true),
          field.boolean_or("special", false)};
}

nlohmann::json AddedTokens::entry(const std::string& content, bool special, bool normalized) {
  return {{"content", content}, {"single_word", false}, {"lstrip", false},
          {"rstrip", false},    {"special", special},   {"normalized", normalized}};
}

void AddedTokens::add(AddedToken token) {
  if (token.content.empty()) return;
  by_content_[token.content] = token.id;
  by_id_[token.id] = std::move(token);
}

void AddedTokens::prepare(const Normalizer& normalizer) {
  // If several tokens have the same normalized form, the special token with the smallest id wins. If none of them is
  // special, the token with the smallest id wins.
  for (const bool special : {true, false}) {
    for (const auto& [id, token] : by_id_) {
      if (token.special != special) continue;
      std::string spelling = token.content;
      if (token.normalized && normalizer) normalizer(spelling);
      (token.normalized ? normalized_ : given_).add(spelling, id);
      if (spelling != token.content) normalized_spelling_[id] = std::move(spelling);
    }
  }
}

void AddedTokens::split(Pieces& pieces, const TokenFinder& finder) const {
  if (finder.empty()) return;
  pieces.split([&](const Piece& piece, auto& emit) {
    const std::string_view text = piece.text;
    auto word_before = [&](size_t at) { return at > 0 && is_word(previous_char(text, at)); };
    auto word_after = [&](size_t at) { return at < text.size() && is_word(next_char(text, at)); };
    size_t covered = 0, searched = 0, start = 0, end = 0;
    int32_t id = -1;
    while (finder.find(text, searched, start, end, id)) {
      searched = end;
      const AddedToken& token = by_id_.at(id);
      if (token.single_word && (word_before(start) || word_after(end))) continue;
      for (size_t at = start; token.lstrip && at > 0; start = at) {
        if (!is_white_space(previous_char(text, at))) break;
      }
      // The previous match may already contain white space before this token (rstrip). With lstrip, this match begins
      // after the previous one. Without lstrip, a token whose own text begins with white space may overlap the previous
      // match, as in Hugging Face's library.
      if (token.lstrip) start = std::max(start, covered);
      for (size_t at = end; token.rstrip && at < text.size(); end = at) {
        if (!is_white_space(next_char(text, at))) break;
      }
      if (covered < start) emit(part_of(piece, covered, start));
      emit(part_of(piece, start, std::max(start, end), id));
      covered = end;
    }
    if (covered < text.size()) emit(part_of(piece, covered, text.size()));
  });
}

const AddedToken* AddedTokens::find(int32_t id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &found->second;
}

const AddedToken* AddedTokens::find(const std::string& content) const {
  const auto found = by_content_.find(content);
  return found == by_content_.end() ? nullptr : find(found->second);
}

bool AddedTokens::is_special(const std::string& content) const {
  const AddedToken* token = find(content);
  return token != nullptr && token->special;
}

const std::string& AddedTokens::decoded_spelling(const AddedToken& token) const {
  const auto found = normalized_spelling_.find(token.id);
  return found == normalized_spelling_.end() ? token.content : found->second;
}

}  // namespace fettle
