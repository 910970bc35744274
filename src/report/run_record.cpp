#include "report/run_record.h"

#include <cstdlib>

#include "base/error.h"

namespace fettle {
namespace {

using Json = nlohmann::json;

std::string exact_text(double value) {
  return fmt::format("{:a}", value);
}

double read_exact(const Json& text) {
  const auto& digits = text.get_ref<const std::string&>();
  char* end = nullptr;
  const double value = std::strtod(digits.c_str(), &end);
  if (digits.empty() || *end != '\0')
    throw UserError("the field 'running_sums' of the checkpoint's manifest: '{}' is not a number", digits);
  return value;
}

}  // namespace

Json to_json(const LogSums& sums) {
  Json metrics = Json::object();
  for (const auto& [name, sum] : sums.metrics) metrics[name] = {{"sum", exact_text(sum.first)}, {"steps", sum.second}};
  return {{"loss", exact_text(sums.loss)},   {"steps", sums.steps},
          {"metrics", std::move(metrics)},   {"total_loss", exact_text(sums.total_loss)},
          {"total_steps", sums.total_steps}, {"overflows", sums.overflows}};
}

LogSums read_log_sums(const Json& fields) {
  LogSums sums;
  try {
    if (fields.contains("loss")) sums.loss = read_exact(fields["loss"]);
    if (fields.contains("total_loss")) sums.total_loss = read_exact(fields["total_loss"]);
    sums.steps = fields.value("steps", int64_t{0});
    sums.total_steps = fields.value("total_steps", int64_t{0});
    sums.overflows = fields.value("overflows", int64_t{0});
    const Json metrics = fields.value("metrics", Json::object());
    for (const auto& [name, sum] : metrics.items())
      sums.metrics[name] = {read_exact(sum.at("sum")), sum.at("steps").get<int64_t>()};
  } catch (const Json::exception& error) {
    throw UserError("the field 'running_sums' of the checkpoint's manifest: {}", error.what());
  }
  return sums;
}

Json to_json(const LocalTime& time) {
  return {{"seconds", time.seconds}, {"offset", time.offset}, {"zone", time.zone}};
}

LocalTime read_local_time(const Json& fields) {
  try {
    return {fields.at("seconds").get<int64_t>(), fields.at("offset").get<int64_t>(),
            fields.at("zone").get<std::string>()};
  } catch (const Json::exception& error) {
    throw UserError("the field 'started' of the checkpoint's manifest: {}", error.what());
  }
}

}  // namespace fettle
