// Defines lend_redis_store: a Redis store for processes that a launcher with PMIx started. The processes learn the
// server's address through PMIx.
#pragma once

#include <memory>

#include "runtime/rendezvous/launchers.h"
#include "runtime/rendezvous/rendezvous.h"

namespace fettle {

// Returns a store in a Redis server, which process 0 starts on a free port. PMIx carries only the server's address and
// secret password, for two reasons: with each value that a process puts, PMIx sends all earlier values of this process
// again, and PMIx 4.2 sometimes loses values. The store's end_job() still goes through PMIx. Returns `pmix` itself if
// redis-server does not start on the host of process 0 (it may not be installed there), or if one process says that it
// does not reach the server. All processes return the same kind of store. Every process waits up to `wait` for the
// others to start. Then throws DeviceError, which names a missing process. A signal that InterruptScope catches ends
// the wait.
std::unique_ptr<Store> lend_redis_store(const ProcessPlace& place, std::unique_ptr<Store> pmix,
                                        Rendezvous::Seconds wait = Rendezvous::kStartTime);

}  // namespace fettle
