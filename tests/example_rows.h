// Defines example_row, which returns a row of any kind. A new kind of rows needs its columns here.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "data/row_readers.h"

namespace fettle {

// Returns the row with number `i`; rows have different lengths.
inline nlohmann::json example_row(RowKind kind, int i) {
  const std::string prompt = "ab " + std::to_string(i), reply = std::string(static_cast<size_t>(1 + i * 13 % 90), 'c');
  switch (kind) {
    case RowKind::kTexts: return {{"text", prompt + reply}};
    case RowKind::kConversations: return {{"prompt", prompt}, {"completion", reply}};
    case RowKind::kLabelled: return {{"text", prompt + reply}, {"label", i % 3}};
    case RowKind::kPreferencePairs: return {{"prompt", prompt}, {"chosen", reply}, {"rejected", "d" + reply}};
    case RowKind::kRatedReplies: return {{"prompt", prompt}, {"completion", reply}, {"label", i % 3 == 0}};
  }
  return {};
}

}  // namespace fettle
