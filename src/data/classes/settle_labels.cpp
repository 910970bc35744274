#include "data/classes/settle_labels.h"

#include <fmt/ranges.h>

#include <iterator>
#include <string>
#include <vector>

#include "base/error.h"
#include "data/classes/label_scan.h"
#include "data/read/dataset_info.h"

namespace fettle {
namespace {

[[noreturn]] void mixed(const LabelScan::Kind& one, const char* what, const LabelScan::Kind& other, const char* more,
                        const char* remedy = "") {
  throw UserError("{}: the label {} is {}, but {} has {}, which is {}; the labels of all rows must be of one kind{}",
                  other.first, other.example, more, one.first, one.example, what, remedy);
}

Problem problem_of_rows(const LabelScan& scan) {
  if (scan.lists.rows > 0) {
    for (const auto* kind : {&scan.integers, &scan.reals, &scan.quoted_integers, &scan.quoted_reals, &scan.names})
      if (kind->rows > 0) mixed(scan.lists, "a list", *kind, "a single label");
    return scan.reals_in_lists ? Problem::kRegression : Problem::kMultiLabel;
  }
  if (scan.names.rows > 0) {
    for (const auto* kind : {&scan.integers, &scan.reals})
      if (kind->rows > 0) mixed(scan.names, "a name", *kind, "a number");
    // The cells of a CSV file have no type, so a cell that is spelled like a number may be a name. But if most labels
    // are numbers, the other labels are probably mistakes.
    const bool whole = scan.quoted_integers.rows >= scan.quoted_reals.rows;
    if (scan.quoted_integers.rows + scan.quoted_reals.rows > scan.names.rows)
      mixed(whole ? scan.quoted_integers : scan.quoted_reals, "a number, as most are", scan.names, "a name",
            "; correct the row, or set problem_type: single_label_classification if all of them are names");
    return Problem::kSingleLabel;
  }
  return scan.reals.rows + scan.quoted_reals.rows > 0 ? Problem::kRegression : Problem::kSingleLabel;
}

// Throws for a row that cannot be read and for a value that is not a label, unless on_bad_row is kSkip. Also throws for
// a fraction if all of this holds: problem_type is set to another value than regression, nobody has named the labels
// (`named` is false), and no row has a name as its label.
void check_scan(const LabelScan& scan, bool named, std::optional<Problem> problem, OnBadRow on_bad_row) {
  for (const LabelScan::Kind* bad : {&scan.unreadable, &scan.wrong})
    if (bad->rows > 0 && on_bad_row != OnBadRow::kSkip)
      throw UserError("{}: {}{}", bad->first, bad->example, kSkipHint);
  if (!named && problem && *problem != Problem::kRegression && scan.fractions.rows > 0 && scan.names.rows == 0 &&
      !scan.names_in_lists)
    throw UserError(
        "{}: the label {} is not a whole number, but problem_type is {}; leave problem_type out or set regression to "
        "learn numbers; if the labels are names that look like numbers, such as versions, list them in id2label",
        scan.fractions.first, scan.fractions.example, name_of(*problem));
}

// Throws because a label number in the rows is not below num_labels.
[[noreturn]] void beyond(const LabelScan& scan, const LabelRequest& asked) {
  const int64_t count = *asked.count;
  const std::string remedy =
      static_cast<int64_t>(scan.numbers.size()) <= count && count <= 20
          ? fmt::format("the rows have {} labels: number them from 0 on, or name them with id2label: [{}]",
                        scan.numbers.size(), fmt::join(scan.numbers, ", "))
          : fmt::format("correct the row, or raise num_labels to {}", *scan.numbers.rbegin() + 1);
  throw UserError("{}: the label {} is too large: num_labels is {} ({}), so the label numbers are 0 to {}; {}",
                  scan.largest.first, scan.largest.example, count, asked.places.of("num_labels"), count - 1, remedy);
}

// Throws if the labels are -1 and numbers from 0 on, so that -1 may mean "no label", as in Hugging Face's data sets.
// Does nothing for -1, 0 and 1, which are usual classes. Returns true if the recipe's num_labels says that -1 is no
// label.
bool minus_one_is_no_label(const LabelScan& scan, const LabelRequest& asked) {
  if (scan.numbers.size() < 3 || *scan.numbers.begin() != -1 || *std::next(scan.numbers.begin()) != 0) return false;
  const int64_t count = *scan.numbers.rbegin() + 1;
  if (asked.count && *asked.count != count + 1) return true;
  if (count < 3) return false;
  throw UserError(
      "{}: the label is -1, and other labels are 0 to {}. If -1 means that a row has no label, set num_labels: {} and "
      "on_bad_row: skip. If -1 is a class, name all labels: id2label: [{}]",
      scan.minus_one.first, count - 1, count,
      count <= 20 ? fmt::format("{}", fmt::join(scan.numbers, ", ")) : "-1, 0, ...");
}

// Returns the names of the labels that the rows have, by number.
std::vector<std::string> names_of_rows(const LabelScan& scan, const LabelRequest& asked, Problem problem,
                                       const DataSpec& data) {
  if (problem == Problem::kRegression) return default_labels(scan.list_size > 0 ? scan.list_size : 1);
  if (scan.too_many())
    throw UserError(
        "{}: there are more than {} different labels; is the label column right? (To name another column, set "
        "`columns: {{label: ...}}` in dataset_info.json. To learn numbers, set `problem_type: regression`.)",
        fmt::join(set_titles(data.sets), ", "), LabelScan::kMostWords);
  if (scan.lists.rows > 0 && scan.flags.rows > 0 && scan.yes_or_no(scan.list_size))
    return default_labels(scan.list_size);
  if (scan.names.rows > 0 || scan.names_in_lists) return {scan.words.begin(), scan.words.end()};
  if (scan.numbers.empty()) return {};
  const int64_t last = *scan.numbers.rbegin();
  const bool from_zero =
      *scan.numbers.begin() == 0 || (problem == Problem::kSingleLabel && minus_one_is_no_label(scan, asked));
  if (from_zero && last < kMostLabels) return default_labels(last + 1);
  std::vector<std::string> names;
  for (const int64_t number : scan.numbers) names.push_back(fmt::format("{}", number));
  return names;
}

// Returns the label names that the rows give. If the recipe sets num_labels, adds names for the missing label numbers.
std::vector<std::string> settle_names(const LabelScan& scan, const LabelRequest& asked, Problem problem,
                                      const DataSpec& data) {
  std::vector<std::string> names = names_of_rows(scan, asked, problem, data);
  if (names.empty())
    throw UserError("{}: none of the {} labels is a name or a whole number; is problem_type: {} right for them?",
                    fmt::join(set_titles(data.sets), ", "), scan.rows, name_of(problem));
  const auto count = static_cast<int64_t>(names.size());
  if (!asked.count) return names;
  const bool numbered = names == default_labels(count);
  if (numbered && scan.largest.rows > 0 && count == *scan.numbers.rbegin() + 1 && count > *asked.count)
    beyond(scan, asked);
  if (numbered && count <= *asked.count) names = default_labels(*asked.count);
  if (static_cast<int64_t>(names.size()) != *asked.count)
    throw UserError(
        "{}: num_labels is {}, but the rows have {} labels; remove num_labels, or name all labels in id2label",
        asked.places.of("num_labels"), *asked.count, count);
  return names;
}

// Returns whether every list has one 0 or 1 for each label. With two labels, the list [0, 1] is ambiguous: it may also
// contain two label numbers. A single data set does not always show which meaning is right, so all data sets are read.
// Training sets that no longer exist are skipped, because an evaluation does not need them.
bool all_say_yes_or_no(const DataSpec& data, int64_t labels) {
  std::vector<DataSource> sources;
  for (const std::string& name : data.eval_sets) sources.push_back(find_source(name, data.dataset_dir, data.hub));
  for (const std::string& name : data.sets) try {
      sources.push_back(find_source(name, data.dataset_dir, data.hub));
    } catch (const UserError&) {
    }
  return scan_labels(sources).yes_or_no(labels);
}

LabelScan scan_sets(const DataSpec& data) {
  std::vector<DataSource> sources;
  for (const std::string& name : data.sets) sources.push_back(find_source(name, data.dataset_dir, data.hub));
  return scan_labels(sources);
}

}  // namespace

LabelSet settle_labels(const LabelRequest& asked, const TaughtLabels& taught, const DataSpec& data) {
  if (asked.count && !asked.id2label.empty() && *asked.count != static_cast<int64_t>(asked.id2label.size()))
    throw UserError("{}: num_labels is {}, but id2label names {}; leave one of them out", asked.places.of("num_labels"),
                    *asked.count, asked.id2label.size());
  check_unique(asked.id2label, asked.places.of("id2label"));
  std::optional<Problem> problem = asked.problem;
  std::vector<std::string> names = asked.id2label;
  // The model's label names are used unless the recipe gives names or another number of labels.
  const bool continues = taught.count() > 0 && names.empty() && asked.count.value_or(taught.count()) == taught.count();
  if (continues) {
    check_unique(taught.id2label, taught.file);
    names = taught.id2label;
  }
  if (!problem && taught.count() > 0) problem = taught.problem;
  if (names.empty() && asked.count && data.sets.empty()) names = default_labels(*asked.count);
  if (names.empty() || (!problem && !data.sets.empty())) {
    if (data.sets.empty())
      throw UserError(
          "num_labels is missing: there is no dataset to read the labels from, and {} does not belong to a "
          "classifier; set num_labels or id2label",
          taught.file);
    const LabelScan scan = scan_sets(data);
    check_scan(scan, !names.empty(), problem, data.on_bad_row);
    if (scan.rows == 0 && names.empty())
      throw UserError(
          "{}: no row has a label; name the column label, labels, class, category or score, or set columns.label in "
          "dataset_info.json to your column",
          fmt::join(set_titles(data.sets), ", "));
    if (!problem && scan.rows > 0) problem = problem_of_rows(scan);
    if (names.empty()) names = settle_names(scan, asked, *problem, data);
  }
  const auto count = static_cast<int64_t>(names.size());
  // Transformers decides in the same way when config.json has no problem_type.
  if (!problem) problem = count == 1 ? Problem::kRegression : Problem::kSingleLabel;
  if (problem == Problem::kSingleLabel && count < 2 && (asked.count || !asked.id2label.empty() || continues))
    throw UserError("{}: single_label_classification needs at least two labels; name them in id2label",
                    asked.count              ? asked.places.of("num_labels")
                    : asked.id2label.empty() ? taught.file
                                             : asked.places.of("id2label"));
  if (problem == Problem::kSingleLabel && count < 2)
    throw UserError("{}: all rows have the same label, '{}', so there is nothing to learn; add rows with other labels",
                    fmt::join(set_titles(data.sets), ", "), names[0]);
  LabelSet out{.problem = *problem, .id2label = std::move(names)};
  if (*problem == Problem::kMultiLabel && count <= 2) out.lists_are_yes_or_no = all_say_yes_or_no(data, count);
  return out;
}

}  // namespace fettle
