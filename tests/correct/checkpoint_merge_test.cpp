// Compares AdapterMerge with the formula, and checks that any box of a tensor gets the same values.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "checkpoint/peft/adapter_merge.h"
#include "checkpoint/peft/adapter_options.h"
#include "paths.h"
#include "temp_folder.h"

namespace fettle {
namespace {

Model model_of(const std::string& name) {
  const std::string folder = source_folder().string() + "/tests/reference/models/" + name;
  return make_model(nlohmann::json::parse(std::ifstream(folder + "/config.json")), "config.json");
}

// Writes an adapter with these options to `folder`, in PEFT's format, and reads it.
AdapterFolder made_adapter(const std::filesystem::path& folder, const Model& model, const LoraOptions& options) {
  AdapterConfig config{.r = options.rank, .lora_alpha = options.alpha, .target_modules = options.modules};
  config.use_dora = options.dora;
  NamedShapes shapes;
  for (const Param& param : lora_params(model, options))
    for (int64_t i = 0; i < param.stored_count(); ++i)
      shapes.emplace_back(adapter_key(param.stored_name(i)), Shape{DType::kF32, param.stored_dims()});
  std::filesystem::create_directories(folder);
  SafetensorsWriter writer = begin_adapter(folder, config, shapes);
  double next = 1;
  for (const auto& [name, shape] : shapes) {
    HostArray array(shape);
    for (float& value : array.as<float>())
      value = static_cast<float>(0.1 * std::sin(next += 1.7) + (shape.rank() == 1));
    writer.write(name, {array.data(), static_cast<size_t>(array.bytes())});
  }
  writer.finish();
  return open_adapter(folder);
}

// Returns the elements of a box of a dense array.
std::vector<float> part_of(const std::vector<float>& whole, const Dims& dims, const Box& box) {
  std::vector<float> out;
  Dims at = box.start;
  for (int64_t n = box.elements(); n > 0; --n) {
    int64_t index = 0;
    for (size_t d = 0; d < dims.size(); ++d) index = index * dims[d] + at[d];
    out.push_back(whole[static_cast<size_t>(index)]);
    for (size_t d = dims.size(); d-- > 0;) {
      if (++at[d] < box.start[d] + box.size[d]) break;
      at[d] = box.start[d];
    }
  }
  return out;
}

struct Case {
  const char *model, *module;
  bool dora;
};
class Merge : public testing::TestWithParam<Case> {};

TEST_P(Merge, EqualsTheFormulaOnAnyBox) {
  const auto& [name, module, dora] = GetParam();
  const Model model = model_of(name);
  const TempFolder folder;
  const LoraOptions options{
      .rank = 3, .alpha = 5, .modules = {module}, .fan_in_fan_out = model.family->fan_in_fan_out, .dora = dora};
  std::vector<AdapterFolder> adapters;
  adapters.push_back(made_adapter(folder / "a", model, options));
  const TensorFile& file = adapters[0].file;
  auto values_of = [&](const Param& param) {
    const HostArray array = file.read(*file.find(adapter_key(param.stored_name(1)))).to(DType::kF32);
    return std::vector<double>(array.as<float>().begin(), array.as<float>().end());
  };
  const Param base = model.linear(module)[0];
  const std::vector<Param> lora = lora_params_of(model, options, base);
  const std::vector<double> a = values_of(lora[0]), b = values_of(lora[1]);
  const Dims matrix = base.stored_dims();
  const int64_t rows = matrix[0], columns = matrix[1];
  std::vector<float> before;
  for (int64_t i = 0; i < rows * columns; ++i) before.push_back(static_cast<float>(std::sin(i * 0.37)));

  // The expected values are W + scale B A. With DoRA, each output is then scaled to its magnitude.
  std::vector<double> wanted(before.begin(), before.end());
  const bool by_column = options.fan_in_fan_out;
  const int64_t in = by_column ? rows : columns;
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      for (int64_t k = 0; k < 3; ++k)
        wanted[i * columns + j] += 5.0 / 3 * b[(by_column ? j : i) * 3 + k] * a[k * in + (by_column ? i : j)];
  if (dora) {
    const std::vector<double> magnitude = values_of(lora[2]);
    std::vector<double> square(magnitude.size(), 0);
    for (int64_t i = 0; i < rows * columns; ++i) square[by_column ? i % columns : i / columns] += wanted[i] * wanted[i];
    for (int64_t i = 0; i < rows * columns; ++i) {
      const int64_t output = by_column ? i % columns : i / columns;
      wanted[i] *= magnitude[output] / std::sqrt(square[output]);
    }
  }

  const AdapterMerge merge(model, std::move(adapters));
  EXPECT_TRUE(merge.adds_to(base.stored_name(1)));
  EXPECT_FALSE(merge.adds_to(model.params[0].hf_name));
  EXPECT_FALSE(merge.saved(base.stored_name(1)));
  const TensorMerge added = merge.merge_of(base.stored_name(1), [&](const Box& box, float* out) {
    const std::vector<float> part = part_of(before, matrix, box);
    std::copy(part.begin(), part.end(), out);
  });
  std::vector<float> whole = before;
  added.apply(Box::whole(matrix), matrix, whole.data());
  for (size_t i = 0; i < whole.size(); ++i) ASSERT_NEAR(whole[i], wanted[i], 2e-6) << i;

  // Reads the boxes of many splits. The boxes are in the dims of the parameter, in which the parts of a fused module
  // are a separate dim.
  for (size_t d = 0; d < base.dims.size(); ++d)
    for (const int64_t parts : {1, 2, 3})
      for (int64_t p = 0; p < parts; ++p) {
        Box box = Box::whole(base.dims);
        box.start[d] = base.dims[d] * p / parts;
        box.size[d] = base.dims[d] * (p + 1) / parts - box.start[d];
        if (box.elements() == 0) continue;
        std::vector<float> some = part_of(before, base.dims, box);
        added.apply(box, base.dims, some.data());
        EXPECT_EQ(some, part_of(whole, base.dims, box)) << "dim " << d << ", part " << p << " of " << parts;
      }
}

INSTANTIATE_TEST_SUITE_P(Modules, Merge,
                         testing::Values(Case{"llama", "mlp.down_proj", false}, Case{"llama", "mlp.down_proj", true},
                                         Case{"phi3", "self_attn.qkv_proj", false},
                                         Case{"phi3", "mlp.gate_up_proj", true}, Case{"gpt2", "attn.c_attn", false},
                                         Case{"gpt2", "attn.c_attn", true}, Case{"gpt2", "mlp.c_proj", true}),
                         [](const auto& info) {
                           std::string name = std::string(info.param.model) + "_" + info.param.module;
                           std::ranges::replace(name, '.', '_');
                           return name + (info.param.dora ? "_dora" : "");
                         });

}  // namespace
}  // namespace fettle
