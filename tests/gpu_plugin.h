// Defines require_gpu_plugin, for tests that compile with a vendor's plugin.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "runtime/vendors/plugin.h"

namespace fettle {

// If the plugin is missing, fails the test, or skips it when FETTLE_TEST_WITHOUT_GPU_PLUGINS is set. Call it at the end
// of SetUp. A test whose body calls it must return if it was skipped or has failed.
inline void require_gpu_plugin(const std::string& name) {
  if (!Plugin::find(name).empty()) return;
  if (std::getenv("FETTLE_TEST_WITHOUT_GPU_PLUGINS") != nullptr) GTEST_SKIP() << "the " << name << " plugin is missing";
  FAIL() << "the " << name
         << " plugin is missing: run `make plugins` (about 390 MB, kept outside the checkout), or set "
         << "FETTLE_TEST_WITHOUT_GPU_PLUGINS=1 to leave the vendors' compilers untested";
}

}  // namespace fettle
