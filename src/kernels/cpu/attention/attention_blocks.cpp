#include "kernels/cpu/attention/attention_blocks.h"

#include <algorithm>

namespace fettle::cpu {
namespace {

int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

PackedSizes packed_sizes(const AttentionProblem& problem, bool pairs) {
  const int64_t padded = round_up(problem.keys, kBlock), width = round_up(problem.width, 16);
  return {padded / kBlock, padded, width, pairs ? width / 2 : width, pairs ? kBlock / 2 : kBlock};
}

int64_t query_block_count(const AttentionProblem& problem) {
  return round_up(problem.length, kBlock) / kBlock;
}

BlockSegments::BlockSegments(const AttentionProblem& problem)
    : query_blocks_(query_block_count(problem)), key_blocks_(round_up(problem.filled(), kBlock) / kBlock) {
  auto add = [&](int64_t row, int64_t begin, std::vector<Range>& ranges) {
    for (int64_t start = begin; start < problem.filled(); start += kBlock) {
      const int32_t* first = problem.segments + row * problem.keys + start;
      const auto [low, high] = std::minmax_element(first, first + std::min(kBlock, problem.filled() - start));
      ranges.push_back({*low, *high});
    }
  };
  for (int64_t row = 0; row < problem.rows; ++row) {
    add(row, problem.first, queries_);
    add(row, 0, keys_);
  }
}

void look(const AttentionProblem& p, const BlockSegments& segments, int64_t row, int64_t query_block, int64_t key_block,
          Visibility& out) {
  const BlockSegments::Range &queries = segments.of_queries(row, query_block), &keys = segments.of_keys(row, key_block);
  out.any = queries.low <= keys.high && keys.low <= queries.high;
  if (!out.any) return;
  const int64_t query = p.first + query_block * kBlock, key = key_block * kBlock;
  const int64_t present = std::min(kBlock, p.filled() - key);
  ScoreBlock& mask = out.mask;
  mask = {};
  mask.rows = mask.columns = kBlock;
  mask.scale = p.scale;
  mask.softcap = p.softcap;
  mask.first_query = query;
  mask.first_key = key;
  mask.segments = queries.low != queries.high || keys.low != keys.high;
  mask.masked = mask.segments || present < kBlock || (p.causal && key + kBlock - 1 > query) ||
                (p.window > 0 && query + kBlock - 1 - p.window >= key);
  if (!mask.masked) return;
  for (int64_t r = 0; r < kBlock; ++r) {
    const int64_t end = p.causal ? query + r + 1 - key : kBlock;
    const int64_t start = p.window > 0 ? query + r - p.window + 1 - key : 0;
    out.high[r] = static_cast<int32_t>(std::clamp<int64_t>(end, 0, present));
    out.low[r] = static_cast<int32_t>(std::clamp<int64_t>(start, 0, kBlock));
  }
  mask.low = out.low;
  mask.high = out.high;
  if (!mask.segments) return;
  const int32_t* row_segments = p.segments + row * p.keys;
  for (int64_t i = 0; i < kBlock; ++i) {
    out.query_segments[i] = row_segments[std::min(query + i, p.filled() - 1)];
    out.key_segments[i] = row_segments[std::min(key + i, p.filled() - 1)];
  }
  mask.query_segments = out.query_segments;
  mask.key_segments = out.key_segments;
}

BlockRange key_blocks(const AttentionProblem& p, int64_t query_block) {
  const int64_t start = p.first + query_block * kBlock, end = std::min(p.filled(), start + kBlock);
  BlockRange out{0, ((p.causal ? end : p.filled()) - 1) / kBlock};
  if (p.window > 0) out.first = std::max<int64_t>(0, start - p.window + 1) / kBlock;
  return out;
}

BlockRange query_blocks(const AttentionProblem& p, int64_t blocks, int64_t key_block) {
  BlockRange out{p.causal ? key_block : 0, blocks - 1};
  if (p.window > 0) out.last = std::min(blocks - 1, (key_block * kBlock + kBlock - 1 + p.window - 1) / kBlock);
  return out;
}

int64_t attention_flops(const AttentionProblem& p) {
  int64_t seen = 0;
  for (int64_t i = 0; i < query_block_count(p); ++i) {
    const BlockRange keys = key_blocks(p, i);
    seen += keys.last - keys.first + 1;
  }
  return 4 * p.rows * p.heads * seen * kBlock * kBlock * p.width;
}

Word* thread_words(int64_t count) {
  thread_local std::vector<Word> words;
  constexpr int64_t kAlignment = 16;  // words
  if (static_cast<int64_t>(words.size()) < count + kAlignment) words.resize(count + kAlignment);
  const uintptr_t start = reinterpret_cast<uintptr_t>(words.data());
  return reinterpret_cast<Word*>((start + 63) / 64 * 64);
}

}  // namespace fettle::cpu
