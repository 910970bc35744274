#include "adapters/pissa.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "graph/ops.h"
#include "graph/random.h"
#include "graph/scan.h"

namespace fettle {
namespace {

Tensor f32(double value) {
  return constant(value, DType::kF32);
}

// inner() returns x^T y, and product_of() returns x y.
Tensor inner(const Tensor& x, const Tensor& y) {
  return dot_general(x, y, {.lhs_contracting = {0}, .rhs_contracting = {0}});
}
Tensor product_of(const Tensor& x, const Tensor& y) {
  return dot_general(x, y, {.lhs_contracting = {1}, .rhs_contracting = {0}});
}

// Orthonormalises the columns of x [n, q] by Gram-Schmidt, with two passes because of rounding errors. A column that
// depends linearly on earlier ones becomes zero.
Tensor orthonormal(const Tensor& x) {
  const int64_t n = x.dim(0), q = x.dim(1);
  const Tensor zero = constant(0, DType::kI32), number = reshape(iota({DType::kI32, {q}}, 0), {q, 1});
  return scan(q, {x}, {},
              [&](const Tensor& j, const std::vector<Tensor>& carried, const std::vector<Tensor>&) -> ScanStep {
                const Tensor& done = carried[0];
                Tensor column = dynamic_slice(done, {zero, j}, {n, 1});
                auto norm = [](const Tensor& v) { return sqrt(reduce_sum(v * v, {0, 1})); };
                const Tensor before = norm(column), earlier = compare(number, Direction::kLT, j);
                for (int pass = 0; pass < 2; ++pass)
                  column = column - product_of(done, select(earlier, inner(done, column), f32(0)));
                const Tensor left = norm(column);
                const Tensor independent = compare(left, Direction::kGT, before * 1e-5);
                column = select(independent, column / left, f32(0));
                return {{dynamic_update_slice(done, column, {zero, j})}, {}};
              })
      .carries[0];
}

// The eigenvalues of a symmetric matrix [n, n], the largest first, and the eigenvectors (columns of [n, n]).
struct Eigen {
  std::vector<double> values, vectors;
};

// Computes eigenvalues and eigenvectors by cyclic Jacobi rotations.
Eigen eigen(std::vector<double> m, int64_t n) {
  std::vector<double> v(n * n, 0);
  for (int64_t i = 0; i < n; ++i) v[i * n + i] = 1;
  for (int sweep = 0; sweep < 60; ++sweep) {
    double off = 0, diagonal = 0;
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < n; ++j) (i == j ? diagonal : off) += m[i * n + j] * m[i * n + j];
    if (off <= 1e-30 * diagonal) break;
    for (int64_t p = 0; p < n; ++p)
      for (int64_t q = p + 1; q < n; ++q) {
        if (m[p * n + q] == 0) continue;
        const double theta = (m[q * n + q] - m[p * n + p]) / (2 * m[p * n + q]);
        const double t = (theta >= 0 ? 1 : -1) / (std::abs(theta) + std::sqrt(theta * theta + 1));
        const double c = 1 / std::sqrt(t * t + 1), s = t * c;
        auto rotate = [&](double& x, double& y) {
          const double old = x;
          x = c * old - s * y;
          y = s * old + c * y;
        };
        for (int64_t k = 0; k < n; ++k) rotate(m[k * n + p], m[k * n + q]);
        for (int64_t k = 0; k < n; ++k) rotate(m[p * n + k], m[q * n + k]);
        for (int64_t k = 0; k < n; ++k) rotate(v[k * n + p], v[k * n + q]);
      }
  }
  std::vector<int64_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, [&](int64_t a, int64_t b) { return m[a * n + a] > m[b * n + b]; });
  Eigen out{{}, std::vector<double>(n * n)};
  for (int64_t j = 0; j < n; ++j) {
    out.values.push_back(m[order[j] * n + order[j]]);
    for (int64_t i = 0; i < n; ++i) out.vectors[i * n + j] = v[i * n + order[j]];
  }
  return out;
}

}  // namespace

LeadingSubspace leading_subspace(const Tensor& weight, bool fan_in_fan_out, int64_t width, int64_t iterations) {
  PathScope scope("pissa");
  const ScanStep all =
      scan(weight.dim(0), {}, {weight},
           [&](const Tensor& layer, const std::vector<Tensor>&, const std::vector<Tensor>& xs) -> ScanStep {
             const Tensor raw = convert(xs[0], DType::kF32);
             const Tensor w = fan_in_fan_out ? transpose(reshape(raw, {raw.dim(0), -1}), {1, 0})
                                             : reshape(raw, {-1, raw.dim(-1)});  // [out, in]
             const Tensor bits = random_bits({w.dim(1), width}, convert(layer, DType::kU32) + 0x9e3779b9);
             const Tensor start = convert(bits, DType::kF32) / 2147483648.0 - 1.0;
             const ScanStep found =
                 scan(iterations, {orthonormal(product_of(w, start))}, {},
                      [&](const Tensor&, const std::vector<Tensor>& carried, const std::vector<Tensor>&) -> ScanStep {
                        return {{orthonormal(product_of(w, orthonormal(inner(w, carried[0]))))}, {}};
                      });
             return {{}, {found.carries[0], inner(found.carries[0], w)}};
           });
  return {all.ys[0], all.ys[1]};
}

LoraStart principal_lora(const HostArray& basis_LOQ, const HostArray& projected_LQI, int64_t rank, double scale) {
  const int64_t layers = basis_LOQ.shape().dims[0], out = basis_LOQ.shape().dims[1], q = basis_LOQ.shape().dims[2];
  const int64_t in = projected_LQI.shape().dims[2];
  LoraStart pair{HostArray({DType::kF32, {layers, rank, in}}), HostArray({DType::kF32, {layers, out, rank}})};
  for (int64_t layer = 0; layer < layers; ++layer) {
    const float* basis = basis_LOQ.as<float>().data() + layer * out * q;
    const float* projected = projected_LQI.as<float>().data() + layer * q * in;
    std::vector<double> gram(q * q);
    for (int64_t i = 0; i < q; ++i)
      for (int64_t j = 0; j <= i; ++j) {
        double sum = 0;
        for (int64_t k = 0; k < in; ++k) sum += static_cast<double>(projected[i * in + k]) * projected[j * in + k];
        gram[i * q + j] = gram[j * q + i] = sum;
      }
    const Eigen e = eigen(std::move(gram), q);
    float* a = pair.a_LRI.as<float>().data() + layer * rank * in;
    float* b = pair.b_LOR.as<float>().data() + layer * out * rank;
    for (int64_t r = 0; r < rank; ++r) {
      const double value = std::sqrt(std::max(0.0, e.values[r]));
      // P is `projected`; s^2 and u are an eigenvalue and its eigenvector of P P^T. Then v^T = u^T P / s,
      // A = sqrt(s / scale) v^T and B = sqrt(s / scale) basis u.
      const double of_a = value > 0 ? 1 / std::sqrt(value * scale) : 0, of_b = std::sqrt(value / scale);
      for (int64_t k = 0; k < in; ++k) {
        double sum = 0;
        for (int64_t i = 0; i < q; ++i) sum += e.vectors[i * q + r] * projected[i * in + k];
        a[r * in + k] = static_cast<float>(sum * of_a);
      }
      for (int64_t o = 0; o < out; ++o) {
        double sum = 0;
        for (int64_t i = 0; i < q; ++i) sum += e.vectors[i * q + r] * basis[o * q + i];
        b[o * rank + r] = static_cast<float>(sum * of_b);
      }
    }
  }
  return pair;
}

Tensor without_start(const Tensor& weight, const Tensor& a, const Tensor& b, const LoraOptions& options) {
  PathScope scope("pissa");
  const ScanStep all =
      scan(weight.dim(0), {}, {weight, a, b},
           [&](const Tensor& layer, const std::vector<Tensor>&, const std::vector<Tensor>& x) -> ScanStep {
             const Tensor &a_RI = x[1], &b_OR = x[2];
             const int64_t rank = b_OR.rank() - 1;
             const Tensor product = options.fan_in_fan_out
                                        ? dot_general(a_RI, b_OR, {.lhs_contracting = {0}, .rhs_contracting = {rank}})
                                        : dot_general(b_OR, a_RI, {.lhs_contracting = {rank}, .rhs_contracting = {0}});
             const Tensor rest = convert(convert(x[0], DType::kF32) + product * -options.scale(), weight.dtype());
             return {{}, {options.layers.empty() ? rest : select(has_lora(options, layer), rest, x[0])}};
           });
  return all.ys[0];
}

}  // namespace fettle
