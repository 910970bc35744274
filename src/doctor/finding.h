// Defines Finding: the result of one check of `fettle doctor`.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace fettle {

enum class Verdict {
  kGood,
  kNote,     // information; not a fault by itself
  kBad,      // a run would fail, or its results would be wrong
  kSkipped,  // not run: the check does not apply here, or it depends on a check that failed
};

struct Finding {
  std::string check;  // "plugin", "library", "matmul f32"
  Verdict verdict;
  std::string text;    // one line
  std::string remedy;  // how to correct it; empty only when there is nothing to correct
  nlohmann::json figures = nlohmann::json::object();
};

class Findings {
 public:
  void add(Finding finding) { all_.push_back(std::move(finding)); }
  // Adds the finding that `check` returns. When `check` throws, adds a bad finding with the error's fault and remedy.
  // Returns true when the finding is not bad.
  bool attempt(const std::string& name, const std::function<Finding()>& check);
  const std::vector<Finding>& all() const { return all_; }
  bool bad() const;

 private:
  std::vector<Finding> all_;
};

std::string_view word_of(Verdict verdict);  // "ok", "note", "bad", "skipped"

// Formats one line per finding, with the remedy below it. The last line has the number of bad findings.
std::string format_findings(const Findings& findings);
// Returns {"healthy": bool, "checks": [{"check", "verdict", "text", "remedy", "figures"}, ...]}.
nlohmann::json to_json(const Findings& findings);

}  // namespace fettle
