#include "data/store/row_pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <stop_token>
#include <thread>

#include "base/interrupt.h"
#include "base/limits/cpus.h"
#include "data/read/rows.h"

namespace fettle {
namespace {

constexpr size_t kChunkBytes = size_t{256} << 10;
constexpr size_t kAhead = size_t{64} << 20;
// kAhead limits the bytes of rows that were read but not taken. A row counts as the bytes of its text plus kRowBytes. A
// Parquet or Arrow row has no text, and counts as kColumnsRowBytes.
constexpr size_t kRowBytes = size_t{1} << 10, kColumnsRowBytes = size_t{16} << 10;

// Some rows of one file. One thread works on all of them.
struct Chunk {
  uint32_t file = 0;
  std::vector<Row> rows;
  std::vector<int64_t> lines;
  size_t bytes = 0;
  std::vector<Outcome> outcomes;
  std::exception_ptr failure;  // the exception that ended the reading of the file after these rows
};

// Returns how many bytes a row without text counts as. A row of a text file may be a whole document.
size_t bytes_of(const nlohmann::ordered_json& row) {
  const auto text = row.is_object() ? row.find("text") : row.end();
  const bool document = text != row.end() && text->is_string();
  return std::max(kColumnsRowBytes, document ? text->get_ref<const std::string&>().size() : 0);
}

class Pipeline {
 public:
  Pipeline(const std::vector<std::filesystem::path>& files, int64_t most, const RowWork& work, TextRows texts)
      : files_(files), left_(most), work_(work), texts_(texts) {
    // Starting a thread can throw. If so, the destructors in `threads_` stop and join the threads that are running.
    threads_.emplace_back([this](std::stop_token stop) { read_all(stop); });
    for (int64_t n = usable_cpus(); n > 0; --n) threads_.emplace_back([this](std::stop_token stop) { work_all(stop); });
  }
  ~Pipeline() {
    for (std::jthread& thread : threads_) thread.request_stop();
  }

  // Returns the next finished chunk in the order of the rows; null after the last chunk.
  std::unique_ptr<Chunk> next() {
    std::unique_lock lock(mutex_);
    const auto ready = [&] { return failure_ || done_.contains(taken_) || (ended_ && taken_ == read_); };
    // A signal handler may not notify a condition variable, so this loop checks for interrupts at regular intervals.
    while (!changed_.wait_for(lock, std::chrono::milliseconds(200), ready))
      InterruptScope::check("the rows were read; nothing is kept");
    const auto found = done_.find(taken_);
    if (found == done_.end()) {
      if (failure_) std::rethrow_exception(failure_);
      return nullptr;
    }
    std::unique_ptr<Chunk> chunk = std::move(found->second);
    done_.erase(found);
    ++taken_;
    ahead_ -= chunk->bytes;
    changed_.notify_all();
    return chunk;
  }

 private:
  void read_all(const std::stop_token& stop) try {
    auto chunk = std::make_unique<Chunk>();
    for (size_t file = 0; file < files_.size() && left_ > 0; ++file) {
      chunk->file = static_cast<uint32_t>(file);
      try {
        const auto take = [&](Row row) {
          chunk->bytes += row.text.empty() ? bytes_of(row.value) : row.text.size() + kRowBytes;
          chunk->rows.push_back(std::move(row));
          if (chunk->bytes >= kChunkBytes && !hand_on(chunk, stop)) return false;
          return --left_ > 0;
        };
        read_rows(files_[file], take, texts_);
      } catch (...) {
        chunk->failure = std::current_exception();
        left_ = 0;
      }
      if (!hand_on(chunk, stop)) break;
    }
    const std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  } catch (...) {
    fail();
  }

  // Queues the chunk, and replaces it by an empty one for the same file. Returns false when no more chunks are wanted.
  bool hand_on(std::unique_ptr<Chunk>& chunk, const std::stop_token& stop) {
    auto fresh = std::make_unique<Chunk>();
    fresh->file = chunk->file;
    std::unique_lock lock(mutex_);
    if (!changed_.wait(lock, stop, [&] { return ahead_ < kAhead; }) || stop.stop_requested()) return false;
    ahead_ += chunk->bytes;
    waiting_.emplace_back(read_++, std::move(chunk));
    chunk = std::move(fresh);
    changed_.notify_all();
    return true;
  }

  void work_all(const std::stop_token& stop) try {
    while (true) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, stop, [&] { return !waiting_.empty() || ended_; });
      if (stop.stop_requested() || waiting_.empty()) return;
      auto [number, chunk] = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      const std::string name = files_[chunk->file].string();
      for (Row& row : chunk->rows) {
        if (stop.stop_requested()) return;
        chunk->lines.push_back(row.line);
        chunk->outcomes.push_back(work_(row, row_place(name, row.line)));
        row = {};
      }
      lock.lock();
      done_.emplace(number, std::move(chunk));
      changed_.notify_all();
    }
  } catch (...) {
    fail();
  }

  // Stores an error that is not about a row, such as too little memory.
  void fail() {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::current_exception();
    changed_.notify_all();
  }

  const std::vector<std::filesystem::path>& files_;
  int64_t left_;  // rows still to read
  const RowWork& work_;
  const TextRows texts_;

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<std::pair<size_t, std::unique_ptr<Chunk>>> waiting_;
  std::map<size_t, std::unique_ptr<Chunk>> done_;
  size_t read_ = 0, taken_ = 0;  // how many chunks were read, and how many next() has returned
  size_t ahead_ = 0;             // bytes of chunks that were read but not taken
  bool ended_ = false;
  std::exception_ptr failure_;
  std::vector<std::jthread> threads_;  // declared last, so that the threads end before the other members are destroyed
};

}  // namespace

void for_each_row(const std::vector<std::filesystem::path>& files, int64_t most, const RowWork& work,
                  const TakeOutcome& take, TextRows texts) {
  Pipeline pipeline(files, most, work, texts);
  while (const std::unique_ptr<Chunk> chunk = pipeline.next()) {
    for (size_t i = 0; i < chunk->outcomes.size(); ++i) {
      if (chunk->outcomes[i].failure) std::rethrow_exception(chunk->outcomes[i].failure);
      take(chunk->file, chunk->lines[i], chunk->outcomes[i]);
    }
    if (chunk->failure) std::rethrow_exception(chunk->failure);
  }
}

}  // namespace fettle
