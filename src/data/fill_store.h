// Defines fill_store, which tokenises the rows of one data set into a store and counts the results.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/data_spec.h"
#include "data/read/dataset_info.h"
#include "data/store/token_store.h"
#include "data/tokenise.h"

namespace fettle {

inline constexpr int64_t kNotesOfAKind = 5;

// Facts about the rows that a store was made from. Files have numbers instead of names, so that the facts stay valid
// when files move.
struct Tally {
  struct Note {
    std::string kind, what;
    uint32_t file = 0;
    int64_t line = 0;
  };
  int64_t rows = 0, truncated = 0, dropped = 0, empty = 0, bad_rows = 0;
  std::map<std::string, int64_t> tokens_by_role, trained_by_role, kinds, formats;
  std::vector<Note> notes;
  int64_t rewritten = 0, prompt_thinks = 0, without_end = 0, lost_thoughts = 0;  // as in ChatTemplate::Counts

  void note(const std::string& kind, uint32_t file, int64_t line, const std::string& what) {
    if (++kinds[kind] <= kNotesOfAKind) notes.push_back({kind, what, file, line});
  }
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Tally::Note, kind, what, file, line)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Tally, rows, truncated, dropped, empty, bad_rows, tokens_by_role, trained_by_role,
                                   kinds, formats, notes, rewritten, prompt_thinks, without_end, lost_thoughts)

// Tokenises the rows of `source` into `writer`, and shows progress. Throws UserError with file:line for a row that
// cannot be trained. With OnBadRow::kSkip, counts such a row and leaves it out instead.
Tally fill_store(TokenWriter& writer, const DataSource& source, const RowTokeniser& tokeniser, const DataSpec& spec);

}  // namespace fettle
