#include "data/store/row_pipeline.h"

#include <fmt/format.h>

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

namespace fettle {
namespace {

constexpr size_t kChunkBytes = size_t{256} << 10;
constexpr size_t kAhead = size_t{64} << 20;
// What a row counts beside its text, and one that comes without text, as those of columns do.
constexpr size_t kRowBytes = size_t{1} << 10, kColumnsRowBytes = size_t{16} << 10;

// Rows of one file that one thread works on.
struct Chunk {
  uint32_t file = 0;
  std::vector<Row> rows;
  std::vector<int64_t> lines;
  size_t bytes = 0;
  std::vector<Outcome> outcomes;
  std::exception_ptr failure;  // of reading, behind these rows
};

class Pipeline {
 public:
  Pipeline(const std::vector<std::filesystem::path>& files, int64_t most, const RowWork& work)
      : files_(files), left_(most), work_(work), cores_(std::max(1u, std::thread::hardware_concurrency())) {
    threads_.emplace_back([this] { read_all(); });
    for (size_t n = 0; n < cores_; ++n) threads_.emplace_back([this] { work_all(); });
  }
  ~Pipeline() {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  // The next chunk in the order of the rows, worked on; null behind the last.
  std::unique_ptr<Chunk> next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_.contains(taken_) || (ended_ && taken_ == read_); });
    const auto found = done_.find(taken_);
    if (found == done_.end()) return nullptr;
    std::unique_ptr<Chunk> chunk = std::move(found->second);
    done_.erase(found);
    ++taken_;
    ahead_ -= chunk->bytes;
    changed_.notify_all();
    return chunk;
  }

 private:
  void read_all() {
    auto chunk = std::make_unique<Chunk>();
    for (size_t file = 0; file < files_.size() && left_ > 0; ++file) {
      chunk->file = static_cast<uint32_t>(file);
      try {
        read_rows(files_[file], [&](Row row) {
          chunk->bytes += row.text.empty() ? kColumnsRowBytes : row.text.size() + kRowBytes;
          chunk->rows.push_back(std::move(row));
          if (chunk->bytes >= kChunkBytes && !hand_on(chunk)) return false;
          return --left_ > 0;
        });
      } catch (...) {
        chunk->failure = std::current_exception();
        left_ = 0;
      }
      if (!hand_on(chunk)) break;
    }
    const std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  }

  // Puts the chunk into the queue and begins another one of the same file; false when no more are wanted.
  bool hand_on(std::unique_ptr<Chunk>& chunk) {
    auto fresh = std::make_unique<Chunk>();
    fresh->file = chunk->file;
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return stopped_ || ahead_ < kAhead; });
    ahead_ += chunk->bytes;
    waiting_.emplace_back(read_++, std::move(chunk));
    chunk = std::move(fresh);
    changed_.notify_all();
    return !stopped_;
  }

  void work_all() {
    while (true) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stopped_ || !waiting_.empty() || ended_; });
      if (stopped_ || waiting_.empty()) return;
      auto [number, chunk] = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      const std::string name = files_[chunk->file].string();
      for (Row& row : chunk->rows) {
        chunk->lines.push_back(row.line);
        chunk->outcomes.push_back(work_(row, fmt::format("{}:{}", name, row.line)));
        row = {};
      }
      lock.lock();
      done_.emplace(number, std::move(chunk));
      changed_.notify_all();
    }
  }

  const std::vector<std::filesystem::path>& files_;
  int64_t left_;  // rows still wanted
  const RowWork& work_;
  size_t cores_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<size_t, std::unique_ptr<Chunk>>> waiting_;
  std::map<size_t, std::unique_ptr<Chunk>> done_;
  size_t read_ = 0, taken_ = 0;  // chunks
  size_t ahead_ = 0;             // bytes of the chunks that were read and not taken
  bool ended_ = false, stopped_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

void for_each_row(const std::vector<std::filesystem::path>& files, int64_t most, const RowWork& work,
                  const TakeOutcome& take) {
  Pipeline pipeline(files, most, work);
  while (const std::unique_ptr<Chunk> chunk = pipeline.next()) {
    for (size_t i = 0; i < chunk->outcomes.size(); ++i) {
      if (chunk->outcomes[i].failure) std::rethrow_exception(chunk->outcomes[i].failure);
      take(chunk->file, chunk->lines[i], chunk->outcomes[i]);
    }
    if (chunk->failure) std::rethrow_exception(chunk->failure);
  }
}

}  // namespace fettle
