#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "checkpoint/safetensors.h"
#include "checkpoint/safetensors_writer.h"
#include "paths.h"
#include "temp_folder.h"

namespace fettle {
namespace {

const std::filesystem::path kReference = source_folder() / "tests/reference/checkpoint";

std::span<const std::byte> bytes_of(const HostArray& array) {
  return {array.data(), static_cast<size_t>(array.bytes())};
}

HostArray counting(const Dims& dims) {
  std::vector<float> values(static_cast<size_t>(product(dims)));
  std::iota(values.begin(), values.end(), 0.0f);
  return HostArray::from({DType::kF32, dims}, values);
}

// Writes and opens a file with one f32 tensor "w", whose elements count up from 0.
SafetensorsFile counting_file(const TempFolder& folder, const Dims& dims) {
  const HostArray array = counting(dims);
  SafetensorsWriter writer(folder / "w.safetensors", {{"w", array.shape()}});
  writer.write("w", bytes_of(array));
  writer.finish();
  return SafetensorsFile::open(folder / "w.safetensors");
}

std::vector<float> read_slice(const SafetensorsFile& file, const Box& box) {
  std::vector<float> out(static_cast<size_t>(box.elements()));
  file.read_slice(*file.find("w"), box, reinterpret_cast<std::byte*>(out.data()));
  return out;
}

// Copies all tensors of `from` to `to`, in file order or backwards, in pieces of `piece` bytes.
void copy(const std::filesystem::path& from, const std::filesystem::path& to, bool backwards, size_t piece) {
  const SafetensorsFile file = SafetensorsFile::open(from);
  NamedShapes shapes;
  for (const TensorEntry& entry : file.entries()) shapes.emplace_back(entry.name, entry.shape);
  if (backwards) std::reverse(shapes.begin(), shapes.end());
  SafetensorsWriter writer(to, shapes, file.metadata());
  for (const auto& [name, shape] : shapes) {
    file.with_bytes(*file.find(name), [&, &name = name](std::span<const std::byte> bytes) {
      for (size_t at = 0; at < bytes.size(); at += piece)
        writer.write(name, bytes.subspan(at, std::min(piece, bytes.size() - at)), static_cast<int64_t>(at));
    });
  }
  writer.finish();
}

TEST(Safetensors, ReadsWhatTheLibraryWrote) {
  const SafetensorsFile file = SafetensorsFile::open(kReference / "mixed.safetensors");
  EXPECT_EQ(file.entries().size(), 17u);
  EXPECT_THAT(file.metadata(), testing::ElementsAre(testing::Pair("format", "pt")));
  const TensorEntry* b = file.find("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->shape, (Shape{DType::kF32, {2, 3, 4}}));
  const HostArray values = file.read(*b);
  for (int i = 0; i < 24; ++i) EXPECT_EQ(values.as<float>()[static_cast<size_t>(i)], static_cast<float>(i + 1));
  EXPECT_EQ(file.read(*file.find("scalar")).as<float>()[0], 7.0f);
  EXPECT_EQ(file.find("empty")->shape, (Shape{DType::kF32, {0, 3}}));
  EXPECT_EQ(file.find("a.torch.uint64"), nullptr);
  EXPECT_EQ(file.find("z.torch.uint64")->shape.dtype, DType::kU64);
  EXPECT_NE(file.find("name \"with\" \\ \t \x01 / \x7f \u00e9\u4e2d\U0001f600"), nullptr);
}

TEST(Safetensors, EntriesAreInFileOrder) {
  const SafetensorsFile file = SafetensorsFile::open(kReference / "mixed.safetensors");
  int64_t end = file.entries().front().offset;
  for (const TensorEntry& entry : file.entries()) {
    EXPECT_EQ(entry.offset, end) << entry.name;
    end += entry.bytes;
  }
  EXPECT_EQ(end, static_cast<int64_t>(std::filesystem::file_size(file.path())));
}

TEST(Safetensors, CopyOfALibraryFileHasTheSameBytes) {
  TempFolder folder;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(kReference))
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
  ASSERT_GE(files.size(), 7u);
  for (const std::filesystem::path& file : files) {
    copy(file, folder / "copy.safetensors", false, 1 << 20);
    EXPECT_EQ(read_text(folder / "copy.safetensors"), read_text(file)) << file;
    copy(file, folder / "copy.safetensors", true, 3);
    EXPECT_EQ(read_text(folder / "copy.safetensors"), read_text(file)) << file << ", backwards in pieces";
  }
}

// The order of Hugging Face's library (Dtype in safetensors/src/tensor.rs).
TEST(Safetensors, BytesOf8BitFloatsComeAfterWiderOnes) {
  TempFolder folder;
  const NamedShapes tensors{
      {"a", {DType::kF8E4M3FN, {3}}}, {"b", {DType::kF32, {2}}}, {"c", {DType::kI8, {1}}}, {"d", {DType::kI16, {1}}}};
  SafetensorsWriter writer(folder / "w.safetensors", tensors);
  for (const auto& [name, shape] : tensors)
    writer.write(name, std::vector<std::byte>(static_cast<size_t>(shape.bytes())));
  writer.finish();
  const SafetensorsFile file = SafetensorsFile::open(folder / "w.safetensors");
  std::string order;
  for (const TensorEntry& entry : file.entries()) order += entry.name;
  EXPECT_EQ(order, "bdac");
}

TEST(Safetensors, FileWithoutTensors) {
  TempFolder folder;
  SafetensorsWriter(folder / "none.safetensors", {}, {}).finish();
  EXPECT_EQ(read_text(folder / "none.safetensors"), std::string("\x08\0\0\0\0\0\0\0{}      ", 16));
  EXPECT_TRUE(SafetensorsFile::open(folder / "none.safetensors").entries().empty());
}

TEST(Safetensors, UnpaddedHeaderAndUnalignedDataAreRead) {
  TempFolder folder;
  const std::string header = R"({"w":{"shape":[2],"data_offsets":[0,8],"dtype":"F32"}})";
  ASSERT_NE(header.size() % 4, 0u);
  std::string text(1, static_cast<char>(header.size()));
  text += std::string(7, '\0') + header;
  const float values[2] = {1.5f, -2};
  text.append(reinterpret_cast<const char*>(values), 8);
  write_text(folder / "w.safetensors", text);
  EXPECT_THAT(read_slice(SafetensorsFile::open(folder / "w.safetensors"), Box::whole({2})),
              testing::ElementsAre(1.5f, -2));
}

TEST(Safetensors, SlicesRowsColumnsAndInnerBoxes) {
  TempFolder folder;
  const SafetensorsFile file = counting_file(folder, {2, 3, 4});
  EXPECT_THAT(read_slice(file, {{1, 0, 0}, {1, 3, 4}}),
              testing::ElementsAre(12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23));
  EXPECT_THAT(read_slice(file, {{0, 1, 0}, {2, 1, 4}}), testing::ElementsAre(4, 5, 6, 7, 16, 17, 18, 19));
  EXPECT_THAT(read_slice(file, {{0, 1, 2}, {2, 2, 1}}), testing::ElementsAre(6, 10, 18, 22));
  EXPECT_THROW(read_slice(file, {{0, 1, 2}, {2, 3, 1}}), InternalError);
}

TEST(Safetensors, SlicesConvertBetweenFloats) {
  TempFolder folder;
  const SafetensorsFile file = counting_file(folder, {3, 4});
  HostArray out({DType::kBF16, {3, 2}});
  file.read_slice(*file.find("w"), {{0, 2}, {3, 2}}, DType::kBF16, out.data());
  const float wanted[6] = {2, 3, 6, 7, 10, 11};
  for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(load_float(out.data(), DType::kBF16, i), wanted[i]);
}

TEST(Safetensors, ReleasedPagesAreReadAgain) {
  TempFolder folder;
  const SafetensorsFile file = counting_file(folder, {64, 1024});
  const TensorEntry& entry = *file.find("w");
  const std::vector<float> before = read_slice(file, Box::whole(entry.shape.dims));
  file.release(entry);
  EXPECT_EQ(read_slice(file, Box::whole(entry.shape.dims)), before);
}

TEST(Safetensors, ReadingAndReleasingKeepsMemorySmall) {
  TempFolder folder;
  const SafetensorsFile file = counting_file(folder, {64, 1 << 18});  // 64 MiB
  const auto resident_pages = [] {
    std::ifstream statm("/proc/self/statm");
    int64_t total = 0, resident = 0;
    statm >> total >> resident;
    return resident;
  };
  const TensorEntry& entry = *file.find("w");
  std::vector<float> row(1 << 18);
  const int64_t before = resident_pages();
  for (int64_t i = 0; i < 64; ++i) {
    file.read_slice(entry, {{i, 0}, {1, 1 << 18}}, reinterpret_cast<std::byte*>(row.data()));
    EXPECT_EQ(row[5], static_cast<float>((i << 18) + 5));
    file.release(entry);
  }
  EXPECT_LT(resident_pages() - before, 16 << 8);  // 16 MiB of 4 KiB pages
}

TEST(Safetensors, WriterOverwritesAnOlderFile) {
  TempFolder folder;
  write_text(folder / "w.safetensors", std::string(10000, 'x'));
  EXPECT_EQ(counting_file(folder, {2}).entries().size(), 1u);
}

TEST(Safetensors, UnfinishedFileDisappears) {
  TempFolder folder;
  {
    SafetensorsWriter writer(folder / "w.safetensors", {{"w", {DType::kF32, {2}}}});
    EXPECT_TRUE(std::filesystem::exists(folder / "w.safetensors"));
    EXPECT_THROW(writer.finish(), InternalError);
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "w.safetensors"));
}

TEST(Safetensors, WriterRefusesBytesOutsideOfATensor) {
  TempFolder folder;
  const HostArray two = counting({2});
  SafetensorsWriter writer(folder / "w.safetensors", {{"w", two.shape()}});
  EXPECT_THROW(writer.write("v", bytes_of(two)), InternalError);
  EXPECT_THROW(writer.write("w", bytes_of(two), 4), InternalError);
  writer.write("w", bytes_of(two));
  EXPECT_THROW(writer.write("w", bytes_of(two)), InternalError);
  EXPECT_THROW(SafetensorsWriter(folder / "v.safetensors", {{"v", two.shape()}, {"v", two.shape()}}), InternalError);
}

}  // namespace
}  // namespace fettle
