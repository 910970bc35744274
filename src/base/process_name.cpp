#include "base/process_name.h"

#include <fmt/format.h>
#include <unistd.h>

#include <mutex>
#include <random>

namespace fettle {

const std::string& process_name() {
  static std::mutex mutex;
  static pid_t owner = 0;
  static std::string* name = nullptr;  // after a fork, the old name is not freed: code may still refer to it
  const std::lock_guard lock(mutex);
  if (owner != getpid()) {
    name = new std::string(random_hex(2));
    owner = getpid();
  }
  return *name;
}

std::string random_hex(int words) {
  std::random_device random;
  std::string text;
  for (int i = 0; i < words; ++i) text += fmt::format("{:08x}", random());
  return text;
}

bool is_process_name(const std::string& text) {
  constexpr size_t kShortest = 8;
  return text.size() >= kShortest && text.find_first_not_of("0123456789abcdef-") == std::string::npos;
}

}  // namespace fettle
