// Defines RunRecord: the log of a run so far. A checkpoint stores the record, and a resumed run continues it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>

#include "base/local_time.h"
#include "report/log_files.h"

namespace fettle {

// Sums over steps; the log shows their averages.
struct LogSums {
  double loss = 0;  // sum over `steps` steps since the last log record
  int64_t steps = 0;
  std::map<std::string, std::pair<double, int64_t>> metrics;  // sum and number of steps, since the last log record
  double total_loss = 0;                                      // sum over `total_steps` steps since the run's start
  int64_t total_steps = 0;
  int64_t overflows = 0;  // steps that ran again with a smaller loss scale, since the run's start

  bool operator==(const LogSums&) const = default;
};

struct RunRecord {
  TrainerState trainer;
  LogSums sums;
  LocalTime started = LocalTime::now();  // when the run first started; resumed runs keep it for dates in chat templates
  bool evaluation_due = false;           // a signal ended the evaluation after the last step
  // The checkpoints of evaluated steps, by step. A checkpoint does not store this list; find_best() finds it again.
  std::map<int64_t, std::string> checkpoints = {};
  std::string held_out = {};  // digest of the held-out rows; "": not known yet
  // Evaluations before this entry of log_history measured other held-out rows.
  size_t first_comparable = 0;

  // Returns the part of log_history whose evaluations can be compared with each other.
  std::span<const LogRecord> comparable_log() const {
    const std::span<const LogRecord> all = trainer.log_history;
    return all.subspan(std::min(first_comparable, all.size()));
  }
};

// Returns the sums as JSON. Floating-point numbers become hexadecimal text ("0x1.8p+1"), so that every bit is kept.
nlohmann::json to_json(const LogSums& sums);
// Reads the result of to_json(). Missing fields stay zero. Throws UserError for values of another type.
LogSums read_log_sums(const nlohmann::json& fields);

nlohmann::json to_json(const LocalTime& time);
// Throws UserError when a field is missing or of another type.
LocalTime read_local_time(const nlohmann::json& fields);

}  // namespace fettle
