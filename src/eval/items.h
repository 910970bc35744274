// Defines what `eval` asks: data sets of rows to predict, of questions with choices, and of prompts to answer.
#pragma once

#include <string>
#include <vector>

#include "data/chat.h"
#include "data/data_spec.h"
#include "data/read/dataset_info.h"

namespace fettle {

enum class Task {
  kLoss,        // the loss of the rows' trained tokens
  kChoice,      // which choice is the likeliest after the question
  kLetters,     // the same of the choices' letters, the choices standing in the prompt
  kGeneration,  // replies beside references
  kClasses,     // labels of a classifier (class_eval.h)
  kReward       // scores of a reward model (reward_eval.h)
};
Task task_named(const std::string& name);  // of eval_task, but auto
std::string task_name(Task task);

struct Question {
  std::string text;
  std::vector<std::string> choices;  // two or more
  size_t answer = 0;
  std::string where;  // "file:line"
};

struct Prompt {
  std::vector<Message> messages;  // up to the reply
  std::string tools_json;
  std::vector<std::string> references;
  std::string where;
};

// What the first row's columns say: choices or A and B with an answer (kChoice, kLetters), reference or references
// (kGeneration), else kLoss. A csv file without a head line whose rows are question, A, B, C, D, letter is MMLU's.
Task detect_task(const DataSource& source);

// Rows with a question (question, query, prompt or input), choices (a list, {text, label}, or columns A, B, ...) and an
// answer (answer, answerKey, target, gold or label: a number from 0, a letter, a label, or a choice's text).
// At most max_samples. Throws UserError with file:line for a row that is none, unless on_bad_row: skip.
std::vector<Question> read_questions(const DataSpec& data, const DataSource& source);

// Rows with a question and reference or references (beside `question` also answer), or conversations of any format,
// whose last reply is the reference.
std::vector<Prompt> read_prompts(const DataSpec& data, const DataSource& source);

}  // namespace fettle
