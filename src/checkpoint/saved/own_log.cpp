#include "checkpoint/saved/own_log.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/files/json_file.h"

namespace fettle {
namespace {

// Returns nullopt when the file is missing or damaged.
std::optional<bool> is_by_fettle(const std::filesystem::path& file) {
  try {
    const nlohmann::json log = read_json_file(file);
    const auto callbacks = log.find("stateful_callbacks");
    return callbacks != log.end() && *callbacks == nlohmann::json::object();
  } catch (const UserError&) {
    return std::nullopt;
  }
}

}  // namespace

bool is_own_log(const std::filesystem::path& file) {
  return is_by_fettle(file).value_or(false);
}

bool is_foreign_log(const std::filesystem::path& file) {
  return !is_by_fettle(file).value_or(true);
}

}  // namespace fettle
