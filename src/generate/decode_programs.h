// Defines the programs of generation. build_piece's program computes tokens and adds them to a cache. build_growth's
// program makes a cache larger. build_join's program copies a cache of one row into a cache of several rows.
//
// Family::cache lists the arrays of a cache. A cache has space for `rows` sequences and `capacity` positions.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "graph/program.h"
#include "programs/devices.h"
#include "run/run.h"

namespace fettle {

constexpr int64_t kSmallestCapacity = 64;

// The arrays of a cache, keyed by the names of the programs' inputs.
using CacheBuffers = std::map<std::string, DeviceBuffer>;

std::vector<CacheArray> cache_arrays(const Run& run);
std::string cache_input(const CacheArray& array);
// Returns a cache of zeros. Throws DoesNotFit.
CacheBuffers empty_cache(Devices& devices, const Run& run, int64_t rows, int64_t capacity);
// Returns the input row_scales for the adapters `chosen` by the rows, or nullopt when the run has no such input.
std::optional<DeviceBuffer> row_scales(const Devices& devices, const Run& run, const std::vector<int64_t>& chosen);
// Returns the capacity for `positions` tokens: a power of two times kSmallestCapacity, or `longest` if that is less.
int64_t capacity_for(int64_t positions, int64_t longest);
// Returns whether a cache has so many more positions than `positions` tokens need that a smaller one is worth the
// computing of all tokens. A long sequence leaves such a cache. All rows of a batch have the capacity of its largest
// row, and attention may read all positions.
bool has_too_much_room(int64_t capacity, int64_t positions, int64_t longest);

// Inputs:
// - the weights
// - tokens: i32 [rows, length]; `length` must be 1 if there are several rows
// - filled: i32 [rows], the number of positions in use in the cache
// - last: i32, the index of the last real token in each row's piece
// - total: i32 [rows], the length of the whole sequence; this input exists only if rope depends on the length
// - row_scales: f32 [rows, r], the result of rank_scales; this input exists only if the run has adapters side by side
// - the arrays of the cache (donated)
// Outputs: the arrays of the cache, and the logits f32 [rows, V] after the last real token.
Program build_piece(const Run& run, int64_t rows, int64_t length, int64_t capacity);
// Inputs: those arrays of the cache that have positions. Outputs: the same arrays with more positions.
Program build_growth(const Run& run, int64_t rows, int64_t from, int64_t to);
// Inputs: the arrays of a cache (donated), "row" (i32), and the arrays of another cache with one row and `one_capacity`
// positions. The names of the other cache's arrays begin with "one/". Outputs: the first cache, with the other cache as
// row number "row".
Program build_join(const Run& run, int64_t rows, int64_t capacity, int64_t one_capacity);

}  // namespace fettle
