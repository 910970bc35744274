// Defines the preference pairs and rated replies of tests/reference/preferences.py, made from the reference rows in
// the same way.
#pragma once

#include <algorithm>

#include "training.h"

namespace fettle {

constexpr size_t kLongestReply = 40;  // tokens, including those of the prompt

struct Reply {
  std::vector<int32_t> prompt, reply;
};

inline Reply reply_of(const Example& row) {
  const auto at = std::find_if(row.labels.begin(), row.labels.end(), [](int32_t label) { return label != kIgnore; }) -
                  row.labels.begin();
  return {{row.input_ids.begin(), row.input_ids.begin() + at}, {row.input_ids.begin() + at, row.input_ids.end()}};
}

inline Example answered(const std::vector<int32_t>& prompt, const std::vector<int32_t>& reply, Preference preference,
                        const std::string& source) {
  Example out{.input_ids = prompt, .source = source, .preference = preference};
  out.input_ids.insert(out.input_ids.end(), reply.begin(), reply.end());
  out.input_ids.resize(std::min(out.input_ids.size(), kLongestReply));
  out.labels = out.input_ids;
  std::fill_n(out.labels.begin(), prompt.size(), kIgnore);
  return out;
}

// Returns the pairs. Pair i has the prompt and the reply (chosen) of row 2i, and the reply (rejected) of row 2i + 1.
inline std::vector<Example> preference_pairs() {
  const std::vector<Example> rows = reference_rows();
  std::vector<Example> out;
  for (size_t i = 0; i + 1 < rows.size(); i += 2) {
    const Reply mine = reply_of(rows[i]), other = reply_of(rows[i + 1]);
    out.push_back(answered(mine.prompt, mine.reply, Preference::kChosen, rows[i].source));
    out.push_back(answered(mine.prompt, other.reply, Preference::kRejected, rows[i].source));
  }
  return out;
}

// Goes over the pairs twice and returns one rated reply per pair each time. Every fourth pair, starting with the
// second, gives its bad (rejected) reply. The other pairs give their good (chosen) reply.
inline std::vector<Example> rated_replies() {
  const std::vector<Example> pairs = preference_pairs();
  std::vector<Example> out;
  for (size_t i = 0; i < pairs.size(); ++i) out.push_back(pairs[(2 * i + (i % 4 == 1 ? 1 : 0)) % pairs.size()]);
  return out;
}

}  // namespace fettle
