// Tests damaged training state: a run never resumes from wrong bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/saved/checkpoint_list.h"
#include "checkpoint/saved/state.h"
#include "temp_folder.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class DamagedStateFiles : public testing::Test {
 protected:
  DamagedStateFiles() {
    StateWriter writer(folder_ / "state");
    const HostArray row = HostArray::from<float>({DType::kF32, {1, 3}}, {1, 2, 3});
    const std::span<const std::byte> bytes{row.data(), 12};
    writer.add("w", {DType::kF32, {2, 3}}, {{0, 0}, {1, 3}}, bytes);
    writer.add("w", {DType::kF32, {2, 3}}, {{1, 0}, {1, 3}}, bytes);
    writer.add("v", HostArray::from<int32_t>({DType::kI32, {2}}, {4, 5}));
    writer.finish({{"step", 17}, {"model", "abc"}});
    manifest_ = read_text(folder_ / "state/manifest.json");
    shards_ = read_text(folder_ / "state/shards-00001.bin");
  }
  // Returns the error of reading all arrays.
  std::string read_error() {
    return user_error([&] { read_all(); });
  }
  void read_all() {
    StateReader reader(folder_ / "state");
    for (const std::string& name : reader.names()) reader.read(name);
  }
  void put_manifest(const std::string& text) { write_text(folder_ / "state/manifest.json", text); }
  void put_shards(const std::string& bytes) { write_text(folder_ / "state/shards-00001.bin", bytes); }

  TempFolder folder_;
  std::string manifest_, shards_;
};

TEST_F(DamagedStateFiles, GoodOneReads) {
  EXPECT_EQ(read_error(), "no error");
}

TEST_F(DamagedStateFiles, FlippedByteNamesFileTensorAndOffset) {
  shards_[64 + 5] ^= 1;
  put_shards(shards_);
  EXPECT_THAT(read_error(), AllOf(HasSubstr("shards-00001.bin"), HasSubstr("the 12 bytes at offset 64"),
                                  HasSubstr("[1:2, 0:3] of 'w'"), HasSubstr("checksum")));
  EXPECT_THAT(user_error([&] { StateReader(folder_ / "state").verify(); }), HasSubstr("checksum"));
  EXPECT_THROW(read_all(), DamagedState);
}

TEST_F(DamagedStateFiles, OnlyTouchedShardsAreChecked) {
  shards_[64 + 5] ^= 1;
  put_shards(shards_);
  StateReader reader(folder_ / "state");
  float row[3];
  reader.read_slice("w", {{0, 0}, {1, 3}}, reinterpret_cast<std::byte*>(row));
  EXPECT_EQ(row[2], 3);
  EXPECT_NE(user_error([&] {
              reader.read_slice("w", {{1, 2}, {1, 1}}, reinterpret_cast<std::byte*>(row));
            }),
            "no error");
}

TEST_F(DamagedStateFiles, EveryFlippedBitOfTheDataIsFound) {
  for (size_t offset : {size_t{0}, size_t{11}, size_t{64}, size_t{75}, size_t{128}, size_t{135}}) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = shards_;
      bad[offset] = static_cast<char>(bad[offset] ^ 1 << bit);
      put_shards(bad);
      EXPECT_THAT(read_error(), HasSubstr("do not match their checksum")) << offset << " bit " << bit;
    }
  }
}

TEST_F(DamagedStateFiles, ShardFileShorterLongerOrGone) {
  put_shards(shards_.substr(0, shards_.size() - 1));
  EXPECT_THAT(read_error(),
              AllOf(HasSubstr("shards-00001.bin"), HasSubstr("has 135 bytes, but the manifest says 136")));
  EXPECT_THROW(read_all(), DamagedState);
  put_shards(shards_ + "x");
  EXPECT_THAT(read_error(), HasSubstr("has 137 bytes"));
  fs::remove(folder_ / "state/shards-00001.bin");
  EXPECT_THAT(read_error(), AllOf(HasSubstr("cannot read"), HasSubstr("shards-00001.bin")));
  EXPECT_THROW(read_all(), DamagedState);
}

TEST_F(DamagedStateFiles, ManifestIsGoneOrNotOurs) {
  put_manifest("{}");
  EXPECT_THAT(read_error(), HasSubstr("not a manifest of Fettle's state"));
  put_manifest("[1]");
  EXPECT_THAT(read_error(), HasSubstr("not a manifest of Fettle's state"));
  put_manifest(R"({"format":7})");
  EXPECT_THAT(read_error(), HasSubstr("not a manifest of Fettle's state"));
  put_manifest(R"({"format":"fettle-state","version":99})");
  EXPECT_THAT(read_error(), HasSubstr("its version is 99, but this Fettle reads version 1"));
  fs::remove(folder_ / "state/manifest.json");
  EXPECT_THAT(read_error(), AllOf(HasSubstr("cannot read"), HasSubstr("manifest.json")));
  EXPECT_THROW(read_all(), DamagedState);
}

// Changing any byte of the manifest gives an error, unless the change only adds or removes spaces between values.
TEST_F(DamagedStateFiles, EveryByteOfTheManifestCounts) {
  const nlohmann::json good = nlohmann::json::parse(manifest_);
  std::fstream file(folder_ / "state/manifest.json", std::ios::binary | std::ios::in | std::ios::out);
  const auto put = [&](size_t at, char byte) { file.seekp(static_cast<std::streamoff>(at)).put(byte).flush(); };
  for (size_t at = 0; at < manifest_.size(); ++at) {
    for (int value : {int{'0'}, int{'9'}, int{' '}, int{'"'}, int{'}'}, manifest_[at] ^ 1, manifest_[at] ^ 32}) {
      std::string bad = manifest_;
      bad[at] = static_cast<char>(value);
      if (nlohmann::json::parse(bad, nullptr, false) == good) continue;
      put(at, bad[at]);
      ASSERT_NE(read_error(), "no error") << "byte " << at << " to " << value;
    }
    put(at, manifest_[at]);
  }
  EXPECT_EQ(read_error(), "no error");
  for (size_t size = 0; size + 2 < manifest_.size(); size += 7) {
    put_manifest(manifest_.substr(0, size));
    ASSERT_NE(read_error(), "no error") << size;
  }
}

TEST_F(DamagedStateFiles, OtherModelOrRecipe) {
  StateReader reader(folder_ / "state");
  EXPECT_THAT(user_error([&] { reader.read("u"); }), AllOf(HasSubstr("has no tensor 'u'"), HasSubstr("another model")));
  EXPECT_THROW(reader.read_slice("w", {{1, 0}, {2, 3}}, nullptr), InternalError);
}

TEST(CheckpointFolders, NamedOneMustBeSound) {
  TempFolder folder;
  const auto error = [&](const fs::path& path) {
    return user_error([&] { find_checkpoint(folder.path(), path.string()); });
  };
  EXPECT_THAT(error(folder / "checkpoint-1"), AllOf(HasSubstr("does not exist"), HasSubstr("resume_from_checkpoint")));
  fs::create_directories(folder / "checkpoint-1");
  EXPECT_THAT(error(folder / "checkpoint-1"),
              AllOf(HasSubstr("has no state/ folder"), HasSubstr("adapter_name_or_path")));
  write_text(folder / "checkpoint-2/training_args.bin", "");
  EXPECT_THAT(error(folder / "checkpoint-2"),
              AllOf(HasSubstr("a checkpoint of another tool"), HasSubstr("adapter_name_or_path")));
  StateWriter(folder / "checkpoint-3/state").finish({{"step", 3}});
  EXPECT_THAT(error(folder.path()),
              HasSubstr("is none itself; set resume_from_checkpoint to the newest complete one, " +
                        (folder / "checkpoint-3").string()));
  fs::create_directories(folder / "checkpoint-1/state");
  EXPECT_EQ(error(folder / "checkpoint-1"), "no error") << "StateReader checks whether it is intact";
}

TEST(StateDisk, UnwritablePlace) {
  TempFolder folder;
  write_text(folder / "file", "");
  EXPECT_THAT(user_error([&] { StateWriter(folder / "file/state"); }), HasSubstr("cannot create"));
}

}  // namespace
}  // namespace fettle
