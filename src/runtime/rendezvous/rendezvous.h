// Defines Rendezvous, with which the processes of a run find each other, exchange values, and end together.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/seconds_since.h"
#include "runtime/rendezvous/launchers.h"
#include "runtime/rendezvous/store.h"

namespace fettle {

// Each process has one Rendezvous. Thread-safe, with two rules for exchange() and barrier(). All processes must make
// the same number of calls with each name. In a process, only one thread at a time may use a given name.
class Rendezvous {
 public:
  using Seconds = std::chrono::duration<double>;
  // How long processes wait for the others to start.
  static constexpr Seconds kStartTime{600};

  // Joins the run. `store` connects the processes. Every `report` seconds, process 0 prints which processes have not
  // joined yet. Throws DeviceError, which names the missing processes, if some have
  // not joined within `wait`. Throws UserError when another process already has this rank, which happens when this
  // process was restarted without the others.
  Rendezvous(ProcessPlace place, std::unique_ptr<Store> store, Seconds wait = kStartTime, Seconds report = Seconds(30));

  const ProcessPlace& place() const { return place_; }
  int rank() const { return place_.rank; }
  int size() const { return place_.size; }
  const std::string& host(int rank) const { return hosts_[static_cast<size_t>(rank)]; }
  // Returns whether both processes run on the same host: whether their hosts' names and boot ids are equal.
  bool same_host(int rank, int other) const {
    return machines_[static_cast<size_t>(rank)] == machines_[static_cast<size_t>(other)];
  }
  int host_count() const;
  // Returns a random text of the process with this rank. A restarted process has the same rank, but another text.
  const std::string& nonce(int rank) const { return nonces_[static_cast<size_t>(rank)]; }
  // Returns "process 3 (gpu07)".
  std::string name_of(int rank) const;

  // `key` must not begin with "fettle/"; such keys belong to exchange(), leave() and Fate. put() and try_get() add
  // `prefix_` to the front of `key`.
  void put(const std::string& key, const std::string& value) { store_->put(prefix_ + key, value); }
  std::optional<std::string> try_get(const std::string& key, int owner = Store::kAnyone) {
    return store_->try_get(prefix_ + key, owner);
  }
  // Waits until the key exists. Returns nullopt when it does not exist after `wait`.
  std::optional<std::string> get(const std::string& key, Seconds wait, int owner = Store::kAnyone);

  // Gives the value `mine` to all processes. Returns the values of all processes, by rank. Error messages contain
  // `name`, which says what is exchanged. The same name may be used again. Throws DeviceError, which names the
  // processes that did not call exchange() within `wait`.
  std::vector<std::string> exchange(const std::string& name, const std::string& mine, Seconds wait = kStartTime);
  void barrier(const std::string& name, Seconds wait = kStartTime) { exchange(name, "", wait); }

  // Call this at the end, after a last barrier. Process 0, which has the store, waits until the other processes no
  // longer need the store. It waits at most 10 s. The other processes ignore that the store does not answer.
  void leave();

  Store& store() { return *store_; }

 private:
  void report_missing();

  ProcessPlace place_;
  std::unique_ptr<Store> store_;
  std::string prefix_;                       // every key begins with this text, which differs between runs
  std::vector<std::string> hosts_, nonces_;  // each process's host name and nonce, by rank
  std::vector<std::string> machines_;        // the host's boot id and name, by rank
  bool starting_ = true;                     // true in the constructor: no other thread uses this object yet
  Seconds report_;
  Clock::time_point reported_ = Clock::now();
  std::mutex mutex_;
  std::map<std::string, int64_t> uses_;  // how often each name was used
};

// Returns the store in the Redis server of process 0. Process 0 starts this server, which ends with the calling thread.
// Waits up to `wait` for the server. Throws UserError if the server does not start or cannot be reached.
std::unique_ptr<Store> open_redis_store(const ProcessPlace& place, Rendezvous::Seconds wait = Rendezvous::kStartTime);

// Joins the run that this process belongs to, as the environment says. Returns null when this process runs alone. If
// joining takes longer than 5 s, prints who started the process and where it waits.
// Process 0 starts a Redis server if the run needs one. The server ends with the calling thread, so call this on the
// main thread. Throws UserError when the environment is wrong or the processes cannot connect, and DeviceError when
// other processes are missing.
std::unique_ptr<Rendezvous> join_run();

}  // namespace fettle
