#include "export/logit_check.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/random.h"
#include "graph/ops.h"
#include "models/blocks/loss.h"
#include "models/classifier.h"
#include "step/forward.h"
#include "step/state/train_state.h"

namespace fettle {
namespace {

// The logits of the fixed prompts.
struct Logits {
  HostArray with, without;  // logits with and without the adapter; `with` is empty when there is no adapter
};

// Returns the logits; nullopt when the forward pass does not fit the device. If `wide` is true, the weights are held in
// f32, whatever dtype config.json names.
std::optional<Logits> compute_logits(Devices& devices, const Request& request, bool wide = false) {
  const Run run =
      request.resolve(target_of(devices), Purpose::kInference, {.merges_in_f32 = true, .frozen_in_f32 = wide});
  const int64_t shards = run.batch_shards(), rows = (kCheckedPrompts + shards - 1) / shards * shards;
  const Shape ids{DType::kI32, {rows, std::min(kCheckedLength, run.model.config.max_position_embeddings)}};
  Program program(run.sharding.mesh());
  {
    BuildScope scope(program.block());
    const Weights weights = add_weight_inputs(program, run);
    const Tensor tokens = program.input("tokens", ids);
    auto output = [&](const char* name, bool adapted) {
      Forward f = make_forward(run, weights, {.adapted = adapted});
      f.tokens = tokens;
      f.positions = broadcast_to(iota({DType::kI32, {ids.dims[1]}}, 0), ids.dims);
      f.segments = full(1, ids);
      const Tensor hidden = run.model.family->forward(f);
      program.output(name, run.model.classifies() ? class_logits(f, run.model, hidden, iota(ids, 0) + 1.0, ids.dims[0])
                                                  : logits(f, hidden, head_of(run.model, weights)));
    };
    output("without", false);
    if (run.adapter.lora) output("with", true);
  }
  const Executable executable = devices.compile(program);
  const int64_t needed = executable.memory_stats().peak, limit = devices.memory().limit;
  if (limit > 0 && needed > limit) {
    warn("the logits are not compared: the comparison needs {:.1f} GB on each device, but a device has {:.1f} GB",
         needed / 1e9, limit / 1e9);
    return std::nullopt;
  }
  TrainState state = load_state(devices, run, request.repository(), false);
  HostArray prompts(ids);
  for (int64_t i = 0; i < ids.elements(); ++i)
    prompts.as<int32_t>()[i] = static_cast<int32_t>(mix_bits(1, static_cast<uint64_t>(i)) %
                                                    static_cast<uint64_t>(run.model.config.vocab_size));
  DeviceBuffer tokens = replicate(devices, prompts);
  Bindings inputs = state.bindings();
  inputs["tokens"] = &tokens;
  std::map<std::string, DeviceBuffer> outputs = run_program(executable, inputs);
  Logits out{.with = {}, .without = outputs.at("without").download()};
  if (run.adapter.lora) out.with = outputs.at("with").download();
  return out;
}

// Returns the largest difference in each row of logits.
std::vector<double> differences_of_rows(const HostArray& x, const HostArray& y) {
  const std::span<const float> a = x.as<float>(), b = y.as<float>();
  const auto width = static_cast<size_t>(x.shape().dims.back());
  std::vector<double> rows(a.size() / width);
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(static_cast<double>(a[i]) - b[i]);
    if (!(difference <= rows[i / width])) rows[i / width] = difference;  // keeps NaN
  }
  return rows;
}

double largest_difference(const HostArray& x, const HostArray& y) {
  double largest = 0;
  for (const double row : differences_of_rows(x, y))
    if (!(row <= largest)) largest = row;  // keeps NaN
  return largest;
}

// Returns the largest difference, without the 5 % of the rows that differ most. The prompts are random tokens. At some
// positions, the smallest rounding of the weights changes the whole row of logits.
double largest_of_most(const HostArray& x, const HostArray& y) {
  std::vector<double> rows = differences_of_rows(x, y);
  for (const double row : rows)
    if (!std::isfinite(row)) return row;
  std::ranges::sort(rows);
  return rows[rows.size() - 1 - rows.size() / 20];
}

// The adapter changes the logits from `base` to `changed`. Returns the share of this change that the logits `shown`
// contain. The share is a least-squares factor, so rounding noise hardly affects it. Leaves out each row in which
// `shown` differs from `changed` by more than `most`.
double share_kept(const HostArray& base, const HostArray& changed, const HostArray& shown, double most) {
  const std::vector<double> rows = differences_of_rows(shown, changed);
  const auto width = static_cast<size_t>(base.shape().dims.back());
  double product = 0, square = 0;
  for (size_t i = 0; i < rows.size() * width; ++i) {
    if (rows[i / width] > most) continue;
    const double change = static_cast<double>(changed.as<float>()[i]) - base.as<float>()[i];
    product += change * (static_cast<double>(shown.as<float>()[i]) - base.as<float>()[i]);
    square += change * change;
  }
  return product / square;
}

// Returns the share of the positions at which x and y have their largest logit at the same token.
double same_choices(const HostArray& x, const HostArray& y) {
  const std::span<const float> a = x.as<float>(), b = y.as<float>();
  const auto width = static_cast<size_t>(x.shape().dims.back());
  size_t same = 0;
  for (size_t at = 0; at < a.size(); at += width)
    same += std::max_element(a.begin() + at, a.begin() + at + width) - (a.begin() + at) ==
            std::max_element(b.begin() + at, b.begin() + at + width) - (b.begin() + at);
  return static_cast<double>(same) / static_cast<double>(std::max<size_t>(1, a.size() / width));
}

// Returns the root of the mean squared difference, as a share of the standard deviation of `wanted`.
double relative_error(const HostArray& got, const HostArray& wanted) {
  const std::span<const float> a = got.as<float>(), b = wanted.as<float>();
  double difference = 0, sum = 0, square = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (static_cast<double>(a[i]) - b[i]) * (static_cast<double>(a[i]) - b[i]);
    sum += b[i], square += static_cast<double>(b[i]) * b[i];
  }
  const double variance = square - sum * sum / static_cast<double>(a.size());
  return std::sqrt(difference / variance);
}

// Returns whether all tensors of the model are stored in f32.
bool is_stored_in_f32(const ModelRepository& repository) {
  return std::ranges::all_of(repository.names(), [&](const std::string& name) {
    return repository.find(name).entry->shape.dtype == DType::kF32;
  });
}

// Returns how far the logits of the written model may be from those of the original (the base, with its adapter if it
// has one), as a share of the largest logit. This bound leaves room for the rounding of the written weights.
double tolerance(DType dtype) {
  return dtype == DType::kBF16 ? 5e-2 : dtype == DType::kF16 ? 1e-2 : 1e-3;
}

}  // namespace

std::optional<LogitCheck> check_logits(Devices& devices, const Request& request, const std::filesystem::path& written,
                                       DType dtype, int64_t labels) {
  // If config.json names a narrower dtype than that of the weights, loading must not round them.
  const bool wide = byte_size(dtype) >= 4 && is_stored_in_f32(request.repository());
  const std::optional<Logits> reference = compute_logits(devices, request.exact(labels), wide);
  if (!reference) return std::nullopt;
  const std::optional<Logits> merged = compute_logits(devices, request.exact(labels, written.string()), wide);
  if (!merged) return std::nullopt;
  LogitCheck out;
  const double effect = largest_difference(reference->with, reference->without);
  out.scale = largest_difference(reference->with, HostArray::zeros(reference->with.shape()));
  const bool rounded = dtype != DType::kF32;
  out.difference_from_adapter = (rounded ? largest_of_most : largest_difference)(merged->without, reference->with);
  out.difference_from_base = largest_difference(merged->without, reference->without);
  out.bound = tolerance(dtype) * out.scale;
  // For f32, nothing was rounded, so the bound is tighter. With a looser bound, a merge that ignores a weak adapter
  // would pass.
  if (dtype == DType::kF32 || dtype == DType::kF64)
    out.bound = std::min(out.bound, std::max(effect / 10, 1e-5 * out.scale));
  if (!std::isfinite(out.scale))
    throw UserError("{}: base and adapter give logits that are not finite; the adapter is broken",
                    request.adapters()[0]);
  if (effect == 0)
    throw UserError("{}: the adapter does not change the base's logits; was it trained?", request.adapters()[0]);
  out.kept = share_kept(reference->without, reference->with, merged->without, out.difference_from_adapter);
  const bool rounds = byte_size(dtype) < 4;
  if (rounds && out.kept < 0.5)
    throw UserError(
        "only {:.0f}% of the adapter's effect remains after rounding the merged weights to {}: its changes are smaller "
        "than the weights' precision. Set export_dtype: float32, or do not merge, and use the base with the adapter",
        100 * out.kept, hf_name(dtype));
  if (!(out.difference_from_adapter <= out.bound) || out.difference_from_base == 0 || out.kept > 1.5)
    throw InternalError(
        "the merged model differs from base + adapter: the largest difference of logits is {:.3g} (bound {:.3g}). The "
        "largest difference from the base is {:.3g}, and {:.0f}% of the adapter's effect remains; nothing was written",
        out.difference_from_adapter, out.bound, out.difference_from_base, 100 * out.kept);
  if (out.kept < 0.9)
    warn("{:.0f}% of the adapter's effect remains after rounding to {}; export_dtype: float32 keeps all of it",
         100 * out.kept, hf_name(dtype));
  return out;
}

struct LogitReference::Computed {
  HostArray with, without;  // `with` is empty when there is no adapter
};

LogitReference::LogitReference(Devices& devices, const Request& request) : devices_(devices), request_(request) {
  std::optional<Logits> logits = compute_logits(devices, request.exact(0));
  if (logits)
    computed_ = std::make_unique<const Computed>(Computed{std::move(logits->with), std::move(logits->without)});
}

LogitReference::~LogitReference() = default;

std::optional<CodedLogits> LogitReference::check_coded(const std::filesystem::path& folder,
                                                       const std::string& type) const {
  if (!computed_) return std::nullopt;
  const bool adapted = !computed_->with.shape().dims.empty();
  const HostArray& base = computed_->without;
  const HostArray& wanted = adapted ? computed_->with : base;
  const std::optional<Logits> written = compute_logits(devices_, request_.exact(0, folder.string()));
  if (!written) return std::nullopt;
  const HostArray& got = written->without;
  internal_check(got.shape().dims == wanted.shape().dims, "{}: the logits are {}, wanted {}", type,
                 got.shape().to_string(), wanted.shape().to_string());
  CodedLogits out;
  out.difference = (type == "F16" || type == "BF16" ? largest_of_most : largest_difference)(got, wanted);
  out.scale = largest_difference(wanted, HostArray::zeros(wanted.shape()));
  out.agreement = same_choices(got, wanted);
  out.error = relative_error(got, wanted);
  if (!std::isfinite(out.scale)) throw UserError("the model gives logits that are not finite; it is broken");
  const std::optional<DType> kept = type == "F32"    ? std::optional(DType::kF32)
                                    : type == "F16"  ? std::optional(DType::kF16)
                                    : type == "BF16" ? std::optional(DType::kBF16)
                                                     : std::nullopt;
  const double share = adapted ? share_kept(base, wanted, got, out.difference) : 1;
  if (kept) {
    if (!(out.difference <= tolerance(*kept) * out.scale))
      throw InternalError(
          "the {} file differs from the model: the largest difference of logits is {:.3g} (bound {:.3g}, largest logit "
          "{:.3g}); nothing was written",
          type, out.difference, tolerance(*kept) * out.scale, out.scale);
    if (share < 0.5)
      throw UserError(
          "only {:.0f}% of the adapter's effect remains after rounding the merged weights to {}: its changes are "
          "smaller than the weights' precision; choose f32 in export_gguf",
          100 * share, type);
    return out;
  }
  if (!std::isfinite(out.error)) throw UserError("{}: the written model gives logits that are not finite", type);
  if (const auto warning = coded_warning(type, out.error)) warn("{}", *warning);
  return out;
}

std::optional<std::string> coded_warning(const std::string& type, double error) {
  const double usual = type == "Q8_0"           ? 0.05
                       : type == "Q6_K"         ? 0.15
                       : type.starts_with("Q5") ? 0.3
                       : type.starts_with("Q3") ? 1
                       : type.starts_with("Q2") ? 1.5
                                                : 0.6;
  const auto tenths = [](double share) { return std::round(1000 * share); };  // what the message shows
  if (tenths(error) <= tenths(usual)) return std::nullopt;
  return fmt::format(
      "{}: its logits differ from the model's by {:.1f}% of their standard deviation, more than usual for this type "
      "({:.0f}%); a type with more bits gives a smaller difference",
      type, 100 * error, 100 * usual);
}

}  // namespace fettle
