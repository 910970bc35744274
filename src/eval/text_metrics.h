// Defines metrics of written replies against references: exact match, ROUGE and BLEU.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fettle {

// Whether the reply equals a reference, apart from white space at the ends.
bool exact_match(std::string_view reply, const std::vector<std::string>& references);

struct Rouge {
  double rouge1 = 0, rouge2 = 0, rougeL = 0;  // F-measures, 0 to 1
};
// Computed as the Python package rouge_score does without a stemmer: words are runs of a-z and 0-9, in lower case. With
// several references, each figure is the largest over them. Source: Lin 2004.
Rouge rouge(std::string_view reply, const std::vector<std::string>& references);

// Corpus BLEU, 0 to 100, as sacrebleu computes it by default (13a tokens, exponential smoothing, case as it is).
// `references[i]` are those of `replies[i]`, at least one. Source: Papineni 2002, Post 2018.
double bleu(const std::vector<std::string>& replies, const std::vector<std::vector<std::string>>& references);

// The tokens that BLEU counts.
std::vector<std::string> bleu_tokens(std::string_view text);

}  // namespace fettle
