#include "adapters/formats/nibbles.h"

#include "graph/ops.h"

namespace fettle {

Tensor both_codes(const Tensor& bytes_u8, FirstCode first) {
  Dims pairs = bytes_u8.dims();
  pairs.back() = 2;
  const Tensor high = broadcast_to(bytes_u8, pairs), low = shift_left(high, 4);
  const Tensor second =
      compare(iota({DType::kU8, pairs}, bytes_u8.rank() - 1), Direction::kEQ, constant(1, DType::kU8));
  return first == FirstCode::kLowBits ? select(second, high, low) : select(second, low, high);
}

Tensor value_of(const Tensor& nibble_u8, const std::vector<float>& values) {
  const Tensor half = constant(128, DType::kU8);
  std::vector<Tensor> choices;
  for (float value : values) choices.push_back(constant(value, DType::kF32));
  for (int64_t bit = 3; bit >= 0; --bit) {  // starts at the lowest of the four bits
    const Tensor set = compare(bit == 0 ? nibble_u8 : shift_left(nibble_u8, bit), Direction::kGE, half);
    std::vector<Tensor> next;
    for (size_t i = 0; i < choices.size(); i += 2) next.push_back(select(set, choices[i + 1], choices[i]));
    choices = std::move(next);
  }
  return choices[0];
}

}  // namespace fettle
