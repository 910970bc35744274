#include "inspect/data_command.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "inspect/data_report.h"
#include "inspect/example_text.h"
#include "run/batch_spec.h"
#include "run/data_spec.h"
#include "run/labels.h"
#include "sharding/rules.h"

namespace fettle {
namespace {

using nlohmann::ordered_json;

nlohmann::json read_config(const std::filesystem::path& file) {
  std::ifstream in(file);
  if (!in) throw UserError("{}: cannot be read; model_name_or_path must be a Hugging Face model folder", file.string());
  auto config = nlohmann::json::parse(in, nullptr, false);
  if (!config.is_object()) throw UserError("{}: is not a JSON object", file.string());
  return config;
}

int64_t model_vocabulary(const nlohmann::json& config, const std::filesystem::path& file) {
  for (const nlohmann::json* level : {&config, config.contains("text_config") ? &config.at("text_config") : &config})
    if (level->is_object() && level->contains("vocab_size") && (*level)["vocab_size"].is_number_integer())
      return (*level)["vocab_size"].get<int64_t>();
  throw UserError("{}: vocab_size is missing", file.string());
}

}  // namespace

int run_data(const Recipe& asked, const DataOptions& options, std::ostream& out) {
  if (asked.model_name_or_path.empty()) throw UserError("model_name_or_path: is missing; its tokenizer is needed");
  const std::filesystem::path file = std::filesystem::path(asked.model_name_or_path) / "config.json";
  const nlohmann::json config = read_config(file);
  const std::optional<LabelSet> labels = settled_labels(asked, config, file.string());
  const Recipe recipe = settled_recipe(asked, labels, config);
  const AssumedDevices devices = assumed_devices(recipe);
  const MeshAxes mesh = make_mesh(recipe.mesh, devices.count);

  const DataSpec spec = data_spec(recipe, labels, recipe.cutoff_len);
  const BatchSpec batches = batch_spec(recipe, mesh, BatchUse::kTraining);
  const BatchSpec eval_batches = batch_spec(recipe, mesh, BatchUse::kEvaluation);
  const Tokenizer tokenizer = Tokenizer::open(recipe.model_name_or_path);
  const Datasets data = load_datasets(spec, tokenizer, model_vocabulary(config, file));
  const DataReading reading{spec, data, batches, eval_batches, {devices, mesh, recipe.mesh_is_auto()}};

  const auto all = static_cast<int64_t>(data.train.size());
  const int64_t shown = std::clamp<int64_t>(options.rows * examples_per_row(spec.rows), 0, all);
  if (options.json) {
    ordered_json report = data_report_json(reading);
    report["samples"] = samples_json(data.train, shown, spec.labels, tokenizer);
    out << report.dump(2, ' ', false, ordered_json::error_handler_t::replace) << "\n";
    return 0;
  }
  out << format_data_report(reading);
  for (int64_t i = 0; i < shown; ++i)
    out << "\n" << format_sample(data.train[i], spec.labels, tokenizer, options.colour);
  return 0;
}

}  // namespace fettle
