#include "runtime/rendezvous/redis_store.h"

#include <hiredis/hiredis.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/error.h"
#include "base/interrupt.h"

namespace fettle {
namespace {

// Returns how many seconds to wait for one answer of the server. The time is short enough for several attempts within
// `patience` seconds.
double answer_time(double patience) {
  return std::clamp(patience / 4, 1.0, 10.0);
}

timeval time_of(double seconds) {
  const auto microseconds = static_cast<int64_t>(1e6 * std::max(seconds, 0.01));
  return {.tv_sec = microseconds / 1'000'000, .tv_usec = microseconds % 1'000'000};
}

// Returns whether the fault says that the server has another password, or none.
bool is_refusal(const std::string& fault) {
  return fault.find("password") != std::string::npos;
}

void free_reply(redisReply* reply) {
  freeReplyObject(reply);
}

}  // namespace

RedisStore::RedisStore(const std::string& address, int port, const std::string& password, double seconds,
                       double patience, double refusal)
    : address_(address), password_(password), port_(port), patience_(patience) {
  const Clock::time_point start = Clock::now();
  std::optional<Clock::time_point> refused_since;
  std::string fault;
  do {
    fault = connect(2);
    if (fault.empty()) return;
    if (!is_refusal(fault))
      refused_since.reset();
    else if (!refused_since)
      refused_since = Clock::now();
    else if (seconds_since(*refused_since) >= refusal)
      throw UserError(
          "a server of another run uses {}:{} (it answers: {}); set FETTLE_STORE_PORT to a free port, the same on "
          "every host; if you set FETTLE_STORE_PASSWORD, all processes need the same value",
          address, port, fault);
    InterruptScope::check("waiting for process 0");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  } while (seconds_since(start) < seconds);
  throw UserError(
      "cannot reach process 0 at {}:{} after {:.0f} s: {}; check that it was started, that this name and port can be "
      "reached from here, and that no other run uses the port (FETTLE_STORE_PORT chooses another)",
      address, port, seconds, fault);
}

RedisStore::~RedisStore() {
  disconnect();
}

void RedisStore::disconnect() {
  if (connection_ != nullptr) redisFree(connection_);
  connection_ = nullptr;
}

std::string RedisStore::connect(double seconds) {
  disconnect();
  connection_ = redisConnectWithTimeout(address_.c_str(), port_, time_of(seconds));
  if (connection_ == nullptr) return "no memory";
  std::string fault = connection_->errstr;
  if (connection_->err == 0) {
    redisSetTimeout(connection_, time_of(answer_time(patience_)));
    redisEnableKeepAlive(connection_);
    const Reply reply(static_cast<redisReply*>(redisCommand(connection_, "AUTH %s", password_.c_str())), free_reply);
    if (reply == nullptr)
      fault = connection_->errstr;
    else
      fault = reply->type == REDIS_REPLY_ERROR ? std::string(reply->str, reply->len) : "";
  }
  if (!fault.empty()) disconnect();
  return fault;
}

RedisStore::Reply RedisStore::ask(const std::function<void*(redisContext*)>& command) {
  const std::lock_guard lock(mutex_);
  const Clock::time_point start = Clock::now();
  for (std::string fault;;) {
    const double left = patience_ - (silent_since_ ? seconds_since(*silent_since_) : 0);
    if (left <= 0)
      throw DeviceError("the store of process 0 does not answer: {}; process 0 has probably ended",
                        fault.empty() ? fmt::format("silent for {:.0f} s", seconds_since(*silent_since_)) : fault);
    if (connection_ == nullptr) fault = connect(std::min(2.0, left));
    if (connection_ != nullptr) {
      Reply reply(static_cast<redisReply*>(command(connection_)), free_reply);
      if (reply != nullptr) {
        silent_since_.reset();
        if (reply->type != REDIS_REPLY_ERROR) return reply;
        throw DeviceError("the store of process 0 refuses a command: {}; start all processes again",
                          std::string(reply->str, reply->len));
      }
      fault = connection_->errstr;
      disconnect();
    }
    if (!silent_since_) silent_since_ = start;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

void RedisStore::put(const std::string& key, const std::string& value) {
  ask([&](redisContext* connection) {
    return redisCommand(connection, "SET %b %b", key.data(), key.size(), value.data(), value.size());
  });
}

std::optional<std::string> RedisStore::try_get(const std::string& key, int) {
  const Reply reply =
      ask([&](redisContext* connection) { return redisCommand(connection, "GET %b", key.data(), key.size()); });
  if (reply->type == REDIS_REPLY_NIL) return std::nullopt;
  return std::string(reply->str, reply->len);
}

}  // namespace fettle
