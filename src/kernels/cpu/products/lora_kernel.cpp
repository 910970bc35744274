#include "kernels/cpu/products/lora_kernel.h"

#include <tuple>

#include "graph/op_table.h"
#include "graph/ops.h"
#include "kernels/cpu/products/lora_product.h"
#include "kernels/cpu/split_rows.h"

namespace fettle::cpu {
namespace {

using Tensors = std::vector<Tensor>;

// The data that the calls for one composite share.
struct LoraSite {
  Shape x, weight, a, b, y;  // global shapes; weight, a and b with the dtypes that the calls read
  Partition rows;            // how x is split
  MeshAxes mesh;
  LoraProblem shard;  // sizes on one device; pointers are not set

  NamedAttributes attributes() const {
    return {{"rows", shard.rows},
            {"in", shard.in},
            {"out", shard.out},
            {"rank", shard.rank},
            {"transposed", shard.transposed},
            {"scale", shard.scale}};
  }
  Shape low() const { return {x.dtype, {x.dims[0], x.dims[1], shard.rank}}; }
  Partition rows_of_result() const {
    Partition out = rows;
    out.dims.resize(y.dims.size());
    return out;
  }
  int64_t flops() const {
    return 2 * mesh.size() * shard.rows * (shard.in * shard.out + shard.rank * (shard.in + shard.out));
  }
};

std::optional<LoraSite> read_lora(const CompositeSite& site) {
  LoraSite out{.x = site.inputs[0],
               .weight = site.inputs[1],
               .a = site.inputs[2],
               .b = site.inputs[3],
               .y = site.results[0],
               .rows = site.partitions[0],
               .mesh = site.mesh,
               .shard = {}};
  if (!is_cpu_float(out.x) || !is_cpu_float(out.weight) || !is_cpu_float(out.a) || !is_cpu_float(out.b) ||
      out.x.dims.size() != 3)
    return std::nullopt;
  out.rows.dims.resize(3);
  if (!rows_are_split(out.x, out.rows, site.mesh)) return std::nullopt;
  // In an f32 product, a bf16 weight is widened while it is packed. In a bf16 product, an f32 weight is rounded to bf16
  // before the product, as in the body.
  const DType dtype = out.x.dtype;
  if (dtype == DType::kBF16) out.weight.dtype = dtype;
  out.a.dtype = out.b.dtype = dtype;
  const int64_t in = out.x.dims[2];
  out.shard = {.rows = shard_of(out.x, out.rows, site.mesh).elements() / in,
               .in = in,
               .out = out.weight.elements() / in,
               .rank = out.a.dims[0],
               .dtype = dtype,
               .weight_dtype = out.weight.dtype,
               .transposed = std::get<bool>(site.attributes.at("transposed")),
               .scale = static_cast<float>(std::get<double>(site.attributes.at("scale")))};
  return out;
}

// Returns the shape of the gradient of `weight` (a or b) that the backward call returns. On several devices, each
// device sums the gradient over its own rows, in f32.
Shape lora_sums(const LoraSite& site, const Shape& weight) {
  if (site.mesh.size() == 1) return weight;
  Shape out{DType::kF32, weight.dims};
  out.dims.insert(out.dims.begin(), site.mesh.size());
  return out;
}

// The forward call's operands are x, weight, a and b. Its results are y, the product scale * (x a^T), and the scratch
// memory.
Tensors lora_gradient(const LoraSite& site, const VjpArgs& args) {
  Tensors out(4);
  const Tensor& dy = args.cotangents[0];
  if (!dy) return out;
  const Shape da = lora_sums(site, site.a), db = lora_sums(site, site.b);
  Partition of_sums;
  if (site.mesh.size() > 1)
    for (const auto& axes : site.rows.dims) {
      of_sums.dims.resize(1);
      of_sums.dims[0].insert(of_sums.dims[0].end(), axes.begin(), axes.end());
    }
  const Partition of_y = site.rows_of_result();
  const auto& [x, weight, a, b] = std::tie(args.operands[0], args.operands[1], args.operands[2], args.operands[3]);
  const Tensors grads =
      custom_call({.kernel = kLoraKernel,
                   .target = kLoraGradientTarget,
                   .attributes = site.attributes(),
                   .results = {site.x, da, db, {DType::kU8, {lora_gradient_workspace(site.shard, da.dtype)}}},
                   .in = {site.rows, {}, {}, {}, site.rows, of_y},
                   .out = {site.rows, of_sums, of_sums, {}},
                   .cost = {.flops = site.flops() + 2 * site.mesh.size() * site.shard.rows * site.shard.rank *
                                                        (site.shard.in + site.shard.out),
                            .bytes = 2 * site.x.bytes() + site.weight.bytes() + site.y.bytes()},
                   .takes_slices = true},
                  {x, weight, a, b, args.results[1], dy});
  out[0] = grads[0];
  auto whole = [&](const Tensor& sums, DType dtype) {
    return site.mesh.size() == 1 ? sums : convert(reduce_sum(sums, {0}), dtype);
  };
  out[2] = whole(grads[1], site.a.dtype);
  out[3] = whole(grads[2], site.b.dtype);
  if (args.active[1]) {
    const DotDims rows{.lhs_contracting = {0, 1}, .rhs_contracting = {0, 1}};
    out[1] = site.shard.transposed ? dot_general(x, dy, rows, site.weight.dtype)
                                   : dot_general(dy, x, rows, site.weight.dtype);
  }
  return out;
}

}  // namespace

std::optional<Kernel> lora_kernel(const CompositeSite& composite) {
  const std::optional<LoraSite> found = read_lora(composite);
  if (!found) return std::nullopt;
  return [site = *found](const Tensors& inputs) -> Tensors {
    const Tensors operands{inputs[0], convert(inputs[1], site.weight.dtype), convert(inputs[2], site.a.dtype),
                           convert(inputs[3], site.b.dtype)};
    return {
        custom_call({.kernel = kLoraKernel,
                     .target = kLoraTarget,
                     .attributes = site.attributes(),
                     .results = {site.y, site.low(), {DType::kU8, {lora_workspace(site.shard)}}},
                     .in = {site.rows, {}, {}, {}},
                     .out = {site.rows_of_result(), site.rows, {}},
                     .cost = {.flops = site.flops(), .bytes = site.x.bytes() + site.weight.bytes() + site.y.bytes()},
                     .takes_slices = true,
                     .gradient = [site](const VjpArgs& args) { return lora_gradient(site, args); }},
                    operands)[0]};
  };
}

}  // namespace fettle::cpu
