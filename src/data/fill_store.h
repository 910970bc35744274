// Defines fill_store: the rows of one data set are tokenised into a store, with a tally of what became of them.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "config/recipe.h"
#include "data/read/dataset_info.h"
#include "data/store/token_store.h"
#include "data/tokenise.h"

namespace fettle {

inline constexpr int64_t kNotesOfAKind = 5;

// What a store remembers of the rows that made it. Files are numbers, so that it holds wherever they lie.
struct Tally {
  struct Note {
    std::string kind, what;
    uint32_t file = 0;
    int64_t line = 0;
  };
  int64_t rows = 0, truncated = 0, dropped = 0, empty = 0, bad_rows = 0;
  std::map<std::string, int64_t> tokens_by_role, trained_by_role, kinds, formats;
  std::vector<Note> notes;
  int64_t rewritten = 0, prompt_thinks = 0, without_end = 0;  // ChatTemplate::Counts

  void note(const std::string& kind, uint32_t file, int64_t line, const std::string& what) {
    if (++kinds[kind] <= kNotesOfAKind) notes.push_back({kind, what, file, line});
  }
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Tally::Note, kind, what, file, line)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Tally, rows, truncated, dropped, empty, bad_rows, tokens_by_role, trained_by_role,
                                   kinds, formats, notes, rewritten, prompt_thinks, without_end)

// Throws UserError with file:line for a row that cannot be trained, unless on_bad_row: skip; says how far it is.
Tally fill_store(TokenWriter& writer, const DataSource& source, const RowTokeniser& tokeniser, const Recipe& recipe);

}  // namespace fettle
