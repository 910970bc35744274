#include "report/view/run_file.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <ctime>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/files/json_file.h"
#include "base/files/output_file.h"
#include "base/files/run_files.h"
#include "base/log.h"
#include "base/process_name.h"
#include "data/row_readers.h"
#include "inspect/data_report.h"
#include "report/view/html_report.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr int64_t kShownRows = 4;
constexpr size_t kShownTokens = 1200;  // of each row, at most the first kShownTokens tokens are shown

// Returns the text of an example as pieces: [{text, trained}].
ordered_json pieces_json(const Example& example, const Tokenizer& tokenizer) {
  ordered_json pieces = ordered_json::array();
  const size_t count = std::min(example.input_ids.size(), kShownTokens);
  for (size_t i = 0; i < count;) {
    const bool trained = example.labels[i] != kIgnore;
    std::vector<int32_t> ids;
    for (; i < count && (example.labels[i] != kIgnore) == trained; ++i) ids.push_back(example.input_ids[i]);
    pieces.push_back({{"text", tokenizer.decode(ids, false)}, {"trained", trained}});
  }
  return pieces;
}

ordered_json rows_json(const RunFacts& facts) {
  ordered_json rows = ordered_json::array();
  const Examples& all = facts.data.train;
  for (int64_t i = 0; i < std::min<int64_t>(kShownRows, std::ssize(all)); ++i) {
    const Example example = all[i];
    ordered_json row{{"source", example.source},
                     {"tokens", example.length()},
                     {"trained_tokens", example.trained_tokens()},
                     {"cut", example.input_ids.size() > kShownTokens},
                     {"pieces", pieces_json(example, facts.tokenizer)}};
    const std::optional<LabelSet>& labels = facts.run.labels();
    if (labels && !example.classes.empty()) row["label"] = labels->describe(example.classes);
    if (example.preference == Preference::kChosen) row["preference"] = "chosen";
    if (example.preference == Preference::kRejected) row["preference"] = "rejected";
    rows.push_back(std::move(row));
  }
  return rows;
}

ordered_json machine_json(const RunFacts& facts) {
  utsname system{};
  uname(&system);
  return {{"fettle", FETTLE_VERSION},
          {"host", Owner::own().host},
          {"system", fmt::format("{} {} {}", system.sysname, system.release, system.machine)},
          {"cores", std::thread::hardware_concurrency()},
          {"devices", facts.devices.title()},
          {"device_kind", facts.devices.client().devices()[0].kind},
          {"plugin", facts.devices.client().platform_version()}};
}

}  // namespace

ordered_json run_facts_json(const RunFacts& facts) {
  const Run& run = facts.run;
  const fs::path folder = fs::weakly_canonical(run.output.folder);
  std::error_code unknown;
  ordered_json data = counts_json(facts.data.report);
  const int64_t together = row_reader(run.data.rows).examples_per_row;
  data["train_examples"] = facts.batches.examples() / together;
  data["eval_examples"] = static_cast<int64_t>(facts.data.eval.size()) / together;
  data["lengths"] = lengths_json(facts.data.train);
  data["use"] = facts.batches.use();
  return {{"version", 1},
          {"id", process_name()},
          {"state", "running"},
          {"message", ""},
          {"name", run.output.run_name.empty() ? folder.filename().string() : run.output.run_name},
          {"output_dir", folder.string()},
          {"started", facts.started.seconds},
          {"began", std::time(nullptr)},
          {"ended", nullptr},
          {"resumed_step", facts.resumed_step},
          {"model", run.model_name},
          {"stage", run.stage->name},
          {"total_steps", facts.length.total_steps},
          {"steps_per_epoch", facts.length.steps_per_epoch},
          {"rows_per_step", run.rows_per_step()},
          {"trained_parameters", run.count(run.trained)},
          {"all_parameters", run.count(run.trained) + run.count(run.frozen)},
          {"recipe", ordered_json::parse(run.output.changed_keys)},
          {"working_dir", fs::current_path(unknown).string()},
          {"plan", ordered_json(to_json(facts.memory))},
          {"data", std::move(data)},
          {"rows", rows_json(facts)},
          {"machine", machine_json(facts)}};
}

bool last_run_finished(const fs::path& folder) {
  try {
    return read_json_file<nlohmann::json>(folder / kRunFile).value("state", "finished") == "finished";
  } catch (const std::exception&) {
    return true;
  }
}

void RunFile::begin(const RunFacts& facts, bool report) {
  const std::lock_guard lock(mutex_);
  try {
    folder_ = fs::absolute(facts.run.output.folder);
    presence_ = Presence::in(folder_);
    report_ = report;
    json_ = run_facts_json(facts);
    write_file(folder_ / kRunFile, json_.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n");
  } catch (const std::exception& error) {
    warn("{} cannot be written, and training continues: {}", kRunFile, error.what());
    folder_.clear();
  }
}

void RunFile::end(const std::string& state, const std::string& message) {
  const std::lock_guard lock(mutex_);
  const fs::path folder = std::exchange(folder_, {});
  if (folder.empty()) return;
  try {
    const auto there = read_json_file<ordered_json>(folder / kRunFile);
    if (there.value("id", "") != json_["id"]) return;  // the next run in this folder has already begun
    json_["state"] = state;
    json_["message"] = message;
    json_["ended"] = std::time(nullptr);
    write_file(folder / kRunFile, json_.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n");
    if (report_) write_html_report(folder);
  } catch (const std::exception& error) {
    warn("the end of the run cannot be written to {} and {}: {}", kRunFile, kReportFile, error.what());
  }
}

}  // namespace fettle
