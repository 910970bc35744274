#include "data/dataset.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/random.h"
#include "data/batches/mix.h"
#include "data/batches/order.h"
#include "data/chat/tool_formats.h"
#include "data/chosen_rows.h"
#include "data/classes/class_counts.h"
#include "data/classes/label_scan.h"
#include "data/fill_store.h"
#include "data/read/dataset_info.h"
#include "data/read/rows.h"
#include "data/store/data_cache.h"

namespace fettle {
namespace {

constexpr uint64_t kSplitStream = (uint64_t{1} << 62) + 1;

// Returns the examples of these units. A unit is `size` consecutive examples that belong together.
Examples select_units(const Examples& from, const std::vector<int64_t>& units, int64_t size) {
  std::vector<int64_t> rows;
  rows.reserve(units.size() * static_cast<size_t>(size));
  for (int64_t unit : units)
    for (int64_t i = 0; i < size; ++i) rows.push_back(unit * size + i);
  return from.select(rows);
}

// The rows of a list of examples. A row is `unit` consecutive examples, or all parts of a text that goes on in further
// examples.
class RowNumbers {
 public:
  RowNumbers(const Examples& all, int64_t unit)
      : unit_(unit), numbers_(unit == 1 ? all.row_numbers() : std::vector<int64_t>()) {
    count_ = numbers_.empty() ? static_cast<int64_t>(all.size()) / unit : *std::ranges::max_element(numbers_) + 1;
  }
  // Each part of a text counts as a row of its own.
  static RowNumbers of_parts(const Examples& all, int64_t unit) { return {static_cast<int64_t>(all.size()), unit}; }
  int64_t count() const { return count_; }
  // Returns the number of the example's row.
  int64_t of(int64_t example) const {
    return numbers_.empty() ? example / unit_ : numbers_[static_cast<size_t>(example)];
  }

 private:
  RowNumbers(int64_t examples, int64_t unit) : unit_(unit), count_(examples / unit) {}

  int64_t unit_;
  std::vector<int64_t> numbers_;
  int64_t count_;
};

// The digest of a row's tokens and labels, and the row's first example.
using RowDigest = std::pair<uint64_t, int64_t>;

// Returns the digests of all rows, sorted. The examples of a row must be consecutive.
std::vector<RowDigest> digests_of(const Examples& all, const RowNumbers& rows) {
  std::vector<RowDigest> out;
  out.reserve(static_cast<size_t>(rows.count()));
  for (int64_t i = 0; i < static_cast<int64_t>(all.size()); ++i)
    if (i == 0 || rows.of(i) != rows.of(i - 1))
      out.emplace_back(all.digest(i), i);
    else
      out.back().first = mix_bits(out.back().first, all.digest(i));
  std::ranges::sort(out);
  return out;
}

// Requires that the keys which only name a property of the tokenizer fit it. They change no row, so the rows may
// already be stored.
void check_tokenizer(const DataSpec& spec, const Tokenizer& tokenizer) {
  if (!spec.eos_token.empty() && spec.eos_token != tokenizer.eos_token())
    throw UserError(
        "eos_token: found '{}', but the tokenizer's eos_token is '{}'; remove the key, or change eos_token in the "
        "model folder's tokenizer_config.json",
        spec.eos_token, tokenizer.eos_token());
  check_tool_format(spec.tool_format, tokenizer);
}

class Loader {
 public:
  Loader(const DataSpec& spec, const Tokenizer& tokenizer, int64_t model_vocab_size, DataReport& report)
      : spec_(spec),
        tokenizer_(tokenizer),
        vocab_size_(model_vocab_size),
        unit_(row_reader(spec.rows).examples_per_row),
        cache_(spec),
        report_(report) {}

  // Returns the rows of all sets, one set after another or mixed as spec.mix says.
  Examples load(const std::vector<std::string>& names, bool mixed) {
    Examples all, whole;
    std::vector<int64_t> sizes;
    std::vector<std::string> titles;
    for (const std::string& name : names) {
      const DataSource source = find_source(name, spec_.dataset_dir, spec_.hub);
      check_kind(source);
      Examples rows = load_source(source);
      whole.append(rows);
      titles.push_back(source.name);
      if (source.num_samples && spec_.remove_duplicates)
        throw UserError(
            "remove_duplicates: {} has num_samples in dataset_info.json, which may repeat rows; remove one of the two",
            source.name);
      rows = chosen(rows, source);
      sizes.push_back(units(rows));
      if (rows.empty() && names.size() > 1) info("data: {} has no row to train", source.name);
      all.append(rows);
    }
    if (all.empty() && !whole.empty())
      throw UserError("{}: the slice in `split` takes none of the {} examples; make it larger", fmt::join(titles, ", "),
                      units(whole));
    if (all.empty()) nothing_left(titles);
    count_duplicates(whole);
    if (spec_.remove_duplicates) remove_duplicates(all, sizes);
    if (!mixed || spec_.mix == Mix::kConcat || names.size() < 2) {
      for (size_t set = 0; set < names.size(); ++set) report_.sets.emplace_back(titles[set], sizes[set]);
      return all;
    }
    for (size_t set = 0; set < names.size(); ++set)
      if (sizes[set] == 0)
        throw UserError("mix_strategy: {} has no row to train{}; remove it from `dataset`", titles[set],
                        spec_.remove_duplicates ? " (remove_duplicates drops rows that an earlier set has)" : "");
    chosen_by("mix_strategy");
    const std::vector<int64_t> order = mix_sets(sizes, spec_.mix, spec_.mix_weights, spec_.seed);
    for (int64_t set = 0, first = 0; set < std::ssize(names); first += sizes[set++])
      report_.sets.emplace_back(titles[set], std::count_if(order.begin(), order.end(), [&](int64_t row) {
                                  return row >= first && row < first + sizes[set];
                                }));
    return select_units(all, order, unit_);
  }

 private:
  void chosen_by(const std::string& what) {
    if (!std::ranges::count(report_.chosen_by, what)) report_.chosen_by.push_back(what);
  }

  int64_t units(const Examples& rows) const { return static_cast<int64_t>(rows.size()) / unit_; }

  void check_kind(const DataSource& source) const {
    if (source.ranking && !row_reader(spec_.rows).ranked)
      throw UserError(
          "dataset: {} holds preference pairs (`ranking: true` in dataset_info.json), but this stage reads {}; set "
          "stage: dpo, rm or kto, or use another data set",
          source.name, row_reader(spec_.rows).name);
  }

  // Returns whether lists of labels have one 0 or 1 for each label. If spec_.labels does not decide this for all sets,
  // the lists of this set decide.
  bool lists_are_yes_or_no(const DataSource& source) const {
    if (!spec_.labels || spec_.labels->problem != Problem::kMultiLabel) return false;
    if (spec_.labels->lists_are_yes_or_no) return *spec_.labels->lists_are_yes_or_no;
    return scan_labels({source}).yes_or_no(spec_.labels->size());
  }

  Examples load_source(const DataSource& source) {
    const std::string key = cache_.key(source, tokenizer_, vocab_size_);
    bool damaged = false;
    std::shared_ptr<const TokenStore> store = cache_.find(key, damaged);
    if (!store) {
      const int64_t classes = spec_.labels ? spec_.labels->classes_per_row() : 0;
      TokenWriter writer(cache_.draft(key), classes);
      const RowTokeniser tokeniser(spec_, tokenizer_, vocab_size_, lists_are_yes_or_no(source));
      const Tally tally = fill_store(writer, source, tokeniser, spec_);
      // The key was computed before the files were read. If the files have changed since, the store must not be kept
      // under this key.
      if (cache_.key(source, tokenizer_, vocab_size_) != key)
        throw UserError("dataset: {} changed while it was read; start again when it is complete, or set data_cache=off",
                        source.name);
      store = writer.finish(tally, cache_.place(key), damaged);
    }
    std::vector<std::string> files;
    for (const auto& file : source.files) files.push_back(file.string());
    const Examples rows(store, files);
    count(store->report().get<Tally>(), rows, files, source.name);
    return rows;
  }

  // Returns the rows that chosen_rows chooses. The examples of a row are consecutive in `all`.
  Examples chosen(const Examples& all, const DataSource& source) {
    // Otherwise max_samples alone chooses, and it has limited the rows that were read.
    if (!source.first_rows && !source.first_share && !source.num_samples) return all;
    const RowNumbers numbers(all, unit_);
    const ChosenRows some = chosen_rows(numbers.count(), source, spec_);
    for (const std::string& what : some.by) chosen_by(what);
    const auto end = static_cast<int64_t>(all.size());
    std::vector<int64_t> begins(static_cast<size_t>(numbers.count()));  // the first example of each row
    for (int64_t i = end; i-- > 0;) begins[static_cast<size_t>(numbers.of(i))] = i;
    std::vector<int64_t> examples;
    for (const int64_t row : some.rows)
      for (int64_t i = begins[static_cast<size_t>(row)]; i < end && numbers.of(i) == row; ++i) examples.push_back(i);
    return all.select(examples);
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
      report_.notes.push_back(fmt::format("{}: {}: {}", note.kind, row_place(files[note.file], note.line), note.what));
    for (const auto& [kind, count] : tally.kinds)
      if (count > kNotesOfAKind) report_.notes.push_back(fmt::format("{}: {} more rows", kind, count - kNotesOfAKind));
    if (tally.formats.size() > 1) {
      std::string each;
      for (const auto& [format, count] : tally.formats)
        each += fmt::format("{}{} {}", each.empty() ? "" : ", ", count, format);
      report_.notes.push_back(fmt::format("formats: the rows of {} are of several formats: {}", name, each));
    }
    if (tally.rewritten)
      report_.notes.push_back(
          fmt::format("template: {} turns are rendered differently than they would be at the end of the conversation "
                      "(templates that remove thoughts do this)",
                      tally.rewritten));
    if (tally.prompt_thinks)
      report_.notes.push_back(fmt::format("template: {} prompts open a thinking block, but their rows have no thoughts",
                                          tally.prompt_thinks));
    if (tally.lost_thoughts)
      report_.notes.push_back(
          fmt::format("template: {} replies are trained without their thoughts, because the chat template leaves them "
                      "out; to train the thoughts, choose a template that writes them, such as `template: deepseekr1` "
                      "for DeepSeek R1's models",
                      tally.lost_thoughts));
    if (tally.without_end)
      report_.notes.push_back(
          fmt::format("template: {} trained turns end without an end-of-turn token: the model will "
                      "not learn to stop there",
                      tally.without_end));
    report_.examples += units(rows);
  }

  // Finds the rows that have the same tokens and labels as an earlier row. Returns the first example of each such row,
  // in no particular order.
  std::vector<int64_t> duplicates(const Examples& all) const {
    const std::vector<RowDigest> digests = digests_of(all, {all, unit_});
    std::vector<int64_t> again;
    for (size_t i = 1; i < digests.size(); ++i)
      if (digests[i].first == digests[i - 1].first) again.push_back(digests[i].second);
    return again;
  }

  // Removes the duplicates from `all`, which has sizes[i] units of set i.
  void remove_duplicates(Examples& all, std::vector<int64_t>& sizes) {
    const RowNumbers rows(all, unit_);
    std::vector<bool> removed(static_cast<size_t>(rows.count()));
    for (const int64_t example : duplicates(all)) removed[static_cast<size_t>(rows.of(example))] = true;
    std::vector<int64_t> kept;
    int64_t example = 0;
    for (int64_t& size : sizes) {
      const int64_t before = std::ssize(kept);
      for (const int64_t end = example + size * unit_; example < end; ++example)
        if (!removed[static_cast<size_t>(rows.of(example))]) kept.push_back(example);
      size = (std::ssize(kept) - before) / unit_;
    }
    all = all.select(kept);
    report_.duplicates_removed = true;
    if (std::ranges::count(removed, true)) chosen_by("remove_duplicates");
  }

  void count_duplicates(const Examples& rows) {
    std::vector<int64_t> again = duplicates(rows);
    report_.duplicates = static_cast<int64_t>(again.size());
    const auto shown = std::min<int64_t>(kNotesOfAKind, report_.duplicates);
    std::partial_sort(again.begin(), again.begin() + shown, again.end());
    for (int64_t i = 0; i < shown; ++i)
      report_.notes.push_back(fmt::format(
          "duplicate: {}: an earlier row has the same tokens; {}", rows.source(again[static_cast<size_t>(i)]),
          spec_.remove_duplicates ? "the row is left out"
                                  : "the row is kept (remove_duplicates leaves such rows out)"));
    if (report_.duplicates > shown)
      report_.notes.push_back(fmt::format("duplicate: {} more rows", report_.duplicates - shown));
  }

  [[noreturn]] void nothing_left(const std::vector<std::string>& names) const {
    std::string why;
    for (const std::string& one : report_.notes) why += "\n  " + one;
    throw UserError("{}: none of the {} rows {} ({} dropped, {} bad){}", fmt::join(names, ", "), report_.rows,
                    spec_.labels ? "is left" : "has a trained token left", report_.dropped, report_.bad_rows, why);
  }

  const DataSpec& spec_;
  const Tokenizer& tokenizer_;
  int64_t vocab_size_;
  int64_t unit_;  // the number of examples that stay together
  DataCache cache_;
  DataReport& report_;
};

// Adds a note if held-out rows are also trained. Their loss does not tell how the model does on new rows.
void note_shared_rows(const Datasets& data, int64_t unit, DataReport& report) {
  if (data.eval.empty()) return;
  // A mix may put rows of other sets between the parts of a text.
  const auto digests = [unit](const Examples& all) { return digests_of(all, RowNumbers::of_parts(all, unit)); };
  const std::vector<RowDigest> trained = digests(data.train), held_out = digests(data.eval);
  const int64_t shared = std::ranges::count_if(held_out, [&](const RowDigest& one) {
    const auto found = std::ranges::lower_bound(trained, one.first, {}, &RowDigest::first);
    return found != trained.end() && found->first == one.first;
  });
  if (shared > 0)
    report.notes.push_back(
        fmt::format("held-out rows: {} of {} are also trained (same tokens and labels), so the evaluation looks better "
                    "than it would on new rows",
                    shared, held_out.size()));
}

// Takes rows out of `train` and returns them. A val_size below 1 is the share of rows to take; otherwise it is the
// number of rows to take. The seed chooses the rows.
Examples split_off(Examples& train, double val_size, uint64_t seed, int64_t unit) {
  const RowNumbers rows(train, unit);
  const int64_t count = rows.count();
  const auto wanted = static_cast<int64_t>(val_size < 1 ? std::ceil(val_size * static_cast<double>(count)) : val_size);
  if (wanted >= count)
    throw UserError(
        "val_size: {} leaves no rows to train on, out of {} rows; make val_size smaller, or name held-out rows with "
        "eval_dataset",
        val_size, count);
  std::vector<bool> chosen(static_cast<size_t>(count));
  for (int64_t i = 0; i < wanted; ++i) chosen[static_cast<size_t>(permuted_index(i, count, seed, kSplitStream))] = true;
  std::vector<int64_t> kept, eval;
  for (int64_t i = 0; i < static_cast<int64_t>(train.size()); ++i)
    (chosen[static_cast<size_t>(rows.of(i))] ? eval : kept).push_back(i);
  const Examples apart = train.select(eval);
  train = train.select(kept);
  return apart;
}

// Counts the tokens of the rows that were chosen (DataReport::chosen_by).
void count_chosen(const Examples& chosen, int64_t unit, DataReport& report) {
  const auto count = static_cast<int64_t>(chosen.size());
  for (int64_t i = 0; i < count; ++i) {
    report.tokens += chosen.length(i);
    report.trained_tokens += chosen.trained_tokens(i);
  }
  if (count / unit != report.examples)
    report.notes.push_back(
        fmt::format("rows: {} of {} examples were chosen by {}; the token counts by role include all examples",
                    count / unit, report.examples, fmt::join(report.chosen_by, " and ")));
}

}  // namespace

Datasets load_datasets(const DataSpec& spec, const Tokenizer& tokenizer, int64_t model_vocab_size) {
  const RowReader& reader = row_reader(spec.rows);
  internal_check(spec.labels.has_value() == reader.labelled(), "load_datasets: rows that are {} do not fit {} labels",
                 reader.name, spec.labels ? spec.labels->size() : 0);
  if (spec.sets.empty()) throw UserError("dataset: the key is missing; name a file, or an entry of dataset_info.json");
  check_tokenizer(spec, tokenizer);
  const InterruptScope interrupts;
  Datasets data;
  data.train = Loader(spec, tokenizer, model_vocab_size, data.report).load(spec.sets, true);
  const int64_t unit = reader.examples_per_row;
  if (!spec.eval_sets.empty()) {
    data.eval = Loader(spec, tokenizer, model_vocab_size, data.eval_report).load(spec.eval_sets, false);
    count_chosen(data.eval, unit, data.eval_report);
  } else if (spec.val_size > 0) {
    data.eval = split_off(data.train, spec.val_size, spec.seed, unit);
    data.report.chosen_by.push_back("val_size");
  }
  count_chosen(data.train, unit, data.report);
  note_shared_rows(data, unit, data.report);
  if (spec.labels) {
    data.report.labels = format_classes(count_classes(data.train, *spec.labels), *spec.labels);
    if (!data.eval.empty())
      data.eval_report.labels = format_classes(count_classes(data.eval, *spec.labels), *spec.labels);
  }
  return data;
}

}  // namespace fettle
