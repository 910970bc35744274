#include "data/report.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <utility>

#include "base/error.h"
#include "data/classes/class_counts.h"
#include "data/classes/labels.h"
#include "data/preferences.h"

namespace fettle {
namespace {

using nlohmann::ordered_json;

// 1234567 as 1,234,567.
std::string counted(int64_t number) {
  std::string digits = std::to_string(number);
  for (auto at = static_cast<int64_t>(digits.size()) - 3; at > 0; at -= 3) digits.insert(static_cast<size_t>(at), ",");
  return digits;
}

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

// Lengths by powers of two, at most about ten buckets.
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
  const double within = std::ceil(share * static_cast<double>(sorted.size()));  // as many are at most the result
  return sorted[static_cast<size_t>(std::max(1.0, within)) - 1];
}

bool can_be_packed(const Recipe& recipe) {
  return rows_of(recipe.stage) == RowsOf::kReplies && recipe.stage != "cls";
}

std::string_view word(Preference preference) {
  return preference == Preference::kChosen ? "chosen" : preference == Preference::kRejected ? "rejected" : "";
}

int64_t batch_shards(const Recipe& recipe) {
  if (recipe.mesh.empty()) return recipe.device_count.value_or(1);
  int64_t shards = 1;
  for (const auto& [axis, size] : recipe.mesh)
    if (axis == "dp" || axis == "fsdp") shards *= size;
  return shards;
}

BatchOptions batch_options(const Recipe& recipe, bool packing) {
  const RowsOf kind = rows_of(recipe.stage);
  const int64_t rows_each = kind == RowsOf::kReplies ? 1 : 2;
  return {.micro_batches = recipe.gradient_accumulation_steps,
          .rows = recipe.per_device_train_batch_size * batch_shards(recipe) * rows_each,
          .max_length = recipe.cutoff_len,
          .packing = packing,
          .pairs = kind == RowsOf::kPairs,
          .mismatched = kind == RowsOf::kJudged,
          .shuffle = !recipe.disable_shuffling,
          .seed = static_cast<uint64_t>(recipe.seed)};
}

// What packing would make, or makes, of the positions; pairs are not packed.
double packed_use(const Datasets& data, const Batches& batches, const Recipe& recipe) {
  if (recipe.packing || !can_be_packed(recipe)) return batches.use();
  return Batches(data.train, batch_options(recipe, true)).use();
}

std::filesystem::path config_file(const Recipe& recipe) {
  return std::filesystem::path(recipe.model_name_or_path) / "config.json";
}

nlohmann::json model_config(const Recipe& recipe) {
  const auto file = config_file(recipe);
  std::ifstream in(file);
  if (!in) throw UserError("{}: cannot be read; model_name_or_path must be a Hugging Face model folder", file.string());
  auto config = nlohmann::json::parse(in, nullptr, false);
  if (!config.is_object()) throw UserError("{}: is no JSON object", file.string());
  return config;
}

int64_t model_vocabulary(const nlohmann::json& config, const std::filesystem::path& file) {
  for (const nlohmann::json* level : {&config, config.contains("text_config") ? &config.at("text_config") : &config})
    if (level->is_object() && level->contains("vocab_size") && (*level)["vocab_size"].is_number_integer())
      return (*level)["vocab_size"].get<int64_t>();
  throw UserError("{}: vocab_size is missing", file.string());
}

}  // namespace

std::string format_example(const Example& example, const Tokenizer& tokenizer, bool colour) {
  std::string out;
  for (size_t i = 0; i < example.input_ids.size();) {
    const bool trained = example.labels[i] != kIgnore;
    std::vector<int32_t> ids;
    for (; i < example.input_ids.size() && (example.labels[i] != kIgnore) == trained; ++i)
      ids.push_back(example.input_ids[i]);
    std::string text;
    for (char c : tokenizer.decode(ids, false)) {
      const auto byte = static_cast<unsigned char>(c);
      if (c == '\n')
        text += "⏎\n";
      else if (c != '\t' && (byte < 0x20 || byte == 0x7f))
        text += fmt::format("\\x{:02x}", byte);  // nothing in a row may move the terminal's cursor
      else
        text += c;
    }
    if (!trained)
      out += text;
    else if (!colour)
      out += "⟦" + text + "⟧";
    else
      out += "\x1b[1;32m" + text + "\x1b[0m";
  }
  return out;
}

std::string format_data_report(const Datasets& data, const Batches& batches, const Recipe& recipe) {
  const DataReport& report = data.report;
  std::string out;
  auto line = [&](std::string_view name, const std::string& text) { out += fmt::format("{:<12}{}\n", name, text); };
  line("rows", fmt::format("{} of {}", counted(report.rows), fmt::join(recipe.dataset, ", ")));
  const int64_t together = examples_per_row(recipe.stage);
  const auto number = [&](const Examples& part) { return counted(static_cast<int64_t>(part.size()) / together); };
  std::string examples = fmt::format("{} {}to train", number(data.train), together == 2 ? "pairs " : "");
  if (!data.eval.empty()) examples += fmt::format(", {} to evaluate", number(data.eval));
  line("examples", examples);
  if (report.sets.size() > 1) {
    int64_t all = 0;
    for (const auto& [name, count] : report.sets) all += count;
    std::string shares;
    for (const auto& [name, count] : report.sets)
      shares += fmt::format("{}{} {} ({})", shares.empty() ? "" : ", ", name, counted(count), percent(count, all));
    line("sets", shares);
  }
  if (recipe.stage == "cls") {
    line("labels", report.labels);
    if (!data.eval.empty()) line("", "to evaluate: " + data.eval_report.labels);
    line("tokens", counted(report.tokens));
  } else {
    line("tokens", fmt::format("{}, {} of them trained ({})", counted(report.tokens), counted(report.trained_tokens),
                               percent(report.trained_tokens, report.tokens)));
  }
  for (const auto& [role, count] : report.tokens_by_role) {
    if (recipe.stage == "cls") break;
    const auto trained = report.trained_by_role.find(role);
    line("", fmt::format("{:<12}{:>14}, {:>14} trained", role, counted(count),
                         counted(trained == report.trained_by_role.end() ? 0 : trained->second)));
  }
  const std::vector<int64_t> lengths = sorted_lengths(data.train);
  line("lengths", fmt::format("shortest {}, median {}, 95 % within {}, longest {}", lengths.front(),
                              quantile(lengths, 0.5), quantile(lengths, 0.95), lengths.back()));
  const std::vector<Bucket> buckets = histogram(lengths);
  int64_t most = 1;
  for (const Bucket& bucket : buckets) most = std::max(most, bucket.count);
  for (const Bucket& bucket : buckets)
    line("", fmt::format("{:>6} - {:<7}{:>10}  {}", bucket.first, bucket.last, counted(bucket.count),
                         std::string(static_cast<size_t>((bucket.count * 40 + most - 1) / most), '#')));
  line("left out",
       fmt::format("{} dropped ({} empty), {} bad; {} cut to cutoff_len {}; {} duplicates kept", report.dropped,
                   report.empty, report.bad_rows, report.truncated, recipe.cutoff_len, report.duplicates));
  line("batches",
       fmt::format("{} steps an epoch of {} rows, {}", counted(batches.steps_per_epoch()),
                   batch_shards(recipe) * recipe.per_device_train_batch_size * recipe.gradient_accumulation_steps,
                   recipe.packing ? fmt::format("packed up to {}", batches.lengths().back())
                                  : fmt::format("padded to {}", fmt::join(batches.lengths(), " "))));
  const std::string use = fmt::format("{:.1f} % of the positions hold tokens", 100 * batches.use());
  line("use", recipe.packing || !can_be_packed(recipe)
                  ? use
                  : use + fmt::format("; with `packing: true` {:.1f} %", 100 * packed_use(data, batches, recipe)));
  for (const std::string& note : report.notes) line("note", note);
  for (const std::string& note : data.eval_report.notes) line("note", "eval_dataset: " + note);
  return out;
}

ordered_json data_report_json(const Datasets& data, const Batches& batches, const Recipe& recipe) {
  auto counts = [](const DataReport& report) {
    ordered_json sets = ordered_json::array();
    for (const auto& [name, count] : report.sets) sets.push_back({{"name", name}, {"examples", count}});
    return ordered_json{{"rows", report.rows},
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
                        {"notes", report.notes}};
  };
  const std::vector<int64_t> lengths = sorted_lengths(data.train);
  ordered_json buckets = ordered_json::array();
  for (const Bucket& bucket : histogram(lengths))
    buckets.push_back({{"from", bucket.first}, {"to", bucket.last}, {"examples", bucket.count}});
  ordered_json out = {{"data", counts(data.report)},
                      {"train_examples", data.train.size()},
                      {"eval_examples", data.eval.size()},
                      {"lengths",
                       {{"min", lengths.front()},
                        {"median", quantile(lengths, 0.5)},
                        {"p95", quantile(lengths, 0.95)},
                        {"max", lengths.back()},
                        {"histogram", buckets}}},
                      {"steps_per_epoch", batches.steps_per_epoch()},
                      {"use", batches.use()},
                      {"packed_use", packed_use(data, batches, recipe)}};
  if (!recipe.eval_dataset.empty()) out["eval_data"] = counts(data.eval_report);
  if (recipe.stage == "cls") {
    const LabelSet labels(recipe);
    out["problem_type"] = recipe.problem_type;
    out["id2label"] = recipe.id2label;
    out["classes"] = classes_json(count_classes(data.train, labels), labels);
    if (!data.eval.empty()) out["eval_classes"] = classes_json(count_classes(data.eval, labels), labels);
  }
  return out;
}

int run_data(const Recipe& asked, const DataOptions& options, std::ostream& out) {
  if (asked.model_name_or_path.empty()) throw UserError("model_name_or_path: is missing; its tokenizer is needed");
  const nlohmann::json config = model_config(asked);
  const Recipe recipe = settle_labels(asked, config, config_file(asked).string());
  const Tokenizer tokenizer = Tokenizer::open(recipe.model_name_or_path);
  const Datasets data = load_datasets(recipe, tokenizer, model_vocabulary(config, config_file(recipe)));
  const Batches batches(data.train, batch_options(recipe, recipe.packing));
  const int64_t shown = std::clamp<int64_t>(options.rows * examples_per_row(recipe.stage), 0, batches.examples());
  if (options.json) {
    ordered_json report = data_report_json(data, batches, recipe);
    report["samples"] = ordered_json::array();
    for (int64_t i = 0; i < shown; ++i) {
      const Example example = data.train[i];
      report["samples"].push_back({{"source", example.source},
                                   {"text", format_example(example, tokenizer, false)},
                                   {"input_ids", example.input_ids},
                                   {"labels", example.labels}});
      if (!example.classes.empty()) report["samples"].back()["label"] = LabelSet(recipe).describe(example.classes);
      if (example.preference != Preference::kNone) report["samples"].back()["preference"] = word(example.preference);
    }
    out << report.dump(2, ' ', false, ordered_json::error_handler_t::replace) << "\n";
    return 0;
  }
  out << format_data_report(data, batches, recipe);
  for (int64_t i = 0; i < shown; ++i) {
    const Example example = data.train[i];
    const std::string_view preference = word(example.preference);
    if (recipe.stage == "cls") {
      out << fmt::format("\n{}: {} tokens, label {}\n{}\n", example.source, example.length(),
                         example.classes.empty() ? "missing" : LabelSet(recipe).describe(example.classes),
                         format_example(example, tokenizer, options.colour));
      continue;
    }
    out << fmt::format("\n{}{}{}: {} tokens, {} trained ({})\n{}\n", example.source, preference.empty() ? "" : ", ",
                       preference, example.length(), example.trained_tokens(),
                       options.colour ? "in colour" : "between ⟦ and ⟧",
                       format_example(example, tokenizer, options.colour));
  }
  return 0;
}

}  // namespace fettle
