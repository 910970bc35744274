// Defines RedisStore: a Store that uses a Redis server.
#pragma once

#include <memory>
#include <mutex>

#include "runtime/rendezvous/store.h"

struct redisContext;

namespace fettle {

class RedisStore : public Store {
 public:
  // Tries to connect until `seconds` have passed, because process 0 may start its server later. Throws UserError with
  // the address and the last reason.
  RedisStore(const std::string& address, int port, const std::string& password, double seconds);
  ~RedisStore() override;

  void put(const std::string& key, const std::string& value) override;
  std::optional<std::string> try_get(const std::string& key, int owner) override;

 private:
  std::mutex mutex_;
  redisContext* connection_ = nullptr;
};

}  // namespace fettle
