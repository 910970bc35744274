// Defines lay_out, which places the sequences of a step in lines, and choose_shapes, which decides how large the arrays
// of micro-batches are.
//
// A line is one row of a micro-batch's arrays. Sequences that share a line stand one after another and do not attend to
// each other. A sequence is never divided.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "data/batches/batch_spec.h"

namespace fettle {

// The shape of a step's arrays: [micro_batches, lines, length].
struct BatchShape {
  int64_t micro_batches = 1;  // A: number of micro-batches
  int64_t lines = 1;          // B: lines of a micro-batch over all devices
  int64_t length = 0;         // T: positions of a line
  int64_t sequences = 1;      // S: sequences are numbered from 1 to S
  bool counted = false;   // true: a step may use fewer than A micro-batches; its program gets their number as an input
  bool weighted = false;  // the arrays include Batch::weights
  bool branched = false;  // the arrays include Batch::prompts

  bool operator==(const BatchShape&) const = default;
};

// Returns the shape that has one line for each sequence of a step of `spec`.
BatchShape padded_shape(const BatchSpec& spec, int64_t length);
// Returns the shape of a step whose rows all have the largest length. No other shape has larger micro-batches.
BatchShape fullest_shape(const BatchSpec& spec);
// Returns the number of positions of a micro-batch of this shape on one device.
int64_t positions_per_device(const BatchShape& shape, const BatchSpec& spec);

struct Place {
  int64_t micro_batch = 0, line = 0, start = 0;  // `start`: the sequence's first position in the line
  auto operator<=>(const Place&) const = default;
};

struct LineLayout {
  int64_t used = 0;           // number of micro-batches to compute; below A only with Lines::kRegrouped
  std::vector<Place> places;  // one for each sequence
};

// Places sequences of these lengths into arrays of this shape. Takes the longest sequence first, and places it in the
// first line with enough free positions. With a grouping, sequences 2k and 2k + 1 are in the same micro-batch.
// Sequences of length 0 take no positions. Returns nullopt when the sequences do not fit. The result is a pure function
// of the arguments.
std::optional<LineLayout> lay_out(const std::vector<int64_t>& lengths, const BatchShape& shape, const BatchSpec& spec);

// The largest number of shapes that choose_shapes returns.
inline constexpr size_t kMostShapes = 4;

// Chooses up to kMostShapes shapes so that the steps in `samples` have a low total cost (layout_cost). Each step takes
// its cheapest shape. A sample has the lengths of one step's sequences. The choice is greedy: each further shape must
// lower the total cost by more than 1 %. At least one shape fits every step that has no sequence of more than `longest`
// tokens. No micro-batch has more positions than `spec.sequences` lines of `most` positions. `most` is a multiple of
// spec.multiple, and `longest` is at most `most`. spec.lines must not be kOwn.
std::vector<BatchShape> choose_shapes(const std::vector<std::vector<int64_t>>& samples, const BatchSpec& spec,
                                      int64_t longest, int64_t most);
// Returns the cost of a step with this layout, in positions of one device. Each micro-batch has a fixed cost besides
// its positions.
int64_t layout_cost(const LineLayout& layout, const BatchShape& shape, const BatchSpec& spec);

}  // namespace fettle
