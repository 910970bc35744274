// Defines Batch: the rows of one optimizer step as dense arrays.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/arrays/host_array.h"
#include "data/batches/layout.h"

namespace fettle {

// The rows of one optimizer step: A micro-batches of B lines of T positions. The arrays are int32 [A, B, T] unless
// noted. The sequences of the step (with packing, its documents) are numbered from 1 to S. These numbers do not depend
// on the layout. If the epoch has too few examples left, the step's last sequences are filler, which has no tokens.
struct Batch {
  BatchShape shape;     // shape.sequences is S; with packing, S is at least the number of documents
  int64_t used = 1;     // number of micro-batches to compute; the later ones (Lines::kRegrouped) are padding
  HostArray tokens;     // padded with pad_id
  HostArray targets;    // targets[t] = label of token t+1 of the same document, or kIgnore if not trained
  HostArray positions;  // 0, 1, ... within each document; a branch goes on after its prompt; 0 in padding
  HostArray segments;   // document number in the line from 1; 0 in padding
  HostArray prompts;    // shape.branched only: the segment of the prompt that this document continues, or its own
  HostArray sequence_numbers;  // number of the sequence (with packing, of the document), from 1; 0 in padding
  HostArray preferences;       // [S]: Preference of each document as a number; 0: none
  HostArray token_types;       // labelled rows only: 1 for tokens of the second text
  HostArray classes;           // labelled rows only: f32 [S, classes per row]; 0 in filler and rows without a label
  HostArray weights;           // shape.weighted only: f32, the factor on the loss of each target; 0 without a target
  int64_t trained_tokens = 0;  // number of targets that are not kIgnore; for labelled rows: number of rows with a label
  int64_t real_tokens = 0;     // tokens that are not padding
  std::vector<std::string> sources;  // [S] "file:line" of each document; "" for filler
};

// Batch::sources has this text after the "file:line" of a prompt whose reply comes from another row.
inline constexpr std::string_view kOtherReply = " with another row's reply";

}  // namespace fettle
