// Defines DeviceDims: the leading dims of arrays in the loop over blocks of tokens (moe.cpp).
#pragma once

#include <cstddef>
#include <cstdint>

#include "models/model.h"

namespace fettle {

// Numbers of leading device dims. kData: batch and sp; kOfExperts: also ep; kAll: also tp.
inline constexpr size_t kData = 2, kOfExperts = 3, kAll = 4;

// The device dims for x_BTD, and functions that add them in front of the dims of an array.
class DeviceDims {
 public:
  // Keeps a reference to f.sharding.
  DeviceDims(const Forward& f, const Tensor& x_BTD) : sharding_(f.sharding) {
    const MeshAxes& mesh = f.sharding.mesh();
    add("act_groups", mesh.size_of("dp") * mesh.size_of("fsdp"), x_BTD.dim(0));
    add("length", mesh.size_of("sp"), x_BTD.dim(1));
    add("act_experts", mesh.size_of("ep"), f.config.num_experts);
    add("act_mlp", mesh.size_of("tp"), f.config.expert_size);
    rows_ = x_BTD.dim(0) / sizes_[0], length_ = x_BTD.dim(1) / sizes_[1], width_ = x_BTD.dim(2);
  }

  int64_t size(size_t dim) const { return sizes_[dim]; }
  int64_t tokens() const { return rows_ * length_; }  // tokens of one device
  // Returns the first `count` device dims, followed by `dims`.
  Dims with(size_t count, const Dims& dims) const {
    Dims out(sizes_.begin(), sizes_.begin() + static_cast<std::ptrdiff_t>(count));
    out.insert(out.end(), dims.begin(), dims.end());
    return out;
  }
  // Constrains the sharding of x so that each of the first `count` dims is split over its devices.
  Tensor constrain(const Tensor& x, size_t count) const {
    LogicalAxes axes(axes_.begin(), axes_.begin() + static_cast<std::ptrdiff_t>(count));
    axes.resize(static_cast<size_t>(x.rank()));
    return sharding_.constrain(x, axes);
  }
  // Broadcasts x [first `have` device dims.., ...] to the first `count` device dims.
  Tensor broadcast_to_devices(const Tensor& x, size_t have, size_t count) const {
    Dims dims(x.dims().begin() + static_cast<std::ptrdiff_t>(have), x.dims().end()), from;
    for (int64_t d = 0; d < x.rank(); ++d) from.push_back(d < static_cast<int64_t>(have) ? d : d + (count - have));
    return constrain(broadcast_in_dim(x, with(count, dims), from), count);
  }

  // Splits the batch and the positions over the devices. Returns [kData device dims, tokens(), X].
  Tensor split(const Tensor& x_BTX) const {
    const Tensor apart = reshape(x_BTX, {sizes_[0], rows_, sizes_[1], length_, x_BTX.dim(2)});
    return constrain(reshape(transpose(apart, {0, 2, 1, 3, 4}), with(2, {tokens(), x_BTX.dim(2)})), 2);
  }
  // Undoes split() for an array with the width of x_BTD.
  Tensor join(const Tensor& x) const {
    const Tensor apart = transpose(reshape(x, {sizes_[0], sizes_[1], rows_, length_, width_}), {0, 2, 1, 3, 4});
    return reshape(apart, {sizes_[0] * rows_, sizes_[1] * length_, width_});
  }

 private:
  // Adds a device dim with the logical axis `axis`. `dim` is the size of the array dim to split. If `devices` divides
  // `dim`, the device dim has size `devices`. If not, the device dim has size 1, and nothing is split: for example,
  // generation has a batch of one row.
  void add(const char* axis, int64_t devices, int64_t dim) {
    const bool divides = dim % devices == 0;
    sizes_.push_back(divides ? devices : 1);
    axes_.push_back(divides ? axis : "");
  }

  const ShardingRules& sharding_;
  Dims sizes_;
  LogicalAxes axes_;
  int64_t rows_, length_, width_;
};

}  // namespace fettle
