#include "runtime/rendezvous/rendezvous.h"

#include <fmt/ranges.h>
#include <xxhash.h>

#include <algorithm>
#include <condition_variable>
#include <set>
#include <stop_token>
#include <thread>

#include "base/environment.h"
#include "base/error.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/process_name.h"
#include "base/seconds_since.h"
#include "runtime/rendezvous/fate.h"
#include "runtime/rendezvous/lent_store.h"
#include "runtime/rendezvous/pmix_module.h"
#include "runtime/rendezvous/redis_server.h"
#include "runtime/rendezvous/redis_store.h"

namespace fettle {
namespace {

const std::string kStart = "start of the run";

// Prints the text if the object still exists after `wait`.
class LateNotice {
 public:
  LateNotice(Rendezvous::Seconds wait, std::string text)
      : thread_([wait, text = std::move(text)](const std::stop_token& stop) {
          std::mutex mutex;
          std::unique_lock lock(mutex);
          std::condition_variable_any changed;
          changed.wait_for(lock, stop, wait, [] { return false; });
          if (!stop.stop_requested()) info("{}", text);
        }) {}

 private:
  std::jthread thread_;
};

std::string waiting_text(const ProcessPlace& place) {
  return fmt::format(
      "started by {} as process {} of {} ({} is set); waiting for the others{}. To train with this process alone, "
      "unset {}",
      place.launcher, place.rank, place.size, place.variable,
      place.address.empty() ? "" : fmt::format(" at {}:{}", place.address, place.port), place.variable);
}

// Returns the ranks for a message: all of them if they are few, else the first ones and the number of the others.
std::string list_ranks(const std::vector<int>& ranks) {
  constexpr size_t kShown = 8;
  if (ranks.size() <= kShown) return fmt::format("{}", fmt::join(ranks, ", "));
  return fmt::format("{} and {} more", fmt::join(ranks.begin(), ranks.begin() + kShown, ", "), ranks.size() - kShown);
}

// Joins the values into one text. A value may have any bytes, so its length comes first.
std::string pack(const std::vector<std::string>& values) {
  std::string text;
  for (const std::string& value : values) text += fmt::format("{}:{}", value.size(), value);
  return text;
}

std::vector<std::string> unpack(const std::string& text) {
  std::vector<std::string> values;
  for (size_t at = 0; at < text.size();) {
    const size_t colon = text.find(':', at);
    const size_t length = std::stoull(text.substr(at, colon - at));
    values.push_back(text.substr(colon + 1, length));
    at = colon + 1 + length;
  }
  return values;
}

std::string hash_of(const std::string& text) {
  return fmt::format("{:016x}", XXH3_64bits(text.data(), text.size()));
}

// Returns the store's password. It prevents a process from using the store of another run by mistake. If
// FETTLE_STORE_PASSWORD is not set, the password is a hash of ProcessPlace::job, which other users of the network can
// guess.
std::string store_password(const ProcessPlace& place) {
  if (std::string given = environment("FETTLE_STORE_PASSWORD"); !given.empty()) {
    if (given.find_first_of(" \t\r\n\"'\\") != std::string::npos)
      throw UserError("FETTLE_STORE_PASSWORD has a space, quote or backslash; use letters and digits");
    return given;
  }
  return hash_of(place.job);
}

// A store in a Redis server, which process 0 starts.
class ServedRedisStore : public Store {
 public:
  explicit ServedRedisStore(const ProcessPlace& place, double wait)
      : server_(place.rank == 0 ? std::make_unique<RedisServer>(place.port, store_password(place), is_local(place))
                                : nullptr),
        store_(place.rank == 0 ? "127.0.0.1" : place.address, place.port, store_password(place), wait,
               FateTimes::from_environment().silence) {}
  void put(const std::string& key, const std::string& value) override { store_.put(key, value); }
  std::optional<std::string> try_get(const std::string& key, int owner) override { return store_.try_get(key, owner); }

 private:
  static bool is_local(const ProcessPlace& place) { return place.local_size == place.size; }
  std::unique_ptr<RedisServer> server_;
  RedisStore store_;
};

}  // namespace

Rendezvous::Rendezvous(ProcessPlace place, std::unique_ptr<Store> store, Seconds wait, Seconds report)
    : place_(std::move(place)), store_(std::move(store)), prefix_(hash_of(place_.job) + "/"), report_(report) {
  hosts_.assign(static_cast<size_t>(size()), "not there yet");
  const std::string mine = random_hex(2), boot = boot_id();
  const std::vector<std::string> all =
      exchange(kStart, mine + " " + (boot.empty() ? "-" : boot) + " " + host_name(), wait);
  for (size_t other = 0; other < all.size(); ++other) {
    const size_t space = all[other].find(' ');
    nonces_.push_back(all[other].substr(0, space));
    machines_.push_back(all[other].substr(space + 1));
    hosts_[other] = machines_.back().substr(machines_.back().find(' ') + 1);
  }
  if (!place_.local_known) {
    const std::string& here = machines_[static_cast<size_t>(rank())];
    place_.local_size = static_cast<int>(std::ranges::count(machines_, here));
    place_.local_rank = static_cast<int>(std::count(machines_.begin(), machines_.begin() + rank(), here));
  }
  if (nonce(rank()) != mine)
    throw UserError(
        "{} already takes part in this run: this process was restarted, but the other processes of the earlier run "
        "still exist. They end soon; then start all processes together, with resume_from_checkpoint=true",
        name_of(rank()));
  prefix_ = hash_of(fmt::format("{} {}", place_.job, fmt::join(nonces_, " "))) + "/";
  starting_ = false;
}

int Rendezvous::host_count() const {
  return static_cast<int>(std::set<std::string>(machines_.begin(), machines_.end()).size());
}

std::string Rendezvous::name_of(int rank) const {
  return fmt::format("process {} ({})", rank, host(rank));
}

std::optional<std::string> Rendezvous::get(const std::string& key, Seconds wait, int owner) {
  const Clock::time_point start = Clock::now();
  for (auto pause = std::chrono::milliseconds(2);; pause = std::min(pause * 2, std::chrono::milliseconds(100))) {
    if (std::optional<std::string> value = try_get(key, owner)) return value;
    if (seconds_since(start) >= wait.count()) return std::nullopt;
    if (starting_) {
      InterruptScope::check("waiting for the other processes");
      report_missing();
    }
    std::this_thread::sleep_for(pause);
  }
}

void Rendezvous::report_missing() {
  if (rank() != 0 || seconds_since(reported_) < report_.count()) return;
  constexpr size_t kShown = 8;  // a store may need a second for each missing process
  std::vector<int> missing;
  for (int other = 1; other < size() && missing.size() <= kShown; ++other)
    if (!try_get(fmt::format("fettle/{}/0/{}", kStart, other), other)) missing.push_back(other);
  const bool more = missing.size() > kShown;
  if (more) missing.pop_back();
  if (!missing.empty())
    info("still waiting for these of {} processes: {}{}", size(), fmt::join(missing, ", "), more ? " and more" : "");
  reported_ = Clock::now();
}

std::vector<std::string> Rendezvous::exchange(const std::string& name, const std::string& mine, Seconds wait) {
  int64_t use = 0;
  {
    const std::lock_guard lock(mutex_);
    use = uses_[name]++;
  }
  const std::string key = fmt::format("fettle/{}/{}", name, use), joined = key + "/all";
  const Clock::time_point start = Clock::now();
  if (rank() != 0) {
    put(fmt::format("{}/{}", key, rank()), mine);
    // If processes are missing, process 0 reports that after `wait`. So this process waits a little longer for the
    // report.
    const std::optional<std::string> all = get(joined, wait + Seconds(5), 0);
    if (!all) throw DeviceError("{}: no answer from {} after {:.0f} s", name, name_of(0), seconds_since(start));
    if (all->starts_with('!')) throw DeviceError("{}", all->substr(1));
    return unpack(*all);
  }
  std::vector<std::string> values(static_cast<size_t>(size()));
  values[0] = mine;
  std::vector<int> missing;
  for (int other = 1; other < size(); ++other) {
    const Seconds left(std::max(0.0, wait.count() - seconds_since(start)));
    if (auto value = get(fmt::format("{}/{}", key, other), left, other))
      values[static_cast<size_t>(other)] = std::move(*value);
    else
      missing.push_back(other);
  }
  if (!missing.empty()) {
    const std::string fault = fmt::format("{}: {} of {} processes did not answer within {:.0f} s: {}", name,
                                          missing.size(), size(), wait.count(), list_ranks(missing));
    put(joined, "!" + fault);
    throw DeviceError("{}", fault);
  }
  put(joined, pack(values));
  return values;
}

void Rendezvous::leave() {
  if (rank() != 0) {
    try {
      put(fmt::format("fettle/left/{}", rank()), "");
    } catch (const DeviceError&) {
      // Process 0 ends with the store as soon as it has read this entry, perhaps before the store has answered here.
      // All processes had done their work before.
    }
    return;
  }
  constexpr double kPatience = 10;  // seconds for all processes together, because lost processes never answer
  const Clock::time_point start = Clock::now();
  for (int other = 1; other < size(); ++other)
    get(fmt::format("fettle/left/{}", other), Seconds(std::max(0.0, kPatience - seconds_since(start))), other);
}

std::unique_ptr<Store> open_redis_store(const ProcessPlace& place, Rendezvous::Seconds wait) {
  return std::make_unique<ServedRedisStore>(place, wait.count());
}

std::unique_ptr<Rendezvous> join_run() {
  std::optional<ProcessPlace> place = find_place([](const char* name) { return environment(name); });
  if (!place) return nullptr;
  const LateNotice notice(Rendezvous::Seconds(5), waiting_text(*place));
  std::unique_ptr<Store> store;
  std::string fault;
  if (place->engine == Engine::kPmix) store = open_pmix_store(*place, fault);
  if (store == nullptr && place->address.empty())
    throw UserError("{} started process {} of {}, which needs PMIx: {}", place->launcher, place->rank, place->size,
                    fault);
  store = store == nullptr ? open_redis_store(*place) : lend_redis_store(*place, std::move(store));
  return std::make_unique<Rendezvous>(*place, std::move(store));
}

}  // namespace fettle
