// Defines RunList: the runs below a folder and their logs, kept in memory and read again when their files change.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/saved/presence.h"
#include "report/view/folder_files.h"
#include "report/view/run_log.h"

namespace fettle {

// A run is a folder with trainer_log.jsonl, fettle_run.json or train.log. Its name is its path below the root ("." for
// the root itself). Thread-safe.
class RunList {
 public:
  // Throws UserError when the folder cannot be read. `starts` returns whether a process that the board started for this
  // run is still running; `starts` may be called from any thread.
  RunList(const std::filesystem::path& folder, std::function<bool(const std::string& name)> starts);

  const FolderFiles& files() const { return files_; }
  // Looks for runs and for changes of their files. Does nothing if it last looked less than `pause` seconds ago. Runs
  // in a folder that cannot be read stay as they were.
  void refresh(double pause = 1);
  // Returns {generation, runs: [summaries of runs that changed after generation `since`], gone: [names], more: whether
  // the folder has more runs than are shown, problem: why the folder could not be read; "" if it could}.
  nlohmann::ordered_json changes(uint64_t since) const;
  bool has(const std::string& name) const;
  // Returns the path of a run below the root; nullopt when there is no such run. Reads nothing from the disk.
  std::optional<std::string> path_of(const std::string& name) const;
  // Calls `use` with the whole log. Returns false when there is no such run.
  bool with_log(const std::string& name, const std::function<void(const RunLog&)>& use);
  // Returns the process that works on the run, on this or another machine.
  std::optional<Owner> owner(const std::string& name) const;

 private:
  struct Entry {
    FileStamp log, run, results;
    bool alive = false;
    uint64_t generation = 0;
    RunLog log_end{RunLog::Keep::kLast};
    nlohmann::ordered_json summary;
  };
  struct Log {
    std::mutex mutex;
    RunLog log;
    std::atomic<size_t> rows = 0;
  };
  using Presences = std::vector<std::string>;  // names of presence files (.fettle-*) in a run's folder
  struct Found {
    std::map<std::string, Presences> runs;  // by name
    std::map<std::string, int> unread;      // folder that could not be read -> error number
  };
  void find(const std::string& path, int depth, Found& found) const;
  void look_at(const std::string& name, const Presences& presences, Entry& entry);
  std::optional<Owner> live_owner(const std::string& path, const Presences& presences) const;

  FolderFiles files_;
  std::function<bool(const std::string&)> starts_;
  mutable std::mutex mutex_;
  std::map<std::string, Entry> runs_;
  std::map<std::string, uint64_t> gone_;  // name of a vanished run -> generation in which it vanished
  uint64_t generation_ = 1;
  double looked_ = -1;
  bool more_ = false;
  std::string problem_;
  std::mutex logs_mutex_;
  std::list<std::pair<std::string, std::shared_ptr<Log>>> logs_;  // the most recently used first
};

}  // namespace fettle
