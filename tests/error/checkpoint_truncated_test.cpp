// Tests files that become shorter while they are mapped. Fettle reports an error that names the file. SIGBUS does not
// end the process, and zeros do not replace values.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <csignal>

#include "base/files/file_mapping.h"
#include "base/files/output_file.h"
#include "checkpoint/load.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/safetensors_writer.h"
#include "checkpoint/saved/state.h"
#include "correct/runtime_programs.h"
#include "temp_folder.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

constexpr int64_t kRows = 4096, kColumns = 1024;  // 16 MB of f32: several pieces of the streamed load

class Truncated : public testing::Test {
 protected:
  Truncated() {
    SafetensorsWriter writer(path_, {{"a", shape_}, {"b", shape_}});
    const std::vector<std::byte> ones(static_cast<size_t>(shape_.bytes()), std::byte{1});
    writer.write("a", ones);
    writer.write("b", ones);
    writer.finish();
    file_.emplace(SafetensorsFile::open(path_));
  }

  void cut_off(int64_t bytes) { fs::resize_file(path_, fs::file_size(path_) - static_cast<uintmax_t>(bytes)); }
  std::string read_error(const std::string& name) {
    return user_error([&] { file_->read(*file_->find(name)); });
  }

  TempFolder folder_;
  fs::path path_ = folder_ / "model.safetensors";
  Shape shape_{DType::kF32, {kRows, kColumns}};
  std::optional<SafetensorsFile> file_;
};

TEST_F(Truncated, ReadingNamesTheFile) {
  EXPECT_EQ(read_error("b"), "no error");
  fs::resize_file(path_, 4096);
  const auto says_so =
      AllOf(HasSubstr(path_.string() + ": the file became shorter"), HasSubstr("download the file again"));
  EXPECT_THAT(read_error("b"), says_so);
  EXPECT_THAT(read_error("a"), says_so) << "the next read fails, too";
}

// After the end of a file, the rest of its last page reads as zeros, and the kernel raises no signal.
TEST_F(Truncated, AFewBytesLessAreNoticed) {
  cut_off(5);
  EXPECT_THAT(read_error("b"), HasSubstr(path_.string() + ": the file became shorter"));
}

TEST_F(Truncated, OtherFilesStayReadable) {
  const fs::path other = folder_ / "other.safetensors";
  fs::copy_file(path_, other);
  const SafetensorsFile intact = SafetensorsFile::open(other);
  fs::resize_file(path_, 4096);
  EXPECT_NE(read_error("a"), "no error");
  const HostArray values = intact.read(*intact.find("b"));
  EXPECT_EQ(std::count(values.data(), values.data() + values.bytes(), std::byte{1}), values.bytes());
  // A new mapping at the address of the old one works again.
  file_.reset();
  fs::copy_file(other, path_, fs::copy_options::overwrite_existing);
  file_.emplace(SafetensorsFile::open(path_));
  EXPECT_EQ(read_error("a"), "no error");
}

// Here write() reads the mapped bytes. It returns an error (EFAULT) instead of raising SIGBUS.
TEST_F(Truncated, CopyingToAnotherFileNamesTheSource) {
  fs::resize_file(path_, 4096);
  const std::string error = user_error([&] {
    OutputFile copy(folder_ / "copy.bin");
    file_->with_bytes(*file_->find("b"), [&](std::span<const std::byte> bytes) { copy.write(0, bytes); });
    copy.finish();
  });
  EXPECT_THAT(error, HasSubstr(path_.string() + ": the file became shorter"));
  EXPECT_FALSE(fs::exists(folder_ / "copy.bin"));
}

class TruncatedLoad : public Truncated, public testing::WithParamInterface<DType> {};

TEST_P(TruncatedLoad, Stops) {
  const Param param{"b", {kRows, kColumns}, {}, Role::kNorm};
  std::atomic<int> pieces{0};
  const std::string error = user_error([&] {
    load_param(
        eight_devices(), param, GetParam(), Layout::sharded(param.dims, {8}, {{0}, {}}),
        [&](const std::string& name) {
          return StoredTensor{&*file_, file_->find(name)};
        },
        [&](int64_t) {
          if (++pieces == 1) fs::resize_file(path_, 4096);
        });
  });
  EXPECT_THAT(error, HasSubstr(path_.string() + ": the file became shorter"));
  EXPECT_GE(pieces, 1);
}

// The file is in f32, so loading as bf16 converts the values.
INSTANTIATE_TEST_SUITE_P(Dtypes, TruncatedLoad, testing::Values(DType::kF32, DType::kBF16));

TEST(TruncatedState, ReadingReportsADamagedCheckpoint) {
  TempFolder folder;
  StateWriter writer(folder / "state");
  writer.add("w", HostArray::zeros({DType::kF32, {1 << 20}}));
  writer.finish({{"step", 1}});
  StateReader reader(folder / "state");
  fs::resize_file(folder / "state/shards-00001.bin", 4096);
  EXPECT_THAT(([&] { reader.read("w"); }),
              testing::ThrowsMessage<DamagedState>(
                  AllOf(HasSubstr("shards-00001.bin: the file became shorter"), HasSubstr("checkpoint is damaged"))));
}

// A bus error outside of the memory that FileMapping mapped ends the process as usual.
TEST_F(Truncated, OtherBusErrorsStillKill) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const int descriptor = open(path_.c_str(), O_RDONLY);
        const size_t bytes = fs::file_size(path_);
        const void* data = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, descriptor, 0);
        fs::resize_file(path_, 4096);
        std::_Exit(*(static_cast<const volatile char*>(data) + bytes - 1));
      },
      testing::KilledBySignal(SIGBUS), "");
}

}  // namespace
}  // namespace fettle
