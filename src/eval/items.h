// Defines the tasks of `eval` for text models: questions with choices, and prompts with reference replies.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "data/chat/conversation.h"
#include "data/data_spec.h"
#include "data/read/dataset_info.h"
#include "stages/stage.h"

namespace fettle {

enum class Task {
  kRows,        // the metrics that the stage defines; the rows are like those that the stage trains on
  kChoice,      // the model answers with the choice that is most likely after the question
  kLetters,     // the prompt lists the choices A, B, ...; the model answers with the most likely letter
  kGeneration,  // the model writes replies, which are compared with references
};
// Returns whether the first row of the source has the columns of `kind` (RowReader::has_columns).
bool has_rows_of(const DataSource& source, RowKind kind);

// Returns the task that `name` means in a stage that trains tokens. `name` is a value of the key eval_task, but not
// "auto".
Task task_named(const std::string& name, const Stage& stage);
// Returns the name of a task. The name of Task::kRows is Stage::eval_task ("loss", "classes", "reward").
std::string task_name(Task task, const Stage& stage);

struct Question {
  std::string text;
  std::vector<std::string> choices;  // two or more
  size_t answer = 0;                 // index into choices
  std::string where;                 // "file:line"
};

struct Prompt {
  Conversation conversation;  // ends before the reply
  std::string text;           // instead of a conversation: the prompt as plain text, without a template
  std::vector<std::string> references;
  // The row's last turn if it has calls of tools or a thought. Then the chat template decides about the reference's
  // text.
  std::optional<Message> reply;
  std::string where;
  std::vector<int32_t> ids = {};  // the prompt's tokens; run_eval() fills them before it loads weights
};

// Detects the task from the first row's columns:
// - kChoice: an answer, and `choices` or `options`;
// - kLetters: an answer, `A` and `B`. A CSV or TSV file without a header line is also kLetters if it has MMLU's columns
//   (question, A, B, C, D, letter);
// - kGeneration: `reference` or `references`;
// - kRows: all else.
Task detect_task(const DataSource& source);

// Reads rows with
// - a question in the column `question`, `query`, `prompt` or `input`;
// - choices: a list or an object {text, label} in the column `choices` or `options`, or the columns `A`, `B`, ...;
// - an answer in the column `answer`, `answerKey`, `target`, `gold` or `label`. The answer is the number of the right
//   choice (from 0), its label (its letter if the row has no labels), or its text.
// Returns the chosen ones (data/chosen_rows.h). Throws UserError with file:line for a row that cannot be read; with
// on_bad_row: skip, leaves such rows out.
std::vector<Question> read_questions(const DataSpec& data, const DataSource& source);

// Reads rows with a question and a column `reference` or `references`. If the question's column is called `question`,
// the reference may also be in `answer`. Also reads conversations of any format; their last reply is the reference.
// Chooses rows and treats errors like read_questions.
std::vector<Prompt> read_prompts(const DataSpec& data, const DataSource& source);

}  // namespace fettle
