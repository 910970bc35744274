// Defines Pickle, which builds pickles by hand, and zip_of, which builds zip files. The tests of PyTorch checkpoints
// use both.
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

namespace fettle {

// Builds the bytes of a pickle of protocol 2. Each function appends instructions.
class Pickle {
 public:
  Pickle() : bytes_("\x80\x02") {}
  Pickle& raw(const std::string& bytes) {
    bytes_ += bytes;
    return *this;
  }
  Pickle& global(const std::string& module, const std::string& name) { return raw("c" + module + "\n" + name + "\n"); }
  Pickle& text(const std::string& characters) {
    return raw("X" + little(static_cast<uint32_t>(characters.size()), 4) + characters);
  }
  Pickle& number(int64_t value) { return raw("\x8a\x08" + little(static_cast<uint64_t>(value), 8)); }
  Pickle& tuple(const std::vector<int64_t>& values) {
    raw("(");
    for (const int64_t value : values) number(value);
    return raw("t");
  }
  // Appends a persistent reference to a storage.
  Pickle& storage(const std::string& type, const std::string& key, int64_t elements) {
    return raw("(").text("storage").global("torch", type).text(key).text("cpu").number(elements).raw("tQ");
  }
  // Appends a tensor, which is a view of a storage.
  Pickle& tensor(const std::string& key, int64_t elements, int64_t offset, const std::vector<int64_t>& dims,
                 const std::vector<int64_t>& strides, const std::string& type = "FloatStorage") {
    global("torch._utils", "_rebuild_tensor_v2").raw("(").storage(type, key, elements).number(offset);
    return tuple(dims).tuple(strides).raw("\x89").dict().raw("tR");
  }
  Pickle& dict() { return global("collections", "OrderedDict").raw(")R"); }
  std::string stop() const { return bytes_ + "."; }

  static std::string little(uint64_t value, size_t bytes) {
    std::string out(bytes, '\0');
    std::memcpy(out.data(), &value, bytes);
    return out;
  }

 private:
  std::string bytes_;
};

// Returns the bytes of a zip file whose members are not compressed. `method` is the compression method that the headers
// state.
inline std::string zip_of(const std::vector<std::pair<std::string, std::string>>& members, uint64_t method = 0) {
  auto n = Pickle::little;
  std::string file, directory;
  for (const auto& [name, bytes] : members) {
    const std::string sizes = n(0, 4) + n(bytes.size(), 4) + n(bytes.size(), 4) + n(name.size(), 2) + n(0, 2);
    directory += n(0x02014b50, 4) + n(0, 4) + n(0, 2) + n(method, 2) + n(0, 4) + sizes + n(0, 2) + n(0, 2) + n(0, 2) +
                 n(0, 4) + n(file.size(), 4) + name;
    file += n(0x04034b50, 4) + n(0, 2) + n(0, 2) + n(method, 2) + n(0, 4) + sizes + name + bytes;
  }
  return file + directory + n(0x06054b50, 4) + n(0, 4) + n(members.size(), 2) + n(members.size(), 2) +
         n(directory.size(), 4) + n(file.size(), 4) + n(0, 2);
}

// Returns the bytes of float32 values.
inline std::string floats(const std::vector<float>& values) {
  std::string out(values.size() * 4, '\0');
  std::memcpy(out.data(), values.data(), out.size());
  return out;
}

}  // namespace fettle
