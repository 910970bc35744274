#include "data/classes/labels.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "config/taught_labels.h"
#include "data/classes/label_scan.h"

namespace fettle {
namespace {

using nlohmann::json;

constexpr const char* kSingle = "single_label_classification";
constexpr const char* kMulti = "multi_label_classification";
constexpr const char* kRegression = "regression";

void check_unique(const std::vector<std::string>& names, const std::string& where) {
  std::set<std::string> seen;
  for (const std::string& name : names)
    if (!seen.insert(name).second) throw UserError("{}: id2label has '{}' twice", where, name);
}

void check_keys(const Recipe& r) {
  if (r.stage != "cls") {
    for (const char* key : {"problem_type", "num_labels", "id2label"})
      if (r.set_at.contains(key)) throw UserError("{}: {} is for stage cls, not {}", r.where(key), key, r.stage);
    return;
  }
  const std::pair<const char*, bool> senseless[] = {
      {"packing", r.packing}, {"train_on_prompt", r.train_on_prompt}, {"mask_history", r.mask_history}};
  for (const auto& [key, on] : senseless)
    if (on)
      throw UserError("{}: {} is for stages that train tokens; rows of stage cls have a label each; leave it out",
                      r.where(key), key);
  if (r.num_labels && !r.id2label.empty() && *r.num_labels != static_cast<int64_t>(r.id2label.size()))
    throw UserError("{}: num_labels is {}, but id2label names {}; leave one of them out", r.where("num_labels"),
                    *r.num_labels, r.id2label.size());
  check_unique(r.id2label, r.where("id2label"));
}

[[noreturn]] void mixed(const LabelScan::Kind& one, const char* what, const LabelScan::Kind& other, const char* more,
                        const char* remedy = "") {
  throw UserError("{}: the label {} is {}, but {} has {}, which is {}; labels of one kind are wanted in all rows{}",
                  other.first, other.example, more, one.first, one.example, what, remedy);
}

std::string problem_of_rows(const LabelScan& scan) {
  if (scan.lists.rows > 0) {
    for (const auto* kind : {&scan.integers, &scan.reals, &scan.quoted_integers, &scan.quoted_reals, &scan.names})
      if (kind->rows > 0) mixed(scan.lists, "a list", *kind, "a single one");
    return scan.reals_in_lists ? kRegression : kMulti;
  }
  if (scan.names.rows > 0) {
    for (const auto* kind : {&scan.integers, &scan.reals})
      if (kind->rows > 0) mixed(scan.names, "a name", *kind, "a number");
    // Cells have no kind of their own: most of the column say what it holds.
    const bool whole = scan.quoted_integers.rows >= scan.quoted_reals.rows;
    if (scan.quoted_integers.rows + scan.quoted_reals.rows > scan.names.rows)
      mixed(whole ? scan.quoted_integers : scan.quoted_reals, "a number, as most are", scan.names, "a name",
            "; mend the row, or set problem_type: single_label_classification where all are names");
    return kSingle;
  }
  return scan.reals.rows + scan.quoted_reals.rows > 0 ? kRegression : kSingle;
}

// Throws for labels that are none, and for fractions where labels are to be named.
void check_scan(const LabelScan& scan, const Recipe& recipe) {
  if (scan.wrong.rows > 0 && recipe.on_bad_row != "skip")
    throw UserError("{}: {}\n(`on_bad_row: skip` leaves such rows out and counts them)", scan.wrong.first,
                    scan.wrong.example);
  if (recipe.id2label.empty() && !recipe.problem_type.empty() && recipe.problem_type != kRegression &&
      scan.fractions.rows > 0 && scan.names.rows == 0 && !scan.names_in_lists)
    throw UserError(
        "{}: the label {} is no whole number, and problem_type is {}; leave it out, or set regression, to learn "
        "numbers; where such are names, as of versions, give them in id2label",
        scan.fractions.first, scan.fractions.example, recipe.problem_type);
}

// The labels' numbers reach beyond num_labels.
[[noreturn]] void beyond(const LabelScan& scan, const Recipe& recipe) {
  const int64_t count = *recipe.num_labels;
  const std::string remedy =
      static_cast<int64_t>(scan.numbers.size()) <= count && count <= 20
          ? fmt::format("the rows have {} labels: number them from 0 on, or name them, as id2label: [{}]",
                        scan.numbers.size(), fmt::join(scan.numbers, ", "))
          : fmt::format("mend the row, or raise num_labels to {}", *scan.numbers.rbegin() + 1);
  throw UserError("{}: the label {} is beyond num_labels {} ({}), whose numbers are 0 to {}; {}", scan.largest.first,
                  scan.largest.example, count, recipe.where("num_labels"), count - 1, remedy);
}

// The names of the labels that the rows have, in the order of their numbers.
std::vector<std::string> names_of_rows(const LabelScan& scan, const std::string& problem, const Recipe& recipe) {
  if (problem == kRegression) return default_labels(scan.list_size > 0 ? scan.list_size : 1);
  if (scan.too_many())
    throw UserError(
        "{}: there are more than {} different labels; is this the column of the label? (`columns: {{label: ...}}` "
        "of dataset_info.json names another one, `problem_type: regression` learns numbers)",
        fmt::join(recipe.dataset, ", "), LabelScan::kMostWords);
  if (scan.lists.rows > 0 && scan.flags.rows > 0 && scan.yes_or_no(scan.list_size))
    return default_labels(scan.list_size);
  if (scan.names.rows > 0 || scan.names_in_lists) return {scan.words.begin(), scan.words.end()};
  if (scan.numbers.empty()) return {};
  const int64_t last = *scan.numbers.rbegin();
  if (*scan.numbers.begin() == 0 && last < kMostLabels) return default_labels(last + 1);
  std::vector<std::string> names;
  for (const int64_t number : scan.numbers) names.push_back(fmt::format("{}", number));
  return names;
}

std::vector<DataSource> sources_named(const Recipe& recipe, const std::vector<std::string>& names) {
  std::vector<DataSource> sources;
  for (const std::string& name : names) sources.push_back(find_source(name, recipe.dataset_dir));
  return sources;
}

// Of one or two labels, [0, 1] is both numbers as well as a no and a yes: a single data set may not tell, all together
// do. `eval` has no need of the sets that were trained on; they may be gone.
bool all_say_yes_or_no(const Recipe& recipe) {
  std::vector<DataSource> sources = sources_named(recipe, recipe.eval_dataset);
  for (const std::string& name : recipe.dataset) try {
      sources.push_back(find_source(name, recipe.dataset_dir));
    } catch (const UserError&) {
    }
  return scan_labels(sources).yes_or_no(*recipe.num_labels);
}

// Positions of an encoder's table that stand for tokens; 0 of others, which read on as far as they may.
int64_t positions_of(const json& config) {
  const std::string type = config.value("model_type", json("")).is_string() ? config.value("model_type", "") : "";
  const auto most = config.find("max_position_embeddings");
  if (most == config.end() || !most->is_number_integer()) return 0;
  if (type == "bert") return most->get<int64_t>();
  if (!type.ends_with("roberta") && type != "camembert") return 0;
  const auto pad = config.find("pad_token_id");  // positions begin behind it
  return most->get<int64_t>() - (pad != config.end() && pad->is_number_integer() ? pad->get<int64_t>() : 1) - 1;
}

}  // namespace

Recipe settle_labels(const Recipe& asked, const json& config, const std::string& config_file) {
  check_keys(asked);
  if (asked.stage != "cls") return asked;
  Recipe recipe = asked;
  if (const int64_t most = positions_of(config); most > 0) {
    if (!recipe.template_name.empty())
      throw UserError(
          "{}: template is for models of conversations, and {} is an encoder's, which reads texts as they are; "
          "leave it out",
          recipe.where("template"), config_file);
    if (!recipe.set_at.contains("cutoff_len")) recipe.cutoff_len = std::min(recipe.cutoff_len, most);
  }
  const TaughtLabels taught = taught_labels(recipe, config, config_file);
  const int64_t known = taught.count();
  check_taught(recipe, taught);
  // Labels of another number than the model's are others.
  const bool continues = known > 0 && recipe.id2label.empty() && recipe.num_labels.value_or(known) == known;
  if (continues) {
    check_unique(taught.names, taught.file);
    recipe.id2label = taught.names;
  }
  if (recipe.problem_type.empty() && known > 0) recipe.problem_type = taught.problem_type;
  if (recipe.id2label.empty() && recipe.num_labels && recipe.dataset.empty())
    recipe.id2label = default_labels(*recipe.num_labels);
  if (recipe.id2label.empty() || (recipe.problem_type.empty() && !recipe.dataset.empty())) {
    if (recipe.dataset.empty())
      throw UserError(
          "num_labels: is missing; there is no dataset to read the labels off, and {} is no classifier's; give "
          "num_labels or id2label",
          config_file);
    const LabelScan scan = scan_labels(sources_named(recipe, recipe.dataset));
    check_scan(scan, recipe);
    if (scan.rows == 0 && (recipe.id2label.empty() && !recipe.num_labels))
      throw UserError(
          "{}: no row has a label; a column label, labels, class, category or score is wanted, or name yours as "
          "columns.label in dataset_info.json",
          fmt::join(recipe.dataset, ", "));
    if (recipe.problem_type.empty() && scan.rows > 0) recipe.problem_type = problem_of_rows(scan);
    if (recipe.id2label.empty()) {
      std::vector<std::string> names = names_of_rows(scan, recipe.problem_type, recipe);
      if (names.empty())
        throw UserError("{}: of {} labels none is a name or a whole number; is problem_type: {} what they are?",
                        fmt::join(recipe.dataset, ", "), scan.rows, recipe.problem_type);
      const auto count = static_cast<int64_t>(names.size());
      const bool numbered = names == default_labels(count);
      if (recipe.num_labels && numbered && scan.largest.rows > 0 && count == *scan.numbers.rbegin() + 1 &&
          count > *recipe.num_labels)
        beyond(scan, recipe);
      if (recipe.num_labels && numbered && count <= *recipe.num_labels) names = default_labels(*recipe.num_labels);
      if (recipe.num_labels && static_cast<int64_t>(names.size()) != *recipe.num_labels)
        throw UserError(
            "{}: num_labels is {}, but the rows have {} labels; leave it out, or name all labels in id2label",
            recipe.where("num_labels"), *recipe.num_labels, count);
      recipe.id2label = names;
    }
  }
  recipe.num_labels = static_cast<int64_t>(recipe.id2label.size());
  // As Transformers has it when config.json says nothing.
  if (recipe.problem_type.empty()) recipe.problem_type = *recipe.num_labels == 1 ? kRegression : kSingle;
  if (recipe.problem_type == kSingle && *recipe.num_labels < 2)
    throw UserError("{}: the rows have one label only, '{}': there is nothing to tell apart",
                    fmt::join(recipe.dataset, ", "), recipe.id2label[0]);
  const bool either = recipe.problem_type == kMulti && *recipe.num_labels <= 2;
  recipe.lists_say_yes_or_no = either ? std::optional(all_say_yes_or_no(recipe)) : std::nullopt;
  return recipe;
}

}  // namespace fettle
