#include "inspect/data_command.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "checkpoint/chat_files.h"
#include "inspect/data_report.h"
#include "inspect/example_text.h"
#include "models/config.h"
#include "run/batch_spec.h"
#include "sharding/rules.h"

namespace fettle {
namespace {

using nlohmann::ordered_json;

int64_t model_vocabulary(const Request& request) {
  if (const auto size = vocab_size_of(request.repository().config())) return *size;
  throw UserError("{}: vocab_size is missing; download the model's config.json again", request.config_file());
}

}  // namespace

int run_data(const Request& request, const DataOptions& options, std::ostream& out) {
  const AssumedDevices devices = request.assumed_devices();
  const MeshAxes mesh = request.mesh(devices.count);
  const DataSpec spec = request.data();
  const BatchSpec batches = request.batch(devices.count, BatchUse::kTraining);
  const BatchSpec eval_batches = request.batch(devices.count, BatchUse::kEvaluation);
  const BatchSpec eval_command = request.batch(devices.count, BatchUse::kEvaluation, Purpose::kEvaluation);
  const Tokenizer tokenizer = open_tokenizer(request.repository(), request.adapters(), spec);
  const int64_t vocabulary = model_vocabulary(request);
  const Datasets data = load_datasets(spec, tokenizer, vocabulary);
  const DataReading reading{
      request.stage(), spec, data, batches, eval_batches, eval_command, {devices, mesh, request.mesh_is_auto()}};

  const auto all = static_cast<int64_t>(data.train.size());
  const int64_t shown = std::clamp<int64_t>(options.rows * row_reader(spec.rows).examples_per_row, 0, all);
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
