// Defines PairLoss: a loss of the two replies of a preference pair. Each row of the table is a value of pref_loss.
//
// Sources: sigmoid (DPO) Rafailov 2023; hinge Zhao 2023 (SLiC-HF); ipo Azar 2023 (eq. 17); simpo Meng 2024; robust
// Chowdhury 2024; exo_pair Ji 2024 (eq. 16); nca_pair Chen 2024; bco_pair Jung 2024, without its moving mean; sppo_hard
// Wu 2024 (eq. 4.7, with the probabilities 1 and 0); apo_zero and apo_down D'Oosterlinck 2024 (eq. 7 and 8); discopop
// Lu 2024 (eq. 5, with the temperature 0.05). All are as in TRL 1.16, but for the label smoothing of sigmoid, which is
// that of LLaMA-Factory and of earlier TRL.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "graph/tensor.h"

namespace fettle {

// What the loss knows of each pair: f32 [R]. A score is the log-probability of the reply minus that by the reference
// model.
struct PairScores {
  Tensor chosen, rejected;
};

struct PairLossKeys {
  double beta;       // pref_beta
  double smoothing;  // dpo_label_smoothing
  double gamma;      // simpo_gamma
};

enum class Smoothing : uint8_t { kNone, kAllowed, kNeeded };

struct PairLoss {
  std::string_view name;
  Tensor (*loss)(const PairScores& scores, const PairLossKeys& keys);  // [R]
  Smoothing smoothing = Smoothing::kNone;
  bool compares = true;   // scores are sums, relative to a reference model; else means over the reply's tokens
  bool averages = false;  // scores that are sums are divided by the reply's number of tokens first
};

const std::vector<PairLoss>& pair_losses();
// Returns the row of this name; null for pref_loss: orpo, which is not a function of scores.
const PairLoss* find_pair_loss(std::string_view name);
// Returns the names of the losses that `which` selects, of which there are two or more: "sigmoid, simpo or robust".
std::string names_of_pair_losses(bool (*which)(const PairLoss& loss));

}  // namespace fettle
