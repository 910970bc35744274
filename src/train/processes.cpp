#include "train/processes.h"

#include <fstream>

#include "base/error.h"
#include "base/files/file_error.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/process_name.h"
#include "base/report_error.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// The time limit of agreements. No agreement takes this long: if a process dies or hangs, the run ends first (fate.h).
constexpr Rendezvous::Seconds kPatience{30 * 24 * 3600.0};

// Returns what a process contributes to an agreement: the value of its work, or its error.
Json outcome_of(const std::function<std::string()>& work) {
  auto failed = [](const Error& error) {
    return Json{{"code", static_cast<int>(error.code())}, {"error", error.what()}};
  };
  try {
    return {{"value", work()}};
  } catch (const UserError& error) {
    return failed(error);
  } catch (const DoesNotFit& error) {
    return failed(error);
  } catch (const fs::filesystem_error& error) {
    return failed(file_error(error));
  }
}

std::string shorten(const std::string& text) {
  constexpr size_t kMost = 300;
  return text.size() <= kMost ? text : text.substr(0, kMost) + "...";
}

// Returns the members of the object `one` that `other` lacks or has with another value. If `one` or `other` is not an
// object, returns `one`.
Json differing(const Json& one, const Json& other) {
  if (!one.is_object() || !other.is_object()) return one;
  Json out = Json::object();
  for (const auto& [key, value] : one.items())
    if (!other.contains(key) || other[key] != value) out[key] = value;
  return out;
}

}  // namespace

Processes Processes::join() {
  Processes out;
  out.run_ = join_run();
  if (out.run_ == nullptr) return out;
  out.fate_ = std::make_unique<Fate>(*out.run_);
  const ProcessPlace& place = out.run_->place();
  if (out.first())
    info("{} processes, started by {}; this is process 0 on {}", place.size, place.launcher, out.run_->host(0));
  else if (log_level() == LogLevel::kInfo)
    set_log_level(LogLevel::kQuiet);
  return out;
}

int Processes::end_together(const std::function<int()>& body) {
  if (!several()) return body();
  try {
    const int code = body();
    fate_->leave();
    return code;
  } catch (const std::exception&) {
    const Failure failure = current_failure();
    fate_->fail(static_cast<int>(failure.code), failure.text);
    if (first()) throw;
    throw Error(failure.code, fmt::format("{}: {}", run_->name_of(rank()), failure.text));
  }
}

void Processes::end_job(int exit_code, const std::string& message) {
  if (several()) fate_->end_job(exit_code, message);
}

void Processes::before_end(std::function<void(const std::string&)> record) const {
  if (several() && first()) fate_->before_end(std::move(record));
}

void Processes::enter(const std::string& phase) const {
  if (fate_ != nullptr) fate_->enter(phase);
}

int Processes::stop_before(int64_t step) const {
  return fate_ == nullptr ? InterruptScope::signal() : fate_->stop_before(step);
}

int Processes::stop_before_batch() const {
  return fate_ == nullptr ? InterruptScope::signal() : fate_->stop_before_batch();
}

std::vector<std::string> Processes::agree(const std::string& name, const std::function<std::string()>& work) const {
  if (!several()) return {work()};
  const std::vector<std::string> all = run_->exchange(name, outcome_of(work).dump(), kPatience);
  std::vector<std::string> values;
  for (size_t other = 0; other < all.size(); ++other) {
    const Json outcome = Json::parse(all[other]);
    if (!outcome.contains("error")) {
      values.push_back(outcome.at("value"));
      continue;
    }
    const std::string text = outcome.at("error");
    const std::string message =
        static_cast<int>(other) == rank() ? text : fmt::format("{}: {}", run_->name_of(static_cast<int>(other)), text);
    if (outcome.at("code") == static_cast<int>(ExitCode::kDoesNotFit)) throw DoesNotFit("{}", message);
    throw UserError("{}", message);
  }
  return values;
}

void Processes::require_same(const std::string& name, const Json& values) const {
  const std::vector<std::string> all =
      agree(name, [&] { return values.dump(-1, ' ', false, Json::error_handler_t::replace); });
  const Json wanted = Json::parse(all[0]);
  for (int other = 1; other < static_cast<int>(all.size()); ++other) {
    const Json found = Json::parse(all[static_cast<size_t>(other)]);
    for (const auto& [key, value] : wanted.items()) {
      const Json given = found.value(key, Json());
      if (given != value)
        throw UserError(
            "{} differs between {} and {}: {} and {}; every host must have the same program, recipe, model and data",
            key, run_->name_of(other), run_->name_of(0), shorten(differing(given, value).dump()),
            shorten(differing(value, given).dump()));
    }
  }
}

void Processes::require_shared(const fs::path& folder) const {
  if (!several()) return;
  const fs::path probe = agree("test of output_dir", [&]() -> std::string {
    if (!first()) return "";
    // The name marks the file as unfinished. So if this run is killed, the next run removes the file (atomic_folder.h).
    const fs::path file = fs::absolute(folder) / ("shared.tmp-" + process_name());
    if (!(std::ofstream(file) << "test")) throw UserError("{}: cannot write to it", folder.string());
    return file.string();
  })[0];
  try {
    agree("search in output_dir", [&] {
      if (!fs::exists(fs::absolute(folder) / probe.filename()))
        throw UserError(
            "output_dir: {} is not the folder that {} sees; name a folder on a file system that all hosts share, under "
            "the same path, because every host writes its part of a checkpoint",
            folder.string(), run_->name_of(0));
      return "";
    });
  } catch (...) {
    std::error_code ignored;
    if (first()) fs::remove(probe, ignored);
    throw;
  }
  std::error_code ignored;
  if (first()) fs::remove(probe, ignored);
}

}  // namespace fettle
