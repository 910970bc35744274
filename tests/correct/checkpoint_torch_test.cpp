// Tests PyTorch checkpoints: files that PyTorch wrote, files made by hand, views, and repositories.
#include <gtest/gtest.h>

#include "checkpoint/repository.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/torch/torch_file.h"
#include "paths.h"
#include "temp_folder.h"
#include "torch_files.h"

namespace fettle {
namespace {

const std::filesystem::path kWritten = source_folder() / "tests/reference/checkpoint";

std::vector<float> values_of(const TensorFile& file, const std::string& name) {
  const TensorEntry* entry = file.find(name);
  if (entry == nullptr) return {};
  const HostArray array = file.read(*entry).to(DType::kF32);
  return {array.as<float>().begin(), array.as<float>().end()};
}

// tests/reference/checkpoint/make.py wrote both files with the same tensors. In views.bin, some of them are views.
TEST(TorchFile, ContainsWhatPyTorchSaved) {
  const TorchFile file = TorchFile::open(kWritten / "views.bin");
  const SafetensorsFile wanted = SafetensorsFile::open(kWritten / "views.safetensors");
  ASSERT_EQ(file.entries().size(), wanted.entries().size());
  for (const TensorEntry& entry : wanted.entries()) {
    const TensorEntry* found = file.find(entry.name);
    ASSERT_NE(found, nullptr) << entry.name;
    EXPECT_EQ(found->shape, entry.shape) << entry.name;
    const HostArray got = file.read(*found), right = wanted.read(entry);
    EXPECT_EQ(std::memcmp(got.data(), right.data(), static_cast<size_t>(right.bytes())), 0) << entry.name;
  }
  EXPECT_TRUE(file.find("matrix")->dense());
  EXPECT_FALSE(file.find("transposed")->dense());
  EXPECT_TRUE(file.find("rows")->dense()) << "an offset does not make a tensor strided";
  EXPECT_EQ(file.find("matrix")->offset, file.find("tied")->offset) << "one storage, two names";
}

TEST(TorchFile, BoxesOfViewsAreRead) {
  TempFolder folder;
  std::vector<float> values(24);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  Pickle pickle;
  pickle.dict().raw("(").text("t").tensor("0", 24, 2, {4, 3}, {1, 5}).raw("u");
  write_text(folder / "f.bin", zip_of({{"f/data.pkl", pickle.stop()}, {"f/data/0", floats(values)}}));
  const TorchFile file = TorchFile::open(folder / "f.bin");
  EXPECT_EQ(values_of(file, "t"), (std::vector<float>{2, 7, 12, 3, 8, 13, 4, 9, 14, 5, 10, 15}));
  std::vector<float> box(4);
  file.read_slice(*file.find("t"), {{1, 1}, {2, 2}}, DType::kF32, reinterpret_cast<std::byte*>(box.data()));
  EXPECT_EQ(box, (std::vector<float>{8, 13, 9, 14}));
  EXPECT_EQ(file.find("t")->bytes, (13 + 1) * 4) << "from the first element to the last";
}

TEST(TorchFile, EmptyTensorsAndDimsOfOneElement) {
  TempFolder folder;
  Pickle pickle;
  pickle.dict().raw("(").text("empty").tensor("0", 2, 2, {0, 5}, {7, 7}).text("column");
  pickle.tensor("0", 2, 0, {2, 1}, {1, 99}).text("scalar").tensor("0", 2, 1, {}, {}).raw("u");
  write_text(folder / "f.bin", zip_of({{"f/data.pkl", pickle.stop()}, {"f/data/0", floats({3, 4})}}));
  const TorchFile file = TorchFile::open(folder / "f.bin");
  EXPECT_EQ(file.find("empty")->shape.elements(), 0);
  EXPECT_TRUE(file.find("column")->dense());
  EXPECT_EQ(values_of(file, "column"), (std::vector<float>{3, 4}));
  EXPECT_EQ(values_of(file, "scalar"), (std::vector<float>{4}));
}

TEST(TorchRepository, OneFileAndShards) {
  const std::string one = Pickle().dict().raw("(").text("a").tensor("0", 2, 0, {2}, {1}).raw("u").stop();
  const std::string two = Pickle().dict().raw("(").text("b").tensor("0", 3, 0, {3}, {1}).raw("u").stop();
  TempFolder single;
  write_text(single / "config.json", "{}");
  write_text(single / "pytorch_model.bin", zip_of({{"x/data.pkl", one}, {"x/data/0", floats({1, 2})}}));
  EXPECT_EQ(ModelRepository::open(single.path()).names(), (std::vector<std::string>{"a"}));
  TempFolder folder;
  write_text(folder / "config.json", "{}");
  write_text(folder / "one.bin", zip_of({{"x/data.pkl", one}, {"x/data/0", floats({1, 2})}}));
  write_text(folder / "two.bin", zip_of({{"y/data.pkl", two}, {"y/data/0", floats({3, 4, 5})}}));
  write_text(folder / "pytorch_model.bin.index.json", R"({"weight_map": {"a": "one.bin", "b": "two.bin"}})");
  const ModelRepository repository = ModelRepository::open(folder.path());
  EXPECT_EQ(repository.names(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(repository.total_bytes(), 20);
  const StoredTensor b = repository.find("b");
  EXPECT_EQ(values_of(*b.file, "b"), (std::vector<float>{3, 4, 5}));
}

// If a folder has both kinds of files, the safetensors files are read.
TEST(TorchRepository, SafetensorsFirst) {
  TempFolder folder;
  write_text(folder / "config.json", "{}");
  write_text(folder / "pytorch_model.bin", "not even a zip file");
  std::filesystem::copy(kWritten / "views.safetensors", folder / "model.safetensors");
  EXPECT_TRUE(ModelRepository::open(folder.path()).contains("matrix"));
}

}  // namespace
}  // namespace fettle
