// Defines lend_redis_store: a Redis store for processes that a launcher with PMIx started. They learn the server's
// address through PMIx.
#pragma once

#include <memory>

#include "runtime/rendezvous/launchers.h"
#include "runtime/rendezvous/rendezvous.h"

namespace fettle {

// When a process puts a value, PMIx also sends all earlier values of this process again. PMIx 4.2 sometimes loses
// values. So PMIx carries only the address and the secret password of a Redis server, which process 0 starts on a free
// port. Returns a store in that server; its end_job() still goes through PMIx. Returns `pmix` itself if redis-server
// does not start on the host of process 0 (it may not be installed there), or if one process does not reach it within
// `wait`. All processes return the same kind of store.
std::unique_ptr<Store> lend_redis_store(const ProcessPlace& place, std::unique_ptr<Store> pmix,
                                        Rendezvous::Seconds wait = Rendezvous::Seconds(60));

}  // namespace fettle
