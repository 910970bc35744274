// Defines Loaded, a reference model (tests/reference/models) whose weights are on a device, ready to generate.
#pragma once

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "generate/decode.h"
#include "paths.h"
#include "resolve_run.h"
#include "run/device_request.h"
#include "test_plugin.h"

namespace fettle {

inline const std::filesystem::path kReferenceModels = source_folder() / "tests/reference/models";

inline nlohmann::json reference_of(const std::string& family) {
  return nlohmann::json::parse(std::ifstream(kReferenceModels / family / "reference.json"));
}

inline Recipe reference_recipe(const std::string& family, bool tuned = false) {
  Recipe recipe;
  recipe.model_name_or_path = (kReferenceModels / family).string();
  if (tuned) recipe.adapter_name_or_path = {(kReferenceModels / family / "adapter_final").string()};
  use_test_plugin(recipe);
  recipe.do_sample = false;
  return recipe;
}

struct Loaded {
  Devices devices;
  ModelRepository repository;
  Run run;
  TrainState state;

  explicit Loaded(const Recipe& recipe)
      : devices(device_request(recipe)),
        repository(ModelRepository::open(recipe.model_name_or_path)),
        run(make_run(recipe, repository.config(), "config.json", devices.count(), Purpose::kInference)),
        state(load_state(devices, run, repository, false)) {}
};

// Returns `count` greedy tokens after `ids`.
inline std::vector<int32_t> continue_greedily(Generator& generator, std::vector<int32_t> ids, int64_t count) {
  const auto prompt = static_cast<std::ptrdiff_t>(ids.size());
  for (int64_t i = 0; i < count; ++i) {
    const std::vector<float> logits = generator.logits(ids);
    ids.push_back(static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
  }
  return {ids.begin() + prompt, ids.end()};
}

inline double largest_difference(std::span<const float> a, std::span<const float> b) {
  double largest = a.size() == b.size() ? 0 : 1e30;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i)
    largest = std::max(largest, std::abs(static_cast<double>(a[i]) - b[i]));
  return largest;
}

}  // namespace fettle
