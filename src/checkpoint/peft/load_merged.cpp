#include "checkpoint/peft/load_merged.h"

#include <algorithm>
#include <cmath>
#include <mutex>

#include "base/error.h"
#include "checkpoint/convert.h"

namespace fettle {
namespace {

// The changes of each layer's tensor. They are computed when the first box of the layer is read and freed after the
// last box.
class LayerMerges {
 public:
  LayerMerges(const Param& param, const AdapterMerge& merge, const FindTensor& find)
      : param_(param), merge_(merge), find_(find), slots_(static_cast<size_t>(param.stored_count())) {}

  const TensorMerge& of(size_t layer) {
    std::call_once(slots_[layer].once, [&] {
      const std::string name = param_.stored_name(static_cast<int64_t>(layer));
      const StoredTensor stored = find_(name);
      slots_[layer].merge = merge_.merge_of(name, [&](const Box& box, float* out) {
        stored.file->read_slice(*stored.entry, box, DType::kF32, reinterpret_cast<std::byte*>(out));
      });
    });
    return slots_[layer].merge;
  }
  void release(size_t layer) { slots_[layer].merge = {}; }

 private:
  struct Slot {
    std::once_flag once;
    TensorMerge merge;
  };
  const Param& param_;
  const AdapterMerge& merge_;
  const FindTensor& find_;
  std::vector<Slot> slots_;
};

bool all_finite(const std::vector<float>& values, const std::byte* rounded, DType dtype) {
  constexpr float kAnyDtypeHolds = 65504;  // float16's largest value
  for (size_t i = 0; i < values.size(); ++i)
    if (!(std::abs(values[i]) <= kAnyDtypeHolds) && !std::isfinite(load_float(rounded, dtype, static_cast<int64_t>(i))))
      return false;
  return true;
}

}  // namespace

DeviceBuffer load_merged(const Client& client, const Param& param, DType dtype, const Layout& layout,
                         const AdapterMerge& merge, const FindTensor& find, const LoadProgress& progress,
                         const std::string& memory_kind) {
  bool changed = false;
  for (int64_t i = 0; i < param.stored_count() && !changed; ++i) changed = merge.adds_to(param.stored_name(i));
  if (!changed) return load_param(client, param, dtype, layout, find, progress, memory_kind);
  const std::vector<LayerTensor> layers = find_layers(param, find);
  LayerMerges merges(param, merge, find);
  auto read = [&](size_t layer, const Box& box, std::byte* out) {
    const auto& [file, entry] = layers[layer];
    thread_local std::vector<float> values;
    values.resize(static_cast<size_t>(box.elements()));
    file->read_slice(entry, box, DType::kF32, reinterpret_cast<std::byte*>(values.data()));
    merges.of(layer).apply(box, entry.shape.dims, values.data());
    convert_elements(reinterpret_cast<const std::byte*>(values.data()), DType::kF32, out, dtype, box.elements());
    if (!all_finite(values, out, dtype))
      throw UserError(
          "merging {} into {} gives values that are not finite in {}; {}", merge.names(), param.hf_name, hf_name(dtype),
          dtype == DType::kF16 ? "set bf16: true instead of fp16" : "train the adapter again or leave it out");
  };
  return load_layers(client, stacked_shape(param, dtype), layout, layers, progress, memory_kind,
                     {read, [&](size_t layer) { merges.release(layer); }});
}

}  // namespace fettle
