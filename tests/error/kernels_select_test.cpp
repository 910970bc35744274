// Tests the values of the recipe's `kernels`: auto and off, names, and unknown names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "kernels/kernels.h"

namespace fettle {
namespace {

using testing::HasSubstr;

std::vector<std::string> names(std::string_view platform, const std::vector<std::string>& wanted,
                               std::string_view capability = "") {
  std::vector<std::string> out;
  for (const KernelRow* row : select_kernels(platform, wanted, capability)) out.emplace_back(row->name());
  return out;
}

TEST(SelectKernels, ByWordAndName) {
  using Names = std::vector<std::string>;
  Names of_cpu;
  for (const KernelRow& row : kernel_rows())
    if (row.platform == "cpu") of_cpu.emplace_back(row.name());
  EXPECT_EQ(names("cpu", {"auto"}), of_cpu);
  EXPECT_EQ(names("cpu", {"off"}), Names{});
  EXPECT_EQ(names("cpu", {}), Names{});
  EXPECT_EQ(names("cpu", {"cpu_attention"}), Names{"cpu_attention"});
  EXPECT_EQ(names("tpu", {"auto"}), Names{});
  EXPECT_EQ(names("tpu", {"cpu_attention"}), Names{}) << "a recipe may be used on other machines";
  EXPECT_EQ(names("cuda", {"auto"}, "9.0"), Names{"cuda_attention"});
  EXPECT_EQ(names("cuda", {"auto"}, "9.0a"), Names{"cuda_attention"}) << "as targets write it";
  EXPECT_EQ(names("cuda", {"auto"}, "8.0"), Names{}) << "it has not run on such a device yet";
  EXPECT_EQ(names("rocm", {"auto"}, "gfx942"), Names{}) << "it has not run on such a device yet";
  EXPECT_EQ(names("cuda", {"cuda_attention", "rocm_attention"}), Names{"cuda_attention"});
  EXPECT_EQ(names("cuda", {"cuda_attention", "cudnn_attention"}), (Names{"cudnn_attention", "cuda_attention"}))
      << "the first one that supports a shape is used";
  EXPECT_EQ(names("rocm", {"cuda_attention", "rocm_attention"}), Names{"rocm_attention"});
}

std::string error(const std::vector<std::string>& wanted) {
  try {
    require_kernel_names(wanted, "recipe.yaml:12");
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(SelectKernels, RefusesUnknownNames) {
  EXPECT_EQ(error({"auto"}) + error({"off"}) + error({"cpu_attention"}), "");
  EXPECT_THAT(error({"cpu_attention", "flash"}),
              HasSubstr("recipe.yaml:12: kernels: no kernel is called 'flash'; wanted auto, off, or names from: "
                        "cpu_attention"));
  EXPECT_THAT(error({"auto", "cpu_attention"}), HasSubstr("'auto'")) << "a word must be the only entry";
}

}  // namespace
}  // namespace fettle
