// bench_tokenizer MODEL_DIR FILE: opens the tokenizer, encodes FILE line by line on one core and prints MB/s.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "tokenizer/tokenizer.h"

namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    fmt::print(stderr, "usage: bench_tokenizer MODEL_DIR FILE\n");
    return 2;
  }
  try {
    std::vector<std::string> lines;
    size_t bytes = 0;
    std::ifstream file(argv[2]);
    for (std::string line; std::getline(file, line);) {
      lines.push_back(line + '\n');
      bytes += line.size() + 1;
    }
    auto start = std::chrono::steady_clock::now();
    const fettle::Tokenizer tokenizer = fettle::Tokenizer::open(argv[1]);
    const double open = seconds_since(start);
    double best = 1e9;
    size_t tokens = 0;
    for (int round = 0; round < 3; ++round) {
      tokens = 0;
      start = std::chrono::steady_clock::now();
      for (const std::string& line : lines) tokens += tokenizer.encode(line, false).size();
      best = std::min(best, seconds_since(start));
    }
    fmt::print("open {:.2f} s, encode {:.1f} MB/s, {:.2f} M tokens/s, {} tokens of {} bytes\n", open,
               bytes / 1e6 / best, tokens / 1e6 / best, tokens, bytes);
  } catch (const fettle::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return static_cast<int>(error.code());
  }
}
