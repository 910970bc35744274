#include "step/offload.h"

#include "graph/ops.h"
#include "graph/scan.h"

namespace fettle {
namespace {

// Returns the partition of one layer's slice of a stacked parameter.
Partition of_layer(Partition partition) {
  if (!partition.dims.empty()) partition.dims.erase(partition.dims.begin());
  return partition;
}

// Reads and writes one layer of a stacked array as a slice [1, ...]. `index` is the layer's place in the stack.
class LayerSlice {
 public:
  LayerSlice(const Tensor& stack, const Partition& partition, Memory memory, const Tensor& index)
      : stack_(stack), partition_(partition), memory_(memory), sizes_(stack.dims()), at_(stack.rank()) {
    sizes_[0] = 1;
    at_[0] = index;
    for (size_t d = 1; d < at_.size(); ++d) at_[d] = constant(0, DType::kI32);
  }

  Tensor read() const {
    const Tensor slice = dynamic_slice(stack_, at_, sizes_);
    return memory_ == Memory::kHost ? place(slice, Memory::kDevice, partition_) : slice;
  }
  // Returns the whole stack with this layer's slice replaced.
  Tensor written(const Tensor& slice) const {
    return dynamic_update_slice(stack_, memory_ == Memory::kHost ? place(slice, Memory::kHost, partition_) : slice,
                                at_);
  }

 private:
  Tensor stack_;
  Partition partition_;
  Memory memory_;
  Dims sizes_;
  std::vector<Tensor> at_;
};

Tensor sum_of_squares(const Tensor& x) {
  Dims all;
  for (int64_t d = 0; d < x.rank(); ++d) all.push_back(d);
  return reduce_sum(x * x, all);
}

}  // namespace

std::function<Tensor(const Param&, const Tensor&)> fetch_layers(const Run& run, const Tensor& squares) {
  struct Stack {
    Partition partition;
    Tensor squares;
  };
  std::map<std::string, Stack> stacks;
  for (const auto* params : {&run.frozen, &run.trained, &run.reference.params})
    for (const Param& param : *params)
      if (param.memory == Memory::kHost && !run.has_master(param))
        stacks.insert({param.stack_name(), {of_layer(run.partition(param)), param.trained ? squares : Tensor{}}});
  if (stacks.empty()) return {};
  return [stacks](const Param& param, const Tensor& slice) {
    const auto found = stacks.find(param.stack_name());
    if (found == stacks.end()) return slice;
    return place(slice, Memory::kDevice, found->second.partition, found->second.squares);
  };
}

Tensor copy_of_master(const Tensor& master, const Partition& partition, DType dtype) {
  return scan(master.dim(0), {}, {master},
              [&](const Tensor&, const auto&, const std::vector<Tensor>& slices) -> ScanStep {
                return {{}, {convert(place(slices[0], Memory::kDevice, of_layer(partition)), dtype)}};
              })
      .ys[0];
}

bool gradient_on_host(const Run& run, const Param& param) {
  return param.memory == Memory::kHost && !run.has_master(param);
}

bool updated_by_layer(const Run& run, const Param& param) {
  return param.stacked() && (param.memory == Memory::kHost || run.state_memory() == Memory::kHost);
}

HostSum add_by_layer(const Tensor& sum, const Tensor& grad, const Partition& partition, const Tensor& first) {
  const ScanStep all = scan(sum.dim(0), {sum, constant(0, DType::kF32)}, {},
                            [&](const Tensor& index, const std::vector<Tensor>& carried, const auto&) -> ScanStep {
                              const LayerSlice old(carried[0], partition, Memory::kHost, index);
                              const Tensor added =
                                  convert(LayerSlice(grad, partition, Memory::kHost, index).read(), DType::kF32);
                              const Tensor next = select(first, added, old.read() + added);
                              return {{old.written(next), carried[1] + sum_of_squares(next)}, {}};
                            });
  return {all.carries[0], all.carries[1]};
}

Updated update_layer(const Run& run, const Param& param, const Tensor& index, const HeldParam& held,
                     const std::function<Tensor(const Tensor&)>& layer_grad,
                     const std::map<std::string, Tensor>& scalars, const Tensor& finite) {
  OptimWeight one = optim_weight(run, param);
  one.shape.dims[0] = 1;
  const Partition partition = run.partition(param);
  const Memory grad_memory = gradient_on_host(run, param) ? Memory::kHost : Memory::kDevice;
  const LayerSlice weight(held.weight, partition, param.memory, index);
  const bool on_disk = run.on_disk(param);
  const Tensor old = on_disk ? held.state.front() : weight.read();
  const std::vector<Tensor> state(held.state.begin() + (on_disk ? 1 : 0), held.state.end());
  const Tensor grad = LayerSlice(held.grad, partition, grad_memory, index).read();
  Updated next = run.optimizer.update(one, {convert(old, DType::kF32), layer_grad(grad), state, scalars});
  if (on_disk) next.state.insert(next.state.begin(), next.weight);
  const Tensor stored = convert(next.weight, held.weight.dtype());
  next.weight = weight.written(finite ? select(finite, stored, old) : stored);
  return next;
}

Updated update_by_layer(const Run& run, const Param& param, const HeldParam& held,
                        const std::function<Tensor(const Tensor&)>& layer_grad,
                        const std::map<std::string, Tensor>& scalars, const Tensor& finite) {
  const std::vector<StateArray> arrays = optimizer_state(run, param);
  std::vector<Tensor> carries{held.weight};
  carries.insert(carries.end(), held.state.begin(), held.state.end());
  const ScanStep all =
      scan(held.weight.dim(0), carries, {},
           [&](const Tensor& index, const std::vector<Tensor>& carried, const auto&) -> ScanStep {
             std::vector<LayerSlice> slices;
             HeldParam layer{carried[0], held.grad, {}};
             for (size_t s = 0; s < arrays.size(); ++s) {
               slices.emplace_back(carried[1 + s], arrays[s].partition, arrays[s].memory, index);
               layer.state.push_back(slices.back().read());
             }
             const Updated next = update_layer(run, param, index, layer, layer_grad, scalars, finite);
             ScanStep step{{next.weight}, {}};
             for (size_t s = 0; s < slices.size(); ++s)
               step.carries.push_back(slices[s].written(select(finite, next.state[s], layer.state[s])));
             return step;
           });
  return {all.carries[0], {all.carries.begin() + 1, all.carries.end()}};
}

}  // namespace fettle
