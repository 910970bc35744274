// Tests hostile .safetensors files: each malformed field gives a UserError that names the file and the field.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include "base/files/output_file.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/safetensors_writer.h"
#include "temp_folder.h"

namespace fettle {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string length_of(uint64_t bytes) {
  std::string text;
  for (int i = 0; i < 8; ++i) text += static_cast<char>(bytes >> (8 * i) & 0xff);
  return text;
}

class HostileFile : public testing::Test {
 protected:
  // Returns the error of opening a file with these bytes. Checks that the error names the file.
  std::string open_bytes(const std::string& bytes) {
    write_text(path_, bytes);
    const std::string error = user_error([&] { SafetensorsFile::open(path_); });
    EXPECT_THAT(error, testing::AnyOf("no error", HasSubstr(path_.string())));
    return error;
  }
  std::string open_header(const std::string& header, size_t data = 8) {
    return open_bytes(length_of(header.size()) + header + std::string(data, '\1'));
  }

  TempFolder folder_;
  std::filesystem::path path_ = folder_ / "bad.safetensors";
};

const std::string kGood = R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";

TEST_F(HostileFile, GoodOneOpens) {
  EXPECT_EQ(open_header(kGood), "no error");
}

TEST_F(HostileFile, MissingFolderOrFile) {
  EXPECT_THAT(user_error([&] { SafetensorsFile::open(folder_ / "none.safetensors"); }),
              AllOf(HasSubstr("none.safetensors"), HasSubstr("No such file")));
  EXPECT_THAT(user_error([&] { SafetensorsFile::open(folder_.path()); }), HasSubstr("it is a folder"));
}

TEST_F(HostileFile, TooShortForALength) {
  EXPECT_THAT(open_bytes(""), HasSubstr("it has 0 bytes"));
  EXPECT_THAT(open_bytes("1234567"), HasSubstr("it has 7 bytes"));
}

TEST_F(HostileFile, WrongHeaderLength) {
  EXPECT_THAT(open_bytes(length_of(1000) + kGood), HasSubstr("the header has 1000 bytes but the file ends after 54"));
  EXPECT_THAT(open_bytes(length_of(100'000'001) + kGood), HasSubstr("at most 100000000"));
  EXPECT_THAT(open_bytes(length_of(~uint64_t{0}) + kGood), HasSubstr("18446744073709551615"));
  EXPECT_THAT(open_bytes(length_of(0) + kGood), HasSubstr("does not start with '{'"));
}

TEST_F(HostileFile, LargeFilesPointer) {
  EXPECT_THAT(open_bytes("version https://git-lfs.github.com/spec/v1\noid sha256:1\n"), HasSubstr("git lfs pull"));
}

TEST_F(HostileFile, NotJson) {
  EXPECT_THAT(open_header("<html>"), HasSubstr("does not start with '{'"));
  EXPECT_THAT(open_header("{\"w\":"), HasSubstr("not valid JSON at byte"));
  EXPECT_THAT(open_header(kGood + "x"), HasSubstr("not valid JSON at byte 55"));
  EXPECT_THAT(open_header("{\"\xff\":1}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(open_header(std::string("{\0}", 3)), HasSubstr("not valid JSON"));
}

TEST_F(HostileFile, WrongStructure) {
  EXPECT_THAT(open_header(R"({"w":1})"), HasSubstr("tensor 'w': found a number, wanted an object"));
  EXPECT_THAT(open_header(R"({"w":[]})"), HasSubstr("found an array"));
  EXPECT_THAT(open_header(R"({"w":null})"), HasSubstr("found null"));
  EXPECT_THAT(open_header(R"({"w":{"dtype":7}})"), HasSubstr("tensor 'w' dtype: found a number, wanted a string"));
  EXPECT_THAT(open_header(R"({"w":{"dtype":"F32","shape":{}}})"),
              HasSubstr("'w' shape: found an object, wanted an array"));
  EXPECT_THAT(open_header(R"({"w":{"dtype":"F32","shape":[[1]]}})"), HasSubstr("wanted a whole number"));
  EXPECT_THAT(open_header(R"({"w":{"dtype":"F32","shape":["1"]}})"), HasSubstr("found a string"));
  EXPECT_THAT(open_header(R"({"w":{"dtype":"F32","shape":[true]}})"), HasSubstr("found a boolean"));
  EXPECT_THAT(open_header(R"({"w":{"dtype":"F32","shape":[2]}})"), HasSubstr("no 'data_offsets'"));
  EXPECT_THAT(open_header(R"({"w":{"dtype":"F32","data_offsets":[0,8]}})"), HasSubstr("no 'shape'"));
  EXPECT_THAT(open_header(R"({"w":{"shape":[2],"data_offsets":[0,8]}})"), HasSubstr("no 'dtype'"));
  EXPECT_THAT(open_header(R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8,9]}})"),
              HasSubstr("with two numbers"));
  EXPECT_THAT(open_header(R"({"w":{"type":"F32"}})"), HasSubstr("unknown field 'type'"));
  EXPECT_THAT(open_header(R"({"__metadata__":{"a":1}})"), HasSubstr("__metadata__: found a number, wanted a string"));
  EXPECT_THAT(open_header(R"({"__metadata__":"a"})"), HasSubstr("__metadata__: found a string, wanted an object"));
}

TEST_F(HostileFile, DeepNestingIsRefusedAtOnce) {
  EXPECT_THAT(open_header("{\"w\":" + std::string(5'000'000, '[')), HasSubstr("found an array"));
}

TEST_F(HostileFile, Duplicates) {
  EXPECT_THAT(open_header(R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"w":{}})"),
              HasSubstr("the name 'w' occurs twice"));
  EXPECT_THAT(open_header(R"({"w":{"dtype":"F32","dtype":"F32"}})"), HasSubstr("'dtype' occurs twice"));
  EXPECT_THAT(open_header(R"({"w":{"dtype":"F32","shape":[2],"shape":[2]}})"), HasSubstr("'shape' occurs twice"));
  EXPECT_THAT(open_header(R"({"__metadata__":{},"__metadata__":{}})"), HasSubstr("twice"));
  EXPECT_THAT(open_header(R"({"__metadata__":{"a":"","a":""}})"), HasSubstr("'a' occurs twice"));
}

TEST_F(HostileFile, Dtype) {
  EXPECT_THAT(open_header(R"({"w":{"dtype":"Q4","shape":[2],"data_offsets":[0,8]}})"),
              AllOf(HasSubstr("tensor 'w'"), HasSubstr("unknown dtype 'Q4'")));
  EXPECT_THAT(open_header(R"({"w":{"dtype":"f32","shape":[2],"data_offsets":[0,8]}})"),
              HasSubstr("unknown dtype 'f32'"));
}

TEST_F(HostileFile, Dims) {
  const auto shape = [&](const std::string& dims) {
    return open_header(R"({"w":{"dtype":"F32","shape":[)" + dims + R"(],"data_offsets":[0,8]}})");
  };
  EXPECT_THAT(shape("-2"), HasSubstr("tensor 'w' shape: -2 is negative"));
  EXPECT_THAT(shape("2.0"), HasSubstr("not a whole number"));
  EXPECT_THAT(shape("1e3"), HasSubstr("not a whole number"));
  EXPECT_THAT(shape("18446744073709551615"), HasSubstr("too large"));
  EXPECT_THAT(shape("18446744073709551618"), HasSubstr("not a whole number"));
  EXPECT_THAT(shape("9223372036854775807"), HasSubstr("overflows"));
  EXPECT_THAT(shape("4294967296, 4294967296"), HasSubstr("overflows"));
  EXPECT_THAT(shape("3"), HasSubstr("cover 8 bytes, but f32[3] needs 12"));
  EXPECT_THAT(shape("0"), HasSubstr("cover 8 bytes, but f32[0] needs 0"));
  EXPECT_EQ(shape("1, 2, 1"), "no error");
}

TEST_F(HostileFile, Offsets) {
  const auto two = [&](const std::string& a, const std::string& b, size_t data = 16) {
    return open_header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[)" + a +
                           R"(]},"b":{"dtype":"F32","shape":[2],"data_offsets":[)" + b + "]}}",
                       data);
  };
  EXPECT_EQ(two("0,8", "8,16"), "no error");
  EXPECT_EQ(two("8,16", "0,8"), "no error");
  EXPECT_THAT(two("0,8", "4,12"), HasSubstr("tensor 'b' at offset 4 overlaps 'a', which ends at 8"));
  EXPECT_THAT(two("0,8", "0,8"), HasSubstr("overlaps"));
  EXPECT_THAT(two("0,8", "12,20", 20), HasSubstr("tensor 'b' starts at offset 12: there is a hole of 4 bytes"));
  EXPECT_THAT(two("4,12", "12,20", 20), HasSubstr("tensor 'a' starts at offset 4: there is a hole of 4"));
  EXPECT_THAT(two("0,8", "8,16", 20), HasSubstr("4 bytes follow the last tensor, at offset 16"));
  EXPECT_THAT(two("0,8", "8,16", 12), AllOf(HasSubstr("tensor 'b'"), HasSubstr("end beyond the 12 bytes")));
  EXPECT_THAT(two("0,8", "16,8"), HasSubstr("end before they begin"));
  EXPECT_THAT(two("0,8", "-8,0"), HasSubstr("tensor 'b' data_offsets: -8 is negative"));
  EXPECT_THAT(two("0,8", "9223372036854775800,9223372036854775807"), HasSubstr("end beyond"));
  EXPECT_THAT(open_header("{}", 8), HasSubstr("8 bytes follow the last tensor, at offset 0"));
}

// Changes each byte of the header to every value: the file is refused or is valid. Every truncated file is refused.
TEST_F(HostileFile, EveryByteFlipAndEveryTruncation) {
  const std::string header = R"({"__metadata__":{"f":"pt"},"a":{"dtype":"F16","shape":[1,2],"data_offsets":[0,4]},)"
                             R"("b":{"dtype":"U8","shape":[],"data_offsets":[4,5]}} )";
  const std::string good = length_of(header.size()) + header + "12345";
  ASSERT_EQ(open_bytes(good), "no error");
  std::fstream file_bytes(path_, std::ios::binary | std::ios::in | std::ios::out);
  const auto put = [&](size_t at, char byte) { file_bytes.seekp(static_cast<std::streamoff>(at)).put(byte).flush(); };
  int sound = 0;
  for (size_t at = 0; at < 8 + header.size(); ++at) {
    for (int value = 0; value < 256; ++value) {
      put(at, static_cast<char>(value));
      try {
        const SafetensorsFile file = SafetensorsFile::open(path_);
        int64_t bytes = 0;
        for (const TensorEntry& entry : file.entries()) bytes += file.read(entry).bytes();
        ASSERT_EQ(bytes, 5);
        ++sound;
      } catch (const UserError& error) {
        ASSERT_NE(std::string_view(error.what()).find("bad.safetensors"), std::string_view::npos);
      }
    }
    put(at, good[at]);
  }
  EXPECT_GT(sound, 8 + static_cast<int>(header.size()));  // unchanged bytes, and bytes that only change a name
  for (size_t size = 0; size < good.size(); ++size) EXPECT_NE(open_bytes(good.substr(0, size)), "no error") << size;
}

TEST(SafetensorsDisk, UnwritablePlace) {
  TempFolder folder;
  write_text(folder / "file", "");
  EXPECT_THAT(user_error([&] { SafetensorsWriter(folder / "file/w.safetensors", {}); }),
              AllOf(HasSubstr("cannot write"), HasSubstr("a part of the path is a file")));
  EXPECT_THAT(user_error([&] { SafetensorsWriter(folder / "none/w.safetensors", {}); }),
              HasSubstr("none/w.safetensors"));
}

TEST(SafetensorsDisk, FullDiskIsFoundBeforeAnyByteAndLeavesNothing) {
  TempFolder folder;
  const int64_t elements = int64_t{1} << 58;
  EXPECT_THAT(([&] {
                SafetensorsWriter(folder / "w.safetensors", {{"w", {DType::kF32, {elements}}}});
              }),
              testing::ThrowsMessage<DoesNotFit>(
                  AllOf(HasSubstr("cannot write"), HasSubstr("w.safetensors"), HasSubstr("GB left"))));
  EXPECT_TRUE(list_tree(folder.path()).empty());
}

TEST(SafetensorsDisk, WriteThatFailsHalfwayLeavesNothing) {
  TempFolder folder;
  struct rlimit old {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto old_handler = signal(SIGXFSZ, SIG_IGN);
  OutputFile file(folder / "w.bin");
  const struct rlimit small { 4096, old.rlim_max };
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string error = user_error([&] { file.write(0, std::vector<std::byte>(10000)); });
  setrlimit(RLIMIT_FSIZE, &old);
  signal(SIGXFSZ, old_handler);
  EXPECT_THAT(error, AllOf(HasSubstr("cannot write"), HasSubstr("w.bin"), HasSubstr("ulimit -f")));
  EXPECT_TRUE(list_tree(folder.path()).empty());
}

}  // namespace
}  // namespace fettle
