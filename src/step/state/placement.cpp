#include "step/state/placement.h"

#include "base/error.h"

namespace fettle {

Layout layout_of(const Partition& partition, const Dims& dims, const MeshAxes& mesh) {
  if (mesh.size() == 1) return Layout::replicated(dims, 1);
  Dims sizes;
  for (const auto& [name, size] : mesh.axes) sizes.push_back(size);
  std::vector<std::vector<int>> axes_of_dim(dims.size());
  for (size_t d = 0; d < partition.dims.size(); ++d)
    for (const std::string& axis : partition.dims[d])
      for (size_t a = 0; a < mesh.axes.size(); ++a)
        if (mesh.axes[a].first == axis) axes_of_dim[d].push_back(static_cast<int>(a));
  return Layout::sharded(dims, sizes, axes_of_dim);
}

Signature signature_of(const Program& program) {
  Signature out;
  for (const ProgramInput& input : program.inputs())
    out.inputs.push_back({.name = input.name,
                          .shape = input.shape,
                          .layout = layout_of(input.partition, input.shape.dims, program.mesh()),
                          .donated = input.donated_to >= 0,
                          .memory_kind = memory_kind(input.memory)});
  for (const ProgramOutput& output : program.outputs())
    out.outputs.push_back({.name = output.name,
                           .shape = output.shape,
                           .layout = layout_of(output.partition, output.shape.dims, program.mesh()),
                           .memory_kind = memory_kind(output.memory)});
  return out;
}

std::vector<BatchArray> batch_arrays(const Job& job, const Dims& rows, int64_t length) {
  const Recipe& recipe = job.recipe;
  Dims tokens = rows, classes = rows;
  tokens.push_back(length);
  LogicalAxes row_axes(rows.size(), "");
  row_axes.back() = "batch";
  LogicalAxes token_axes = row_axes, class_axes = row_axes;
  token_axes.push_back("length");
  class_axes.push_back("");
  std::vector<BatchArray> out;
  auto of_tokens = [&](const char* name, HostArray Batch::*from) {
    out.push_back({name, {DType::kI32, tokens}, token_axes, from});
  };
  of_tokens("tokens", &Batch::tokens);
  if (!job.model.classifies()) of_tokens("targets", &Batch::targets);
  of_tokens("positions", &Batch::positions);
  of_tokens("segments", &Batch::segments);
  if (recipe.stage == "cls") {
    of_tokens("token_types", &Batch::token_types);
    const bool single = recipe.problem_type == "single_label_classification";
    classes.push_back(single ? 1 : job.model.config.num_labels);
    out.push_back({"classes", {DType::kF32, classes}, class_axes, &Batch::classes});
  }
  if (recipe.stage == "kto") out.push_back({"preferences", {DType::kI32, rows}, row_axes, &Batch::preferences});
  return out;
}

}  // namespace fettle
