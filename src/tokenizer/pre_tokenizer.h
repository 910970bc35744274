// Defines PreTokenizer: how a text is cut into the pieces (words) that the model encodes one by one.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tokenizer/json_field.h"
#include "tokenizer/pieces.h"

namespace fettle {

// The steps to take, in order. Safe to use from several threads.
struct PreTokenizer {
  using Step = std::function<void(Pieces&)>;

  std::vector<Step> steps;
  // The pieces are then to be spelled in the byte alphabet (to_alphabet); a model that works on bytes needs not.
  bool to_bytes = false;
  // Some step asks whether a piece begins where the text begins.
  bool asks_for_start = false;

  void apply(Pieces& pieces) const {
    for (const Step& step : steps) step(pieces);
  }
};

// Reads the `pre_tokenizer` of tokenizer.json. Throws UserError for a type that is not known, with those that are.
PreTokenizer read_pre_tokenizer(const JsonField& field);

// Cuts before each run of `mark`.
PreTokenizer::Step cut_before_runs(std::string mark);

// Spells every piece in the byte alphabet.
void spell_in_alphabet(Pieces& pieces);

}  // namespace fettle
