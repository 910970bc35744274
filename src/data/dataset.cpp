#include "data/dataset.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "data/classes/class_counts.h"
#include "data/classes/label_scan.h"
#include "data/mix.h"
#include "data/order.h"
#include "data/preferences.h"
#include "data/read/dataset_info.h"
#include "data/store/data_cache.h"
#include "data/store/row_pipeline.h"
#include "data/tokenise.h"

namespace fettle {
namespace {

constexpr int64_t kNotesOfAKind = 5;
constexpr uint64_t kSampleStream = uint64_t{1} << 62;
constexpr uint64_t kSplitStream = (uint64_t{1} << 62) + 1;

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The examples of these units, where each unit is `size` examples that belong together.
Examples select_units(const Examples& from, const std::vector<int64_t>& units, int64_t size) {
  std::vector<int64_t> rows;
  rows.reserve(units.size() * static_cast<size_t>(size));
  for (int64_t unit : units)
    for (int64_t i = 0; i < size; ++i) rows.push_back(unit * size + i);
  return from.select(rows);
}

// What a store remembers of the rows that made it. Files are numbers, so that it holds wherever they lie.
struct Tally {
  struct Note {
    std::string kind, what;
    uint32_t file = 0;
    int64_t line = 0;
  };
  int64_t rows = 0, truncated = 0, dropped = 0, empty = 0, bad_rows = 0;
  std::map<std::string, int64_t> tokens_by_role, trained_by_role, kinds, formats;
  std::vector<Note> notes;
  int64_t rewritten = 0, prompt_thinks = 0, without_end = 0;  // ChatTemplate::Counts

  void note(const std::string& kind, uint32_t file, int64_t line, const std::string& what) {
    if (++kinds[kind] <= kNotesOfAKind) notes.push_back({kind, what, file, line});
  }
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Tally::Note, kind, what, file, line)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Tally, rows, truncated, dropped, empty, bad_rows, tokens_by_role, trained_by_role,
                                   kinds, formats, notes, rewritten, prompt_thinks, without_end)

// Tokenises the rows of one data set into a store.
class Filling {
 public:
  Filling(const Recipe& recipe, const DataSource& source, TokenWriter& writer)
      : recipe_(recipe), source_(source), writer_(writer) {}

  void run(const RowTokeniser& tokeniser) {
    const auto work = [&](Row& row, const std::string& where) { return tokeniser(row, source_, where); };
    for_each_row(source_.files, recipe_.max_samples.value_or(INT64_MAX), work,
                 [&](uint32_t file, int64_t line, Outcome& outcome) { take(file, line, outcome); });
    const ChatTemplate::Counts counts = tokeniser.counts();
    tally_.rewritten = counts.rewritten;
    tally_.prompt_thinks = counts.prompt_thinks;
    tally_.without_end = counts.without_end;
    if (seconds_since(start_) > 2)
      info("data: {} rows of {} in {:.0f} s, {:.0f} a second", tally_.rows, source_.name, seconds_since(start_),
           rate());
  }
  const Tally& tally() const { return tally_; }

 private:
  void take(uint32_t file, int64_t line, Outcome& outcome) {
    ++tally_.rows;
    if (seconds_since(shown_) > 0.5) {
      shown_ = Clock::now();
      const std::string sofar = fmt::format("data: {} rows of {}, {:.0f} a second", tally_.rows, source_.name, rate());
      live_line(sofar);
      if (!stderr_is_terminal() && seconds_since(told_) > 60) {
        told_ = Clock::now();
        info("{}", sofar);
      }
      InterruptScope::check("the rows were read; nothing is kept");
    }
    if (!outcome.bad.empty()) {
      if (recipe_.on_bad_row != "skip")
        throw UserError("{}:{}: {}\n(`on_bad_row: skip` leaves such rows out and counts them)",
                        source_.files[file].string(), line, outcome.bad);
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
    if (outcome.truncated_from) {
      ++tally_.truncated;
      tally_.note("cut", file, line,
                  fmt::format("{} tokens to cutoff_len {}", outcome.truncated_from, recipe_.cutoff_len));
    }
    for (const auto& [role, count] : outcome.tokens_by_role) tally_.tokens_by_role[role] += count;
    for (const auto& [role, count] : outcome.trained_by_role) tally_.trained_by_role[role] += count;
    for (const Example& example : outcome.examples) writer_.add(example, file, line);
  }

  double rate() const { return static_cast<double>(tally_.rows) / seconds_since(start_); }

  const Recipe& recipe_;
  const DataSource& source_;
  TokenWriter& writer_;
  Tally tally_;
  Clock::time_point start_ = Clock::now(), shown_ = start_, told_ = start_;
};

class Loader {
 public:
  Loader(const Recipe& recipe, const Tokenizer& tokenizer, int64_t model_vocab_size, bool unlabelled,
         DataReport& report)
      : recipe_(recipe),
        tokenizer_(tokenizer),
        vocab_size_(model_vocab_size),
        unlabelled_(unlabelled),
        unit_(examples_per_row(recipe.stage)),
        cache_(recipe, unlabelled),
        report_(report) {}

  // The rows of all sets one after another, or mixed by mix_strategy.
  Examples load(const std::vector<std::string>& names, bool mixed) {
    Examples all, whole;
    std::vector<int64_t> sizes;
    for (const std::string& name : names) {
      const DataSource source = find_source(name, recipe_.dataset_dir);
      check_stage(source);
      Examples rows = load_source(source);
      whole.append(rows);
      if (source.num_samples) rows = sampled(rows, *source.num_samples);
      sizes.push_back(units(rows));
      if (rows.empty() && names.size() > 1) info("data: {} has no row to train", name);
      all.append(rows);
    }
    if (all.empty()) nothing_left(names);
    count_duplicates(whole);
    if (!mixed || recipe_.mix_strategy == "concat" || names.size() < 2) {
      for (size_t set = 0; set < names.size(); ++set) report_.sets.emplace_back(names[set], sizes[set]);
      return all;
    }
    for (size_t set = 0; set < names.size(); ++set)
      if (sizes[set] == 0) throw UserError("mix_strategy: {} has no row that can be trained", names[set]);
    const std::vector<int64_t> order = mix_sets(sizes, recipe_.mix_strategy, recipe_.interleave_weights(), seed());
    for (int64_t set = 0, first = 0; set < std::ssize(names); first += sizes[set++])
      report_.sets.emplace_back(names[set], std::count_if(order.begin(), order.end(), [&](int64_t row) {
                                  return row >= first && row < first + sizes[set];
                                }));
    return select_units(all, order, unit_);
  }

 private:
  uint64_t seed() const { return static_cast<uint64_t>(recipe_.seed); }
  int64_t units(const Examples& rows) const { return static_cast<int64_t>(rows.size()) / unit_; }

  void check_stage(const DataSource& source) const {
    if (source.ranking && rows_of(recipe_.stage) != RowsOf::kPairs)
      throw UserError(
          "dataset: {} holds pairs of replies (`ranking: true` in dataset_info.json), which are for stage dpo, not {}",
          source.name, recipe_.stage);
  }

  Examples load_source(const DataSource& source) {
    const std::string key = cache_.key(source, tokenizer_, vocab_size_);
    bool damaged = false;
    std::shared_ptr<const TokenStore> store = cache_.find(key, damaged);
    if (!store) {
      const int64_t classes = recipe_.stage == "cls" ? LabelSet(recipe_).classes_per_row() : 0;
      TokenWriter writer(cache_.draft(key), classes);
      Filling filling(recipe_, source, writer);
      // A list of 0s and 1s is told from one of labels' numbers by all lists of the set.
      const bool yes_or_no = recipe_.stage == "cls" && problem_of(recipe_) == Problem::kMultiLabel &&
                             scan_labels(source).yes_or_no(LabelSet(recipe_).size());
      filling.run(RowTokeniser(recipe_, tokenizer_, vocab_size_, unlabelled_, yes_or_no));
      // A store under the key of what the files were, with rows of what they became, would be wrong for good.
      if (cache_.key(source, tokenizer_, vocab_size_) != key)
        throw UserError(
            "dataset: {} changed while it was read; begin again when it is complete, or with data_cache=off",
            source.name);
      store = writer.finish(filling.tally(), cache_.place(key), damaged);
    }
    std::vector<std::string> files;
    for (const auto& file : source.files) files.push_back(file.string());
    const Examples rows(store, files);
    count(store->report().get<Tally>(), rows, files, source.name);
    return rows;
  }

  // As many examples as asked for: all as often as they fit, the rest chosen by the seed; in the order of the file.
  Examples sampled(const Examples& all, int64_t wanted) const {
    const int64_t count = units(all);
    if (count == 0) return all;
    std::vector<int64_t> rows;
    for (int64_t i = 0; i < wanted / count * count; ++i) rows.push_back(i % count);
    for (int64_t i = 0; i < wanted % count; ++i) rows.push_back(permuted_index(i, count, seed(), kSampleStream));
    std::sort(rows.end() - wanted % count, rows.end());
    return select_units(all, rows, unit_);
  }

  void count(const Tally& tally, const Examples& rows, const std::vector<std::string>& files, const std::string& name) {
    report_.rows += tally.rows;
    report_.truncated += tally.truncated;
    report_.dropped += tally.dropped;
    report_.empty += tally.empty;
    report_.bad_rows += tally.bad_rows;
    for (const auto& [role, count] : tally.tokens_by_role) report_.tokens_by_role[role] += count;
    for (const auto& [role, count] : tally.trained_by_role) report_.trained_by_role[role] += count;
    for (const Tally::Note& note : tally.notes)
      report_.notes.push_back(fmt::format("{}: {}:{}: {}", note.kind, files[note.file], note.line, note.what));
    for (const auto& [kind, count] : tally.kinds)
      if (count > kNotesOfAKind) report_.notes.push_back(fmt::format("{}: {} more rows", kind, count - kNotesOfAKind));
    if (tally.formats.size() > 1) {
      std::string each;
      for (const auto& [format, count] : tally.formats)
        each += fmt::format("{}{} {}", each.empty() ? "" : ", ", count, format);
      report_.notes.push_back(fmt::format("formats: the rows of {} are of several: {}", name, each));
    }
    if (tally.rewritten)
      report_.notes.push_back(
          fmt::format("template: {} earlier turns are shown in another way than when they were the "
                      "last (as templates do that drop thinking)",
                      tally.rewritten));
    if (tally.prompt_thinks)
      report_.notes.push_back(
          fmt::format("template: {} prompts open a thinking block that the rows do not have", tally.prompt_thinks));
    if (tally.without_end)
      report_.notes.push_back(
          fmt::format("template: {} trained turns end without an end-of-turn token: the model will "
                      "not learn to stop there",
                      tally.without_end));
    report_.examples += units(rows);
  }

  void count_duplicates(const Examples& rows) {
    std::vector<std::pair<uint64_t, int64_t>> digests;
    digests.reserve(static_cast<size_t>(units(rows)));
    for (int64_t i = 0; i < static_cast<int64_t>(rows.size()); i += unit_)
      digests.emplace_back(unit_ == 1 ? rows.digest(i) : mix_bits(rows.digest(i), rows.digest(i + 1)), i);
    std::sort(digests.begin(), digests.end());
    std::vector<int64_t> again;
    for (size_t i = 1; i < digests.size(); ++i)
      if (digests[i].first == digests[i - 1].first) again.push_back(digests[i].second);
    report_.duplicates = static_cast<int64_t>(again.size());
    const auto shown = std::min<int64_t>(kNotesOfAKind, report_.duplicates);
    std::partial_sort(again.begin(), again.begin() + shown, again.end());
    for (int64_t i = 0; i < shown; ++i)
      report_.notes.push_back(
          fmt::format("duplicate: {}: an earlier row has the same tokens", rows.source(again[static_cast<size_t>(i)])));
    if (report_.duplicates > shown)
      report_.notes.push_back(fmt::format("duplicate: {} more rows", report_.duplicates - shown));
  }

  [[noreturn]] void nothing_left(const std::vector<std::string>& names) const {
    std::string why;
    for (const std::string& one : report_.notes) why += "\n  " + one;
    throw UserError("{}: of {} rows none {} ({} dropped, {} bad){}", fmt::join(names, ", "), report_.rows,
                    recipe_.stage == "cls" ? "is left" : "has a trained token left", report_.dropped, report_.bad_rows,
                    why);
  }

  const Recipe& recipe_;
  const Tokenizer& tokenizer_;
  int64_t vocab_size_;
  bool unlabelled_;
  int64_t unit_;  // examples a row makes that belong together
  DataCache cache_;
  DataReport& report_;
};

// Moves the share or count `val_size` of the units, chosen by the seed, from `train` to the result.
Examples split_off(Examples& train, double val_size, uint64_t seed, int64_t unit) {
  const auto count = static_cast<int64_t>(train.size()) / unit;
  const auto wanted = static_cast<int64_t>(val_size < 1 ? std::ceil(val_size * static_cast<double>(count)) : val_size);
  if (wanted >= count) throw UserError("val_size: {} leaves nothing to train of {} examples", val_size, count);
  std::vector<bool> chosen(static_cast<size_t>(count));
  for (int64_t i = 0; i < wanted; ++i) chosen[static_cast<size_t>(permuted_index(i, count, seed, kSplitStream))] = true;
  std::vector<int64_t> kept, eval;
  for (int64_t i = 0; i < count; ++i) (chosen[static_cast<size_t>(i)] ? eval : kept).push_back(i);
  const Examples apart = select_units(train, eval, unit);
  train = select_units(train, kept, unit);
  return apart;
}

// The report's tokens are those that are trained on: after num_samples, mix_strategy and val_size have chosen.
void count_chosen(const Examples& chosen, int64_t unit, DataReport& report) {
  const auto count = static_cast<int64_t>(chosen.size());
  for (int64_t i = 0; i < count; ++i) {
    report.tokens += chosen.length(i);
    report.trained_tokens += chosen.trained_tokens(i);
  }
  if (count / unit != report.examples)
    report.notes.push_back(fmt::format(
        "rows: {} of {} examples were chosen by num_samples, mix_strategy or val_size; tokens by role are of all",
        count / unit, report.examples));
}

}  // namespace

Datasets load_datasets(const Recipe& recipe, const Tokenizer& tokenizer, int64_t model_vocab_size, bool unlabelled) {
  if (recipe.dataset.empty()) throw UserError("dataset: is missing; give a file, or a name of dataset_info.json");
  const InterruptScope interrupts;
  Datasets data;
  data.train = Loader(recipe, tokenizer, model_vocab_size, unlabelled, data.report).load(recipe.dataset, true);
  const int64_t unit = examples_per_row(recipe.stage);
  if (!recipe.eval_dataset.empty()) {
    data.eval =
        Loader(recipe, tokenizer, model_vocab_size, unlabelled, data.eval_report).load(recipe.eval_dataset, false);
    count_chosen(data.eval, unit, data.eval_report);
  } else if (recipe.val_size > 0) {
    data.eval = split_off(data.train, recipe.val_size, static_cast<uint64_t>(recipe.seed), unit);
  }
  count_chosen(data.train, unit, data.report);
  if (recipe.stage == "cls") {
    const LabelSet labels(recipe);
    data.report.labels = format_classes(count_classes(data.train, labels), labels);
    if (!data.eval.empty()) data.eval_report.labels = format_classes(count_classes(data.eval, labels), labels);
  }
  return data;
}

}  // namespace fettle
