// Defines open_pmix_store, which loads the PMIx store. Fettle starts without the PMIx library. A run loads the library
// only if a launcher with PMIx started the run.
#pragma once

#include <memory>
#include <string>

#include "runtime/rendezvous/store.h"

namespace fettle {

struct ProcessPlace;

// Returns the store of the launcher's PMIx server, and replaces the numbers in `place` by the server's numbers. Returns
// null with the reason in `fault` when the module fettle_pmix.so or the PMIx library does not load, or when there is no
// PMIx server.
std::unique_ptr<Store> open_pmix_store(ProcessPlace& place, std::string& fault);

}  // namespace fettle
