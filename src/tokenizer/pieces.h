// Defines Pieces: the pieces into which added tokens and pre-tokenizers cut one text.
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
  int32_t id = kNoId;      // the id of an added token; later steps do not change such a piece
  size_t start_bytes = 0;  // the number of leading bytes that come from the first character of the text

  bool at_start() const { return start_bytes > 0; }
};

class Pieces {
 public:
  explicit Pieces(std::string_view text) {
    size_t first = 0;
    if (!text.empty()) next_char(text, first), list_.push_back({text, Piece::kNoId, first});
  }

  const std::vector<Piece>& list() const { return list_; }

  // Keeps a changed text alive as long as this object, so that pieces can refer to it.
  std::string_view own(std::string text) { return owned_.emplace_back(std::move(text)); }

  // Calls cut(piece, emit) for each piece without an id, and replaces the piece by the pieces that `cut` passes to
  // emit(Piece). Empty pieces are dropped.
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

  // Calls change(std::string& text, piece) for each piece without an id, and replaces the piece's text by the changed
  // text.
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

// Returns the part [start, end) of `piece`.
inline Piece part_of(const Piece& piece, size_t start, size_t end, int32_t id = Piece::kNoId) {
  return {piece.text.substr(start, end - start), id, piece.start_bytes - std::min(start, piece.start_bytes)};
}

}  // namespace fettle
