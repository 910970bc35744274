// Defines Examples: the examples of one or more token stores as one list, in any order.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/store/token_store.h"

namespace fettle {

// Cheap to copy if the examples are in the order of the stores; any other order takes 8 bytes per example. Safe to read
// from several threads at once.
class Examples {
 public:
  Examples() = default;
  Examples(const std::vector<Example>& examples);  // keeps the examples in memory
  // The store has numbers in place of file names; files[n] is the name of file n.
  Examples(std::shared_ptr<const TokenStore> store, std::vector<std::string> files);

  size_t size() const;
  bool empty() const { return size() == 0; }
  std::span<const Token> tokens(int64_t i) const;
  int64_t length(int64_t i) const { return static_cast<int64_t>(tokens(i).size()); }
  int64_t trained_tokens(int64_t i) const;  // Example::trained_tokens
  Preference preference(int64_t i) const;
  std::span<const float> classes(int64_t i) const;  // Example::classes; empty when there is no label
  int64_t classes_per_row() const;                  // 0 except for labelled rows
  std::span<const float> weights(int64_t i) const;  // Example::weights; may be all 1
  bool weighted() const;                            // whether a row of the stores has weights
  uint64_t digest(int64_t i) const;                 // hash of the example (StoredRow::digest)
  std::string digest() const;                       // hash of the digests of all examples, in order
  std::string source(int64_t i) const;              // "file:line"
  // Returns for each example the number of its row, counted from 0 in the order in which the rows first occur. A text
  // that goes on in further examples is one row; so is a pair of rated replies. Returns an empty list when no row has
  // further examples, so each example is a row.
  std::vector<int64_t> row_numbers() const;
  Example operator[](int64_t i) const;  // a copy
  // Calls TokenStore::check of all stores.
  void check() const;

  // Appends the examples of `more`.
  void append(const Examples& more);
  // Returns the examples with these numbers, in this order; a number may occur several times.
  Examples select(const std::vector<int64_t>& rows) const;

 private:
  // The rows of one store.
  struct Part {
    int64_t first;  // the number of this part's first row among the rows of all parts
    std::shared_ptr<const TokenStore> store;
    std::shared_ptr<const std::vector<std::string>> files;
  };
  struct Place {
    const Part& part;
    int64_t row;
  };
  Place place(int64_t i) const;
  int64_t stored() const;  // rows in all parts

  std::vector<Part> parts_;
  bool chosen_ = false;
  std::vector<int64_t> order_;  // if chosen_ is true: the examples, as row numbers counted over all parts
};

}  // namespace fettle
