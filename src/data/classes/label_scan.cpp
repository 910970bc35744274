#include "data/classes/label_scan.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <tuple>

#include "base/interrupt.h"
#include "data/classes/class_rows.h"
#include "data/formats.h"
#include "data/read/columns.h"
#include "data/read/media.h"
#include "data/read/rows.h"
#include "data/store/row_pipeline.h"

namespace fettle {
namespace {

using nlohmann::ordered_json;

// Collects the labels of rows. Several threads may call add(), in any order of the rows.
class Scanning {
 public:
  void start_set() { ++set_; }

  void add(const ordered_json& value, bool cell, const std::string& where, int64_t line) {
    const std::lock_guard lock(mutex_);
    go_to(where, line);
    shown_ = cell && value.is_string()
                 ? value.get<std::string>().substr(0, 80)
                 : value.dump(-1, ' ', false, ordered_json::error_handler_t::replace).substr(0, 80);
    try {
      if (value.is_array()) {
        const bool flags = list(value);
        meet(scan_.lists);
        if (flags) meet(scan_.flags);
      } else {
        const LabelWord word = label_word(value, cell);
        switch (word.kind) {
          case LabelWord::Kind::kInteger: meet(word.quoted ? scan_.quoted_integers : scan_.integers); break;
          case LabelWord::Kind::kReal: meet(word.quoted ? scan_.quoted_reals : scan_.reals); break;
          case LabelWord::Kind::kName: meet(scan_.names); break;
        }
        count(word);
        if (word.kind != LabelWord::Kind::kName && word.number == -1) meet(scan_.minus_one);
      }
      ++scan_.rows;
    } catch (const BadRow& bad) {
      shown_ = bad.what();
      meet(scan_.wrong);
    }
  }

  // Adds a row that has no usable value, to scan().wrong or scan().unreadable.
  void add_bad(LabelScan::Kind& kind, const std::string& why, const std::string& where, int64_t line) {
    const std::lock_guard lock(mutex_);
    go_to(where, line);
    shown_ = why;
    meet(kind);
  }

  LabelScan& scan() { return scan_; }

 private:
  // Set, file, and line or number of a row. The files of a set are sorted by name, unless an entry lists them, so an
  // earlier row has a smaller Place.
  using Place = std::tuple<int, std::string, int64_t>;

  void go_to(const std::string& where, int64_t line) {
    where_ = where;
    place_ = {set_, file_of_place(where), std::abs(line)};
  }

  void meet(LabelScan::Kind& kind) {
    ++kind.rows;
    const auto [found, fresh] = first_.try_emplace(&kind, place_);
    if (!fresh && !(place_ < found->second)) return;
    found->second = place_;
    kind.first = where_;
    kind.example = shown_;
  }

  void count(const LabelWord& word) {
    const bool number = word.kind != LabelWord::Kind::kName;
    const bool whole = number && std::floor(word.number) == word.number;
    if (number && !whole) meet(scan_.fractions);
    if (scan_.too_many()) return;
    if (word.quoted || word.kind == LabelWord::Kind::kInteger) scan_.words.insert(word.text);
    if (!whole || std::abs(word.number) >= 1e15) return;
    const auto value = static_cast<int64_t>(word.number);
    if (scan_.numbers.empty() || value > *scan_.numbers.rbegin()) first_.erase(&scan_.largest);
    scan_.numbers.insert(value);
    if (value == *scan_.numbers.rbegin()) meet(scan_.largest);
  }

  // Counts the values of the list. Returns true if all values are 0 or 1 and cannot be label numbers, because a value
  // has a point (1.0) or occurs twice.
  bool list(const ordered_json& value) {
    const auto size = static_cast<int64_t>(value.size());
    bool flags = !value.empty(), real = false, equal = false;
    std::vector<std::string> words;
    std::vector<LabelWord> all;
    for (const auto& one : value)
      all.push_back(label_word(one, false));  // throws before any value of a bad row is counted
    scan_.list_size = scan_.list_size == -1 || scan_.list_size == size ? size : -2;
    for (const LabelWord& word : all) {
      const bool name = word.kind == LabelWord::Kind::kName;
      scan_.names_in_lists |= name;
      flags = flags && !name && (word.number == 0 || word.number == 1);
      real |= word.kind == LabelWord::Kind::kReal;
      scan_.reals_in_lists |= word.kind == LabelWord::Kind::kReal && word.number != 0 && word.number != 1;
      equal |= std::find(words.begin(), words.end(), word.text) != words.end();
      if (words.size() < 64) words.push_back(word.text);
      count(word);
    }
    return flags && (real || equal);
  }

  std::mutex mutex_;
  LabelScan scan_;
  std::map<const LabelScan::Kind*, Place> first_;
  int set_ = 0;
  // The current row.
  Place place_;
  std::string where_, shown_;
};

}  // namespace

bool LabelScan::yes_or_no(int64_t labels) const {
  const bool bits = !numbers.empty() && *numbers.begin() >= 0 && *numbers.rbegin() <= 1;
  return bits && !too_many() && list_size == labels && !reals_in_lists && !names_in_lists;
}

LabelScan scan_labels(const std::vector<DataSource>& sources) {
  const InterruptScope interrupts;
  Scanning scanning;
  for (const DataSource& source : sources) {
    scanning.start_set();
    const auto look = [&](Row& row, const std::string& where) {
      Outcome outcome;
      try {
        row.parse();
        if (!row.bad.empty()) {
          scanning.add_bad(scanning.scan().unreadable, row.bad, where, row.line);
          return outcome;
        }
        if (needs_media(row.value, source)) return outcome;  // the row will not be trained
        const bool cell = has_cells(where);
        if (const ordered_json value = label_value(row.value, source, cell); !value.is_null())
          scanning.add(value, cell, where, row.line);
      } catch (const BadRow& bad) {
        scanning.add_bad(scanning.scan().wrong, bad.what(), where, row.line);
      } catch (...) {
        outcome.failure = std::current_exception();
      }
      return outcome;
    };
    for_each_row(source.files, std::numeric_limits<int64_t>::max(), look, [](uint32_t, int64_t, Outcome&) {
      InterruptScope::check("the labels were counted; nothing is kept");
    });
  }
  return std::move(scanning.scan());
}

}  // namespace fettle
