// Defines Pieces: one text on its way to ids, cut into pieces by added tokens and pre-tokenizers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/text/unicode.h"

namespace fettle {

struct Piece {
  static constexpr int32_t kNoId = -1;

  std::string_view text;
  int32_t id = kNoId;      // of an added token; no step looks into such a piece again
  size_t start_bytes = 0;  // so many bytes at its beginning are what became of the first character of the text

  bool at_start() const { return start_bytes > 0; }
};

class Pieces {
 public:
  explicit Pieces(std::string_view text) {
    size_t first = 0;
    if (!text.empty()) next_char(text, first), list_.push_back({text, Piece::kNoId, first});
  }

  const std::vector<Piece>& list() const { return list_; }

  // Keeps a changed text alive as long as the pieces that look into it.
  std::string_view own(std::string text) { return owned_.emplace_back(std::move(text)); }

  // Replaces each piece that has no id by what `cut(piece, emit)` emits, calling emit(Piece); empty ones vanish.
  template <typename Cut>
  void split(Cut cut) {
    std::vector<Piece> before = std::exchange(list_, {});
    list_.reserve(before.size());
    auto emit = [this](const Piece& piece) {
      if (!piece.text.empty()) list_.push_back(piece);
    };
    for (const Piece& piece : before) {
      if (piece.id != Piece::kNoId) {
        list_.push_back(piece);
      } else {
        cut(piece, emit);
      }
    }
  }

  // Replaces the text of each piece that has no id by what `change(std::string&, piece)` makes of it.
  template <typename Change>
  void transform(Change change) {
    split([&](const Piece& piece, auto& emit) {
      std::string text(piece.text);
      change(text, piece);
      std::string start(piece.text.substr(0, piece.start_bytes));
      if (!start.empty()) change(start, piece);
      emit(Piece{own(std::move(text)), Piece::kNoId, start.size()});
    });
  }

 private:
  std::vector<Piece> list_;
  std::deque<std::string> owned_;
};

// The part [start, end) of `piece`.
inline Piece part_of(const Piece& piece, size_t start, size_t end, int32_t id = Piece::kNoId) {
  return {piece.text.substr(start, end - start), id, piece.start_bytes - std::min(start, piece.start_bytes)};
}

}  // namespace fettle
