#include "data/fill_store.h"

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/seconds_since.h"
#include "data/read/rows.h"
#include "data/store/row_pipeline.h"

namespace fettle {
namespace {

class Filling {
 public:
  Filling(const DataSpec& spec, const DataSource& source, TokenWriter& writer)
      : spec_(spec), source_(source), writer_(writer) {}

  Tally run(const RowTokeniser& tokeniser) {
    const auto work = [&](Row& row, const std::string& where) { return tokeniser(row, source_, where); };
    for_each_row(
        source_.files, spec_.most_rows(source_).value_or(INT64_MAX), work,
        [&](uint32_t file, int64_t line, Outcome& outcome) { take(file, line, outcome); }, spec_.text_rows(source_));
    want_named_columns();
    const ChatTemplate::Counts counts = tokeniser.counts();
    tally_.rewritten = counts.rewritten;
    tally_.prompt_thinks = counts.prompt_thinks;
    tally_.without_end = counts.without_end;
    tally_.lost_thoughts = counts.lost_thoughts;
    if (seconds_since(start_) > 2)
      info("data: {} rows of {} in {:.0f} s, {:.0f} a second", tally_.rows, source_.name, seconds_since(start_),
           rate());
    return std::move(tally_);
  }

 private:
  void take(uint32_t file, int64_t line, Outcome& outcome) {
    ++tally_.rows;
    count_progress();
    if (outcome.lacks && !lacks_)
      lacks_ = std::move(outcome.lacks);
    else if (outcome.lacks)
      std::erase_if(*lacks_, [&](const auto& one) { return !outcome.lacks->contains(one.first); });
    InterruptScope::check("the rows were read; nothing is kept");
    line_.show([&] { return fmt::format("data: {} rows of {}, {:.0f} a second", tally_.rows, source_.name, rate()); });
    if (!outcome.bad.empty()) {
      if (spec_.on_bad_row != OnBadRow::kSkip)
        throw UserError("{}: {}{}", row_place(source_.files[file].string(), line), outcome.bad, kSkipHint);
      ++tally_.bad_rows;
      return tally_.note("skipped", file, line, outcome.bad);
    }
    if (!outcome.format.empty()) ++tally_.formats[std::string(outcome.format)];
    if (!outcome.dropped.empty()) {
      ++tally_.dropped;
      tally_.empty += outcome.empty;
      tally_.note("dropped", file, line, outcome.dropped);
      if (outcome.examples.empty()) return;
    }
    if (!outcome.placeholder.empty())
      tally_.note(
          "placeholder", file, line,
          fmt::format("a reply has {}; replace it, unless the model should learn to write it", outcome.placeholder));
    if (!outcome.null_argument.empty())
      tally_.note(
          "null", file, line,
          fmt::format("the argument {} is null, and the model learns to write this; the datasets library writes "
                      "null for fields that a row lacks (to_json), so remove it unless it is meant",
                      outcome.null_argument));
    if (outcome.truncated_from) {
      ++tally_.truncated;
      const int64_t from = outcome.truncated_from, to = outcome.truncated_to, most = spec_.cutoff_len;
      tally_.note("cut", file, line,
                  to > 0 && to < most ? fmt::format("{} tokens to {}, in whole turns (cutoff_len {})", from, to, most)
                                      : fmt::format("{} tokens to cutoff_len {}", from, most));
    }
    for (const auto& [role, count] : outcome.tokens_by_role) tally_.tokens_by_role[role] += count;
    for (const auto& [role, count] : outcome.trained_by_role) tally_.trained_by_role[role] += count;
    for (const Example& example : outcome.examples)
      writer_.add(example, file, line, outcome.continued && &example != outcome.examples.data());
  }

  // Requires that each column that the entry names is in at least one row. If other rows may have it, or if the format
  // can do without it, adds a note instead. Sets with and without tools may share an entry, so tools are only noted.
  void want_named_columns() {
    if (!lacks_) return;
    const bool all_read = tally_.rows < spec_.most_rows(source_).value_or(INT64_MAX);
    for (const auto& [part, near] : *lacks_) {
      const std::string what =
          fmt::format("`columns` names '{}' for `{}`, but no row{} has this column{}; correct the name, or remove `{}`",
                      source_.column(part), part, all_read ? "" : " that was read",
                      near.empty() ? "" : fmt::format(" (did you mean '{}'?)", near), part);
      if (all_read && source_.formatting != "alpaca_prompt" && part != "tools")
        throw UserError("{}: {}", source_.name, what);
      tally_.note("columns", 0, 1, what);
    }
  }

  double rate() const { return static_cast<double>(tally_.rows) / seconds_since(start_); }

  const DataSpec& spec_;
  const DataSource& source_;
  TokenWriter& writer_;
  Tally tally_;
  std::optional<std::map<std::string, std::string>> lacks_;  // Outcome::lacks of all rows; nullopt before the first row
  Clock::time_point start_ = Clock::now();
  ProgressLine line_;
};

}  // namespace

Tally fill_store(TokenWriter& writer, const DataSource& source, const RowTokeniser& tokeniser, const DataSpec& spec) {
  return Filling(spec, source, writer).run(tokeniser);
}

}  // namespace fettle
