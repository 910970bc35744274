// Weights & Biases: an offline run, which `wandb sync FOLDER` uploads. W&B does not join offline runs: the upload of a
// second one with the same id erases the first, or repeats steps. So a resumed run writes a new offline run that begins
// with all earlier figures, and removes the earlier offline runs that it could read completely. Figures that they lack
// are those of the checkpoint, without their times.
//
// Source: wandb_internal.proto; wandb_settings.py (validate_project).
#include <wandb_record.pb.h>

#include <algorithm>
#include <ctime>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "base/environment.h"
#include "base/json_text.h"
#include "base/log.h"
#include "report/trackers/tracker.h"
#include "report/trackers/wandb_file.h"
#include "tokenizer/text/unicode.h"

namespace fettle {
namespace {

using wandb::Record;

namespace fs = std::filesystem;

// Returns the folder of all offline runs.
fs::path parent_folder(const TrackedRun& run) {
  const std::string wanted = environment("WANDB_DIR");
  return (wanted.empty() ? run.folder : fs::path(wanted)) / "wandb";
}

std::string file_name(const TrackedRun& run) {
  return "run-" + run.id + ".wandb";
}

// Returns the path of the file for a new offline run. If the same run starts twice within one second, the second folder
// is named after the next second.
fs::path new_file(const TrackedRun& run) {
  const fs::path parent = parent_folder(run);
  fs::path folder;
  std::error_code ignored;
  for (std::time_t start = std::time(nullptr); folder.empty() || fs::exists(folder, ignored); ++start) {
    std::tm parts{};
    localtime_r(&start, &parts);
    char date[32];
    std::strftime(date, sizeof date, "%Y%m%d_%H%M%S", &parts);
    folder = parent / ("offline-run-" + std::string(date) + "-" + run.id);
  }
  return folder / file_name(run);
}

// What a resumed run takes over from earlier offline runs, and from its checkpoint.
struct Earlier {
  std::vector<fs::path> replaced;        // their folders, except those with a file that could not be read completely
  std::vector<wandb::History> figures;   // all up to the step from which the run continues, by step
  std::optional<int64_t> start_seconds;  // the first start, in seconds since 1970
};

template <typename Items>
void add_item(Items& items, const std::string& key, const nlohmann::json& value) {
  wandb::Item& item = *items.Add();
  item.set_key(key);
  item.set_value_json(value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

wandb::History to_history(const TrackedFigures& figures) {
  wandb::History out;
  for (const auto& [name, value] : tracked_names(figures.values)) add_item(*out.mutable_item(), name, value);
  add_item(*out.mutable_item(), "train/global_step", figures.step);
  add_item(*out.mutable_item(), "_step", figures.step);
  out.mutable_step()->set_num(figures.step);
  return out;
}

// Adds the figures that the offline runs lack, for example because their folders were synced and removed.
void add_missing(const TrackedRun& run, std::vector<wandb::History>& figures) {
  std::set<std::pair<int64_t, std::string>> present;
  for (const wandb::History& one : figures)
    for (const wandb::Item& item : one.item()) present.emplace(one.step().num(), item.key());
  const size_t found = figures.size();
  for (const TrackedFigures& one : run.earlier) {
    const wandb::History history = to_history(one);
    if (!std::ranges::all_of(history.item(), [&](const wandb::Item& item) {
          return present.contains({one.step, item.key()});
        }))
      figures.push_back(history);
  }
  if (figures.size() == found) return;
  std::ranges::stable_sort(figures, {}, [](const wandb::History& one) { return one.step().num(); });
  warn(
      "report_to: wandb: the offline runs in {} have {} of the {} records up to step {}, perhaps because they were "
      "removed; the new offline run has the others from the checkpoint, without their times",
      parent_folder(run).string(), found, figures.size(), run.resumed_step);
}

Earlier read_earlier(const TrackedRun& run) {
  Earlier out;
  if (run.resumed_step == 0) return out;
  std::vector<fs::path> folders;
  std::error_code failed;
  for (fs::directory_iterator at(parent_folder(run), failed), end; !failed && at != end; at.increment(failed))
    if (fs::exists(at->path() / file_name(run), failed)) folders.push_back(at->path());
  std::ranges::sort(folders);  // the order in which they were written
  for (const fs::path& folder : folders) {
    WandbRecords file = read_wandb_file(folder / file_name(run));
    for (const std::string& bytes : file.records) {
      Record record;
      if (!record.ParseFromString(bytes)) {
        file.whole = false;
        break;
      }
      if (record.has_run()) {
        const int64_t continues_at = record.run().starting_step();
        std::erase_if(out.figures, [&](const wandb::History& one) { return one.step().num() > continues_at; });
        if (!out.start_seconds) out.start_seconds = record.run().start_time().seconds();
      }
      if (record.has_history() && record.history().step().num() <= run.resumed_step)
        out.figures.push_back(record.history());
    }
    if (file.whole)
      out.replaced.push_back(folder);
    else
      warn("{}: a part of this offline run cannot be read, so the folder stays beside that of the resumed run",
           folder.string());
  }
  add_missing(run, out.figures);
  return out;
}

// Returns the value of a recipe key if the recipe sets it, else the value of W&B's variable, else Fettle's default.
std::string setting(const TrackedRun& run, const char* key, const char* variable, const std::string& value) {
  const std::string wanted = replace_invalid_utf8(environment(variable));
  return run.config.contains(key) || wanted.empty() ? value : wanted;
}

// Returns the project's name with - in place of the characters that W&B refuses, and at most 128 characters long. Warns
// when that changes the name.
std::string allowed_project(const std::string& wanted) {
  std::string name = wanted;
  for (char& c : name)
    if (std::string_view("/\\#?%:").find(c) != std::string_view::npos) c = '-';
  size_t end = 0;
  for (int characters = 0; characters < 128 && end < name.size(); ++characters) next_char(name, end);
  name.resize(end);
  if (name != wanted)
    warn(
        "report_to: wandb: W&B refuses the project name '{}': it allows at most 128 characters and none of / \\ # ? % "
        ":; the figures go to the project '{}'. Set `project` to choose another name",
        wanted, name);
  return name;
}

class Wandb : public Tracker {
 public:
  Wandb(const TrackedRun& run, const Earlier& earlier)
      : log_(new_file(run)), start_(earlier.start_seconds.value_or(std::time(nullptr))) {
    Record header;
    header.mutable_header()->mutable_version_info()->set_producer("fettle");
    write(header);
    Record record;
    wandb::Run& out = *record.mutable_run();
    out.set_run_id(run.id);
    out.set_entity(replace_invalid_utf8(environment("WANDB_ENTITY")));
    out.set_project(allowed_project(setting(run, "project", "WANDB_PROJECT", run.project)));
    out.set_display_name(setting(run, "run_name", "WANDB_NAME", run.name));
    out.set_host(host_name());
    out.mutable_start_time()->set_seconds(start_);
    for (const auto& [key, value] : run.config.items()) add_item(*out.mutable_config()->mutable_update(), key, value);
    write(record);
    for (const wandb::History& figures : earlier.figures) {
      *record.mutable_history() = figures;
      write(record);
      for (const wandb::Item& item : figures.item())
        if (item.key().starts_with("train/") || item.key().starts_with("eval/"))
          summary_[item.key()] = parse_json_or_discard<nlohmann::json>(item.value_json());
    }
    std::error_code ignored;  // a folder that stays does no harm beyond being uploaded first
    for (const fs::path& folder : earlier.replaced) fs::remove_all(folder, ignored);
  }

  void log(const TrackedFigures& figures) override {
    Record record;
    wandb::History& out = *record.mutable_history();
    out = to_history(figures);
    add_item(*out.mutable_item(), "_timestamp", figures.time);
    add_item(*out.mutable_item(), "_runtime", figures.time - static_cast<double>(start_));
    for (const auto& [name, value] : tracked_names(figures.values)) summary_[name] = value;
    write(record);
  }

  void finish(bool succeeded) override {
    Record record;
    for (const auto& [name, value] : summary_.items())
      add_item(*record.mutable_summary()->mutable_update(), name, value);
    if (!summary_.empty()) write(record);
    Record end;
    end.mutable_exit()->set_exit_code(succeeded ? 0 : 1);
    end.mutable_exit()->set_runtime(static_cast<int32_t>(std::time(nullptr) - start_));
    write(end);
  }

 private:
  void write(Record& record) {
    record.set_num(++records_);
    log_.append(record.SerializeAsString());
  }

  WandbFile log_;
  std::time_t start_;  // the run's first start
  int64_t records_ = 0;
  nlohmann::json summary_ = nlohmann::json::object();  // the last value of each metric
};

}  // namespace

std::unique_ptr<Tracker> open_wandb(const TrackedRun& run) {
  return std::make_unique<Wandb>(run, read_earlier(run));
}

}  // namespace fettle
