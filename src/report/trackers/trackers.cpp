#include "report/trackers/trackers.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "tokenizer/text/unicode.h"

namespace fettle {
namespace {

// A tracker, and the metrics that have not been written to it yet.
struct OpenTracker {
  std::string_view name;
  std::unique_ptr<Tracker> tracker;
  std::deque<TrackedFigures> missing = {};
  bool warned = false;

  void write() {
    try {
      for (; !missing.empty(); missing.pop_front()) tracker->log(missing.front());
      tracker->flush();
    } catch (const Error& error) {
      if (!std::exchange(warned, true))
        warn("report_to: {}: {}; the metrics are kept and written later, and training continues", name, error.what());
    }
  }

  void finish(bool succeeded) {
    try {
      tracker->finish(succeeded);
    } catch (const Error& error) {
      warn("report_to: {}: {}", name, error.what());
    }
    if (!missing.empty())
      warn("report_to: {}: the last {} records are missing there; trainer_state.json has them", name, missing.size());
  }
};

}  // namespace

const std::vector<TrackerRow>& tracker_rows() {
  static const std::vector<TrackerRow> rows{
      {"tensorboard", open_tensorboard}, {"wandb", open_wandb}, {"trackio", open_trackio}, {"mlflow", open_mlflow}};
  return rows;
}

std::map<std::string, double> tracked_names(const std::map<std::string, double>& values) {
  std::map<std::string, double> out;
  for (const auto& [name, value] : values)
    out[name.starts_with("eval_") ? "eval/" + name.substr(5) : "train/" + name] = value;
  return out;
}

struct Trackers::State {
  std::mutex mutex;
  std::condition_variable changed, done;
  std::deque<TrackedFigures> waiting;
  bool ends = false, succeeded = false, ended = false;
};

Trackers::Trackers(const std::vector<std::string>& names, TrackedRun run, std::vector<TrackerRow> rows)
    : state_(std::make_shared<State>()) {
  run.name = replace_invalid_utf8(run.name);
  run.project = replace_invalid_utf8(run.project);
  std::erase_if(rows, [&](const TrackerRow& row) { return std::ranges::find(names, row.name) == names.end(); });
  if (!rows.empty()) thread_ = std::thread([rows, run, state = state_] { work(rows, run, *state); });
}

Trackers::~Trackers() {
  finish(false);
}

void Trackers::log(int64_t step, const std::map<std::string, double>& values) {
  if (!thread_.joinable()) return;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  {
    const std::lock_guard lock(state_->mutex);
    state_->waiting.push_back({step, std::chrono::duration<double>(now).count(), values});
  }
  state_->changed.notify_one();
}

void Trackers::finish(bool succeeded, double seconds) {
  if (!thread_.joinable()) return;
  std::unique_lock lock(state_->mutex);
  state_->ends = true;
  state_->succeeded = succeeded;
  state_->changed.notify_one();
  const bool ended =
      state_->done.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return state_->ended; });
  lock.unlock();
  if (ended) return thread_.join();
  thread_.detach();
  warn("report_to: the trackers did not accept the last metrics within {} s; trainer_state.json has them", seconds);
}

void Trackers::work(const std::vector<TrackerRow>& rows, const TrackedRun& run, State& state) {
  std::vector<OpenTracker> open;
  for (const TrackerRow& row : rows) {
    try {
      open.push_back({row.name, row.open(run)});
    } catch (const Error& error) {
      warn("report_to: {}: {}; this run is not recorded there", row.name, error.what());
    }
  }
  for (bool ends = false; !ends;) {
    std::unique_lock lock(state.mutex);
    state.changed.wait(lock, [&] { return state.ends || !state.waiting.empty(); });
    const std::deque<TrackedFigures> taken = std::exchange(state.waiting, {});
    ends = state.ends;
    const bool succeeded = state.succeeded;
    lock.unlock();
    for (OpenTracker& one : open) {
      one.missing.insert(one.missing.end(), taken.begin(), taken.end());
      one.write();
      if (ends) one.finish(succeeded);
    }
  }
  const std::lock_guard lock(state.mutex);
  state.ended = true;
  state.done.notify_all();
}

}  // namespace fettle
