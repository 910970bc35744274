// Defines stage_rows, which returns rows that a stage can train on.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "stages/stages.h"

namespace fettle {

// Returns `count` JSON lines of different lengths. A new kind of row needs its columns here.
inline std::string stage_rows(const Stage& stage, int count) {
  std::string lines;
  for (int i = 0; i < count; ++i) {
    const std::string prompt = "ab " + std::to_string(i),
                      reply = std::string(static_cast<size_t>(1 + i * 13 % 90), 'c');
    nlohmann::json row;
    switch (stage.rows) {
      case RowKind::kTexts: row = {{"text", prompt + reply}}; break;
      case RowKind::kConversations: row = {{"prompt", prompt}, {"completion", reply}}; break;
      case RowKind::kLabelled: row = {{"text", prompt + reply}, {"label", i % 3}}; break;
      case RowKind::kPreferencePairs: row = {{"prompt", prompt}, {"chosen", reply}, {"rejected", "d" + reply}}; break;
      case RowKind::kRatedReplies: row = {{"prompt", prompt}, {"completion", reply}, {"label", i % 3 == 0}}; break;
    }
    lines += row.dump() + "\n";
  }
  return lines;
}

}  // namespace fettle
