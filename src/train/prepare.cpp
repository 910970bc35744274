#include "train/prepare.h"

#include <nlohmann/json.hpp>

#include "base/files/json_file.h"
#include "base/files/run_files.h"
#include "base/limits/host_memory.h"
#include "base/log.h"
#include "checkpoint/chat_files.h"
#include "plan/mesh_choice.h"
#include "report/banner.h"
#include "report/best_evaluation.h"
#include "report/view/run_file.h"
#include "run/preflight.h"
#include "step/memory/require_fit.h"
#include "train/checkpoints/best_checkpoint.h"
#include "train/checkpoints/checkpoint_meta.h"
#include "train/disk_space.h"
#include "train/root_files.h"
#include "train/same_run.h"

namespace fettle {
namespace {

// Returns when the run starts, which is what the first process says: hosts may have other clocks and time zones, but
// must show the same date in chat templates.
LocalTime start_of_all(const LocalTime& own, const Processes& processes) {
  const std::string first = processes.agree("start time", [&] { return to_json(own).dump(); })[0];
  return read_local_time(nlohmann::json::parse(first));
}

// In a resumed run, chat templates get the date on which the run first started.
DataSpec started_at(const LocalTime& started, DataSpec spec) {
  spec.started = started;
  return spec;
}

// Returns whether the result in output_dir may have other weights than this run chooses: those of the best evaluation
// instead of the last step's, or the other way round. fettle_run.json describes the run that wrote the result, or a
// later one that has not written its own.
bool chooses_other_weights(const Run& run) {
  try {
    const auto last = read_json_file<nlohmann::json>(std::filesystem::path(run.output.folder) / kRunFile);
    const nlohmann::json recipe = last.value("recipe", nlohmann::json::object());
    const nlohmann::json own = nlohmann::json::parse(run.output.changed_keys);
    if (recipe.value("load_best_model_at_end", false) != run.best.load_at_end) return true;
    for (const char* key : {"metric_for_best_model", "greater_is_better"})
      if (run.best.load_at_end && recipe.value(key, nlohmann::json()) != own.value(key, nlohmann::json())) return true;
    return !last_run_finished(run.output.folder);
  } catch (const std::exception&) {
    return false;  // the file only describes a run; it may be missing
  }
}

// Throws when the weights and the optimizer state alone are too large for the devices, the host or offload_dir. All
// processes of the host check this before one of them loads anything: they meet in require_same_base.
void require_room(const Run& asked, const Variant& variant, const Devices& devices, const Processes& processes) {
  const MemoryTable held = held_table(asked, devices.memory(), devices.title());
  require_fit(asked, held, variant);
  const int of_host = processes.several() ? processes.run()->place().local_size : 1;
  require_offload_dir(asked, devices, of_host);
  require_host_fit(held, devices.local_count(), free_host_memory(), of_host);
}

}  // namespace

const Batches& BatchChoices::of(const BatchSpec& spec) {
  return by_count_.try_emplace(spec.micro_batches, rows_, spec, pad_id_).first->second;
}

const Batches& BatchChoices::keep_only(const BatchSpec& spec) {
  const Batches& kept = of(spec);
  std::erase_if(by_count_, [&](const auto& made) { return made.first != spec.micro_batches; });
  return kept;
}

WrittenStep Prepared::written() const {
  return resume ? written_step(*resume->state) : WrittenStep{};
}

std::optional<std::string> Prepared::nothing_to_do() const {
  if (!resume || chooses_other_weights(asked)) return std::nullopt;
  RunRecord end = record;
  if (!has_result(asked.output.folder, resume->checkpoint)) {
    // A run that saves its last step lacks this checkpoint only if the user removed it to go back.
    const bool saves_end = length.save_every > 0 && !asked.best.save;
    std::optional<TrainerState> later;
    if (asked.output.resume_from == "true" && !saves_end) later = later_result(asked.output.folder, resume->checkpoint);
    if (!later) return std::nullopt;
    end.trainer = std::move(*later);
  }
  const bool early = asked.best.ends_after(best_evaluation(end.comparable_log(), asked.best).not_better);
  if (end.trainer.global_step < length.total_steps && !early) return std::nullopt;
  return fmt::format(
      "the run has ended at step {}, and the result is in {}, so there is nothing to do; raise {} to "
      "continue from {}",
      end.trainer.global_step, asked.output.folder, early ? "early_stopping_patience" : "max_steps or num_train_epochs",
      resume->checkpoint.string());
}

Prepared prepare(const Request& request, Devices& devices, const Processes& processes, Phases& phases) {
  const ModelRepository& repository = request.repository();

  // The recipe, the devices and the folder.
  Variant variant = choose_variant(request, devices);
  Run asked = request.resolve(target_of(devices), Purpose::kTraining, variant);
  asked.remarks.print();
  require_room(asked, variant, devices, processes);
  require_same_base(processes, asked, repository);
  OutputFolder output = check_output(asked, processes);
  auto resume = find_resume_point(asked, repository);
  phases.done("checked the recipe");
  RunRecord record = resume ? std::move(resume->record) : RunRecord{.started = asked.data.started};
  record.started = start_of_all(record.started, processes);

  // The rows.
  Tokenizer tokenizer = open_tokenizer(repository, asked.adapter.folders(), asked.data);
  Datasets data = processes.one_per_host_first("data", [&] {
    return load_datasets(started_at(record.started, asked.data), tokenizer, asked.model.config.vocab_size);
  });
  check_positions(asked, data.train);
  check_positions(asked, data.eval);
  BatchChoices choices(data.train, tokenizer.pad_id().value_or(0));
  const Batches& batches = choices.of(asked.batch);
  const int64_t resumed_step = resume ? resume->step : 0;
  const RunLength length = run_length(asked.length, batches.steps_per_epoch());
  require_same_data(processes, batches.identity(), length.eval_every > 0 ? data.eval : Examples(), resumed_step);
  if (resume) check_data(*resume->state, asked, batches.identity());
  if (length.eval_every > 0) note_held_out(data.eval, record);
  if (resume) find_best(asked, resume->checkpoint, record);

  // What the length needs.
  check_best(asked, length);
  require_disk(asked, repository, length,
               {.resumed_step = resume ? std::optional(resume->step) : std::nullopt, .several = processes.several()});
  phases.done("read the rows");
  announce(asked, length, batches, data.report, resumed_step, devices.title());

  return {.variant = std::move(variant),
          .asked = std::move(asked),
          .output = std::move(output),
          .resume = std::move(resume),
          .record = std::move(record),
          .tokenizer = std::move(tokenizer),
          .data = std::move(data),
          .batches = std::move(choices),
          .length = length};
}

}  // namespace fettle
