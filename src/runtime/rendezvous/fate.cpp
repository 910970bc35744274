#include "runtime/rendezvous/fate.h"

#include <unistd.h>

#include <algorithm>
#include <future>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/environment.h"
#include "base/error.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/progress.h"

namespace fettle {
namespace {

using Json = nlohmann::json;

constexpr int kDeviceCode = static_cast<int>(ExitCode::kDevice);

constexpr const char* kTraining = "training";
constexpr double kOtherPhases = 6;  // loading, compiling and evaluating may take this many times FateTimes::hang

double read_seconds(const char* name, double usual) {
  const std::string text = environment(name);
  if (text.empty()) return usual;
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (*end != '\0' || !(value >= 1)) throw UserError("{} is '{}', wanted a number of seconds, 1 or more", name, text);
  return value;
}

// An exception that ends the watching thread when the main thread has failed. The main thread then ends the process.
struct Ended {};

std::string key_of(int rank) {
  return fmt::format("fettle/status/{}", rank);
}

}  // namespace

FateTimes FateTimes::from_environment() {
  FateTimes times;
  times.silence = read_seconds("FETTLE_HEARTBEAT_SECONDS", times.silence);
  times.hang = read_seconds("FETTLE_HANG_SECONDS", times.hang);
  times.beat = std::min(times.beat, times.silence / 4);
  return times;
}

Fate::Fate(Rendezvous& run, const FateTimes& times) : run_(run), times_(times) {
  const auto now = Clock::now();
  seen_.assign(static_cast<size_t>(run.size()), {"", now, now, "", false});
  thread_ = std::thread([this] { watch(); });
}

Fate::~Fate() {
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Fate::before_end(std::function<void(const std::string&)> record) {
  const std::lock_guard lock(mutex_);
  record_ = std::move(record);
}

void Fate::enter(const std::string& phase) {
  const std::lock_guard lock(mutex_);
  phase_ = phase;
}

int Fate::stop_before(int64_t step) {
  std::unique_lock lock(mutex_);
  phase_ = kTraining;
  const int signal = stop_before_launch(lock);
  if (signal == 0) step_ = step + 1;
  return signal;
}

int Fate::stop_before_batch() {
  std::unique_lock lock(mutex_);
  return stop_before_launch(lock);
}

// `lock` holds mutex_.
int Fate::stop_before_launch(std::unique_lock<std::mutex>& lock) {
  changed_.wait(lock, [&] { return held_ < 0 || stop_at_ >= 0; });
  if (stop_at_ >= 0 && launched_ >= stop_at_) return signal_;
  ++launched_;
  return 0;
}

void Fate::fail(int exit_code, const std::string& message) {
  {
    const std::lock_guard lock(mutex_);
    if (failed_ == 0) failure_ = fmt::format("{}: {}", run_.name_of(run_.rank()), message);
    failed_ = exit_code;
  }
  try {
    publish();
    const auto start = Clock::now();
    // The store may end with process 0. So process 0 waits until all others know of the failure. The others wait only
    // until process 0 knows of it.
    for (int other = 0; other < (run_.rank() == 0 ? run_.size() : 1); ++other)
      while (other != run_.rank() && seconds_since(start) < times_.farewell && !is_silent(other)) {
        const auto status = run_.try_get(key_of(other), other);
        if (status && Json::parse(*status).value("failed", 0) != 0) break;
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
  } catch (const Error&) {
    // The store cannot be reached, so process 0 has probably ended.
  }
}

void Fate::end_job(int exit_code, const std::string& message) {
  // Process 0 already knows of the failure. The others read process 0's status every `beat` seconds, so they know of it
  // after this wait.
  std::this_thread::sleep_for(std::chrono::duration<double>(2 * times_.beat));
  run_.store().end_job(exit_code, message);
}

bool Fate::is_silent(int rank) {
  const std::lock_guard lock(mutex_);
  return seconds_since(seen_[static_cast<size_t>(rank)].changed) > times_.silence;
}

void Fate::leave() {
  {
    const std::lock_guard lock(mutex_);
    left_ = true;
  }
  publish();
  run_.barrier("end of the run", Rendezvous::Seconds(times_.hang));
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  changed_.notify_all();
  thread_.join();
  run_.leave();
}

void Fate::publish() {
  const std::lock_guard publishing(publishing_);
  Json status;
  {
    const std::lock_guard lock(mutex_);
    status = {{"nonce", run_.nonce(run_.rank())},
              {"beat", ++beat_},
              {"phase", phase_},
              {"step", step_},
              {"launched", launched_},
              {"progress", progress_count()}};
    if (const int signal = InterruptScope::signal(); signal != 0) status["signal"] = signal;
    if (run_.rank() == 0 && signal_ != 0) status["stop_signal"] = signal_;
    if (held_ >= 0) status["held"] = held_;
    if (stop_at_ >= 0) status["stop_at"] = stop_at_;
    if (left_) status["left"] = true;
    if (failed_ != 0) status["failed"] = failed_, status["failure"] = failure_;
  }
  run_.put(key_of(run_.rank()), status.dump(-1, ' ', false, Json::error_handler_t::replace));
}

// Reads a process's status and records when the status last changed. Ends this process when the other process has
// failed or died.
Json Fate::observe(int rank) {
  Seen& seen = seen_[static_cast<size_t>(rank)];
  const auto text = run_.try_get(key_of(rank), rank);
  const auto now = Clock::now();
  if (text && *text != seen.status) {
    seen.status = *text;
    const std::lock_guard lock(mutex_);
    seen.changed = now;
  }
  Json status = seen.status.empty() ? Json::object() : Json::parse(seen.status);
  if (status.value("nonce", run_.nonce(rank)) != run_.nonce(rank))
    end(kDeviceCode, fmt::format("{} has died, and another process was started in its place; start all processes "
                                 "together, with resume_from_checkpoint=true",
                                 run_.name_of(rank)));
  seen.left = status.value("left", false);
  const std::string progress = fmt::format("{} {} {}", status.value("phase", ""), status.value("launched", int64_t{0}),
                                           status.value("progress", int64_t{0}));
  if (progress != seen.progress) {
    seen.progress = progress;
    seen.progressed = now;
  }
  if (const int code = status.value("failed", 0); code != 0) end(code, status.value("failure", ""));
  if (seen.left) return status;
  if (is_silent(rank))
    end(kDeviceCode, fmt::format("{} gives no sign of life for {:.0f} s: it has died or its host cannot be reached",
                                 run_.name_of(rank), times_.silence));
  return status;
}

std::string Fate::table() const {
  std::string text = fmt::format("\n  {:<8} {:<24} {:<24} {:>8} {:>12}", "process", "host", "phase", "step", "for");
  for (int rank = 0; rank < run_.size(); ++rank) {
    const Seen& seen = seen_[static_cast<size_t>(rank)];
    const Json status = seen.status.empty() ? Json::object() : Json::parse(seen.status);
    text += fmt::format("\n  {:<8} {:<24} {:<24} {:>8} {:>10.0f} s", rank, run_.host(rank), status.value("phase", "?"),
                        status.value("step", int64_t{0}), seconds_since(seen.progressed));
  }
  return text;
}

void Fate::look_at_all() {
  int signal = 0;
  int64_t stop_at = 0;
  bool all_held = true;
  int hanging = -1;
  // In phases other than training, processes wait for each other: one of them may download or tokenise for all. So such
  // a phase hangs only if no process makes progress.
  const auto last = std::ranges::max_element(
      seen_, {}, [](const Seen& one) { return one.left ? Clock::time_point::min() : one.progressed; });
  const Clock::time_point latest = last->progressed;
  const auto last_rank = static_cast<int>(last - seen_.begin());  // the others probably wait for this one
  for (int rank = 0; rank < run_.size(); ++rank) {
    const Json status = observe(rank);
    const int given = status.value("signal", 0);
    if (signal == 0) signal = given;
    all_held = all_held && status.contains("held");
    stop_at = std::max(stop_at, status.value("held", int64_t{0}));
    const Seen& seen = seen_[static_cast<size_t>(rank)];
    const bool trains = status.value("phase", "") == kTraining;
    const bool hangs = trains ? seconds_since(seen.progressed) > times_.hang
                              : seconds_since(std::max(latest, seen.progressed)) > kOtherPhases * times_.hang;
    if (!seen.left && hangs && hanging < 0) hanging = trains ? rank : last_rank;
  }
  if (hanging >= 0)
    end(kDeviceCode,
        fmt::format("{} made no progress for {:.0f} s (FETTLE_HANG_SECONDS), so the run ends{}", run_.name_of(hanging),
                    seconds_since(seen_[static_cast<size_t>(hanging)].progressed), table()));
  const std::lock_guard lock(mutex_);
  if (signal != 0 && held_ < 0) {
    signal_ = signal;
    held_ = launched_;
  }
  // All processes have said how many steps and batches they have launched. The run stops after the largest of these
  // numbers: what one process has launched ends only if the other processes run it, too.
  if (all_held && stop_at_ < 0) {
    stop_at_ = stop_at;
    changed_.notify_all();
  }
}

void Fate::look_at_first() {
  const Json first = observe(0);
  const std::lock_guard lock(mutex_);
  if (first.contains("held") && held_ < 0) {
    signal_ = first.value("stop_signal", 0);
    held_ = launched_;
  }
  if (first.contains("stop_at") && stop_at_ < 0) {
    stop_at_ = first.value("stop_at", int64_t{0});
    changed_.notify_all();
  }
}

void Fate::watch() {
  try {
    watch_store();
  } catch (const Ended&) {
  }
}

// `gap` is the time in seconds since the last look at the others. If it is long, this process was stopped, perhaps
// together with the others. So a gap counts at most half of `silence`, and the others have the other half to show that
// they live. Part of it must count: a store with dead processes may be slow at every look.
void Fate::forgive(double gap) {
  const double excess = gap - times_.silence / 2;
  if (excess <= 0) return;
  const auto shift = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(excess));
  const std::lock_guard lock(mutex_);
  for (Seen& seen : seen_) seen.changed += shift, seen.progressed += shift;
}

void Fate::watch_store() {
  auto last = Clock::now();
  try {
    for (;;) {
      publish();
      forgive(seconds_since(last));
      last = Clock::now();
      run_.rank() == 0 ? look_at_all() : look_at_first();
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, std::chrono::duration<double>(times_.beat), [&] { return done_; });
      if (done_) return;
    }
  } catch (const Error& error) {
    {
      const std::lock_guard lock(mutex_);
      if (done_ || left_) return;
    }
    end(kDeviceCode, error.what());
  }
}

void Fate::record_end(const std::string& message) {
  const std::unique_lock lock(mutex_);
  if (!record_) return;
  std::packaged_task<void()> task([record = record_, message] { record(message); });
  const std::future<void> recorded = task.get_future();
  try {
    std::thread(std::move(task)).detach();  // the file server may be what hangs
    recorded.wait_for(std::chrono::duration<double>(times_.farewell));
  } catch (const std::system_error&) {  // no thread can start; the process still ends as agreed
  }
}

void Fate::end(int exit_code, const std::string& message) {
  bool own = false;
  {
    const std::lock_guard lock(mutex_);
    own = failed_ != 0;
    if (!own) failed_ = exit_code, failure_ = message;
  }
  if (own) throw Ended();  // the main thread prints the reason and ends this process
  log_line(LogLevel::kQuiet, fmt::format("error: the run ends: {}", message));
  fail(exit_code, message);
  record_end(message);
  std::this_thread::sleep_for(
      std::chrono::milliseconds(300));  // gives the failed process some time to print its message
  run_.store().end_job(exit_code, message);
  _exit(exit_code);
}

}  // namespace fettle
