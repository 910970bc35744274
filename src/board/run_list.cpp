#include "board/run_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/files/run_files.h"
#include "base/seconds_since.h"
#include "report/view/run_file.h"
#include "report/view/run_view.h"

namespace fettle {
namespace {

constexpr const char* kResultsName = "all_results.json";
constexpr int kDepth = 6;
constexpr size_t kMostRuns = 5000, kMostEntries = 20000;
constexpr size_t kMostLogs = 40;  // the kMostLogs most recently used logs stay in memory, whatever their size
constexpr size_t kMostRows =
    8'000'000;  // older logs stay only as long as all logs in memory have at most kMostRows rows in total

// If the log of another tool did not change for so many seconds, the run counts as stopped.
constexpr double kLongestPause = 600;

double seconds_since_change(const FileStamp& stamp) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count() - static_cast<double>(stamp.changed_ns) / 1e9;
}

double now_seconds() {
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

// Returns the folder of a run, relative to the root. The root itself may be a run, with the name ".".
std::string folder_of(const std::string& name) {
  return name == "." ? "" : name;
}

}  // namespace

RunList::RunList(const std::filesystem::path& folder, std::function<bool(const std::string&)> starts)
    : files_(folder), starts_(std::move(starts)) {}

void RunList::find(const std::string& path, int depth, Found& found) const {
  auto& runs = found.runs;
  if (runs.size() >= kMostRuns) return;
  std::vector<std::string> folders;
  Presences presences;
  bool run = false;
  const std::optional<std::vector<FolderEntry>> entries = files_.list(path, kMostEntries);
  if (!entries) {
    found.unread[path] = errno;
    return;
  }
  for (const FolderEntry& entry : *entries) {
    if (!entry.folder) {
      run = run || entry.name == kProgressLog || entry.name == kRunFile || entry.name == kTrainOutput;
      if (entry.name.starts_with(".fettle-")) presences.push_back(entry.name);
    } else if (!entry.name.starts_with('.') && !entry.name.starts_with("checkpoint-")) {
      folders.push_back(entry.name);
    }
  }
  if (run) runs[path.empty() ? "." : path] = presences;
  if (depth == 0) return;
  for (const std::string& name : folders) find(run_path(path, name), depth - 1, found);
}

std::optional<Owner> RunList::live_owner(const std::string& path, const Presences& presences) const {
  for (const std::string& name : presences) {
    const std::filesystem::path file = files_.root() / run_path(path, name);
    const Owner owner = read_owner(file);
    if (owner.run && is_alive(file)) return owner;
  }
  return std::nullopt;
}

void RunList::look_at(const std::string& name, const Presences& presences, Entry& entry) {
  const std::string path = folder_of(name);
  const auto stamp = [&](const char* file) { return files_.stamp(run_path(path, file)).value_or(FileStamp{}); };
  const FileStamp log = stamp(kProgressLog), run = stamp(kRunFile), results = stamp(kResultsName);
  const bool new_lines = log != entry.log_end.stamp() && entry.log_end.update(files_, run_path(path, kProgressLog));
  const bool of_other_tool = run == FileStamp{} && !entry.log_end.rows().empty();
  const bool alive = starts_(name) || live_owner(path, presences).has_value() ||
                     (of_other_tool && !entry.log_end.is_complete() && seconds_since_change(log) < kLongestPause);
  if (entry.generation > 0 && !new_lines && log == entry.log && run == entry.run && results == entry.results &&
      alive == entry.alive)
    return;
  entry.log = log;
  entry.run = run;
  entry.results = results;
  entry.alive = alive;
  entry.summary = run_summary(files_, path, entry.log_end, alive);
  entry.summary["name"] = name;
  entry.summary["changed"] = static_cast<double>(std::max(log.changed_ns, run.changed_ns)) / 1e9;
  entry.generation = generation_;
}

void RunList::refresh(double pause) {
  const std::lock_guard lock(mutex_);
  if (looked_ >= 0 && now_seconds() - looked_ < pause) return;
  Found found;
  if (const int error = files_.reopen(); error != 0)
    found.unread[""] = error;
  else
    find("", kDepth, found);
  looked_ = now_seconds();
  problem_.clear();
  if (const auto root = found.unread.find(""); root != found.unread.end()) {
    problem_ = fmt::format("cannot read {}: {}; the list shows the runs that were there before", files_.root().string(),
                           std::strerror(root->second));
    return;
  }
  ++generation_;
  const auto& names = found.runs;
  more_ = names.size() >= kMostRuns;
  const auto is_unread = [&](const std::string& name) {
    return std::ranges::any_of(found.unread,
                               [&](const auto& folder) { return (name + "/").starts_with(folder.first + "/"); });
  };
  std::erase_if(runs_, [&](const auto& run) {
    if (names.contains(run.first) || is_unread(run.first)) return false;
    gone_[run.first] = generation_;
    return true;
  });
  for (const auto& [name, presences] : names) {
    gone_.erase(name);
    look_at(name, presences, runs_[name]);
  }
}

nlohmann::ordered_json RunList::changes(uint64_t since) const {
  const std::lock_guard lock(mutex_);
  nlohmann::ordered_json runs = nlohmann::ordered_json::array(), gone = nlohmann::ordered_json::array();
  for (const auto& [name, entry] : runs_)
    if (entry.generation > since) runs.push_back(entry.summary);
  for (const auto& [name, generation] : gone_)
    if (generation > since) gone.push_back(name);
  return {{"generation", generation_},
          {"runs", std::move(runs)},
          {"gone", std::move(gone)},
          {"more", more_},
          {"problem", problem_}};
}

bool RunList::has(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  return runs_.contains(name);
}

std::optional<std::string> RunList::path_of(const std::string& name) const {
  return has(name) ? std::optional(folder_of(name)) : std::nullopt;
}

bool RunList::with_log(const std::string& name, const std::function<void(const RunLog&)>& use) {
  const std::optional<std::string> path = path_of(name);
  if (!path) return false;
  std::shared_ptr<Log> log;
  {
    const std::lock_guard lock(logs_mutex_);
    const auto found = std::ranges::find(logs_, name, &decltype(logs_)::value_type::first);
    if (found != logs_.end())
      logs_.splice(logs_.begin(), logs_, found);
    else
      logs_.emplace_front(name, std::make_shared<Log>());
    log = logs_.front().second;
    size_t rows = 0, count = 0;
    for (auto it = logs_.begin(); it != logs_.end();) {
      rows += it->second->rows;
      it = ++count > 1 && (count > kMostRuns || (count > kMostLogs && rows > kMostRows)) ? logs_.erase(it)
                                                                                         : std::next(it);
    }
  }
  const std::lock_guard lock(log->mutex);
  log->log.update(files_, run_path(*path, kProgressLog));
  log->rows = log->log.rows().size();
  use(log->log);
  return true;
}

std::optional<Owner> RunList::owner(const std::string& name) const {
  const std::optional<std::string> path = path_of(name);
  if (!path) return std::nullopt;
  Presences presences;
  const std::optional<std::vector<FolderEntry>> entries = files_.list(*path, kMostEntries);
  for (const FolderEntry& entry : entries.value_or(std::vector<FolderEntry>()))
    if (!entry.folder && entry.name.starts_with(".fettle-")) presences.push_back(entry.name);
  return live_owner(*path, presences);
}

}  // namespace fettle
