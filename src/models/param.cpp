#include "models/param.h"

#include <fmt/format.h>

namespace fettle {

bool Param::of_experts() const {
  return role == Role::kExpertGate || role == Role::kExpertUp || role == Role::kExpertDown;
}

bool Param::has_experts() const {
  return of_experts() || role == Role::kExpertsFused;
}

bool Param::of_classifier() const {
  return role == Role::kClassifier || role == Role::kClassifierBias || role == Role::kClassifierNorm;
}

bool Param::is_lora() const {
  return role == Role::kLoraA || role == Role::kLoraB || role == Role::kLoraMagnitude;
}

bool Param::is_embedding() const {
  return role == Role::kTokenEmbedding || role == Role::kPositionEmbedding || role == Role::kTypeEmbedding ||
         role == Role::kLayerEmbedding;
}

bool Param::is_bias() const {
  return role == Role::kBias || role == Role::kExpertBias || role == Role::kClassifierBias || role == Role::kHeadBias ||
         norm_offset;
}

bool Param::is_bias_or_norm() const {
  return is_bias() || role == Role::kClassifierNorm || role == Role::kNorm;
}

std::string Param::stack_name() const {
  if (!stacked() || layers.count() == layers.all) return hf_name;
  return fmt::format("{}[{}:{}]", hf_name, layers.numbers.front(), layers.numbers.back() + 1);
}

Dims Param::stored_dims() const {
  Dims out = dims;
  if (of_experts()) out.erase(out.begin());
  if (fused < 0) return out;
  out[fused] *= out[fused + 1];
  out.erase(out.begin() + fused + 1);
  return out;
}

int64_t Param::stored_count() const {
  return layer_count() * (of_experts() ? dims[0] : 1);
}

std::string Param::stored_name(int64_t index) const {
  std::string out = hf_name;
  auto fill = [&](int64_t number) { out.replace(out.find("{}"), 2, std::to_string(number)); };
  if (stacked()) fill(layers.numbers[static_cast<size_t>(of_experts() ? index / dims[0] : index)]);
  if (of_experts()) fill(index % dims[0]);
  return out;
}

std::string module_of(const std::string& name) {
  return name.substr(0, name.rfind('.'));
}

std::string last_part(const std::string& module) {
  return module.substr(module.rfind('.') + 1);
}

Shape stacked_shape(const Param& param, DType dtype) {
  Shape shape{dtype, param.dims};
  if (param.stacked()) shape.dims.insert(shape.dims.begin(), param.layers.count());
  return shape;
}

LogicalAxes stacked_axes(const Param& param) {
  LogicalAxes axes = param.axes;
  if (param.stacked()) axes.insert(axes.begin(), "layers");
  return axes;
}

ParamList::ParamList(std::string layer_prefix, int64_t all_layers)
    : prefix_(std::move(layer_prefix)), all_(fettle::all_layers(all_layers)) {}

ParamList& ParamList::in_layers() {
  here_ = all_, skips_ = false;
  return *this;
}

ParamList& ParamList::in_layers(std::vector<int64_t> numbers) {
  const auto count = static_cast<int64_t>(numbers.size());
  skips_ = count == 0;
  here_ = {std::move(numbers), count};
  return *this;
}

ParamList& ParamList::outside() {
  here_ = {}, skips_ = false;
  return *this;
}

void ParamList::add(const std::string& name, Dims dims, LogicalAxes axes, Role role, Init init,
                    std::optional<DType> dtype) {
  if (skips_) return;
  params_.push_back({.hf_name = (here_.count() > 0 ? prefix_ : "") + name,
                     .dims = std::move(dims),
                     .axes = std::move(axes),
                     .role = role,
                     .layers = here_,
                     .init = init,
                     .dtype = dtype});
  int64_t all = 0;
  for (const Param& param : params_) all += param.hf_name == params_.back().hf_name ? param.layers.count() : 0;
  for (Param& param : params_)
    if (param.hf_name == params_.back().hf_name) param.layers.all = all;
}

void ParamList::add_fused(const std::string& name, Dims dims, LogicalAxes axes, int fused, Role role) {
  add(name, std::move(dims), std::move(axes), role);
  if (!skips_) params_.back().fused = fused;
}

void ParamList::embedding(const std::string& module, int64_t rows, int64_t width, Role role) {
  add(module + ".weight", {rows, width},
      {role == Role::kTokenEmbedding || role == Role::kLayerEmbedding ? "vocab" : "", "embed"}, role);
}

void ParamList::head(const std::string& module, int64_t vocab, int64_t width, bool bias) {
  add(module + ".weight", {vocab, width}, {"vocab", "embed"}, Role::kHead);
  if (bias) add(module + ".bias", {vocab}, {"vocab"}, Role::kHeadBias, Init::kZeros);
}

void ParamList::norm(const std::string& module, int64_t size, Init init, bool bias) {
  add(module + ".weight", {size}, {"norm"}, Role::kNorm, init);
  if (!bias) return;
  add(module + ".bias", {size}, {"norm"}, Role::kNorm, Init::kZeros);
  if (!skips_) params_.back().norm_offset = true;
}

void ParamList::linear(const std::string& module, const SizedAxis& out, const SizedAxis& in,
                       const LinearOptions& options) {
  // The index of the dim that numbers the parts of a fused module.
  const auto at = static_cast<std::ptrdiff_t>(options.in_first ? 1 : 0);
  auto add_one = [&](const char* name, Dims dims, LogicalAxes axes, std::ptrdiff_t fused, Role role, Init init) {
    if (options.parts > 1) {
      dims.insert(dims.begin() + fused, options.parts);
      axes.insert(axes.begin() + fused, "");
    }
    add(module + name, std::move(dims), std::move(axes), role, init);
    if (options.parts > 1 && !skips_) params_.back().fused = static_cast<int>(fused);
  };
  Dims dims{out.size, in.size};
  LogicalAxes axes{out.axis, in.axis};
  if (options.in_first) std::swap(dims[0], dims[1]), std::swap(axes[0], axes[1]);
  add_one(".weight", dims, axes, at, Role::kLinear, Init::kNormal);
  if (!skips_) params_.back().head_rows = options.head_rows;
  if (options.bias)
    add_one(".bias", {out.size}, {out.axis == "embed" ? "norm" : out.axis}, 0, Role::kBias, Init::kZeros);
}

}  // namespace fettle
