// Tests that the calls of cuDNN's attention equal the body of the composite in whole programs on the CPU. cuDNN itself
// does not run there. A stand-in computes each call by the definition of attention, from the call's operands and its
// configuration. So the tests cover what Fettle passes to cuDNN: operands, bias, scale, mask and layouts.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "attention_layers.h"
#include "kernels/gpu/cudnn_attention.h"
#include "runtime/ffi.h"
#include "xla/ffi/api/ffi.h"

namespace fettle {
namespace {

namespace ffi = xla::ffi;
using Setting = AttentionSetting;

// An array of bf16, f16 or f32, as doubles.
struct Numbers {
  Dims dims;
  std::vector<double> values;
};

DType dtype_of(const ffi::AnyBuffer& buffer) {
  switch (buffer.element_type()) {
    case ffi::BF16: return DType::kBF16;
    case ffi::F16: return DType::kF16;
    default: return DType::kF32;
  }
}

Numbers read(const ffi::AnyBuffer& buffer) {
  Numbers out;
  for (const int64_t dim : buffer.dimensions()) out.dims.push_back(dim);
  for (size_t i = 0; i < buffer.element_count(); ++i)
    out.values.push_back(
        load_float(static_cast<const std::byte*>(buffer.untyped_data()), dtype_of(buffer), static_cast<int64_t>(i)));
  return out;
}

void write(const std::vector<double>& values, ffi::AnyBuffer buffer) {
  for (size_t i = 0; i < values.size(); ++i)
    store_float(static_cast<std::byte*>(buffer.untyped_data()), dtype_of(buffer), static_cast<int64_t>(i),
                static_cast<float>(values[i]));
}

// Computes the forward call, or the backward call if there are seven operands. Memory of q, k, v, o and their gradients
// is in the order [B, T, N, H].
ffi::Error stand_in(ffi::RemainingArgs operands, ffi::RemainingRets results, std::string_view text) {
  const nlohmann::json config = nlohmann::json::parse(text)["cudnn_fmha_backend_config"];
  const double scale = config["fmha_scale"];
  const bool causal = config["mask_type"] == "CAUSAL", backward = operands.size() == 7;
  std::vector<Numbers> in;
  for (size_t i = 0; i < operands.size(); ++i) in.push_back(read(operands.get<ffi::AnyBuffer>(i).value()));
  const Numbers &q = in[0], &k = in[1], &v = in[2], &bias = in[backward ? 5 : 3];
  const int64_t rows = q.dims[0], t = q.dims[1], n = q.dims[2], h = q.dims[3], key_heads = k.dims[2];
  if (bias.dims != Dims{rows, 1, t, t}) return ffi::Error(ffi::ErrorCode::kInvalidArgument, "the bias has other dims");
  std::vector<double> o(q.values.size()), sums(rows * n * t), dq(q.values.size()), dk(k.values.size()),
      dv(k.values.size());
  auto dot = [&](const double* x, const double* y) { return std::inner_product(x, x + h, y, 0.0); };
  auto add = [&](double factor, const double* x, double* to) {
    for (int64_t i = 0; i < h; ++i) to[i] += factor * x[i];
  };
  for (int64_t b = 0; b < rows; ++b)
    for (int64_t head = 0; head < n; ++head)
      for (int64_t i = 0; i < t; ++i) {
        const int64_t query = ((b * t + i) * n + head) * h, sum_at = (b * n + head) * t + i;
        auto key = [&](int64_t j) { return ((b * t + j) * key_heads + head / (n / key_heads)) * h; };
        const int64_t keys = causal ? i + 1 : t;
        std::vector<double> scores;
        for (int64_t j = 0; j < keys; ++j)
          scores.push_back(scale * dot(&q.values[query], &k.values[key(j)]) + bias.values[(b * t + i) * t + j]);
        const double top = *std::max_element(scores.begin(), scores.end());
        double sum = 0;
        for (const double score : scores) sum += std::exp(score - top);
        sums[sum_at] = top + std::log(sum);
        if (!backward) {
          for (int64_t j = 0; j < keys; ++j) add(std::exp(scores[j] - sums[sum_at]), &v.values[key(j)], &o[query]);
          continue;
        }
        const double *d_o = &in[4].values[query], mean = dot(d_o, &in[6].values[query]);
        for (int64_t j = 0; j < keys; ++j) {
          const double weight = std::exp(scores[j] - in[3].values[sum_at]);
          const double change = scale * weight * (dot(d_o, &v.values[key(j)]) - mean);
          add(weight, d_o, &dv[key(j)]);
          add(change, &q.values[query], &dk[key(j)]);
          add(change, &k.values[key(j)], &dq[query]);
        }
      }
  const std::vector<std::vector<double>> out = backward ? std::vector{dq, dk, dv} : std::vector{o, sums};
  for (size_t i = 0; i < out.size(); ++i) write(out[i], *results.get<ffi::AnyBuffer>(i).value());
  return ffi::Error::Success();
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(stand_in_handler, stand_in,
                              ffi::Ffi::Bind().RemainingArgs().RemainingRets().Attr<std::string_view>("config"));

// Replaces the calls of cuDNN by calls of the stand-in, in the nodes from `first` on and in their gradients.
void replace(Block& block, int32_t first) {
  for (int32_t id = first; id < block.size(); ++id) {
    Node& node = block.node(id);
    if (node.op != Op::kCustomCall) continue;
    auto call = std::make_shared<CustomCall>(*node.get<std::shared_ptr<const CustomCall>>());
    ASSERT_TRUE(call->target.starts_with("__cudnn$fmhaScaleBiasSoftmax"));
    call->target = "stand_in_for_cudnn";
    call->attributes = {{"config", call->config}};
    call->config.clear();
    if (call->gradient)
      call->gradient = [gradient = call->gradient](const VjpArgs& args) {
        const int32_t start = Block::current().size();
        std::vector<Tensor> out = gradient(args);
        replace(Block::current(), start);
        return out;
      };
    node.attributes = std::shared_ptr<const CustomCall>(call);
  }
}

std::optional<Kernel> with_stand_in(const CompositeSite& site) {
  const std::optional<Kernel> kernel = gpu::cudnn_attention(site);
  if (!kernel) return std::nullopt;
  return [kernel = *kernel](const std::vector<Tensor>& inputs) {
    const int32_t start = Block::current().size();
    std::vector<Tensor> out = kernel(inputs);
    replace(Block::current(), start);
    return out;
  };
}

std::vector<Setting> settings() {
  const MeshAxes fsdp{{{"fsdp", 8}}}, tensor{{{"fsdp", 4}, {"tp", 2}}};
  return {{.name = "grouped"},
          {.name = "window", .length = 50, .window = 7},
          {.name = "windows_of_layers", .length = 50, .window_of_layer = true},
          {.name = "both_ways", .key_heads = 4, .causal = false},
          {.name = "eight_devices", .rows = 8, .mesh = fsdp},
          {.name = "heads_over_two", .rows = 4, .mesh = tensor}};
}

class CudnnAttention : public testing::TestWithParam<Setting> {};

TEST_P(CudnnAttention, EqualsTheBody) {
  const Setting& s = GetParam();
  register_ffi_handler<stand_in_handler>(cpu_devices(s.mesh.size()).client().plugin(), "stand_in_for_cudnn");
  const Ran exact = run_layers(s, DType::kF32, Remat::kNone, {});
  // The kernel may be only a little farther from the f32 result than the body is, because both round.
  constexpr double kFarther = 1.3;
  for (const auto& [dtype, bound] : {std::pair{DType::kBF16, 2e-2}, std::pair{DType::kF16, 3e-3}}) {
    SCOPED_TRACE(stablehlo_name(dtype));
    for (const Remat remat : {Remat::kNone, Remat::kFull}) {
      const Ran kernel = run_layers(s, dtype, remat, with_stand_in), body = run_layers(s, dtype, remat, {});
      ASSERT_EQ(kernel.kernels.size(), 1u);
      EXPECT_EQ(kernel.kernels[0].calls, kLayers * (remat == Remat::kFull ? 3 : 2));
      expect_near(kernel, body, bound);
      const auto of_kernel = distances(kernel, exact), of_body = distances(body, exact);
      for (const auto& [name, distance] : of_body) EXPECT_LT(of_kernel.at(name), kFarther * distance) << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Settings, CudnnAttention, testing::ValuesIn(settings()),
                         [](const auto& info) { return info.param.name; });

TEST(CudnnAttention, LeavesOtherShapesToTheBody) {
  const Setting others[] = {
      {.name = "softcap", .softcap = 4},    {.name = "slopes", .slopes = true},
      {.name = "odd_length", .length = 41}, {.name = "odd_width", .width = 12},
      {.name = "wide", .width = 136},       {.name = "sp", .rows = 4, .mesh = MeshAxes{{{"fsdp", 4}, {"sp", 2}}}}};
  for (const Setting& s : others)
    EXPECT_TRUE(run_layers(s, DType::kBF16, Remat::kFull, with_stand_in).kernels.empty()) << s.name;
  EXPECT_TRUE(run_layers({.name = "f32"}, DType::kF32, Remat::kFull, with_stand_in).kernels.empty());
}

}  // namespace
}  // namespace fettle
