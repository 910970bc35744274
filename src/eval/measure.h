// Defines measure, which returns the metrics of one model on one set.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "data/store/examples.h"
#include "eval/classification_report.h"
#include "eval/items.h"
#include "generate/session.h"
#include "step/open_model.h"

namespace fettle {

struct EvalSet {
  std::string name;
  Task task = Task::kRows;
  Examples rows;                    // set for Task::kRows
  std::vector<Question> questions;  // set for Task::kChoice and kLetters
  std::vector<Prompt> prompts;      // set for Task::kGeneration
};

struct Measured {
  // Metrics by name; shares are in percent.
  // - kRows: loss, and the stage's metrics; for tokens without such metrics, perplexity and token_accuracy.
  // - kChoice: accuracy; accuracy_norm, for which log-probabilities are divided by the choice's length in characters.
  // - kLetters: accuracy.
  // - kGeneration: exact_match, rouge1, rouge2, rougeL, bleu.
  std::map<std::string, double> figures;
  bool finite = true;                           // false: the model gave a loss or a logit that is not finite
  int64_t items = 0;                            // number of rows, questions or prompts
  std::vector<std::string> replies;             // kGeneration: in the order of the prompts
  std::optional<ClassificationReport> classes;  // set for kRows of a stage that trains labels
};

// Returns the metrics of the model on the set. `text` is the session that makes the prompts: with the chat template if
// the model has one, as in the commands `chat` and `generate`. `text` may be null when the task is kRows. Replies are
// greedy. Throws UserError, which names the row, if a choice is longer than cutoff_len allows.
Measured measure(const EvalSet& set, Devices& devices, OpenModel& model, const GenerationSpec& spec,
                 const Session* text);

// Returns an example for each choice: the question, followed by the choice. With Task::kLetters, the letter of the
// choice follows instead. Only the tokens after the question have labels. An example has at most `longest` tokens; a
// longer question loses its beginning. Several threads may call it.
std::vector<Example> choice_examples(const Question& question, Task task, const Session& text, int64_t longest);

// Takes the examples of each question's letters. Returns the token of each letter, if the examples of a question differ
// only in their last token, and each letter has the same last token in all questions. The model then needs to read each
// question only once. Otherwise returns an empty vector.
std::vector<int32_t> letter_tokens(const std::vector<std::vector<Example>>& choices);

}  // namespace fettle
