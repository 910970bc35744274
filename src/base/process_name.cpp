#include "base/process_name.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <charconv>
#include <cstring>

namespace fettle {
namespace {

template <typename T>
bool read_all(std::string_view text, T& value, int base) {
  const char* const stop = text.data() + text.size();
  const auto [end, code] = std::from_chars(text.data(), stop, value, base);
  return code == std::errc() && end == stop;
}

}  // namespace

ProcessName ProcessName::own() {
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  return {static_cast<uint32_t>(XXH3_64bits(host, std::strlen(host))), getpid()};
}

std::optional<ProcessName> ProcessName::parse(std::string_view text) {
  constexpr size_t kDigits = 8;
  ProcessName name;
  if (text.size() < kDigits + 2 || text[kDigits] != '-' || !read_all(text.substr(0, kDigits), name.machine, 16) ||
      !read_all(text.substr(kDigits + 1), name.pid, 10) || name.pid <= 0)
    return std::nullopt;
  return name;
}

std::string ProcessName::text() const {
  return fmt::format("{:08x}-{}", machine, pid);
}

bool ProcessName::is_gone() const {
  return machine == own().machine && kill(pid, 0) != 0 && errno == ESRCH;
}

}  // namespace fettle
