#include "base/files/own_program.h"

#include <dlfcn.h>

namespace fettle {

std::filesystem::path own_program() {
  std::error_code none;
  return std::filesystem::read_symlink("/proc/self/exe", none);
}

std::filesystem::path module_file(const std::string& name) {
  return own_program().parent_path() / name;
}

void* symbol_of_module(const std::string& name, const char* symbol, std::string& fault) {
  void* const module = dlopen(module_file(name).c_str(), RTLD_NOW | RTLD_LOCAL);
  void* const found = module != nullptr ? dlsym(module, symbol) : nullptr;
  if (found == nullptr) fault = dlerror();
  return found;
}

}  // namespace fettle
