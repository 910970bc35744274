#include "eval/eval.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/files/file_error.h"
#include "base/files/output_file.h"
#include "base/log.h"
#include "base/process_name.h"
#include "base/seconds_since.h"
#include "checkpoint/chat_files.h"
#include "checkpoint/peft/adapter_files.h"
#include "checkpoint/peft/earlier_adapters.h"
#include "data/tokenise.h"
#include "eval/eval_table.h"
#include "eval/predictions.h"
#include "eval/row_sets.h"
#include "models/config.h"
#include "run/preflight.h"
#include "step/state/adapter_arrays.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;

// A model to measure, and the request that opens it.
struct Contender {
  std::string name;
  Request request;
  bool adapter_off = false;  // the model is the next one without its adapters
};

bool has_head(const Request& request) {
  return request.stage().head == Head::kTokens || request.has_taught_head();
}

// Throws UserError if the stage needs a head for labels or scores, and the model has no head that was trained for them.
void require_head(const Request& request) {
  if (has_head(request)) return;
  for (const std::string& adapter : request.adapters())
    if (!fs::exists(fs::path(adapter) / "adapter_config.json")) read_adapter_config(adapter);  // says why it is missing
  throw UserError(
      "{}: neither this model nor an adapter was trained to give {}; train one with stage: {}, or name the adapter in "
      "adapter_name_or_path",
      request.model_folder(), request.stage().output, request.stage().name);
}

bool same_labels(const Request& a, const Request& b) {
  if (a.stage().head != Head::kLabels) return true;
  return a.labels()->id2label == b.labels()->id2label && a.labels()->problem == b.labels()->problem;
}

void check_base(const Request& base, const Request& tuned, const EvalSpec& spec) {
  const std::string where = tuned.places().of("eval_base_model");
  if (tuned.adapters().empty() &&
      fs::weakly_canonical(base.model_folder()) == fs::weakly_canonical(tuned.model_folder()))
    throw UserError("{}: eval_base_model is model_name_or_path itself; there is nothing to compare", where);
  if (!has_head(base))
    throw UserError("{}: {} was not trained to give {}; name a {}{}, or leave the key out", where, spec.base_model,
                    tuned.stage().output, tuned.stage().model,
                    tuned.stage().head == Head::kLabels ? " with the same labels" : "");
  if (!same_labels(base, tuned))
    throw UserError("{}: {} has other labels than {}, or another problem_type; there is nothing to compare", where,
                    spec.base_model, tuned.model_folder());
}

// Returns the request with a stage that can evaluate its rows. A stage with Stage::measured_as, such as dpo, can
// evaluate only rows of its own kind. For other rows, and with an eval_task other than "auto", the returned request has
// the stage that measured_as returns, such as sft. Throws UserError if some sets need the one stage and some the other.
Request with_fitting_stage(const Request& request) {
  if (request.stage().measured_as == nullptr) return request;
  const DataSpec data = request.data();
  const std::vector<std::string>& names = data.eval_sets.empty() ? data.sets : data.eval_sets;
  const std::vector<std::string> tasks = request.eval().tasks;
  std::vector<std::string> own, others;
  for (size_t i = 0; i < names.size(); ++i) {
    const bool is_own = tasks[i < tasks.size() ? i : 0] == "auto" &&
                        has_rows_of(find_source(names[i], data.dataset_dir, data.hub), data.rows);
    (is_own ? own : others).push_back(set_title(names[i]));
  }
  if (!own.empty() && !others.empty())
    throw UserError("{}: stage {} measures {}, but not {}, whose rows are of another kind; measure them in two calls",
                    data.eval_sets.empty() ? "dataset" : "eval_dataset", request.stage().name, fmt::join(own, ", "),
                    fmt::join(others, ", "));
  return own.empty() ? request.for_other_rows() : request;
}

std::vector<Contender> contenders(const Request& request) {
  const EvalSpec spec = request.eval();
  // The metrics of a run with a reference model already compare two models, so no base is measured.
  if (request.has_reference() && spec.base_model.empty()) return {{"model", request}};
  if (!spec.base_model.empty()) {
    const Request base = request.with_model(spec.base_model);
    check_base(base, request, spec);
    return {{"base", base}, {"tuned", request}};
  }
  if (!request.adapters().empty()) {
    const Request base = request.without_adapters();
    if (has_head(base) && same_labels(base, request)) return {{"base", base, true}, {"tuned", request}};
  }
  return {{"model", request}};
}

// Warns if the adapter began as another adapter, which training compared with, but which is not the reference here.
void warn_of_reference(const Request& request) {
  if (!request.has_reference() || request.names_reference()) return;
  for (const std::string& adapter : request.adapters())
    if (const std::string start = continued_adapter(adapter); !start.empty())
      warn(
          "the reference model is the base without adapters, but {} was trained with {} as its reference: the figures "
          "also count what {} had learned before. To compare with that adapter, export it and name the folder in "
          "ref_model",
          adapter, start, start);
}

// The tokenizer and the size of the vocabulary. For a model that writes text, the session makes the prompts and owns
// the tokenizer.
struct TextSide {
  std::unique_ptr<const Session> session;
  std::optional<const Tokenizer> own;
  int64_t vocab_size;

  const Tokenizer& tokenizer() const { return session ? session->tokenizer() : *own; }
};

TextSide text_side(const Request& request) {
  // If config.json has no vocab_size, the size is 0 here, and resolve() throws later.
  const int64_t vocab_size = vocab_size_of(request.repository().config()).value_or(0);
  if (request.stage().head != Head::kTokens)
    return {nullptr, open_tokenizer(request.repository(), request.adapters(), request.data_without_labels()),
            vocab_size};
  return {std::make_unique<const Session>(request, Session::Template::kIfThere), std::nullopt, vocab_size};
}

EvalSet set_of(RowSet&& set) {
  for (const std::string& note : set.notes) info("data: {}", note);
  return {.name = std::move(set.name), .task = Task::kRows, .rows = std::move(set.rows)};
}

Task task_of(const std::string& wanted, const DataSource& source, const Request& request) {
  if (request.stage().measured_as != nullptr) return Task::kRows;  // with_fitting_stage() has checked the rows
  if (request.stage().head == Head::kTokens)
    return wanted == "auto" ? detect_task(source) : task_named(wanted, request.stage());
  if (wanted != "auto")
    throw UserError("{}: eval_task: {} asks for text, but {} is a {}; leave eval_task out",
                    request.places().of("eval_task"), wanted, request.model_folder(), request.stage().model);
  return Task::kRows;
}

std::vector<int32_t> prompt_ids(const Prompt& prompt, const Session& session) {
  if (!prompt.text.empty()) return plain_prompt_ids(session.tokenizer(), prompt.text);
  if (session.has_template()) return session.prompt(prompt.conversation);
  return session.prompt(prompt.conversation.messages.at(0).content);
}

// Fills Prompt::ids. Replaces the references of prompts with Prompt::reply by the text that a model trained on the row
// writes. If the template refuses a row, throws UserError with file:line; with on_bad_row: skip, leaves the row out.
void render_prompts(EvalSet& set, const Session& session, OnBadRow on_bad_row) {
  std::vector<Prompt> kept;
  for (Prompt& prompt : set.prompts) {
    if (!session.has_template() && prompt.conversation.messages.size() > 1)
      throw UserError("{}: a conversation needs a chat template; set `template`, and stage: sft", prompt.where);
    try {
      prompt.ids = prompt_ids(prompt, session);
      if (prompt.reply && session.has_template())
        prompt.references = {session.reply_text(prompt.conversation, *prompt.reply)};
    } catch (const UserError& error) {
      if (on_bad_row != OnBadRow::kSkip) throw UserError("{}: {}{}", prompt.where, error.what(), kSkipHint);
      warn("{}: {}; skipped", prompt.where, error.what());
      continue;
    }
    session.check_prompt(prompt.ids, prompt.where);
    kept.push_back(std::move(prompt));
  }
  if (kept.empty()) throw UserError("eval_dataset: {} has no prompt", set.name);
  set.prompts = std::move(kept);
}

EvalSet named_set(const Request& request, const std::string& name, const std::string& wanted, const TextSide& text) {
  const DataSpec data = request.data();
  const DataSource source = find_source(name, data.dataset_dir, data.hub);
  const Task task = task_of(wanted, source, request);
  if (task == Task::kRows) return set_of(read_named_set(data, name, text.tokenizer(), text.vocab_size));
  EvalSet set{.name = source.name, .task = task};
  if (task != Task::kGeneration) {
    set.questions = read_questions(data, source);
    return set;
  }
  set.prompts = read_prompts(data, source);
  render_prompts(set, *text.session, data.on_bad_row);
  return set;
}

std::vector<EvalSet> read_sets(const Request& request, const TextSide& text) {
  const DataSpec data = request.data();
  const EvalSpec spec = request.eval();
  if (data.sets.empty() && data.eval_sets.empty())
    throw UserError("eval: neither eval_dataset nor dataset is given; name the rows to evaluate on");
  if (spec.tasks.size() > 1 && spec.tasks.size() != data.eval_sets.size())
    throw UserError("{}: eval_task names {} tasks for {} data sets of eval_dataset; give one for all, or one for each",
                    request.places().of("eval_task"), spec.tasks.size(), data.eval_sets.size());
  std::vector<EvalSet> sets;
  if (data.eval_sets.empty()) {
    for (const std::string& task : spec.tasks)
      if (task != "auto" && task != request.stage().eval_task)
        throw UserError(
            "{}: eval_task: {} needs eval_dataset, which names the rows to measure; rows of `dataset` are "
            "measured by {} only",
            request.places().of("eval_task"), task, request.stage().eval_task);
    info("eval_dataset is not given, so eval measures {} of dataset ({})",
         data.val_size > 0 ? "the rows that val_size holds out" : "the rows", fmt::join(set_titles(data.sets), ", "));
    sets.push_back(set_of(read_own_set(data, text.tokenizer(), text.vocab_size)));
  }
  for (size_t i = 0; i < data.eval_sets.size(); ++i)
    sets.push_back(named_set(request, data.eval_sets[i], spec.tasks[spec.tasks.size() > 1 ? i : 0], text));
  return sets;
}

// Checks everything that can be checked before weights are loaded.
void check(const Contender& contender, const Devices& devices, const std::vector<EvalSet>& sets, const TextSide& text) {
  const Run run = contender.request.resolve(target_of(devices), Purpose::kEvaluation);
  check_vocabulary(run, contender.request.repository().folder(), text.tokenizer());
  for (const EvalSet& set : sets)
    if (set.task == Task::kRows) check_positions(run, set.rows);
}

EvalColumn column(const Contender& contender, Devices& devices, OpenModel& model, const std::vector<EvalSet>& sets,
                  const TextSide& text, Phases& phases) {
  EvalColumn out{contender.name, contender.request.model_title(), {}};
  for (const EvalSet& set : sets) {
    info("{}: {} ({})", contender.name, set.name, task_name(set.task, *model.run.stage));
    out.sets.push_back(measure(set, devices, model, contender.request.generation(), text.session.get()));
    phases.done(fmt::format("{}: measured {}", contender.name, set.name).c_str());
  }
  return out;
}

// Returns one column for each model, in their order. Measures the last model first. If a model is the next one without
// its adapter, switches the adapter off instead of loading the weights again, where possible.
std::vector<EvalColumn> columns_of(const std::vector<Contender>& models, Devices& devices,
                                   const std::vector<EvalSet>& sets, const TextSide& text, Phases& phases) {
  std::vector<EvalColumn> columns(models.size());
  std::optional<OpenModel> model;
  for (size_t i = models.size(); i-- > 0;) {
    if (model && models[i].adapter_off && can_switch_off_adapter(model->run)) {
      switch_off_adapter(devices, model->run, model->state);
    } else {
      model.reset();  // frees the memory
      model.emplace(open_model(devices, models[i].request, Purpose::kEvaluation));
      phases.done(fmt::format("{}: loaded the weights", models[i].name).c_str());
    }
    columns[i] = column(models[i], devices, *model, sets, text, phases);
  }
  return columns;
}

// Makes output_dir and tests whether files can be written there, so that nothing is measured in vain.
void prepare_folder(const fs::path& folder) {
  std::error_code failed;
  fs::create_directories(folder, failed);
  if (failed) throw_file_error("create", folder, failed.value());
  OutputFile(folder / ("evaluation.tmp-" + process_name()));  // the destructor removes the file
}

// Throws UserError if a model gave numbers that are not finite.
void require_finite(const std::vector<EvalSet>& sets, const std::vector<EvalColumn>& columns) {
  for (const EvalColumn& column : columns)
    for (size_t s = 0; s < sets.size(); ++s)
      if (!column.sets[s].finite)
        throw UserError(
            "{}: {} gives losses that are not finite, so its figures mean nothing. Its weights are broken, or they are "
            "too large for the arithmetic: try bf16: false and fp16: false, or another checkpoint",
            sets[s].name, column.path);
}

}  // namespace

int run_eval(const Request& asked, bool json, std::ostream& out) {
  Phases phases;
  const Request request = with_fitting_stage(asked);
  require_head(request);
  warn_of_reference(request);
  const std::vector<Contender> models = contenders(request);
  const TextSide text = text_side(request);
  const std::vector<EvalSet> sets = read_sets(request, text);
  phases.done("read the rows");
  const fs::path folder = request.eval().output_dir;
  if (!folder.empty()) prepare_folder(folder);

  Devices devices(request.devices());
  phases.done("opened the devices");
  for (const Contender& contender : models) check(contender, devices, sets, text);
  const std::vector<EvalColumn> columns = columns_of(models, devices, sets, text, phases);

  const LabelSet* labels = request.labels() ? &*request.labels() : nullptr;
  const std::string result =
      eval_json(sets, columns, request.stage()).dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  // The figures are shown first, so that they are not lost if a file cannot be written.
  out << (json ? result : format_eval(sets, columns) + format_label_tables(sets, columns.back(), labels)) << std::flush;
  if (!folder.empty()) {
    write_file(folder / "evaluation.json", result);
    write_predictions(folder, sets, columns, labels);
  }
  require_finite(sets, columns);
  return 0;
}

}  // namespace fettle
