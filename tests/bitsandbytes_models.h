// Defines add_nf4(), which stores weights as bitsandbytes stores them in nf4 with double quantisation.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>

#include "adapters/block_codes.h"
#include "block_values.h"
#include "model_copies.h"

namespace fettle {

inline const nlohmann::json kNf4Config{{"quant_method", "bitsandbytes"},
                                       {"load_in_4bit", true},
                                       {"bnb_4bit_quant_type", "nf4"},
                                       {"bnb_4bit_use_double_quant", true}};

// Returns an array with these elements, in one dim.
template <typename T>
HostArray array_of(DType dtype, const std::vector<T>& values) {
  HostArray out(Shape{dtype, {static_cast<int64_t>(values.size())}});
  std::memcpy(out.data(), values.data(), values.size() * sizeof(T));
  return out;
}

// Adds the tensors of the weight `name`.
inline void add_nf4(NamedArrays& out, const std::string& name, const HostArray& weight) {
  const std::span<const float> values = weight.as<float>();
  const size_t blocks = (values.size() + 63) / 64;
  std::vector<std::byte> codes(blocks * 32);
  std::vector<float> absmax(blocks);
  quantise_blocks(Quantisation::Type::kNf4, values, codes.data(), absmax.data());
  codes.resize((values.size() + 1) / 2);
  const NestedAbsmax nested = quantise_absmax(absmax);
  const std::string state =
      nlohmann::json{{"quant_type", "nf4"},           {"blocksize", 64},         {"dtype", "float32"},
                     {"shape", weight.shape().dims},  {"nested_blocksize", 256}, {"nested_dtype", "float32"},
                     {"nested_offset", nested.offset}}
          .dump();
  HostArray stored(Shape{DType::kU8, {static_cast<int64_t>(codes.size()), 1}});
  std::memcpy(stored.data(), codes.data(), codes.size());
  out.emplace_back(name, std::move(stored));
  out.emplace_back(name + ".absmax", array_of(DType::kU8, nested.codes));
  out.emplace_back(name + ".quant_map", array_of(DType::kF32, values_of(Quantisation::Type::kNf4)));
  out.emplace_back(name + ".nested_absmax", array_of(DType::kF32, nested.absmax));
  out.emplace_back(name + ".nested_quant_map", array_of(DType::kF32, nested_values()));
  out.emplace_back(name + ".quant_state.bitsandbytes__nf4",
                   array_of(DType::kU8, std::vector<char>(state.begin(), state.end())));
}

// Writes `model` with its linear layers, experts and routers in nf4 to `codes`, those of the image encoder, too. Writes
// the same values in floats to `values`. Returns the number of matrices in nf4.
inline int write_in_nf4(const std::filesystem::path& model, const std::filesystem::path& codes,
                        const std::filesystem::path& values) {
  const ModelRepository repository = ModelRepository::open(model);
  NamedArrays stored, floats;
  int count = 0;
  for (const StoredTensor& tensor : repository.tensors()) {
    const std::string& name = tensor.entry->name;
    HostArray array = tensor.file->read(*tensor.entry).to(DType::kF32);
    const bool matrix = array.shape().rank() == 2 && name.ends_with(".weight") &&
                        std::ranges::any_of(std::array{"proj", "fc", "gate.weight", ".experts."},
                                            [&](const char* part) { return name.find(part) != std::string::npos; });
    if (matrix) {
      ++count;
      add_nf4(stored, name, array);
      through_codes({Quantisation::Type::kNf4, true}, array.as<float>(), array.shape().dims.back());
    }
    if (!matrix) stored.emplace_back(name, array.to(DType::kF32));
    floats.emplace_back(name, std::move(array));
  }
  nlohmann::json config = repository.config();
  write_model(values, config, floats);
  config["quantization_config"] = kNf4Config;
  write_model(codes, config, stored);
  return count;
}

}  // namespace fettle
