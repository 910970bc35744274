#include "serve/scheduler.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "generate/batch_decoder.h"
#include "generate/reply_writer.h"
#include "serve/requests.h"
#include "serve/stop_texts.h"
#include "step/open_model.h"

namespace fettle {
namespace {

constexpr int64_t kPiece = 512;  // tokens of prompts that are read between two steps

}  // namespace

PendingReply::News PendingReply::wait(std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, patience, [&] { return news_.ended || !news_.text.empty() || !news_.chances.empty(); });
  News out = news_;
  news_.text.clear();
  news_.chances.clear();
  return out;
}

std::string PendingReply::wait_for_begin(std::chrono::steady_clock::time_point end) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, end, [&] { return news_.ended || news_.reply_tokens > 0; });
  return news_.error;
}

void PendingReply::add(const std::string& text, std::optional<TokenChance> chance, int64_t reply_tokens) {
  const std::scoped_lock lock(mutex_);
  news_.text += text;
  if (chance) news_.chances.push_back(std::move(*chance));
  news_.reply_tokens = reply_tokens;
  changed_.notify_all();
}

void PendingReply::end(const std::string& finish_reason, const std::string& error) {
  const std::scoped_lock lock(mutex_);
  news_.ended = true;
  news_.finish_reason = finish_reason;
  news_.error = error;
  changed_.notify_all();
}

// A reply that is being written. A Row is never moved in memory, because the writer's callback has its address.
struct Scheduler::Row {
  std::shared_ptr<PendingReply> reply;
  StopTexts stops;
  std::string fresh;  // the part of the new text that can be sent now
  ReplyWriter writer;

  Row(std::shared_ptr<PendingReply> given, const Tokenizer& tokenizer, int64_t max_length)
      : reply(std::move(given)),
        stops(reply->job.stop),
        writer(tokenizer, reply->job.prompt, reply->job.options, max_length, [this](const std::string& text) {
          fresh += stops.push(text);
          return !stops.found();
        }) {}
  Row(const Row&) = delete;

  // Draws a token from the logits and adds it to the reply. Returns false when the reply has ended.
  bool take(const std::vector<float>& logits, const Tokenizer& tokenizer) {
    const auto before = static_cast<std::ptrdiff_t>(writer.ids().size());
    const bool goes_on = writer.take(logits);
    const std::vector<int32_t>& ids = writer.ids();
    const auto written = static_cast<int64_t>(ids.size() - reply->job.prompt.size());
    std::optional<TokenChance> chance;
    if (reply->job.top_logprobs && std::ssize(ids) > before)
      chance = token_chance(logits, std::span(ids).first(static_cast<size_t>(before)), ids.back(),
                            *reply->job.top_logprobs, tokenizer);
    if (goes_on) {
      reply->add(std::exchange(fresh, ""), std::move(chance), written);
      return true;
    }
    const ReplyEnd end = writer.finish().end;
    fresh += stops.finish();
    reply->add(fresh, std::move(chance), written);
    const bool cut = !stops.found() && (end == ReplyEnd::kMaxNewTokens || end == ReplyEnd::kMaxPositions);
    reply->end(cut ? "length" : "stop", "");
    return false;
  }
};

// Computes logits for several rows at once (BatchDecoder), or for one row (Generator).
class Scheduler::Decoding {
 public:
  Decoding(Session& session, int64_t rows) {
    OpenModel& model = session.model();
    if (rows > 1 && BatchDecoder::supports(model.run))
      several_.emplace(session.devices(), model.run, model.state, rows);
    else
      one_.emplace(session.devices(), model.run, model.state);
  }
  int64_t rows() const { return several_ ? several_->rows() : 1; }
  int64_t max_length() const { return several_ ? several_->max_length() : one_->max_length(); }
  // Returns true if the prompt can join now: at most kPiece of its tokens are unread, or replies are written one after
  // another. Otherwise reads the next kPiece tokens and returns false.
  bool read(const ReplyJob& job) {
    const int64_t left = unread(job);
    if (!several_ || left <= kPiece) return true;
    const int64_t known = std::ssize(job.prompt) - left;
    several_->read(std::span(job.prompt).first(static_cast<size_t>(known + kPiece)),
                   longest_at_first(job.prompt, job.options), job.adapter);
    return false;
  }
  int64_t unread(const ReplyJob& job) {
    return several_ ? several_->unread(job.prompt, longest_at_first(job.prompt, job.options), job.adapter)
                    : std::ssize(job.prompt);
  }
  // Gives back memory that longer replies have left. No row may be in use.
  void shrink(const ReplyJob& job) {
    if (several_) several_->shrink(longest_at_first(job.prompt, job.options));
  }
  std::vector<float> join(int64_t row, const ReplyJob& job) {
    const int64_t longest = longest_at_first(job.prompt, job.options);
    if (several_) return several_->join(row, job.prompt, longest, job.adapter);
    adapter_ = job.adapter;
    one_->reserve(longest);
    return one_->logits(job.prompt, adapter_);
  }
  // Returns the next logits of each row in `in_use`. Each entry of `in_use` has the number of a row and all tokens of
  // that row; the last token is new.
  std::vector<std::vector<float>> step(const std::vector<std::pair<int64_t, const std::vector<int32_t>*>>& in_use) {
    if (one_) return {one_->logits(*in_use.at(0).second, adapter_)};
    std::vector<std::pair<int64_t, int32_t>> next;
    for (const auto& [row, ids] : in_use) next.emplace_back(row, ids->back());
    return several_->step(next);
  }

 private:
  std::optional<BatchDecoder> several_;
  std::optional<Generator> one_;
  int64_t adapter_ = kNoAdapter;  // the adapter of the row that one_ decodes
};

Scheduler::Scheduler(Session& session, const SchedulerLimits& limits) : session_(session), limits_(limits) {
  session.load();
  decoding_ = std::make_unique<Decoding>(session, limits.rows);
  if (decoding_->rows() < limits.rows)
    warn("--rows: the rope of this model depends on the sequence length, so replies are written one after another");
  rows_.resize(static_cast<size_t>(decoding_->rows()));
  const std::vector<int32_t> first = {session.stop_ids().empty() ? 0 : session.stop_ids()[0]};
  decoding_->join(0, {.prompt = first, .options = {.max_new_tokens = 1}});
  const std::vector<int32_t> second = {first[0], first[0]};
  if (decoding_->max_length() > 1) decoding_->step({{0, &second}});
  thread_ = std::thread([this] { work(); });
}

Scheduler::~Scheduler() {
  {
    const std::scoped_lock lock(mutex_);
    ending_ = leave_ = true;
  }
  submitted_.notify_all();
  thread_.join();
}

std::vector<std::shared_ptr<PendingReply>> Scheduler::submit(std::vector<ReplyJob> jobs) {
  std::vector<std::shared_ptr<PendingReply>> replies;
  for (ReplyJob& job : jobs) replies.push_back(std::make_shared<PendingReply>(std::move(job)));
  {
    const std::scoped_lock lock(mutex_);
    if (ending_) throw RequestError(503, "the server is ending; ask again later", "", "server_ending");
    const int64_t rows = std::ssize(rows_), most = limits_.max_waiting + rows;
    if (std::ssize(replies) > most)
      throw RequestError(
          400,
          fmt::format("the request asks for {} replies, but this server takes {} at a time; ask for fewer, or start "
                      "the server with a larger --max-waiting",
                      replies.size(), most));
    // A request for which a row is free does not count as waiting.
    const int64_t free = std::max<int64_t>(0, rows - writing_);
    if (std::ssize(waiting_) + std::ssize(replies) > limits_.max_waiting + free)
      throw RequestError(
          429,
          fmt::format("{} replies are waiting already, and the request asks for {} more than there is "
                      "room for; ask again later",
                      waiting_.size(), std::ssize(waiting_) + std::ssize(replies) - limits_.max_waiting - free),
          "", "rate_limit_exceeded");
    waiting_.insert(waiting_.end(), replies.begin(), replies.end());
  }
  submitted_.notify_all();
  return replies;
}

std::shared_ptr<PendingReply> Scheduler::submit(ReplyJob job) {
  std::vector<ReplyJob> jobs;
  jobs.push_back(std::move(job));
  return submit(std::move(jobs)).front();
}

void Scheduler::refuse_new() {
  const std::scoped_lock lock(mutex_);
  ending_ = true;
}

Scheduler::Figures Scheduler::figures() const {
  const std::scoped_lock lock(mutex_);
  return {writing_, std::ssize(waiting_), ending_};
}

void Scheduler::work() {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      writing_ = std::ranges::count_if(rows_, [](const auto& row) { return row != nullptr; }) + (reading_ ? 1 : 0);
      submitted_.wait(lock, [&] { return writing_ > 0 || !waiting_.empty() || leave_; });
      if (leave_ && writing_ == 0 && waiting_.empty()) return;
    }
    try {
      drop_cancelled();
      take_waiting();
      step();
    } catch (const std::exception& error) {
      fail_all(error.what());
    }
  }
}

void Scheduler::drop_cancelled() {
  for (std::unique_ptr<Row>& row : rows_)
    if (row && row->reply->cancelled()) row.reset();
  if (reading_ && reading_->cancelled()) reading_ = nullptr;
  const std::scoped_lock lock(mutex_);
  std::erase_if(waiting_, [](const auto& reply) { return reply->cancelled(); });
}

std::shared_ptr<PendingReply> Scheduler::next_waiting() {
  const std::scoped_lock lock(mutex_);
  if (waiting_.empty()) return nullptr;
  std::shared_ptr<PendingReply> reply = std::move(waiting_.front());
  waiting_.pop_front();
  ++writing_;
  return reply;
}

void Scheduler::take_waiting() {
  for (int64_t budget = kPiece; budget > 0;) {
    const auto free = std::ranges::find_if(rows_, [](const auto& row) { return row == nullptr; });
    if (free == rows_.end()) return;
    if (!reading_) reading_ = next_waiting();
    if (!reading_) return;
    budget -= decoding_->unread(reading_->job);
    try {
      if (!decoding_->read(reading_->job)) return;
      join(*free, reading_);
    } catch (const UserError& error) {
      fail(*reading_, error);
    }
    reading_ = nullptr;
  }
}

void Scheduler::join(std::unique_ptr<Row>& row, const std::shared_ptr<PendingReply>& reply) {
  auto joined = std::make_unique<Row>(reply, session_.tokenizer(), decoding_->max_length());
  if (std::ranges::all_of(rows_, [](const auto& other) { return other == nullptr; })) decoding_->shrink(reply->job);
  const std::vector<float> logits = decoding_->join(&row - rows_.data(), reply->job);
  if (goes_on(*joined, logits)) row = std::move(joined);
}

// Passes the logits to the row's reply. Returns false when the reply has ended. Logits that are not finite, such as
// those of a prompt whose activations overflow 16 bits, end only this reply.
bool Scheduler::goes_on(Row& row, const std::vector<float>& logits) {
  try {
    return row.take(logits, session_.tokenizer());
  } catch (const UserError& error) {
    fail(*row.reply, error);
    return false;
  }
}

void Scheduler::fail(PendingReply& reply, const UserError& error) {
  warn("a reply failed: {}", error.what());
  reply.end("", error.what());
}

void Scheduler::step() {
  std::vector<std::pair<int64_t, const std::vector<int32_t>*>> in_use;
  for (size_t r = 0; r < rows_.size(); ++r)
    if (rows_[r]) in_use.emplace_back(static_cast<int64_t>(r), &rows_[r]->writer.ids());
  if (in_use.empty()) return;
  const std::vector<std::vector<float>> logits = decoding_->step(in_use);
  for (size_t i = 0; i < in_use.size(); ++i) {
    std::unique_ptr<Row>& row = rows_[static_cast<size_t>(in_use[i].first)];
    if (!goes_on(*row, logits[i])) row.reset();
  }
}

// Ends all replies that are being written, because the failure may have destroyed their keys and values. These replies
// report the error. Makes a new decoder, so that later replies start with an empty cache.
void Scheduler::fail_all(const std::string& error) {
  warn("the replies that were being written failed: {}", error);
  for (std::unique_ptr<Row>& row : rows_)
    if (row) std::exchange(row, nullptr)->reply->end("", error);
  if (reading_) std::exchange(reading_, nullptr)->end("", error);
  try {
    decoding_ = std::make_unique<Decoding>(session_, limits_.rows);
  } catch (const std::exception& again) {
    warn("after the failure, a new decoder could not be made: {}; if requests keep failing, restart the server",
         again.what());
  }
}

}  // namespace fettle
