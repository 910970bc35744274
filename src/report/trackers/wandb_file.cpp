#include "report/trackers/wandb_file.h"

#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <utility>

namespace fettle {
namespace {

constexpr size_t kBlockBytes = 32768, kHeadBytes = 7;
constexpr std::string_view kFileHead(":W&B\xe1\xbe\0", kHeadBytes);  // mark, magic number 0xbee1, version 0

enum Part : uint8_t { kFull = 1, kFirst, kMiddle, kLast };

// Returns the bytes before a part of a record: checksum, size and kind.
std::string head(std::string_view part, Part kind) {
  const Bytef kind_byte = kind;
  auto crc = static_cast<uint32_t>(crc32(0, &kind_byte, 1));
  crc = static_cast<uint32_t>(crc32(crc, reinterpret_cast<const Bytef*>(part.data()), static_cast<uInt>(part.size())));
  std::string out;
  for (int i = 0; i < 4; ++i) out += static_cast<char>(crc >> (8 * i) & 0xff);
  out += static_cast<char>(part.size() & 0xff);
  out += static_cast<char>(part.size() >> 8);
  return out += static_cast<char>(kind);
}

}  // namespace

WandbFile::WandbFile(const std::filesystem::path& file) : file_(file) {
  put(kFileHead);
}

void WandbFile::append(std::string_view record) {
  std::string bytes;
  bool first = true, last = false;
  while (!last) {
    size_t room = kBlockBytes - (at_ + bytes.size()) % kBlockBytes;
    if (room < kHeadBytes) {
      bytes.append(room, '\0');
      room = kBlockBytes;
    }
    const std::string_view part = record.substr(0, room - kHeadBytes);
    last = part.size() == record.size();
    bytes += head(part, first ? (last ? kFull : kFirst) : (last ? kLast : kMiddle));
    bytes += part;
    record.remove_prefix(part.size());
    first = false;
  }
  put(bytes);
}

void WandbFile::put(std::string_view bytes) {
  file_.append(bytes);
  at_ += bytes.size();
}

WandbRecords read_wandb_file(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  WandbRecords out;
  if (!bytes.starts_with(kFileHead)) return out;
  std::string record;
  bool begun = false;  // the last part is not the end of its record
  size_t at = kFileHead.size();
  while (at + kHeadBytes <= bytes.size()) {
    const size_t room = kBlockBytes - at % kBlockBytes;
    if (room < kHeadBytes) {
      at += room;
      continue;
    }
    const size_t size = static_cast<uint8_t>(bytes[at + 4]) | static_cast<size_t>(static_cast<uint8_t>(bytes[at + 5]))
                                                                  << 8;
    const auto kind = static_cast<Part>(bytes[at + 6]);
    const std::string_view part = std::string_view(bytes).substr(at + kHeadBytes, size);
    if (bytes.compare(at, kHeadBytes, head(part, kind)) != 0) return out;
    record += part;
    at += kHeadBytes + size;
    begun = kind == kFirst || kind == kMiddle;
    if (!begun) out.records.push_back(std::exchange(record, ""));
  }
  out.whole = at == bytes.size() && !begun;
  return out;
}

}  // namespace fettle
