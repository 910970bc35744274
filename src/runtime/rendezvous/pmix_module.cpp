#include "runtime/rendezvous/pmix_module.h"

#include "base/environment.h"
#include "base/files/own_program.h"
#include "runtime/rendezvous/launchers.h"

namespace fettle {

std::unique_ptr<Store> open_pmix_store(ProcessPlace& place, std::string& fault) {
  if (environment("PMIX_NAMESPACE").empty()) {
    fault = "the launcher does not provide a PMIx server; with srun, add --mpi=pmix";
    return nullptr;
  }
  using Open = Store* (*)(ProcessPlace&, std::string&);
  const auto open = reinterpret_cast<Open>(symbol_of_module("fettle_pmix.so", "fettle_open_pmix_store", fault));
  if (open == nullptr) {
    fault += "; install the package libpmix2";
    return nullptr;
  }
  return std::unique_ptr<Store>(open(place, fault));
}

}  // namespace fettle
