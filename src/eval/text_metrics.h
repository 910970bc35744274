// Defines metrics of written replies against references: exact match, ROUGE and BLEU.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fettle {

// Returns whether the reply equals one of the references, apart from white space at the ends.
bool exact_match(std::string_view reply, const std::vector<std::string>& references);

struct Rouge {
  double rouge1 = 0, rouge2 = 0, rougeL = 0;  // F-measures, 0 to 1
};
// Computes ROUGE like the Python package rouge_score without a stemmer: a word consists of the letters a to z, in lower
// case, and of digits; all other characters separate words. With several references, each result is the largest over
// them. Source: Lin 2004.
Rouge rouge(std::string_view reply, const std::vector<std::string>& references);

// Returns the corpus BLEU, 0 to 100, as sacrebleu computes it by default (13a tokens, exponential smoothing, unchanged
// case). `references[i]` has the references of `replies[i]`, at least one. Source: Papineni 2002, Post 2018.
double bleu(const std::vector<std::string>& replies, const std::vector<std::vector<std::string>>& references);

// Returns the tokens into which bleu() splits a text.
std::vector<std::string> bleu_tokens(std::string_view text);

}  // namespace fettle
