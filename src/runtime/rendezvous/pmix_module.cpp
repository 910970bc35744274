#include "runtime/rendezvous/pmix_module.h"

#include <dlfcn.h>

#include <filesystem>

#include "base/environment.h"
#include "runtime/rendezvous/launchers.h"

namespace fettle {

std::unique_ptr<Store> open_pmix_store(ProcessPlace& place, std::string& fault) {
  if (environment("PMIX_NAMESPACE").empty()) {
    fault = "the launcher does not provide a PMIx server; with srun, add --mpi=pmix";
    return nullptr;
  }
  std::error_code ignored;
  const auto module = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path() / "fettle_pmix.so";
  void* const library = dlopen(module.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    fault = std::string(dlerror()) + "; install the package libpmix2";
    return nullptr;
  }
  using Open = Store* (*)(ProcessPlace&, std::string&);
  const auto open = reinterpret_cast<Open>(dlsym(library, "fettle_open_pmix_store"));
  return std::unique_ptr<Store>(open(place, fault));
}

}  // namespace fettle
