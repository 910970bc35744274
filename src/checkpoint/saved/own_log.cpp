#include "checkpoint/saved/own_log.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files/json_file.h"

namespace fettle {

bool is_own_log(const std::filesystem::path& file) {
  try {
    const nlohmann::json log = read_json_file(file);
    const auto callbacks = log.find("stateful_callbacks");
    return callbacks != log.end() && *callbacks == nlohmann::json::object();
  } catch (const UserError&) {
    return false;
  }
}

}  // namespace fettle
