#include "eval/measure.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "base/limits/cpus.h"
#include "base/log.h"
#include "base/parallel.h"
#include "base/progress.h"
#include "base/text.h"
#include "eval/eval_table.h"
#include "eval/held_out.h"
#include "eval/shared_prompts.h"
#include "eval/text_metrics.h"

namespace fettle {
namespace {

std::string letter(size_t i) {
  return std::string(1, static_cast<char>('A' + i));
}

std::string asked(const Question& question, Task task) {
  std::string text = question.text;
  if (task == Task::kLetters)
    for (size_t i = 0; i < question.choices.size(); ++i) text += "\n" + letter(i) + ". " + question.choices[i];
  return text;
}

template <typename Number>
bool all_finite(const std::vector<Number>& values) {
  return std::ranges::all_of(values, [](Number value) { return std::isfinite(value); });
}

size_t largest(const std::vector<double>& values) {
  return static_cast<size_t>(std::ranges::max_element(values) - values.begin());
}

Measured stage_figures(const EvalSet& set, Devices& devices, OpenModel& model) {
  HeldOut held_out(devices, model.run, set.rows);
  const Evaluation found = held_out.run(model.state);
  Measured out{.figures = found.figures,
               .finite = std::isfinite(found.loss),
               .items = found.samples,
               .classes = held_out.classes()};
  out.figures["loss"] = found.loss;
  // A stage with metrics of its own compares replies; perplexity and token accuracy mean nothing for it.
  if (model.run.stage->head == Head::kTokens && found.figures.empty())
    out.figures.insert({{"perplexity", found.perplexity}, {"token_accuracy", found.accuracy}});
  if (out.classes) {
    out.items = static_cast<int64_t>(set.rows.size());
    if (out.classes->rows == 0) {
      out.figures.clear();
      out.finite = all_finite(out.classes->logits);
    } else if (out.classes->problem == Problem::kSingleLabel)
      out.figures["majority"] = out.classes->scores.majority();
  }
  out.figures = in_percent(std::move(out.figures));
  return out;
}

// Returns the log-probability of each choice after its question.
std::vector<std::vector<double>> log_probabilities(const EvalSet& set, std::vector<std::vector<Example>> choices,
                                                   Devices& devices, OpenModel& model) {
  std::vector<Example> rows;
  const BatchSpec& batch = model.run.eval_batch;
  if (can_branch(model.run))
    rows = with_shared_prompts(choices, batch.lengths.empty() ? batch.longest() : batch.lengths.back());
  const RowGrouping grouping = rows.empty() ? RowGrouping::kNone : RowGrouping::kBranches;
  if (rows.empty())
    for (std::vector<Example>& question : choices) std::ranges::move(question, std::back_inserter(rows));
  std::vector<double> losses = Evaluator(devices, model.run, rows, {}, grouping).losses(model.state);
  std::vector<std::vector<double>> out;
  size_t row = 0;
  for (const Question& question : set.questions) {
    out.emplace_back();
    for (size_t i = 0; i < question.choices.size(); ++row)
      if (rows[row].trained_tokens() > 0) out.back().push_back(-losses[row]), ++i;
  }
  return out;
}

// Returns the logit of each letter after its question. The model reads one row for each question.
std::vector<std::vector<double>> letter_logits(const EvalSet& set, std::vector<std::vector<Example>> choices,
                                               const std::vector<int32_t>& letters, Devices& devices,
                                               OpenModel& model) {
  std::vector<Example> rows;
  for (std::vector<Example>& question : choices) {
    rows.push_back(std::move(question[0]));
    std::fill(rows.back().labels.begin(), rows.back().labels.end() - 1, kIgnore);
  }
  const std::vector<float> logits = Evaluator(devices, model.run, rows, letters).logits(model.state);
  std::vector<std::vector<double>> out;
  auto row = logits.begin();
  for (const Question& question : set.questions) {
    out.emplace_back(row, row + std::ssize(question.choices));
    row += std::ssize(letters);
  }
  return out;
}

Measured choices(const EvalSet& set, Devices& devices, OpenModel& model, const Session& text) {
  std::vector<std::vector<Example>> examples(set.questions.size());
  parallel_for(std::ssize(examples), static_cast<int>(usable_cpus()), [&](int64_t q) {
    const auto number = static_cast<size_t>(q);
    examples[number] = choice_examples(set.questions[number], set.task, text, model.run.data.cutoff_len);
  });
  const bool by_length = set.task == Task::kChoice;
  const std::vector<int32_t> letters = by_length ? std::vector<int32_t>{} : letter_tokens(examples);
  const std::vector<std::vector<double>> likely =
      letters.empty() ? log_probabilities(set, std::move(examples), devices, model)
                      : letter_logits(set, std::move(examples), letters, devices, model);
  double right = 0, right_norm = 0;
  bool finite = true;
  for (size_t q = 0; q < set.questions.size(); ++q) {
    const Question& question = set.questions[q];
    finite = finite && all_finite(likely[q]);
    right += largest(likely[q]) == question.answer ? 1 : 0;
    if (!by_length) continue;
    std::vector<double> normed = likely[q];
    for (size_t i = 0; i < normed.size(); ++i) normed[i] /= static_cast<double>(count_characters(question.choices[i]));
    right_norm += largest(normed) == question.answer ? 1 : 0;
  }
  const auto count = static_cast<double>(set.questions.size());
  Measured out{.figures = {{"accuracy", 100 * right / count}},
               .finite = finite,
               .items = static_cast<int64_t>(set.questions.size())};
  if (by_length) out.figures["accuracy_norm"] = 100 * right_norm / count;
  return out;
}

Measured replies(const EvalSet& set, Devices& devices, OpenModel& model, const GenerationSpec& spec,
                 const Session& text) {
  const ReplyOptions options{
      .max_new_tokens = spec.max_new_tokens, .sampling = {.do_sample = false}, .stop_ids = text.stop_ids()};
  std::vector<std::vector<int32_t>> prompts;
  for (const Prompt& prompt : set.prompts) prompts.push_back(prompt.ids);
  Measured out;
  out.replies.resize(prompts.size());
  size_t written = 0;
  ProgressLine progress;
  write_replies(
      devices, model, text.tokenizer(), prompts, [&](size_t) { return options; },
      [&](size_t i, Reply reply) {
        out.replies[i] = std::move(reply.text);
        ++written;
        progress.show([&] { return fmt::format("{}: {} of {} replies", set.name, written, prompts.size()); });
      });
  std::vector<std::vector<std::string>> references;
  double exact = 0;
  Rouge sum;
  for (size_t i = 0; i < prompts.size(); ++i) {
    references.push_back(set.prompts[i].references);
    exact += exact_match(out.replies[i], references[i]) ? 1 : 0;
    const Rouge one = rouge(out.replies[i], references[i]);
    sum.rouge1 += one.rouge1, sum.rouge2 += one.rouge2, sum.rougeL += one.rougeL;
  }
  live_line("");
  const auto count = static_cast<double>(set.prompts.size());
  out.items = static_cast<int64_t>(set.prompts.size());
  out.figures = {{"exact_match", 100 * exact / count},
                 {"rouge1", 100 * sum.rouge1 / count},
                 {"rouge2", 100 * sum.rouge2 / count},
                 {"rougeL", 100 * sum.rougeL / count},
                 {"bleu", bleu(out.replies, references)}};
  return out;
}

}  // namespace

std::vector<Example> choice_examples(const Question& question, Task task, const Session& text, int64_t longest) {
  const std::string ask = asked(question, task);
  const bool chat = text.has_template();
  const std::vector<int32_t> ids = chat ? text.prompt(ask) : text.tokenizer().encode(ask + "\nAnswer:", true);
  std::vector<Example> out;
  for (size_t i = 0; i < question.choices.size(); ++i) {
    const std::string said = task == Task::kLetters ? letter(i) : question.choices[i];
    std::vector<int32_t> whole;
    if (chat) {
      whole = ids;
      const std::vector<int32_t> reply = text.tokenizer().encode(said, false);
      whole.insert(whole.end(), reply.begin(), reply.end());
    } else {
      // A token may span the end of the question and the start of the choice. So the prompt is the common prefix of
      // `ids` and `whole`.
      whole = text.tokenizer().encode(ask + "\nAnswer: " + said, true);
      const auto eos = text.tokenizer().eos_id();
      if (eos && whole.size() > 1 && whole.back() == *eos) whole.pop_back();
    }
    auto prompt = static_cast<size_t>(std::ranges::mismatch(ids, whole).in2 - whole.begin());
    prompt = std::min(prompt, whole.size() - 1);
    if (prompt == 0)
      throw UserError(
          "{}: the question gives no tokens before the choice, so the choice's likelihood is not defined; write a "
          "longer question",
          question.where);
    if (static_cast<int64_t>(whole.size() - prompt) >= longest)
      throw UserError("{}: choice {} has {} tokens, but cutoff_len is {}; raise cutoff_len", question.where, i + 1,
                      whole.size() - prompt, longest);
    // If a question is too long, its beginning is cut off.
    const size_t cut = whole.size() > static_cast<size_t>(longest) ? whole.size() - static_cast<size_t>(longest) : 0;
    Example& example = out.emplace_back();
    example.input_ids.assign(whole.begin() + static_cast<std::ptrdiff_t>(cut), whole.end());
    example.source = question.where;
    example.labels = example.input_ids;
    std::fill_n(example.labels.begin(), prompt - cut, kIgnore);
  }
  return out;
}

std::vector<int32_t> letter_tokens(const std::vector<std::vector<Example>>& choices) {
  std::vector<int32_t> ids;
  for (const std::vector<Example>& question : choices) {
    const std::vector<int32_t>& first = question.at(0).input_ids;
    for (size_t i = 0; i < question.size(); ++i) {
      const std::vector<int32_t>& row = question[i].input_ids;
      if (row.size() != first.size() || !std::equal(row.begin(), row.end() - 1, first.begin())) return {};
      if (i == ids.size()) ids.push_back(row.back());
      if (ids[i] != row.back()) return {};
    }
  }
  return ids;
}

Measured measure(const EvalSet& set, Devices& devices, OpenModel& model, const GenerationSpec& spec,
                 const Session* text) {
  internal_check(text != nullptr || set.task == Task::kRows, "{}: prompts need a session", set.name);
  switch (set.task) {
    case Task::kRows: return stage_figures(set, devices, model);
    case Task::kChoice:
    case Task::kLetters: return choices(set, devices, model, *text);
    case Task::kGeneration: return replies(set, devices, model, spec, *text);
  }
  throw InternalError("measure: no such task");
}

}  // namespace fettle
