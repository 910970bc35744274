// The weights of every family go to the devices, split over a mesh, and come back as the bytes that were loaded.
#include <gtest/gtest.h>

#include <cstring>

#include "families.h"
#include "step/train_state.h"
#include "temp_folder.h"
#include "train/result.h"

namespace fettle {
namespace {

class FullResult : public testing::TestWithParam<std::string> {};

TEST_P(FullResult, HasTheBytesThatWereLoaded) {
  Recipe recipe;
  recipe.model_name_or_path = std::string(FETTLE_SOURCE_DIR) + "/tests/reference/models/" + GetParam();
  recipe.plugin = "cpu";
  recipe.finetuning_type = "full";
  recipe.device_count = 8;
  const ModelRepository repository = ModelRepository::open(recipe.model_name_or_path);
  const bool experts = make_model(repository.config(), "config.json").config.num_experts > 0;
  recipe.mesh = {{"fsdp", experts ? 2 : 4}, {"ep", experts ? 2 : 1}, {"tp", 2}};
  Devices devices(recipe);
  const Job job = make_job(recipe, repository.config(), "config.json", 8);
  const TempFolder folder;
  write_result(folder.path(), job, repository, load_state(devices, job, repository, false));
  const ModelRepository written = ModelRepository::open(folder.path());
  ASSERT_EQ(written.names(), repository.names());
  for (const std::string& name : written.names()) {
    const StoredTensor got = written.find(name), wanted = repository.find(name);
    EXPECT_EQ(got.entry->shape, wanted.entry->shape) << name;
    const HostArray a = got.file->read(*got.entry), b = wanted.file->read(*wanted.entry);
    ASSERT_EQ(a.bytes(), b.bytes()) << name;
    EXPECT_EQ(std::memcmp(a.data(), b.data(), static_cast<size_t>(a.bytes())), 0) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, FullResult, testing::ValuesIn(kFamilies),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace fettle
