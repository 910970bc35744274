// Defines lend_redis_store: the processes that a launcher with PMIx started find process 0's Redis server through PMIx.
#pragma once

#include <memory>

#include "runtime/rendezvous/launchers.h"
#include "runtime/rendezvous/rendezvous.h"

namespace fettle {

// PMIx sends every value that a process has ever put with each new one, and PMIx 4.2 loses values now and then, so it
// carries only the address of a Redis server with a secret password, which process 0 starts on a free port. Returns a
// store in that server; the launcher still ends the job. Returns `pmix` itself if redis-server is not installed on the
// host of process 0, or if one process does not reach it within `wait`. All processes return the same kind of store.
std::unique_ptr<Store> lend_redis_store(const ProcessPlace& place, std::unique_ptr<Store> pmix,
                                        Rendezvous::Seconds wait = Rendezvous::Seconds(60));

}  // namespace fettle
