// Defines for_modules, which reads a box of all experts' weights when each expert has tensors of its own.
#pragma once

#include "base/arrays/box.h"
#include "base/error.h"
#include "checkpoint/tensor_file.h"

namespace fettle {

// Divides a box of the array [E, (each,) out.., columns] among the tensors that `entry` is joined from. Calls
// read(module, box, dims, out) for each tensor, with the tensor's part of the box. `bytes` is the size of an element of
// the array. If `entry` is not joined from the tensors of experts, calls `read` once, for `entry` itself.
template <typename Read>
void for_modules(const TensorEntry& entry, const Box& box, const Dims& dims, int64_t bytes, std::byte* out,
                 const Read& read) {
  if (!entry.joined_experts) return read(entry, box, dims, out);
  const JoinedExperts& experts = *entry.joined_experts;
  const size_t lead = experts.each == 1 ? 1 : 2;  // the first `lead` dims are the index of a module
  auto rest = [&](const Dims& all) { return Dims(all.begin() + static_cast<std::ptrdiff_t>(lead), all.end()); };
  const Box part{rest(box.start), rest(box.size)};
  const Dims of_module = rest(dims);
  internal_check(lead == 1 || dims[1] == experts.each, "{} parts, wanted {}", dims[1], experts.each);
  const int64_t parts = lead == 1 ? 1 : box.size[1], first = lead == 1 ? 0 : box.start[1];
  for (int64_t expert = 0; expert < box.size[0]; ++expert)
    for (int64_t i = 0; i < parts; ++i) {
      const auto module = static_cast<size_t>((box.start[0] + expert) * experts.each + first + i);
      read(experts.entries[module], part, of_module, out + (expert * parts + i) * part.elements() * bytes);
    }
}

}  // namespace fettle
