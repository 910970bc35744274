#include "runtime/rendezvous/redis_store.h"

#include <hiredis/hiredis.h>

#include <chrono>
#include <thread>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/seconds_since.h"

namespace fettle {
namespace {

using Reply = std::unique_ptr<redisReply, decltype(&freeReplyObject)>;

constexpr timeval kAnswerTime{.tv_sec = 10, .tv_usec = 0};

template <typename... Args>
Reply ask(redisContext* connection, const char* command, Args... args) {
  return {static_cast<redisReply*>(redisCommand(connection, command, args...)), &freeReplyObject};
}

// Returns the error of the server or of the connection; "" when there is none.
std::string fault_of(const redisContext& connection, const Reply& reply) {
  if (reply == nullptr) return connection.errstr;
  return reply->type == REDIS_REPLY_ERROR ? std::string(reply->str, reply->len) : "";
}

}  // namespace

RedisStore::RedisStore(const std::string& address, int port, const std::string& password, double seconds) {
  const Clock::time_point start = Clock::now();
  std::string fault;
  do {
    connection_ = redisConnectWithTimeout(address.c_str(), port, timeval{.tv_sec = 2, .tv_usec = 0});
    if (connection_ != nullptr && connection_->err == 0) {
      redisSetTimeout(connection_, kAnswerTime);
      redisEnableKeepAlive(connection_);
      fault = fault_of(*connection_, ask(connection_, "AUTH %s", password.c_str()));
      if (fault.empty()) return;
    } else {
      fault = connection_ == nullptr ? "no memory" : connection_->errstr;
    }
    if (connection_ != nullptr) redisFree(connection_);
    connection_ = nullptr;
    InterruptScope::check("waiting for process 0");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  } while (seconds_since(start) < seconds);
  throw UserError(
      "cannot reach process 0 at {}:{} after {:.0f} s: {}; check that it was started, that this name and port can be "
      "reached from here, and that no other run uses the port (FETTLE_STORE_PORT chooses another)",
      address, port, seconds, fault);
}

RedisStore::~RedisStore() {
  if (connection_ != nullptr) redisFree(connection_);
}

void RedisStore::put(const std::string& key, const std::string& value) {
  const std::lock_guard lock(mutex_);
  const Reply reply = ask(connection_, "SET %b %b", key.data(), key.size(), value.data(), value.size());
  if (const std::string fault = fault_of(*connection_, reply); !fault.empty())
    throw DeviceError("the store of process 0 does not answer: {}; process 0 has probably ended", fault);
}

std::optional<std::string> RedisStore::try_get(const std::string& key, int) {
  const std::lock_guard lock(mutex_);
  const Reply reply = ask(connection_, "GET %b", key.data(), key.size());
  if (const std::string fault = fault_of(*connection_, reply); !fault.empty())
    throw DeviceError("the store of process 0 does not answer: {}; process 0 has probably ended", fault);
  if (reply->type == REDIS_REPLY_NIL) return std::nullopt;
  return std::string(reply->str, reply->len);
}

}  // namespace fettle
