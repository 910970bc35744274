// Defines measure: the figures of a model on a set of items.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "data/store/examples.h"
#include "eval/items.h"
#include "generate/session.h"
#include "step/state/train_state.h"

namespace fettle {

struct EvalSet {
  std::string name;
  Task task = Task::kLoss;
  Examples rows;                    // kLoss
  std::vector<Question> questions;  // kChoice, kLetters
  std::vector<Prompt> prompts;      // kGeneration
};

// A model on its devices.
struct EvalModel {
  Devices& devices;
  const Run& run;
  TrainState& state;
};

// Shares are in percent. kLoss: loss, perplexity, token_accuracy. kChoice: accuracy, accuracy_norm (log-probability by
// the choice's length in characters). kLetters: accuracy. kGeneration: exact_match, rouge1, rouge2, rougeL, bleu.
struct Measured {
  std::map<std::string, double> figures;
  int64_t items = 0;
  std::vector<std::string> replies;  // kGeneration: in the order of the prompts
};

// `text` makes prompts as `chat` and `generate` do: with the chat template where there is one. Replies are greedy.
// Throws UserError naming the row when a question or prompt is too long for the model.
Measured measure(const EvalSet& set, const EvalModel& model, const GenerationSpec& spec, const Session& text);

// The question with choice `i` behind it, the choice alone being trained.
Example choice_example(const Question& question, size_t i, Task task, const Session& text, int64_t longest);

}  // namespace fettle
