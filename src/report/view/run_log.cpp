#include "report/view/run_log.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "base/text.h"

namespace fettle {
namespace {

constexpr size_t kMostSeries = 300, kLongestKey = 120;
constexpr int64_t kBlock = 4 << 20, kLongestLine = 1 << 20;

// Reads a line of the form {"key": number or text, ...}. A line with nested values, or with escapes in a text, counts
// as damaged, because no program that writes these logs uses them.
class LineReader {
 public:
  explicit LineReader(std::string_view line) : at_(line.data()), end_(line.data() + line.size()) {}

  // Calls number(key, value) and text(key, value). Returns false when the line is damaged.
  template <typename Number, typename Text>
  bool read(Number number, Text text) {
    if (!take('{')) return false;
    if (take('}')) return at_end();
    do {
      std::string_view key, value;
      if (!quoted(key) || !take(':')) return false;
      skip();
      if (at_ < end_ && *at_ == '"') {
        if (!quoted(value)) return false;
        text(key, value);
        continue;
      }
      double figure = 0;
      const auto [after, error] = std::from_chars(at_, end_, figure);  // also reads Python's NaN and Infinity
      if (error == std::errc::invalid_argument) {
        if (!word("null") && !word("true") && !word("false")) return false;
        continue;
      }
      at_ = after;
      if (error == std::errc()) number(key, figure);
    } while (take(','));
    return take('}') && at_end();
  }

 private:
  void skip() {
    while (at_ < end_ && (*at_ == ' ' || *at_ == '\t' || *at_ == '\r')) ++at_;
  }
  bool take(char wanted) {
    skip();
    if (at_ == end_ || *at_ != wanted) return false;
    ++at_;
    return true;
  }
  bool word(std::string_view wanted) {
    if (!std::string_view(at_, static_cast<size_t>(end_ - at_)).starts_with(wanted)) return false;
    at_ += wanted.size();
    return true;
  }
  bool quoted(std::string_view& out) {
    if (!take('"')) return false;
    const char* begin = at_;
    while (at_ < end_ && *at_ != '"' && *at_ != '\\' && static_cast<unsigned char>(*at_) >= 0x20) ++at_;
    if (at_ == end_ || *at_ != '"') return false;
    out = {begin, static_cast<size_t>(at_ - begin)};
    ++at_;
    return true;
  }
  bool at_end() {
    skip();
    return at_ == end_;
  }

  const char *at_, *end_;
};

// Converts "0:01:23" or "1 day, 0:01:23" to seconds. Returns 0 when a number is missing or is not finite.
double read_duration(std::string_view text) {
  double days = 0;
  if (const size_t day = text.find(" day"); day != std::string_view::npos) {
    std::from_chars(text.data(), text.data() + day, days);
    text.remove_prefix(std::min(text.size(), text.find(", ") + 2));
  }
  double all = 0;
  for (int part = 0; part < 3; ++part) {
    double value = 0;
    const auto [after, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc()) return 0;
    all = all * 60 + value;
    text.remove_prefix(static_cast<size_t>(after - text.data()));
    if (!text.empty()) text.remove_prefix(1);
  }
  all += days * 86400;
  return std::isfinite(all) ? all : 0;  // std::from_chars also reads "NaN" and "inf"
}

}  // namespace

std::optional<LogAxis> log_axis(std::string_view name) {
  constexpr std::array names{"step", "seconds", "tokens", "epoch"};
  for (size_t i = 0; i < names.size(); ++i)
    if (name == names[i]) return static_cast<LogAxis>(i);
  return std::nullopt;
}

double LogRow::at(LogAxis axis) const {
  switch (axis) {
    case LogAxis::kSeconds: return seconds;
    case LogAxis::kTokens: return tokens;
    case LogAxis::kEpoch: return epoch;
    case LogAxis::kStep: break;
  }
  return step;
}

std::optional<double> RunLog::last(std::string_view key) const {
  const auto found = series_.find(key);
  if (found == series_.end() || found->second.values.empty()) return std::nullopt;
  return found->second.values.back();
}

void RunLog::take(std::string_view line) {
  if (is_blank(line)) return;
  std::optional<double> step, epoch, tokens, seconds;
  double total = static_cast<double>(total_steps_), left = seconds_left_;
  bool resumed = false;
  std::vector<std::pair<std::string_view, double>> figures;
  const bool sound = LineReader(line).read(
      [&](std::string_view key, double value) {
        if (!std::isfinite(value)) return;
        if (key == "current_steps")
          step = value;
        else if (key == "total_steps")
          total = value;
        else if (key == "epoch")
          epoch = value;
        else if (key == "total_tokens")
          tokens = value;
        else if (key == "resumed_step")
          resumed = true;
        else if (key != "percentage" && key.size() <= kLongestKey)
          figures.emplace_back(key, value);
      },
      [&](std::string_view key, std::string_view value) {
        if (key == "elapsed_time") seconds = read_duration(value);
        if (key == "remaining_time") left = read_duration(value);
      });
  if (!sound || !step) {
    ++damaged_;
    return;
  }
  const bool goes_back = !rows_.empty() && *step < rows_.back().step;
  if (goes_back && figures.empty()) return;  // LLaMA-Factory counts the batches of a prediction in the same file
  // Only Fettle's log names the resume. LLaMA-Factory's log and older logs of Fettle show it by a smaller step or time.
  const bool restarts = seconds && *seconds < process_seconds_;
  if (resumed || goes_back || restarts) {
    earlier_seconds_ += std::exchange(process_seconds_, 0);
    const bool repeats = goes_back || (!resumed && restarts && std::ranges::any_of(figures, [&](const auto& figure) {
                           return has_value_at(figure.first, *step);
                         }));
    if (repeats && keep_ == Keep::kAll) forget_from(*step);
  }
  process_seconds_ = seconds.value_or(process_seconds_);
  LogRow row = rows_.empty() ? LogRow{} : rows_.back();
  row.step = *step;
  row.epoch = epoch.value_or(row.epoch);
  row.tokens = tokens.value_or(row.tokens);
  row.seconds = earlier_seconds_ + process_seconds_;
  total_steps_ = total > 0 && total < 1e15 ? static_cast<int64_t>(total) : 0;
  seconds_left_ = left;
  const auto number = static_cast<uint32_t>(rows_.size());
  rows_.push_back(row);
  for (const auto& [key, value] : figures) {
    auto found = series_.find(key);
    if (found == series_.end()) {
      if (series_.size() >= kMostSeries) continue;
      found = series_.emplace(std::string(key), LogSeries{}).first;
    }
    LogSeries& one = found->second;
    if (!one.rows.empty() && one.rows.back() == number) continue;  // the line has the key twice
    one.rows.push_back(number);
    one.values.push_back(value);
  }
}

bool RunLog::has_value_at(std::string_view key, double step) const {
  const auto found = series_.find(key);
  return found != series_.end() && !found->second.rows.empty() && rows_[found->second.rows.back()].step == step;
}

void RunLog::forget_from(double step) {
  while (!rows_.empty() && rows_.back().step >= step) rows_.pop_back();
  for (auto& [key, one] : series_)
    while (!one.rows.empty() && one.rows.back() >= rows_.size()) {
      one.rows.pop_back();
      one.values.pop_back();
    }
  std::erase_if(series_, [](const auto& entry) { return entry.second.rows.empty(); });
}

void RunLog::forget_all_but_last() {
  if (rows_.size() < 2) return;
  rows_ = std::vector<LogRow>{rows_.back()};  // a new array, because the old one keeps its memory
  for (auto& [key, one] : series_) one = {{0}, {one.values.back()}};
}

bool RunLog::update(const FolderFiles& files, std::string_view path) {
  const std::optional<OpenedFile> file = files.open(path);
  const FileStamp now = file ? file->stamp() : FileStamp{};
  if (now == stamp_) return false;
  if (now.inode != stamp_.inode || now.size < offset_) *this = RunLog(keep_);
  bool cut = false;  // true: the rest of a line is left out
  stamp_ = now;
  std::string rest;
  int64_t at = offset_;
  while (at < now.size) {
    const std::string block = file->read(at, std::min(kBlock, now.size - at));
    if (block.empty()) break;
    at += static_cast<int64_t>(block.size());
    rest += block;
    size_t begin = 0;
    for (size_t end; (end = rest.find('\n', begin)) != std::string::npos; begin = end + 1) {
      if (!cut) take(std::string_view(rest).substr(begin, end - begin));
      cut = false;
    }
    if (keep_ == Keep::kLast) forget_all_but_last();
    rest.erase(0, begin);
    if (static_cast<int64_t>(rest.size()) > kLongestLine) {  // no program that writes these logs makes so long a line
      rest.clear();
      cut = true;
      ++damaged_;
    }
  }
  offset_ = at - static_cast<int64_t>(rest.size());
  if (at < now.size) stamp_.changed_ns = 0;  // a part could not be read, so the next call tries again
  return true;
}

}  // namespace fettle
