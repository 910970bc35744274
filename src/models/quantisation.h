// Defines Quantisation: the few bits in which frozen linear layers are held, after bitsandbytes.
//
// nf4, fp4 (Dettmers et al. 2023): a weight's elements in row-major order, 64 a block; a block's largest magnitude
// (absmax) and 4 bits an element, which number 16 values in [-1, 1]. Nested ("double quantisation"): the absmax less
// their mean, 256 a block, are held in 8 bits of a dynamic map. int8 (LLM.int8's weights): an absmax for each output
// and 8 bits an element, in steps of absmax / 127.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace fettle {

struct Quantisation {
  enum class Type { kNf4, kFp4, kInt8 };
  Type type = Type::kNf4;
  bool nested = true;  // not of int8

  static constexpr int kBlock = 64, kNestedBlock = 256;
  bool four_bits() const { return type != Type::kInt8; }
  double bits() const;       // of an element, with its share of the absmax
  std::string name() const;  // "nf4 with double quantization"
  bool operator==(const Quantisation&) const = default;
};

// What 'quantization_config' of a config.json says the checkpoint is held in; nothing when there is none. Throws
// UserError on a method or a storage that is not bitsandbytes' of above.
std::optional<Quantisation> stored_quantisation(const nlohmann::json& config, const std::string& file);

}  // namespace fettle
