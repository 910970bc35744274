#include "runtime/compiled_program.h"

#include <utility>

#include "base/error.h"
#include "base/limits/host_memory.h"
#include "runtime/pjrt.h"
#include "runtime/vendors/plugin.h"
#include "runtime/vendors/vendor.h"

namespace fettle {

void require_memory_to_compile(const Plugin& plugin) {
  const int64_t wanted = plugin.vendor().compile_bytes, left = free_host_memory();
  if (left < wanted)
    throw DoesNotFit(
        "compiling with plugin {} takes up to {:.1f} GB of host memory, but only {:.2f} GB are free; end other "
        "programs, or plan on another machine",
        plugin.name(), static_cast<double>(wanted) / 1e9, static_cast<double>(left) / 1e9);
}

CompiledProgram::CompiledProgram(std::shared_ptr<const Plugin> plugin, PJRT_Executable* executable)
    : plugin_(std::move(plugin)), executable_(executable) {}

CompiledProgram::~CompiledProgram() {
  if (executable_ == nullptr) return;
  PJRT_ARGS(PJRT_Executable_Destroy_Args, args);
  args.executable = executable_;
  pjrt::take(plugin_->api(), plugin_->api().PJRT_Executable_Destroy(&args));
}

CompiledProgram::CompiledProgram(CompiledProgram&& other) noexcept
    : plugin_(std::move(other.plugin_)), executable_(std::exchange(other.executable_, nullptr)) {}

CompiledProgram& CompiledProgram::operator=(CompiledProgram&& other) noexcept {
  std::swap(plugin_, other.plugin_);
  std::swap(executable_, other.executable_);
  return *this;
}

MemoryStats CompiledProgram::memory_stats() const {
  PJRT_ARGS(PJRT_Executable_GetCompiledMemoryStats_Args, args);
  args.executable = executable_;
  PJRT_CALL(plugin_->api(), PJRT_Executable_GetCompiledMemoryStats, args);
  MemoryStats stats = {.argument = args.argument_size_in_bytes,
                       .output = args.output_size_in_bytes,
                       .alias = args.alias_size_in_bytes,
                       .temp = args.temp_size_in_bytes,
                       .code = args.generated_code_size_in_bytes,
                       .host_argument = args.host_argument_size_in_bytes,
                       .host_output = args.host_output_size_in_bytes,
                       .host_alias = args.host_alias_size_in_bytes,
                       .host_temp = args.host_temp_size_in_bytes,
                       .reported_peak = args.peak_memory_in_bytes};
  stats.peak = plugin_->vendor().peak_bytes(stats);
  return stats;
}

std::string CompiledProgram::optimized_program() const {
  PJRT_ARGS(PJRT_Program, program);
  PJRT_ARGS(PJRT_Executable_OptimizedProgram_Args, args);
  args.executable = executable_;
  args.program = &program;
  PJRT_CALL(plugin_->api(), PJRT_Executable_OptimizedProgram, args);  // asks for the program's size
  std::string code(program.code_size, '\0');
  program.code = code.data();
  PJRT_CALL(plugin_->api(), PJRT_Executable_OptimizedProgram, args);  // fetches the program's bytes
  return code;
}

std::string CompiledProgram::serialize() const {
  PJRT_ARGS(PJRT_Executable_Serialize_Args, args);
  args.executable = executable_;
  PJRT_CALL(plugin_->api(), PJRT_Executable_Serialize, args);
  std::string bytes(args.serialized_bytes, args.serialized_bytes_size);
  if (args.serialized_executable_deleter != nullptr) args.serialized_executable_deleter(args.serialized_executable);
  return bytes;
}

std::vector<Shape> CompiledProgram::output_shapes() const {
  const PJRT_Api& api = plugin_->api();
  PJRT_ARGS(PJRT_Executable_OutputElementTypes_Args, types);
  types.executable = executable_;
  PJRT_CALL(api, PJRT_Executable_OutputElementTypes, types);
  PJRT_ARGS(PJRT_Executable_OutputDimensions_Args, dims);
  dims.executable = executable_;
  PJRT_CALL(api, PJRT_Executable_OutputDimensions, dims);
  internal_check(types.num_output_types == dims.num_outputs,
                 "runtime: the plugin reports {} output types, but {} output shapes", types.num_output_types,
                 dims.num_outputs);
  std::vector<Shape> shapes;
  const int64_t* next = dims.dims;
  for (size_t i = 0; i < dims.num_outputs; ++i) {
    shapes.push_back({pjrt::dtype_of(types.output_types[i]), Dims(next, next + dims.dim_sizes[i])});
    next += dims.dim_sizes[i];
  }
  return shapes;
}

}  // namespace fettle
