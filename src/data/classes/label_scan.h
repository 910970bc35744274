// Defines LabelScan: the labels that the rows of data sets have. Scanning does not tokenise the rows.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "data/read/dataset_info.h"

namespace fettle {

// Counts rows by the kind of their label, and remembers the first row of each kind as "file:line".
struct LabelScan {
  struct Kind {
    int64_t rows = 0;
    std::string first, example;  // "file:line" of the first row, and its label as it is written
  };
  Kind integers, reals;                // labels that are numbers
  Kind quoted_integers, quoted_reals;  // labels that are numbers in cells of csv or tsv files
  Kind names;
  Kind lists;
  Kind flags;       // lists of 0s and 1s that cannot be label numbers: a value has a point (1.0) or occurs twice
  Kind fractions;   // numbers that are not whole, also in lists
  Kind largest;     // rows with the largest whole number, also in lists
  Kind wrong;       // values that are not labels; `example` says why; not counted in `rows`
  Kind unreadable;  // rows that cannot be read; `example` says why; not counted in `rows`
  Kind minus_one;   // rows with the number -1 as their only label
  int64_t rows = 0;
  int64_t list_size = -1;       // the common size of all lists; -2: sizes differ; -1: no lists
  bool reals_in_lists = false;  // some list has a real number other than 0 and 1
  bool names_in_lists = false;
  // The label names and numbers as the rows spell them, also those in lists. Numbers with a point, such as 2.0 or 2.5,
  // are included only if they are written as texts.
  std::set<std::string> words;
  std::set<int64_t> numbers;  // whole numbers, also those written like 2.0

  // Returns whether each list has one 0 or 1 for each of `labels` labels. Otherwise the lists have label numbers or
  // names.
  bool yes_or_no(int64_t labels) const;

  static constexpr size_t kMostWords = 20'000;
  // Returns whether the scan stopped collecting words and numbers because there were too many.
  bool too_many() const { return words.size() > kMostWords || numbers.size() > kMostWords; }
};

// Scans all rows of these data sets.
LabelScan scan_labels(const std::vector<DataSource>& sources);

}  // namespace fettle
