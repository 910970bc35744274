#include "inspect/data_report.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "base/size_text.h"
#include "data/classes/class_counts.h"
#include "sharding/rules.h"

namespace fettle {
namespace {

using nlohmann::ordered_json;

std::string percent(int64_t part, int64_t whole) {
  return fmt::format("{:.1f} %", whole > 0 ? 100.0 * static_cast<double>(part) / static_cast<double>(whole) : 0.0);
}

std::vector<int64_t> sorted_lengths(const Examples& examples) {
  std::vector<int64_t> lengths(examples.size());
  for (size_t i = 0; i < lengths.size(); ++i) lengths[i] = examples.length(static_cast<int64_t>(i));
  std::sort(lengths.begin(), lengths.end());
  return lengths;
}

struct Bucket {
  int64_t first, last, count;
};

// Counts lengths in ranges that end at powers of two (the last one at the longest length).
std::vector<Bucket> histogram(const std::vector<int64_t>& lengths) {
  std::vector<Bucket> out;
  if (lengths.empty()) return out;
  int64_t first = 1, last = 16;
  while (last < lengths.front()) first = last + 1, last *= 2;
  for (; first <= lengths.back(); first = last + 1, last *= 2) {
    const auto below = std::lower_bound(lengths.begin(), lengths.end(), first);
    const auto above = std::upper_bound(lengths.begin(), lengths.end(), last);
    out.push_back({first, std::min(last, lengths.back()), above - below});
  }
  return out;
}

int64_t quantile(const std::vector<int64_t>& sorted, double share) {
  if (sorted.empty()) return 0;
  const double within =
      std::ceil(share * static_cast<double>(sorted.size()));  // number of values that must be <= the result
  return sorted[static_cast<size_t>(std::max(1.0, within)) - 1];
}

// The numbers in the report that are known only when the examples are laid out in batches.
struct Counted {
  explicit Counted(const DataReading& reading) : train(reading.data.train, reading.batches), use(train.use()) {
    if (!reading.data.eval.empty()) try {
        eval.emplace(reading.data.eval, reading.eval_batches);
        if (reading.eval_command != reading.eval_batches) eval_command.emplace(reading.data.eval, reading.eval_command);
      } catch (const UserError& error) {
        eval_problem = error.what();
      }
    packed_use = use;
    if (reading.batches.packing || !reading.stage.can_pack()) return;
    BatchSpec packed = reading.batches;
    packed.packing = true;
    packed_use = Batches(reading.data.train, packed).use();
  }

  Batches train;
  std::optional<Batches> eval, eval_command;  // eval_command: only if it differs from `eval`
  std::string eval_problem;  // why there are no evaluation batches; empty when there are some, or when none are needed
  double use, packed_use;    // share of the positions that hold tokens: with this recipe, and with `packing: true`
};

std::string devices_text(const AssumedTarget& target) {
  const int64_t count = target.devices.count;
  return fmt::format("{}{} ({}){}", count == 1 ? "one device" : fmt::format("{} devices", count),
                     count == 1 ? "" : ", " + mesh_title(target.mesh), target.devices.reason,
                     target.mesh_is_auto ? "; if `auto` chooses another mesh, a step has the same rows" : "");
}

ordered_json batches_json(const Batches& batches) {
  const BatchSpec& spec = batches.spec();
  ordered_json shapes = ordered_json::array();
  for (const BatchShape& shape : batches.shapes()) shapes.push_back({{"lines", shape.lines}, {"length", shape.length}});
  return {{"steps", batches.steps_per_epoch()}, {"rows", spec.groups_per_step()}, {"micro_batches", spec.micro_batches},
          {"sequences", spec.sequences},        {"longest", spec.longest()},      {"shapes", std::move(shapes)}};
}

}  // namespace

ordered_json counts_json(const DataReport& report) {
  ordered_json sets = ordered_json::array();
  for (const auto& [name, count] : report.sets) sets.push_back({{"name", name}, {"examples", count}});
  return {{"rows", report.rows},
          {"examples", report.examples},
          {"sets", std::move(sets)},
          {"tokens", report.tokens},
          {"trained_tokens", report.trained_tokens},
          {"tokens_by_role", report.tokens_by_role},
          {"trained_by_role", report.trained_by_role},
          {"truncated", report.truncated},
          {"dropped", report.dropped},
          {"empty", report.empty},
          {"bad_rows", report.bad_rows},
          {"duplicates", report.duplicates},
          {"duplicates_removed", report.duplicates_removed},
          {"notes", report.notes}};
}

ordered_json lengths_json(const Examples& examples) {
  const std::vector<int64_t> lengths = sorted_lengths(examples);
  if (lengths.empty()) return nullptr;
  ordered_json buckets = ordered_json::array();
  for (const Bucket& bucket : histogram(lengths))
    buckets.push_back({{"from", bucket.first}, {"to", bucket.last}, {"examples", bucket.count}});
  return {{"min", lengths.front()},
          {"median", quantile(lengths, 0.5)},
          {"p95", quantile(lengths, 0.95)},
          {"max", lengths.back()},
          {"histogram", buckets}};
}

std::string format_data_report(const DataReading& reading) {
  const Datasets& data = reading.data;
  const DataSpec& spec = reading.spec;
  const DataReport& report = data.report;
  const Counted batches(reading);
  std::string out;
  auto line = [&](std::string_view name, const std::string& text) { out += fmt::format("{:<12}{}\n", name, text); };
  line("rows", fmt::format("{} of {}", with_commas(report.rows), fmt::join(set_titles(spec.sets), ", ")));
  const int64_t together = row_reader(spec.rows).examples_per_row;
  const auto number = [&](const Examples& part) { return with_commas(static_cast<int64_t>(part.size()) / together); };
  std::string examples = fmt::format("{} {}to train", number(data.train), together == 2 ? "pairs " : "");
  if (!data.eval.empty()) examples += fmt::format(", {} to evaluate", number(data.eval));
  line("examples", examples);
  if (report.sets.size() > 1) {
    int64_t all = 0;
    for (const auto& [name, count] : report.sets) all += count;
    std::string shares;
    for (const auto& [name, count] : report.sets)
      shares += fmt::format("{}{} {} ({})", shares.empty() ? "" : ", ", name, with_commas(count), percent(count, all));
    line("sets", shares);
  }
  if (spec.labels) {
    line("labels", report.labels);
    if (!data.eval.empty()) line("", "to evaluate: " + data.eval_report.labels);
    line("tokens", with_commas(report.tokens));
  } else {
    line("tokens", fmt::format("{}, {} of them trained ({})", with_commas(report.tokens),
                               with_commas(report.trained_tokens), percent(report.trained_tokens, report.tokens)));
  }
  int64_t of_roles = 0;
  for (const auto& [role, count] : report.tokens_by_role) of_roles += count;
  if (!spec.labels && of_roles != report.tokens)
    line("by role", "of all rows that were read, also of those to evaluate or left out later");
  for (const auto& [role, count] : report.tokens_by_role) {
    if (spec.labels) break;
    const auto trained = report.trained_by_role.find(role);
    line("", fmt::format("{:<12}{:>14}, {:>14} trained", role, with_commas(count),
                         with_commas(trained == report.trained_by_role.end() ? 0 : trained->second)));
  }
  const std::vector<int64_t> lengths = sorted_lengths(data.train);
  line("lengths", fmt::format("shortest {}, median {}, 95 % within {}, longest {}", lengths.front(),
                              quantile(lengths, 0.5), quantile(lengths, 0.95), lengths.back()));
  const std::vector<Bucket> buckets = histogram(lengths);
  int64_t most = 1;
  for (const Bucket& bucket : buckets) most = std::max(most, bucket.count);
  for (const Bucket& bucket : buckets)
    line("", fmt::format("{:>6} - {:<7}{:>10}  {}", bucket.first, bucket.last, with_commas(bucket.count),
                         std::string(static_cast<size_t>((bucket.count * 40 + most - 1) / most), '#')));
  line("left out", fmt::format("{} dropped ({} empty), {} bad; {} cut to cutoff_len {}; {} duplicates {}",
                               report.dropped, report.empty, report.bad_rows, report.truncated, spec.cutoff_len,
                               report.duplicates, report.duplicates_removed ? "removed" : "kept"));
  line("assumed", devices_text(reading.target));
  line("batches", format_batches(batches.train, " an epoch"));
  if (batches.eval) line("", "to evaluate: " + format_batches(*batches.eval, ""));
  if (batches.eval_command) line("", "with `fettle eval`: " + format_batches(*batches.eval_command, ""));
  if (!batches.eval_problem.empty()) line("", "to evaluate: " + batches.eval_problem);
  const std::string use = fmt::format("{:.1f} % of the positions hold tokens", 100 * batches.use);
  line("use", reading.batches.packing || !reading.stage.can_pack()
                  ? use
                  : use + fmt::format("; with `packing: true` {:.1f} %", 100 * batches.packed_use));
  for (const std::string& note : report.notes) line("note", note);
  for (const std::string& note : data.eval_report.notes) line("note", "eval_dataset: " + note);
  return out;
}

ordered_json data_report_json(const DataReading& reading) {
  const Datasets& data = reading.data;
  const DataSpec& spec = reading.spec;
  const Counted batches(reading);
  const int64_t together = row_reader(spec.rows).examples_per_row;
  ordered_json mesh = ordered_json::object();
  for (const auto& [axis, size] : reading.target.mesh.axes) mesh[axis] = size;
  ordered_json out = {
      {"data", counts_json(data.report)},
      {"train_examples", static_cast<int64_t>(data.train.size()) / together},
      {"eval_examples", static_cast<int64_t>(data.eval.size()) / together},
      {"lengths", lengths_json(data.train)},
      {"assumed",
       {{"devices", reading.target.devices.count}, {"mesh", mesh}, {"because", reading.target.devices.reason}}},
      {"steps_per_epoch", batches.train.steps_per_epoch()},
      {"batches", batches_json(batches.train)},
      {"use", batches.use},
      {"packed_use", batches.packed_use}};
  if (batches.eval) out["eval_batches"] = batches_json(*batches.eval);
  if (batches.eval_command) out["eval_command_batches"] = batches_json(*batches.eval_command);
  if (!spec.eval_sets.empty()) out["eval_data"] = counts_json(data.eval_report);
  if (spec.labels) {
    out["problem_type"] = name_of(spec.labels->problem);
    out["id2label"] = spec.labels->id2label;
    out["classes"] = classes_json(count_classes(data.train, *spec.labels), *spec.labels);
    if (!data.eval.empty()) out["eval_classes"] = classes_json(count_classes(data.eval, *spec.labels), *spec.labels);
  }
  return out;
}

}  // namespace fettle
