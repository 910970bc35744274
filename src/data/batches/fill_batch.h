// Defines fill_batch, which writes the documents of a step into the step's arrays.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/batches/batch.h"
#include "data/batches/layout.h"
#include "data/store/examples.h"

namespace fettle {

// An example, or a prompt with another example's reply.
struct Document {
  int64_t example;
  std::span<const Token> tokens, reply = {};
  std::span<const float> weights = {};  // weights of `tokens`; empty: all are 1
  bool skipped = false;                 // the document keeps its number, but takes no positions
  bool other_reply = false;             // `reply` is another example's

  int64_t length() const { return static_cast<int64_t>(tokens.size() + reply.size()); }
  Token operator[](size_t i) const { return i < tokens.size() ? tokens[i] : reply[i - tokens.size()]; }
};

// The documents that stand one after another in a line.
using Sequence = std::vector<Document>;

// The shape and the places of a step's sequences.
struct LaidStep {
  BatchShape shape;
  LineLayout layout;
};

// Returns the arrays of a step. `lines` has one flag for each line of a micro-batch. A line whose flag is false is
// filler, but the token counts include it.
Batch fill_batch(const Examples& examples, const std::vector<Sequence>& sequences, const LaidStep& laid,
                 const std::vector<bool>& lines, int32_t pad_id);

}  // namespace fettle
