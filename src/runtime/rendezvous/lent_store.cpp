#include "runtime/rendezvous/lent_store.h"

#include <arpa/inet.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <sstream>
#include <thread>
#include <vector>

#include "base/environment.h"
#include "base/error.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/process_name.h"
#include "base/seconds_since.h"
#include "runtime/rendezvous/fate.h"
#include "runtime/rendezvous/redis_server.h"
#include "runtime/rendezvous/redis_store.h"

namespace fettle {
namespace {

// Keeps keys and values in the Redis server of process 0, but ends the job through PMIx.
class LentStore : public Store {
 public:
  LentStore(std::unique_ptr<Store> pmix, std::unique_ptr<RedisServer> server, std::unique_ptr<RedisStore> store)
      : pmix_(std::move(pmix)), server_(std::move(server)), store_(std::move(store)) {}
  void put(const std::string& key, const std::string& value) override { store_->put(key, value); }
  std::optional<std::string> try_get(const std::string& key, int owner) override { return store_->try_get(key, owner); }
  void end_job(int exit_code, const std::string& message) override { pmix_->end_job(exit_code, message); }

 private:
  std::unique_ptr<Store> pmix_;
  std::unique_ptr<RedisServer> server_;
  std::unique_ptr<RedisStore> store_;
};

// Returns a port that is free now. Throws UserError when there is none. If another program takes the port before the
// Redis server does, the Redis server does not start.
int free_port() {
  const int one = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  socklen_t size = sizeof address;
  const bool found = one >= 0 && bind(one, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                     getsockname(one, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  if (one >= 0) close(one);
  if (!found) throw UserError("{} has no free port for a Redis server", host_name());
  return ntohs(address.sin_port);
}

// Returns this host's name and its network addresses, without loopback addresses and IPv6 link-local addresses.
std::vector<std::string> own_addresses() {
  std::vector<std::string> found{host_name()};
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return found;
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || (one->ifa_flags & IFF_LOOPBACK) != 0 || (one->ifa_flags & IFF_RUNNING) == 0)
      continue;
    char text[NI_MAXHOST];
    const bool four = one->ifa_addr->sa_family == AF_INET;
    if (!four && one->ifa_addr->sa_family != AF_INET6) continue;
    if (getnameinfo(one->ifa_addr, four ? sizeof(sockaddr_in) : sizeof(sockaddr_in6), text, sizeof text, nullptr, 0,
                    NI_NUMERICHOST) == 0 &&
        std::string_view(text).find('%') == std::string_view::npos)  // no IPv6 link-local address ("ADDRESS%LINK")
      found.emplace_back(text);
  }
  freeifaddrs(all);
  return found;
}

// Waits until the key exists, at most until `seconds` seconds after `start`. Then throws DeviceError, which names the
// process `owner`. Every 30 s, calls repeat(), which puts this process's own value again, because PMIx may lose values.
// Process 0 then also prints for which process it waits.
template <typename Repeat>
std::string wait_for(Store& store, const std::string& key, int owner, Clock::time_point start, double seconds,
                     const Repeat& repeat) {
  for (Clock::time_point reported = Clock::now();;) {
    if (std::optional<std::string> value = store.try_get(key, owner)) return *value;
    if (seconds_since(start) >= seconds)
      throw DeviceError("start of the run: process {} did not answer within {:.0f} s; check that it was started", owner,
                        seconds);
    InterruptScope::check("waiting for the other processes");
    if (seconds_since(reported) >= 30) {
      repeat();
      if (owner != 0) info("still waiting for process {}", owner);
      reported = Clock::now();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

// Connects to the server that "PORT PASSWORD ADDRESS..." describes. Returns null when no address answers.
std::unique_ptr<RedisStore> connect(const std::string& description) {
  std::istringstream words(description);
  int port = 0;
  std::string password;
  words >> port >> password;
  const double patience = FateTimes::from_environment().silence;
  for (std::string address; words >> address;) {
    try {
      return std::make_unique<RedisStore>(address, port, password, 3, patience);
    } catch (const UserError&) {
      // Tries the next address, which may be in a network that this host can reach.
    }
  }
  return nullptr;
}

// Throws process 0's error, which it wrote as "CODE TEXT".
[[noreturn]] void throw_error_of(const std::string& written) {
  const size_t space = written.find(' ');
  const auto code = static_cast<ExitCode>(std::stoi(written));
  if (code == ExitCode::kDevice) throw DeviceError("{}", written.substr(space + 1));
  throw Error(code, written.substr(space + 1));
}

}  // namespace

std::unique_ptr<Store> lend_redis_store(const ProcessPlace& place, std::unique_ptr<Store> pmix,
                                        Rendezvous::Seconds wait) {
  const std::string offer = "fettle/redis", verdict = "fettle/redis/use";
  const auto answer_of = [&](int rank) { return fmt::format("{}/{}", offer, rank); };
  std::unique_ptr<RedisServer> server;
  std::unique_ptr<RedisStore> store;
  std::string why;
  const Clock::time_point start = Clock::now();
  if (place.rank == 0) {
    const bool local = place.local_known && place.local_size == place.size;
    const std::string password = random_hex(8);
    std::string description = "none";
    try {
      const int port = free_port();
      server = std::make_unique<RedisServer>(port, password, local);
      description = fmt::format("{} {}", port, password);
      store = connect(description + " 127.0.0.1");
      if (store == nullptr) why = "the Redis server of this host does not answer on 127.0.0.1";
      description += fmt::format(" {}", local ? "127.0.0.1" : fmt::format("{}", fmt::join(own_addresses(), " ")));
    } catch (const UserError& error) {
      why = error.what();
    }
    const auto put_offer = [&] { pmix->put(offer, store != nullptr ? description : "none"); };
    put_offer();
    bool all = store != nullptr;
    try {
      for (int other = 1; all && other < place.size; ++other) {
        all = wait_for(*pmix, answer_of(other), other, start, wait.count(), put_offer) == "yes";
        if (!all) why = fmt::format("process {} does not reach process 0 on {}", other, host_name());
      }
    } catch (const Error& error) {
      pmix->put(verdict, fmt::format("!{} {}", static_cast<int>(error.code()), error.what()));
      throw;
    }
    pmix->put(verdict, all ? "yes" : "no");
    if (!all) {
      store = nullptr;
      server = nullptr;
      info("{}; the processes exchange values through PMIx, which is slower", why);
    }
  } else {
    const std::string described = wait_for(*pmix, offer, 0, start, wait.count(), [] {});
    if (described != "none") {
      store = connect(described);
      const auto put_answer = [&] { pmix->put(answer_of(place.rank), store != nullptr ? "yes" : "no"); };
      put_answer();
      // If processes are missing, process 0 says so after `wait`. So this process waits a little longer.
      const std::string use = wait_for(*pmix, verdict, 0, Clock::now(), wait.count() + 5, put_answer);
      InterruptScope::check("waiting for the other processes");
      if (use.starts_with('!')) throw_error_of(use.substr(1));
      if (use != "yes") store = nullptr;
    }
  }
  if (store == nullptr) return pmix;
  return std::make_unique<LentStore>(std::move(pmix), std::move(server), std::move(store));
}

}  // namespace fettle
