// Defines RecipeShape, for tests that read recipes of other tools.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "config/recipe.h"

namespace fettle {

class RecipeShape : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() /
              (std::string("fettle_shape_") + testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return (folder_ / name).string();
  }
  // Reads the recipe; said_ then has what was printed.
  Recipe read(const std::string& text, const std::vector<std::string>& overrides = {}) {
    testing::internal::CaptureStderr();
    try {
      Recipe recipe = read_recipe(write("recipe.yaml", text), overrides);
      said_ = testing::internal::GetCapturedStderr();
      return recipe;
    } catch (const UserError& error) {
      said_ = testing::internal::GetCapturedStderr();
      throw;
    }
  }
  // Returns the error's text; "" if there is none.
  std::string refusal(const std::string& text, const std::vector<std::string>& overrides = {}) {
    try {
      read(text, overrides);
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  }

  std::filesystem::path folder_;
  std::string said_;
};

}  // namespace fettle
