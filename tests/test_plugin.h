// Defines the plugin and the share of memory with which tests of ops, training and generation run. `make test-device`
// runs them on a GPU.
#pragma once

#include <cstdlib>
#include <string>

#include "config/recipe.h"

namespace fettle {

// The small models of the tests need little memory, and several test programs share a GPU.
inline constexpr double kTestMemoryShare = 0.04;

// Returns the plugin that FETTLE_TEST_PLUGIN names, as the recipe's key `plugin` does; by default "cpu".
inline std::string test_plugin() {
  const char* name = std::getenv("FETTLE_TEST_PLUGIN");
  return name != nullptr ? name : "cpu";
}

// Makes the recipe's run use test_plugin().
inline void use_test_plugin(Recipe& recipe) {
  recipe.plugin = test_plugin();
  recipe.gpu_memory_utilization = kTestMemoryShare;
}

}  // namespace fettle
