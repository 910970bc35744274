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
  // Connects. Tries again until `seconds` have passed, because process 0 may start its server later; then throws
  // UserError with the address and the last reason. If the connection fails later, a call connects again and repeats
  // its command. When the server has not answered for `patience` seconds, that call and all later calls throw
  // DeviceError.
  RedisStore(const std::string& address, int port, const std::string& password, double seconds, double patience = 8);
  ~RedisStore() override;

  void put(const std::string& key, const std::string& value) override;
  std::optional<std::string> try_get(const std::string& key, int owner) override;

 private:
  using Reply = std::unique_ptr<redisReply, void (*)(redisReply*)>;
  // Tries once to connect. Returns the reason of the failure; "" when connected.
  std::string connect(double seconds);
  void disconnect();
  // Sends the command and returns the answer. A command may be sent several times.
  Reply ask(const std::function<void*(redisContext*)>& command);

  const std::string address_, password_;
  const int port_;
  const double patience_;
  std::mutex mutex_;
  redisContext* connection_ = nullptr;
  std::optional<Clock::time_point> silent_since_;  // since when the server has not answered
};

}  // namespace fettle
