#include "report/log_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files/file_error.h"
#include "base/files/json_file.h"
#include "base/files/mapped_file.h"
#include "base/files/output_file.h"

namespace fettle {
namespace fs = std::filesystem;
namespace {

using Json = nlohmann::json;

template <typename T>
void read_field(const fs::path& file, const Json& object, const std::string& name, T& into) {
  const auto found = object.find(name);
  if (found == object.end() || found->is_null()) return;
  try {
    into = found->get<T>();
  } catch (const Json::exception&) {
    throw UserError("{}: '{}' is {}, wanted a {}; delete the file to begin a new log", file.string(), name,
                    found->dump(), std::is_same_v<T, std::string> ? "string" : "number");
  }
}

LogRecord read_record(const fs::path& file, const Json& row) {
  if (!row.is_object())
    throw UserError("{}: an entry of log_history is not an object; delete the file to begin a new log", file.string());
  LogRecord record;
  read_field(file, row, "step", record.step);
  read_field(file, row, "epoch", record.epoch);
  for (const auto& [name, value] : row.items())
    if (name != "step" && name != "epoch" && value.is_number()) record.values[name] = value.get<double>();
  return record;
}

Json optional_json(const auto& value) {
  return value ? Json(*value) : Json(nullptr);
}

// Leaves out values that are not finite, because standard JSON cannot express them. (Python's json writes NaN and
// Infinity.)
Json to_json_row(const LogRecord& record) {
  Json row{{"step", record.step}, {"epoch", record.epoch}};
  for (const auto& [name, value] : record.values)
    if (std::isfinite(value)) row[name] = value;
  return row;
}

}  // namespace

bool LogRecord::is_evaluation() const {
  return std::ranges::any_of(values, [](const auto& value) { return value.first.starts_with("eval_"); });
}

std::string to_json(const TrainerState& state) {
  Json history = Json::array();
  for (const LogRecord& record : state.log_history) history.push_back(to_json_row(record));
  const Json fields{{"best_global_step", optional_json(state.best_global_step)},
                    {"best_metric", optional_json(state.best_metric)},
                    {"best_model_checkpoint",
                     state.best_model_checkpoint.empty() ? Json(nullptr) : Json(state.best_model_checkpoint)},
                    {"epoch", state.epoch},
                    {"eval_steps", state.eval_steps},
                    {"global_step", state.global_step},
                    {"is_hyper_param_search", false},
                    {"is_local_process_zero", true},
                    {"is_world_process_zero", true},
                    {"log_history", std::move(history)},
                    {"logging_steps", state.logging_steps},
                    {"max_steps", state.max_steps},
                    {"num_input_tokens_seen", state.num_input_tokens_seen},
                    {"num_train_epochs", state.num_train_epochs},
                    {"save_steps", state.save_steps},
                    {"stateful_callbacks", Json::object()},
                    {"total_flos", state.total_flos},
                    {"train_batch_size", state.train_batch_size},
                    {"trial_name", nullptr},
                    {"trial_params", nullptr}};
  return fields.dump(2, ' ', true, Json::error_handler_t::replace) + "\n";
}

TrainerState read_trainer_state(const fs::path& file) {
  const Json fields = read_json_file(file);
  if (!fields.is_object())
    throw UserError("{}: contains a JSON {}, wanted an object", file.string(), fields.type_name());
  TrainerState state;
  read_field(file, fields, "global_step", state.global_step);
  read_field(file, fields, "max_steps", state.max_steps);
  read_field(file, fields, "epoch", state.epoch);
  read_field(file, fields, "num_train_epochs", state.num_train_epochs);
  read_field(file, fields, "logging_steps", state.logging_steps);
  read_field(file, fields, "eval_steps", state.eval_steps);
  read_field(file, fields, "save_steps", state.save_steps);
  read_field(file, fields, "train_batch_size", state.train_batch_size);
  read_field(file, fields, "num_input_tokens_seen", state.num_input_tokens_seen);
  read_field(file, fields, "total_flos", state.total_flos);
  read_field(file, fields, "best_model_checkpoint", state.best_model_checkpoint);
  if (fields.contains("best_metric") && fields["best_metric"].is_number()) state.best_metric = fields["best_metric"];
  if (fields.contains("best_global_step") && fields["best_global_step"].is_number_integer())
    state.best_global_step = fields["best_global_step"].get<int64_t>();
  if (const auto history = fields.find("log_history"); history != fields.end() && history->is_array())
    for (const Json& row : *history) state.log_history.push_back(read_record(file, row));
  return state;
}

void write_trainer_state(const fs::path& file, const TrainerState& state) {
  write_file(file, to_json(state));
}

std::string format_duration(double seconds) {
  const int64_t all = std::max<int64_t>(0, static_cast<int64_t>(seconds));
  const int64_t days = all / 86400;
  const std::string clock = fmt::format("{}:{:02}:{:02}", all % 86400 / 3600, all % 3600 / 60, all % 60);
  return days == 0 ? clock : fmt::format("{} day{}, {}", days, days == 1 ? "" : "s", clock);
}

std::string to_json_line(const ProgressRecord& record) {
  nlohmann::ordered_json line;
  const auto round2 = [](double value) { return std::round(value * 100) / 100; };
  const auto add = [&](const char* name, const std::optional<double>& value) {
    if (value && std::isfinite(*value)) line[name] = *value;
  };
  line["current_steps"] = record.current_steps;
  line["total_steps"] = record.total_steps;
  add("loss", record.loss);
  add("eval_loss", record.eval_loss);
  add("lr", record.lr);
  add("epoch", record.epoch);
  line["percentage"] =
      record.total_steps == 0
          ? 100.0
          : round2(static_cast<double>(record.current_steps) / static_cast<double>(record.total_steps) * 100);
  line["elapsed_time"] = format_duration(record.elapsed_seconds);
  line["remaining_time"] = format_duration(record.remaining_seconds);
  if (record.throughput) add("throughput", round2(*record.throughput));
  if (record.total_tokens) line["total_tokens"] = *record.total_tokens;
  if (record.resumed_step) line["resumed_step"] = *record.resumed_step;
  for (const auto& [name, value] : record.figures) add(name.c_str(), value);
  return line.dump();
}

void append_progress(const fs::path& file, const std::vector<ProgressRecord>& records) {
  std::string lines;
  for (const ProgressRecord& record : records) lines += to_json_line(record) + "\n";
  const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd < 0) throw_file_error("write", file, errno);
  const off_t end = lseek(fd, 0, SEEK_END);
  const ssize_t written = ::write(fd, lines.data(), lines.size());
  const bool part = written >= 0 && written != static_cast<ssize_t>(lines.size());
  int error_number = written < 0 ? errno : part ? ENOSPC : 0;
  if (part && ftruncate(fd, end) != 0) error_number = errno;
  if (::close(fd) != 0 && error_number == 0) error_number = errno;  // network file systems report a full disk at close
  if (error_number != 0) throw_file_error("write", file, error_number);
}

void cut_progress_after(const fs::path& file, int64_t step) {
  if (!fs::exists(file)) return;
  const std::string text = read_file(file);
  std::string kept;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    const Json row = Json::parse(line, nullptr, false);
    const bool sound = row.is_object() && row.contains("current_steps") && row["current_steps"].is_number_integer();
    if (sound && row["current_steps"].get<int64_t>() <= step) kept += line + "\n";
  }
  if (kept != text) write_file(file, kept);
}

void write_results(const fs::path& folder, const std::string& split, const std::map<std::string, double>& metrics) {
  Json fields = Json::object(), all = Json::object();
  for (const auto& [name, value] : metrics)
    if (std::isfinite(value)) fields[name] = value;
  const fs::path all_file = folder / "all_results.json";
  if (fs::exists(all_file)) all = read_json_file(all_file);
  if (!all.is_object()) all = Json::object();
  all.update(fields);
  write_json_file(folder / (split + "_results.json"), fields, 4);
  write_json_file(all_file, all, 4);
}

}  // namespace fettle
