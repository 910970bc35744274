#include "programs/layouts.h"

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

}  // namespace fettle
