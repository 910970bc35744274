#include "checkpoint/torch/zip.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/error.h"

namespace fettle {
namespace {

constexpr uint32_t kLocal = 0x04034b50, kCentral = 0x02014b50, kEnd = 0x06054b50;
constexpr uint32_t kEnd64 = 0x06064b50, kEnd64Locator = 0x07064b50;
constexpr size_t kLocalSize = 30, kCentralSize = 46, kEndSize = 22, kEnd64Size = 56, kLocatorSize = 20;
constexpr size_t kLongestComment = 65535;

class Reader {
 public:
  Reader(std::span<const std::byte> file, const std::string& path) : file_(file), path_(path) {}

  template <typename T>
  T number(uint64_t at) const {
    check(at, sizeof(T));
    T value;
    std::memcpy(&value, file_.data() + at, sizeof(T));  // little-endian, like all machines that Fettle supports
    return value;
  }
  std::string_view text(uint64_t at, uint64_t bytes) const {
    check(at, bytes);
    return {reinterpret_cast<const char*>(file_.data()) + at, static_cast<size_t>(bytes)};
  }
  void check(uint64_t at, uint64_t bytes) const {
    if (at > file_.size() || bytes > file_.size() - at)
      throw UserError(
          "{}: the zip file's directory points outside of its {} bytes; the file is truncated or damaged; download it "
          "again",
          path_, file_.size());
  }
  [[noreturn]] void broken(const char* what) const {
    throw UserError("{}: {}; the file is truncated or damaged; download it again", path_, what);
  }
  uint64_t size() const { return file_.size(); }

 private:
  std::span<const std::byte> file_;
  const std::string& path_;
};

struct Directory {
  uint64_t offset, bytes, members;
};

Directory find_directory(const Reader& in) {
  if (in.size() < kEndSize) in.broken("it is too short for a zip file");
  const uint64_t last = in.size() - kEndSize, first = last > kLongestComment ? last - kLongestComment : 0;
  for (uint64_t at = last + 1; at-- > first;) {
    if (in.number<uint32_t>(at) != kEnd) continue;
    Directory found{in.number<uint32_t>(at + 16), in.number<uint32_t>(at + 12), in.number<uint16_t>(at + 10)};
    if (at >= kLocatorSize && in.number<uint32_t>(at - kLocatorSize) == kEnd64Locator) {
      const auto end = in.number<uint64_t>(at - kLocatorSize + 8);
      in.check(end, kEnd64Size);
      if (in.number<uint32_t>(end) != kEnd64) in.broken("the zip file's 64-bit end record is missing");
      found = {in.number<uint64_t>(end + 48), in.number<uint64_t>(end + 40), in.number<uint64_t>(end + 32)};
    }
    in.check(found.offset, found.bytes);
    if (found.members > found.bytes / kCentralSize) in.broken("the zip file's directory is shorter than it says");
    return found;
  }
  in.broken("it has no zip directory at its end");
}

// Reads the member's extra field, which has the values that do not fit into 32 bits.
void read_extra64(const Reader& in, uint64_t at, uint64_t bytes, uint64_t& size, uint64_t& packed, uint64_t& local) {
  const uint64_t end = at + bytes;
  while (end - at >= 4) {
    const auto id = in.number<uint16_t>(at), length = in.number<uint16_t>(at + 2);
    at += 4;
    if (length > end - at) return;
    if (id == 1) {
      uint64_t field = at, left = length;
      for (uint64_t* value : {&size, &packed, &local}) {
        if (*value != 0xffffffff || left < 8) continue;
        *value = in.number<uint64_t>(field);
        field += 8;
        left -= 8;
      }
      return;
    }
    at += length;
  }
}

}  // namespace

bool is_zip(std::span<const std::byte> file) {
  uint32_t magic = 0;
  if (file.size() >= 4) std::memcpy(&magic, file.data(), 4);
  return magic == kLocal;
}

std::vector<ZipMember> read_zip(std::span<const std::byte> file, const std::string& path) {
  const Reader in(file, path);
  const Directory directory = find_directory(in);
  std::vector<ZipMember> members;
  uint64_t at = directory.offset;
  for (uint64_t i = 0; i < directory.members; ++i) {
    in.check(at, kCentralSize);
    if (in.number<uint32_t>(at) != kCentral) in.broken("an entry of the zip file's directory is damaged");
    const auto flags = in.number<uint16_t>(at + 8), method = in.number<uint16_t>(at + 10);
    uint64_t packed = in.number<uint32_t>(at + 20), size = in.number<uint32_t>(at + 24);
    uint64_t local = in.number<uint32_t>(at + 42);
    const auto name_bytes = in.number<uint16_t>(at + 28), extra_bytes = in.number<uint16_t>(at + 30);
    const auto comment_bytes = in.number<uint16_t>(at + 32);
    const std::string_view name = in.text(at + kCentralSize, name_bytes);
    in.check(at + kCentralSize + name_bytes, extra_bytes);
    read_extra64(in, at + kCentralSize + name_bytes, extra_bytes, size, packed, local);
    at += kCentralSize + name_bytes + extra_bytes + comment_bytes;
    if ((flags & 1) != 0 || method != 0 || packed != size)
      throw UserError(
          "{}: its member '{}' is compressed or encrypted, but torch.save stores bytes unchanged; load the file with "
          "PyTorch and save it again",
          path, name);
    in.check(local, kLocalSize);
    if (in.number<uint32_t>(local) != kLocal) in.broken("a member of the zip file does not start where it should");
    const uint64_t start = local + kLocalSize + in.number<uint16_t>(local + 26) + in.number<uint16_t>(local + 28);
    in.check(start, size);
    members.push_back({name, static_cast<int64_t>(start), static_cast<int64_t>(size)});
  }
  return members;
}

}  // namespace fettle
