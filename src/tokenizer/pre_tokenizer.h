// Defines PreTokenizer, which cuts a text into pieces (words). The model encodes each piece on its own.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tokenizer/json_field.h"
#include "tokenizer/pieces.h"

namespace fettle {

// The steps of pre-tokenizing, in order. Several threads may use them at once.
struct PreTokenizer {
  using Step = std::function<void(Pieces&)>;

  std::vector<Step> steps;
  // True when the model needs the resulting pieces in the byte alphabet (to_alphabet). A model that takes bytes
  // (Bpe::take_bytes) needs no such conversion.
  bool to_bytes = false;
  // True when a step depends on whether a piece is at the start of the text.
  bool asks_for_start = false;

  void apply(Pieces& pieces) const {
    for (const Step& step : steps) step(pieces);
  }
};

// Reads `pre_tokenizer` from tokenizer.json. Throws UserError, which lists the known types, when the type is unknown.
PreTokenizer read_pre_tokenizer(const JsonField& field);

// Returns a step that cuts before each run of `mark`, and not between the marks of a run.
PreTokenizer::Step cut_before_runs(std::string mark);

// Writes every piece in the byte alphabet. Can be used as a PreTokenizer::Step.
void spell_in_alphabet(Pieces& pieces);

}  // namespace fettle
