#include "train/root_files.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files/json_file.h"
#include "base/files/mapped_file.h"
#include "checkpoint/model_files.h"
#include "checkpoint/model_writer.h"
#include "checkpoint/peft/earlier_adapters.h"
#include "checkpoint/saved/own_log.h"
#include "checkpoint/saved/result_folder.h"
#include "models/classifier_config.h"
#include "train/result.h"
#include "train/write_in_parts.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFigures[] = {
    "trainer_state.json", kResultMark,         "train_results.json",         "eval_results.json",
    "training_loss.png",  "training_loss.svg", "classification_report.json", "classification_report.txt",
    "confusion.png",      "confusion.svg"};
constexpr const char* kAdapter[] = {"adapter_config.json", "adapter_model.safetensors", kAdapterLabels,
                                    kEarlierAdapters};

bool is_there(const fs::path& file) {
  std::error_code ignored;
  return fs::is_regular_file(file, ignored);
}

// Returns trainer_state.json without the fields of the best evaluation, which depend on the keys of the last start.
nlohmann::json log_without_best(const fs::path& file) {
  nlohmann::json state = nlohmann::json::parse(read_file(file), nullptr, false);
  if (state.is_object())
    for (const char* field : {"best_global_step", "best_metric", "best_model_checkpoint"}) state.erase(field);
  return state;  // broken JSON equals nothing
}

// Returns base_model_name_or_path of the adapter in `folder`; "" when there is no adapter or no such field.
std::string base_of_adapter(const fs::path& folder) {
  if (!is_there(folder / "adapter_config.json")) return "";
  try {
    const nlohmann::json config = read_json_file(folder / "adapter_config.json");
    const auto base = config.find("base_model_name_or_path");
    return base != config.end() && base->is_string() ? base->get<std::string>() : "";
  } catch (const UserError&) {
    return "";  // an unreadable file is replaced anyway
  }
}

bool holds_base(const fs::path& folder, const Run& run) {
  for (const std::string& base : {run.model_folder, run.model_name, run.reference.folder, base_of_adapter(folder)}) {
    std::error_code missing;
    if (!base.empty() && fs::equivalent(folder, base, missing)) return true;
  }
  return false;
}

}  // namespace

bool has_result(const fs::path& output_dir, const fs::path& checkpoint) {
  const fs::path found = output_dir / "trainer_state.json", wanted = checkpoint / "trainer_state.json";
  return is_there(output_dir / kResultMark) && is_there(found) && is_there(wanted) &&
         log_without_best(found) == log_without_best(wanted);
}

std::optional<TrainerState> later_result(const fs::path& output_dir, const fs::path& checkpoint) {
  const fs::path later = output_dir / "trainer_state.json", earlier = checkpoint / "trainer_state.json";
  if (!is_there(output_dir / kResultMark) || !is_there(later) || !is_there(earlier)) return std::nullopt;
  const auto log_of = [](const fs::path& file) {
    return log_without_best(file).value("log_history", nlohmann::json::array());
  };
  try {
    const nlohmann::json whole = log_of(later), part = log_of(earlier);
    const bool continues = part.size() <= whole.size() && std::equal(part.begin(), part.end(), whole.begin());
    return continues ? std::optional(read_trainer_state(later)) : std::nullopt;
  } catch (const std::exception&) {
    return std::nullopt;  // the result has a broken record
  }
}

std::vector<std::string> earlier_result(const Run& run) {
  const fs::path folder = run.output.folder;
  if (!is_there(folder / kResultMark) || is_foreign_log(folder / "trainer_state.json")) return {};
  std::vector<std::string> names(std::begin(kFigures), std::end(kFigures));
  names.insert(names.end(), std::begin(kAdapter), std::end(kAdapter));
  if (run.adapter.lora && holds_base(folder, run)) return names;
  const std::vector<std::string> weights = weight_files(folder);
  names.insert(names.end(), weights.begin(), weights.end());
  for (const auto& entry : fs::directory_iterator(folder))
    if (const std::string name = entry.path().filename().string(); is_model_file(name)) names.push_back(name);
  return names;
}

void write_root(const Run& run, const ModelRepository& repository, const TrainState& state, Recorder& recorder,
                const std::optional<HeldOut>& held_out, const Processes& processes) {
  std::optional<ResultFolder> result;
  const auto make = [&] {
    result.emplace(run.output.folder);
    return fs::absolute(result->path());
  };
  const auto commit = [&] {
    recorder.write(result->path());
    if (held_out) held_out->write(result->path());
    for (const std::string& name : earlier_result(run)) result->drop(name);
    result->commit();
  };
  if (!processes.several()) {
    write_result(make(), run, repository, state);
    return commit();
  }
  write_in_parts(
      processes, "result", [&] { return make() / "parts"; },
      [&](StateWriter& own) { write_state(own, result_arrays(run), fetch_from(state)); },
      [&](StateWriter& all) {
        const fs::path parts = result->path() / "parts";
        all.finish({});
        {
          StateReader reader(parts);
          write_result(result->path(), run, repository, reader);
        }
        fs::remove_all(parts);
        commit();
      });
}

}  // namespace fettle
