// Defines LabelScan: which labels the rows of data sets have, without making tokens of the rows.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "data/read/dataset_info.h"

namespace fettle {

// Rows by the kind of their label. Of each kind the first row is remembered as "file:line".
struct LabelScan {
  struct Kind {
    int64_t rows = 0;
    std::string first, example;  // where, and the label as it is written
  };
  Kind integers, reals;                // numbers
  Kind quoted_integers, quoted_reals;  // numbers of cells
  Kind names;
  Kind lists;
  Kind flags;      // of the lists: 0s and 1s that cannot be numbers of labels, being reals or of equal ones
  Kind fractions;  // numbers that are not whole, of lists too
  Kind largest;    // the whole number that is
  Kind wrong;      // neither; `example` says why. Not among `rows`
  int64_t rows = 0;
  int64_t list_size = -1;       // of all lists; -2 when they differ, -1 when there is none
  bool reals_in_lists = false;  // other than 0 and 1
  bool names_in_lists = false;
  std::set<std::string> words;  // names, and numbers as they are written, of lists too; not reals outside of texts
  std::set<int64_t> numbers;    // whole ones, also written as 2.0

  // Whether each list says yes or no to `labels` labels: all are as long, of 0s and 1s only. Else they are of numbers
  // or names.
  bool yes_or_no(int64_t labels) const;

  static constexpr size_t kMostWords = 20'000;
  bool too_many() const { return words.size() > kMostWords || numbers.size() > kMostWords; }  // no more were kept
};

// Of all rows of these data sets; rows that cannot be read are passed over: loading them is what
// reports them.
LabelScan scan_labels(const std::vector<DataSource>& sources);

}  // namespace fettle
