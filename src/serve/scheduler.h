// Defines Scheduler, whose thread owns the model and writes the replies of all requests at once.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "generate/session.h"
#include "serve/token_chances.h"

namespace fettle {

struct ReplyJob {
  std::vector<int32_t> prompt;
  ReplyOptions options;
  std::vector<std::string> stop;    // texts that end the reply
  std::optional<int> top_logprobs;  // like CompletionRequest::top_logprobs
};

// A reply that the scheduler writes and another thread reads.
class PendingReply {
 public:
  explicit PendingReply(ReplyJob given) : job(std::move(given)) {}

  // What was added to the reply since the last call.
  struct News {
    std::string text;
    std::vector<TokenChance> chances;  // when the job asks for them
    bool ended = false;
    std::string finish_reason;  // set when the reply has ended: "stop" or "length"; empty: it failed
    std::string error;          // why it failed
    int64_t reply_tokens = 0;   // tokens of the reply so far
  };
  // Waits until there is news, but at most for `patience`.
  News wait(std::chrono::milliseconds patience);
  // Tells the scheduler that the client has gone. The scheduler then drops the reply.
  void cancel() { cancelled_ = true; }
  bool cancelled() const { return cancelled_; }

  // The following functions are for the scheduler.
  void add(const std::string& text, std::optional<TokenChance> chance, int64_t reply_tokens);
  void end(const std::string& finish_reason, const std::string& error);

  const ReplyJob job;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  News news_;
  std::atomic<bool> cancelled_ = false;
};

struct SchedulerLimits {
  int64_t rows = 16;         // replies that are written at the same time
  int64_t max_waiting = 64;  // requests that wait for a row
};

// Between two steps, waiting requests join free rows. At most one piece of a long prompt is read between two steps, so
// that the other replies continue. With one row, or a family that BatchDecoder does not support, replies are written
// one after another.
class Scheduler {
 public:
  // Loads the model and computes a step. Throws UserError, DeviceError or DoesNotFit. `session` must outlive the
  // Scheduler; other threads may call its const functions.
  Scheduler(Session& session, const SchedulerLimits& limits);
  // Writes all replies that were submitted, then ends.
  ~Scheduler();

  // Throws RequestError: 429 when too many requests wait, 503 after refuse_new().
  std::shared_ptr<PendingReply> submit(ReplyJob job);
  void refuse_new();
  struct Figures {
    int64_t writing, waiting;
    bool ending;
  };
  Figures figures() const;

 private:
  struct Row;
  class Decoding;
  void work();
  void drop_cancelled();
  void take_waiting();
  void join(std::unique_ptr<Row>& row, const std::shared_ptr<PendingReply>& reply);
  void step();
  bool goes_on(Row& row, const std::vector<float>& logits);  // false when the reply ended with this token
  void fail_all(const std::string& error);
  std::shared_ptr<PendingReply> next_waiting();

  Session& session_;
  SchedulerLimits limits_;
  std::unique_ptr<Decoding> decoding_;
  std::vector<std::unique_ptr<Row>> rows_;  // empty where a row is free
  std::shared_ptr<PendingReply> reading_;   // the reply whose prompt is being read; it joins next

  mutable std::mutex mutex_;
  std::condition_variable submitted_;
  std::deque<std::shared_ptr<PendingReply>> waiting_;
  int64_t writing_ = 0;  // rows in use, and reading_
  bool ending_ = false, leave_ = false;
  std::thread thread_;
};

}  // namespace fettle
