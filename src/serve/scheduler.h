// Defines Scheduler, which writes the replies of several requests at the same time. Only its own thread uses the model.
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

#include "base/error.h"
#include "generate/session.h"
#include "serve/token_chances.h"

namespace fettle {

struct ReplyJob {
  std::vector<int32_t> prompt;
  ReplyOptions options;
  std::vector<std::string> stop;    // texts that end the reply
  std::optional<int> top_logprobs;  // like CompletionRequest::top_logprobs
  int64_t adapter = kNoAdapter;     // number of an adapter in AdapterSpec::side_by_side
};

// A reply that the scheduler writes and another thread reads.
class PendingReply {
 public:
  explicit PendingReply(ReplyJob given) : job(std::move(given)) {}

  // The part of the reply that is new since the last call of wait().
  struct News {
    std::string text;
    std::vector<TokenChance> chances;  // one for each new token, if the job asks for them
    bool ended = false;
    std::string finish_reason;  // of an ended reply: "stop" or "length", or "" if the reply failed
    std::string error;          // why the reply failed
    int64_t reply_tokens = 0;   // tokens of the reply so far
  };
  // Waits until the reply has a new part or has ended, but at most for `patience`. Returns the new part.
  News wait(std::chrono::milliseconds patience);
  // Waits until the reply has a token or has ended, but at most until `end`. Returns why the reply failed, or "". The
  // news stays for wait().
  std::string wait_for_begin(std::chrono::steady_clock::time_point end);
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
  int64_t max_waiting = 64;  // requests that may wait for a row
};

// A step computes the next token of every reply that is being written; each of these replies has a row. Between two
// steps, waiting requests take free rows. At most one piece of a long prompt is read between two steps, so that the
// other replies continue. Replies are written one after another if there is only one row, or if BatchDecoder does not
// support the model.
class Scheduler {
 public:
  // Loads the model, and computes a step to show that the model works. Throws UserError, DeviceError or DoesNotFit.
  // `session` must outlive the Scheduler; other threads may call const functions of the session.
  Scheduler(Session& session, const SchedulerLimits& limits);
  // Waits until all submitted replies are written.
  ~Scheduler();

  // Adds the jobs to the waiting requests, all or none, and returns their replies. Throws RequestError with status 429
  // when too many requests wait, with status 400 when there are more jobs than may ever wait, and with status 503 after
  // refuse_new().
  std::vector<std::shared_ptr<PendingReply>> submit(std::vector<ReplyJob> jobs);
  std::shared_ptr<PendingReply> submit(ReplyJob job);
  // Refuses all later calls of submit(). The replies that were submitted before are still written.
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
  static void fail(PendingReply& reply, const UserError& error);
  void fail_all(const std::string& error);
  std::shared_ptr<PendingReply> next_waiting();

  Session& session_;
  SchedulerLimits limits_;
  std::unique_ptr<Decoding> decoding_;
  std::vector<std::unique_ptr<Row>> rows_;  // null for a free row
  std::shared_ptr<PendingReply> reading_;   // the reply whose prompt is being read; null: none

  mutable std::mutex mutex_;
  std::condition_variable submitted_;
  std::deque<std::shared_ptr<PendingReply>> waiting_;
  int64_t writing_ = 0;  // number of rows in use, plus 1 if reading_ is set
  bool ending_ = false, leave_ = false;
  std::thread thread_;
};

}  // namespace fettle
