#include "triton/on_cpu.h"

#include <map>

#include "kernels/gpu/attention_kernel.h"
#include "kernels/gpu/cudnn_attention.h"
#include "runtime/ffi.h"
#include "triton/interpreter.h"
#include "xla/ffi/api/ffi.h"

namespace fettle {
namespace {

namespace ffi = xla::ffi;

std::function<std::string(const std::string&)> change_text;  // null: nothing is changed

ffi::Error interpret(ffi::RemainingArgs operands, ffi::RemainingRets results, ffi::Dictionary attributes) {
  try {
    std::vector<TritonMemory> memory;
    for (size_t i = 0; i < operands.size(); ++i) {
      const ffi::AnyBuffer buffer = operands.get<ffi::AnyBuffer>(i).value();
      memory.push_back(
          {static_cast<std::byte*>(buffer.untyped_data()), static_cast<int64_t>(buffer.size_bytes()), false});
    }
    for (size_t i = 0; i < results.size(); ++i) {
      const ffi::AnyBuffer buffer = *results.get<ffi::AnyBuffer>(i).value();
      memory.push_back(
          {static_cast<std::byte*>(buffer.untyped_data()), static_cast<int64_t>(buffer.size_bytes()), true});
    }
    auto text = [&](const char* name) { return std::string(attributes.get<std::string_view>(name).value()); };
    auto number = [&](const char* name) { return static_cast<int64_t>(attributes.get<int32_t>(name).value()); };
    const std::string ir = text("ir");
    run_triton(change_text ? change_text(ir) : ir, text("name"), {number("grid_x"), number("grid_y"), number("grid_z")},
               memory);
  } catch (const std::exception& error) {
    return ffi::Error(ffi::ErrorCode::kInternal, error.what());
  }
  return ffi::Error::Success();
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(interpreter, interpret, ffi::Ffi::Bind().RemainingArgs().RemainingRets().Attrs());

}  // namespace

ChangedTriton::ChangedTriton(std::function<std::string(const std::string& text)> change) {
  change_text = std::move(change);
}
ChangedTriton::~ChangedTriton() {
  change_text = nullptr;
}

KernelSet triton_kernels_on_cpu(const Plugin& plugin, const std::string& platform) {
  static std::map<std::string, std::vector<KernelRow>> anywhere;
  std::vector<KernelRow>& rows = anywhere[platform];
  if (rows.empty())
    for (const KernelRow& row : kernel_rows())
      if (row.platform == platform && row.id != gpu::kCudnnAttention) {
        rows.push_back(row);
        rows.back().pays = nullptr;
      }
  register_ffi_handler<interpreter>(plugin, gpu::kTritonTarget);
  KernelSet out;
  for (const KernelRow& row : rows) out.push_back(&row);
  return out;
}

}  // namespace fettle
