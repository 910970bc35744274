// Defines RedisStore: a Store that uses a Redis server.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "base/seconds_since.h"
#include "runtime/rendezvous/store.h"

struct redisContext;
struct redisReply;

namespace fettle {

class RedisStore : public Store {
 public:
  // Connects to the server. Tries again until `seconds` seconds have passed, because process 0 may start its server
  // later. Then throws UserError with the address and the reason of the last failure. Throws UserError earlier if a
  // server refuses the password for `refusal` seconds: it belongs to another run. It may also belong to an earlier
  // start of this run, but then it ends within seconds. If the connection breaks later, put() and try_get() connect
  // again and repeat their command. When the server has not answered for `patience` seconds, the current call and all
  // later calls throw DeviceError.
  RedisStore(const std::string& address, int port, const std::string& password, double seconds, double patience = 8,
             double refusal = 30);
  ~RedisStore() override;

  void put(const std::string& key, const std::string& value) override;
  std::optional<std::string> try_get(const std::string& key, int owner) override;

 private:
  using Reply = std::unique_ptr<redisReply, void (*)(redisReply*)>;
  // Tries once to connect. Returns the reason of the failure; "" when connected.
  std::string connect(double seconds);
  void disconnect();
  // Sends the command and returns the answer. If the connection breaks, sends the command again.
  Reply ask(const std::function<void*(redisContext*)>& command);

  const std::string address_, password_;
  const int port_;
  const double patience_;
  std::mutex mutex_;
  redisContext* connection_ = nullptr;
  std::optional<Clock::time_point> silent_since_;  // start of the server's silence; nullopt: it answers
};

}  // namespace fettle
