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
  // Connects, again and again until `seconds` have passed: process 0 may start its server later. Throws UserError with
  // the address and the last reason. A later call whose connection fails connects again and repeats the command; when
  // the server has given no answer for `patience` seconds, that call and all after it throw DeviceError.
  RedisStore(const std::string& address, int port, const std::string& password, double seconds, double patience = 8);
  ~RedisStore() override;

  void put(const std::string& key, const std::string& value) override;
  std::optional<std::string> try_get(const std::string& key, int owner) override;

 private:
  using Reply = std::unique_ptr<redisReply, void (*)(redisReply*)>;
  // Returns a complaint; "" when connected.
  std::string connect(double seconds);
  void disconnect();
  // Returns the answer to the command, which must be repeatable.
  Reply ask(const std::function<void*(redisContext*)>& command);

  const std::string address_, password_;
  const int port_;
  const double patience_;
  std::mutex mutex_;
  redisContext* connection_ = nullptr;
  std::optional<Clock::time_point> silent_since_;  // the server has not answered since then
};

}  // namespace fettle
