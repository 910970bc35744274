// Defines open_pmix_store, which loads the PMIx store. Fettle starts without the PMIx library. Only a run that was
// started by a launcher with PMIx loads it.
#pragma once

#include <memory>
#include <string>

#include "runtime/rendezvous/store.h"

namespace fettle {

struct ProcessPlace;

// Returns the store of the launcher's PMIx server and corrects `place` with the numbers of the server. Returns null
// with the reason in `fault` when the module fettle_pmix.so or the PMIx library does not load, or when there is no PMIx
// server.
std::unique_ptr<Store> open_pmix_store(ProcessPlace& place, std::string& fault);

}  // namespace fettle
