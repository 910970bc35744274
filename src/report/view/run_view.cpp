#include "report/view/run_view.h"

#include <algorithm>
#include <cmath>

#include "base/files/run_files.h"
#include "base/json_text.h"
#include "report/view/run_file.h"

namespace fettle {
namespace {

using nlohmann::ordered_json;

ordered_json or_null(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? ordered_json(*value) : ordered_json(nullptr);
}

ordered_json read_object(const FolderFiles& files, const std::string& path) {
  const std::optional<std::string> text = files.read(path);
  if (!text) return nullptr;
  ordered_json value = parse_json_or_discard<ordered_json>(*text);
  return value.is_object() ? value : ordered_json(nullptr);
}

// Returns the field if it has the type of `otherwise`; else returns `otherwise`, because the file may be broken.
template <typename T>
T field(const ordered_json& object, const char* name, T otherwise) {
  if (!object.is_object()) return otherwise;
  const auto found = object.find(name);
  if (found == object.end()) return otherwise;
  if constexpr (std::is_same_v<T, std::string>)
    return found->is_string() ? found->get<std::string>() : otherwise;
  else
    return found->is_number() ? found->get<T>() : otherwise;
}

ordered_json brief_recipe(const ordered_json& run) {
  ordered_json out = ordered_json::object();
  const auto recipe = run.is_object() ? run.find("recipe") : run.end();
  if (!run.is_object() || recipe == run.end() || !recipe->is_object()) return out;
  for (const char* key : {"learning_rate", "finetuning_type", "lora_rank", "per_device_train_batch_size", "dataset"})
    if (const auto value = recipe->find(key); value != recipe->end()) out[key] = *value;
  return out;
}

}  // namespace

std::string run_path(const std::string& name, std::string_view file) {
  return name.empty() ? std::string(file) : name + "/" + std::string(file);
}

ordered_json run_summary(const FolderFiles& files, const std::string& name, const RunLog& log, bool alive) {
  const ordered_json run = read_object(files, run_path(name, kRunFile));
  std::string state = field<std::string>(run, "state", "");
  // The file of a killed process still says "running". Runs of other tools have a log, but no such file.
  if (alive) state = "running";
  if (!alive && state == "running") state = "killed";
  if (state.empty()) state = log.rows().empty() ? "failed" : log.is_complete() ? "ended" : "stopped";
  const LogRow last = log.rows().empty() ? LogRow{} : log.rows().back();
  return {{"name", name},
          {"title", field<std::string>(run, "name", "")},
          {"state", state},
          {"message", field<std::string>(run, "message", "")},
          {"model", field<std::string>(run, "model", "")},
          {"stage", field<std::string>(run, "stage", "")},
          {"started", field<double>(run, "started", 0)},
          {"ended", field<double>(run, "ended", 0)},
          {"step", last.step},
          {"total_steps", std::max(log.total_steps(), field<int64_t>(run, "total_steps", 0))},
          {"seconds", last.seconds},
          {"seconds_left", state == "running" ? log.seconds_left() : 0},
          {"loss", or_null(log.last("loss"))},
          {"eval_loss", or_null(log.last("eval_loss"))},
          {"lr", or_null(log.last("lr"))},
          {"throughput", or_null(log.last("throughput"))},
          {"recipe", brief_recipe(run)}};
}

ordered_json run_details(const FolderFiles& files, const std::string& name) {
  ordered_json answers = ordered_json::array(), checkpoints = ordered_json::array();
  const std::optional<std::vector<FolderEntry>> entries = files.list(name, 5000);
  for (const FolderEntry& entry : entries.value_or(std::vector<FolderEntry>())) {
    if (!entry.folder && (entry.name.ends_with("predictions.jsonl"))) answers.push_back(entry.name);
    if (entry.folder && entry.name.starts_with("checkpoint-")) checkpoints.push_back(entry.name);
  }
  return {{"name", name},
          {"run", read_object(files, run_path(name, kRunFile))},
          {"results", read_object(files, run_path(name, "all_results.json"))},
          {"answers", std::move(answers)},
          {"checkpoints", std::move(checkpoints)}};
}

ordered_json curve_names(const RunLog& log) {
  ordered_json names = ordered_json::array();
  for (const auto& [name, unused] : log.series()) names.push_back(name);
  return names;
}

ordered_json curves_json(const RunLog& log, const std::vector<std::string>& keys, LogAxis axis, int64_t points,
                         CurveRange range) {
  ordered_json out = ordered_json::object();
  for (const auto& [name, series] : log.series()) {
    if (!keys.empty() && std::ranges::find(keys, name) == keys.end()) continue;
    const Curve curve = decimate(log.rows(), series, axis, points, range);
    ordered_json one{{"x", curve.x}, {"steps", curve.steps}, {"mean", curve.mean}, {"values", curve.values}};
    if (!curve.low.empty()) {
      one["low"] = curve.low;
      one["high"] = curve.high;
      one["counts"] = curve.counts;
    }
    out[name] = std::move(one);
  }
  return out;
}

std::string page_json(const ordered_json& value) {
  const std::string text = value.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    if (c == '<')  // JSON has this character only inside strings
      out += "\\u003c";
    else
      out += c;
  }
  return out;
}

}  // namespace fettle
