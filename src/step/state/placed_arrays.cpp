#include "step/state/placed_arrays.h"

#include <fmt/format.h>

#include <map>

#include "step/state/batch_arrays.h"

namespace fettle {
namespace {

// Shortens "model.layers.{}.mlp.up_proj.weight" to "mlp.up_proj".
std::string short_name(const Run& run, const std::string& hf_name) {
  const std::string& prefix = run.model.family->layer_prefix;
  std::string name = hf_name.starts_with(prefix) ? hf_name.substr(prefix.size()) : hf_name;
  if (name.ends_with(".weight")) name.resize(name.size() - std::string(".weight").size());
  return name;
}

}  // namespace

std::vector<PlacedArray> placed_arrays(const Run& run, int64_t length) {
  std::vector<PlacedArray> out;
  auto add = [&](const std::string& kind, const std::string& name, const std::string& label, const Shape& shape,
                 const LogicalAxes& axes) {
    out.push_back({kind, name, label, shape, axes, run.sharding.partition(axes, shape.dims, name)});
    for (size_t d = 0; d < axes.size(); ++d)
      for (const std::string& axis : run.sharding.left_whole(axes[d], shape.dims[d]))
        out.back().note = fmt::format("size {0} ({1}) cannot be split over {2} ({3} devices), so {2} does not split it",
                                      shape.dims[d], axes[d], axis, run.sharding.mesh().size_of(axis));
  };
  auto add_params = [&](const std::string& kind, const std::vector<Param>& params, DType dtype) {
    for (const Param& param : params)
      add(kind, param.hf_name, short_name(run, param.hf_name), stacked_shape(param, run.dtype_of(param, dtype)),
          stacked_axes(param));
  };
  add_params("frozen weights", run.frozen, run.precision.frozen);
  add_params("reference weights", run.reference.params, run.reference_dtype());
  add_params(run.adapter.lora ? "adapters" : "weights", run.trained, run.precision.trained);
  std::map<std::string, std::vector<PlacedArray>> states;  // by kind
  for (const Param& param : run.trained)
    for (const StateArray& array : optimizer_state(run, param)) {
      if (array.on_disk) continue;
      const std::string kind = "optimizer state " + array.name.substr(0, array.name.find('/'));
      states[kind].push_back(
          {kind, array.name, short_name(run, param.hf_name), array.shape, array.axes, array.partition});
    }
  for (const auto& [kind, arrays] : states) out.insert(out.end(), arrays.begin(), arrays.end());

  const ModelConfig& c = run.model.config;
  const int64_t rows = run.batch.sequences;
  for (const BatchArray& array : batch_arrays(run, padded_shape(run.batch, length), BatchExtent::kStep))
    add("batch", array.name, array.name, array.shape, array.axes);
  const std::string kind = "activations of a layer and micro-batch";
  add(kind, "residual stream", "residual stream", {run.precision.compute, {rows, length, c.hidden_size}},
      {"batch", "length", "act_embed"});
  add(kind, "attention heads", "attention heads",
      {run.precision.compute, {rows, length, c.num_attention_heads, c.head_dim}}, {"batch", "length", "act_heads", ""});
  add(kind, "key heads", "key heads", {run.precision.compute, {rows, length, c.num_key_value_heads, c.head_dim}},
      {"batch", "length", "act_kv_heads", ""});
  add(kind, "mlp", "mlp", {run.precision.compute, {rows, length, c.intermediate_size}}, {"batch", "length", "act_mlp"});
  return out;
}

}  // namespace fettle
