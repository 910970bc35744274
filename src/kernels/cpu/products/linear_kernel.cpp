#include "kernels/cpu/products/linear_kernel.h"

#include "graph/op_table.h"
#include "graph/ops.h"
#include "kernels/cpu/block_ops.h"
#include "kernels/cpu/products/matrix_product.h"
#include "kernels/cpu/split_rows.h"

namespace fettle::cpu {
namespace {

using Tensors = std::vector<Tensor>;

struct LinearSite {
  bool transposed;
  Shape x, weight, y;  // global shapes
  Partition rows;      // how x is split
  MeshAxes mesh;
  int64_t in, out;  // numbers of input and output features
};

std::optional<LinearSite> read_linear(const CompositeSite& site) {
  LinearSite out{.transposed = std::get<bool>(site.attributes.at("transposed")),
                 .x = site.inputs[0],
                 .weight = site.inputs[1],
                 .y = site.results[0],
                 .rows = site.partitions[0],
                 .mesh = site.mesh};
  if (!is_cpu_float(out.x) || !is_cpu_float(out.weight) || out.x.dims.size() != 3) return std::nullopt;
  out.rows.dims.resize(3);
  if (!rows_are_split(out.x, out.rows, site.mesh)) return std::nullopt;
  out.in = out.x.dims[2];
  out.out = out.weight.elements() / out.in;
  return out;
}

// The product of one call: the sizes on one device, and the layout of the operands.
struct ProductCall {
  int64_t m, n, k;
  bool a_turned, b_turned;
  std::vector<Partition> in;
  Shape result;
  Partition out;
};

Tensor call(const LinearSite& site, const ProductCall& p, const Tensor& a, const Tensor& b,
            const std::function<Tensors(const VjpArgs&)>& gradient = {}) {
  const int64_t devices = site.mesh.size();
  const int64_t workspace = product_workspace({.m = p.m,
                                               .n = p.n,
                                               .k = p.k,
                                               .a = {.dtype = a.dtype(), .turned = p.a_turned},
                                               .b = {.dtype = b.dtype(), .turned = p.b_turned},
                                               .result = p.result.dtype});
  return custom_call(
      {.kernel = kLinearKernel,
       .target = kProductTarget,
       .attributes = {{"m", p.m}, {"n", p.n}, {"k", p.k}, {"a_turned", p.a_turned}, {"b_turned", p.b_turned}},
       .results = {p.result, {DType::kU8, {workspace}}},
       .in = p.in,
       .out = {p.out, {}},
       .cost = {.flops = 2 * devices * p.m * p.n * p.k,
                .bytes = a.shape().bytes() + b.shape().bytes() + p.result.bytes()},
       .takes_slices = true,
       .gradient = gradient},
      {a, b})[0];
}

// Computes dx = dy * w.
Tensor input_gradient(const LinearSite& site, int64_t rows, const Tensor& dy, const Tensor& weight) {
  return call(site,
              {.m = rows,
               .n = site.in,
               .k = site.out,
               .a_turned = false,
               .b_turned = site.transposed,
               .in = {site.rows, {}},
               .result = site.x,
               .out = site.rows},
              dy, weight);
}

// Computes dw = dy^T * x, or dw = x^T * dy when the weight is transposed. Each device sums over its own rows.
Tensor weight_gradient(const LinearSite& site, int64_t rows, const Tensor& dy, const Tensor& x) {
  const int64_t devices = site.mesh.size();
  Shape result{devices == 1 ? site.weight.dtype : DType::kF32, site.weight.dims};
  Partition split;
  if (devices > 1) {
    result.dims.insert(result.dims.begin(), devices);
    split.dims.resize(result.dims.size());
    for (const auto& axes : site.rows.dims) split.dims[0].insert(split.dims[0].end(), axes.begin(), axes.end());
  }
  ProductCall p{.m = site.out,
                .n = site.in,
                .k = rows,
                .a_turned = true,
                .b_turned = false,
                .in = {site.rows, site.rows},
                .result = result,
                .out = split};
  if (site.transposed) std::swap(p.m, p.n);
  const Tensor sums = site.transposed ? call(site, p, x, dy) : call(site, p, dy, x);
  return devices == 1 ? sums : convert(reduce_sum(sums, {0}), site.weight.dtype);
}

Tensors linear_gradient(const LinearSite& site, int64_t rows, const VjpArgs& args) {
  Tensors out(args.operands.size());
  Tensor dy = args.cotangents[0];
  if (!dy) return out;
  const Tensor &x = args.operands[0], &weight = args.operands[1];
  if (dy.dtype() != x.dtype()) dy = convert(dy, x.dtype());
  if (args.active[0]) out[0] = input_gradient(site, rows, dy, weight);
  if (args.active[1]) out[1] = weight_gradient(site, rows, dy, x);
  return out;
}

// Returns whether x is [rows, in, out], and the result the sum over its rows (row_products in models/blocks/layers.h).
bool is_turned(const CompositeSite& site) {
  return site.attributes.contains("turned");
}

// Computes the sum over all rows of left^T * right.
std::optional<Kernel> row_products_kernel(const CompositeSite& site) {
  const Shape left = site.inputs[0], right = site.inputs[1], result = site.results[0];
  if (site.mesh.size() > 1 || !is_cpu_float(left) || left.dtype != right.dtype) return std::nullopt;
  return [=](const Tensors& inputs) -> Tensors {
    return {call({.mesh = {}},
                 {.m = result.dims[0],
                  .n = result.dims[1],
                  .k = left.elements() / result.dims[0],
                  .a_turned = true,
                  .b_turned = false,
                  .in = {{}, {}},
                  .result = result,
                  .out = {}},
                 inputs[0], inputs[1])};
  };
}

}  // namespace

bool many_rows_pay(const CompositeSite& site) {
  constexpr int64_t kFewest = 64;
  const Shape& x = site.inputs[0];
  return x.elements() / x.dims.back() >= kFewest && has_fast_ops(x.dtype);
}

bool linear_pays(const CompositeSite& site) {
  constexpr int64_t kMostRows = 4;
  const Shape& x = site.inputs[0];
  if (is_turned(site)) return many_rows_pay(site);
  const bool next_token = x.dims[1] == 1 && x.dims[0] <= kMostRows && !std::get<bool>(site.attributes.at("transposed"));
  return many_rows_pay(site) || (next_token && has_fast_ops(x.dtype));
}

std::optional<Kernel> linear_kernel(const CompositeSite& composite) {
  if (is_turned(composite)) return row_products_kernel(composite);
  const std::optional<LinearSite> found = read_linear(composite);
  if (!found) return std::nullopt;
  return [read = *found](const Tensors& inputs) -> Tensors {
    LinearSite site = read;
    // In an f32 product, a bf16 weight is widened while it is packed. In a bf16 product, an f32 weight is rounded to
    // bf16 before the product, as in the body.
    const Tensor weight = site.x.dtype == DType::kBF16 ? convert(inputs[1], DType::kBF16) : inputs[1];
    site.weight = weight.shape();
    const int64_t rows = shard_of(site.x, site.rows, site.mesh).elements() / site.in;
    Partition out = site.rows;
    out.dims.resize(site.y.dims.size());
    auto gradient = [site, rows](const VjpArgs& args) {
      Tensors grads = linear_gradient(site, rows, args);
      grads.resize(2);
      return grads;
    };
    return {call(site,
                 {.m = rows,
                  .n = site.out,
                  .k = site.in,
                  .a_turned = false,
                  .b_turned = !site.transposed,
                  .in = {site.rows, {}},
                  .result = site.y,
                  .out = out},
                 inputs[0], weight, gradient)};
  };
}

}  // namespace fettle::cpu
