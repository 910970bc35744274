#include "eval/predictions.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/files/output_file.h"

namespace fettle {
namespace {

using nlohmann::ordered_json;
namespace fs = std::filesystem;

std::string json_line(const ordered_json& line) {
  return line.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::string reply_lines(const std::vector<EvalSet>& sets, const std::vector<EvalColumn>& models) {
  std::string lines;
  for (size_t s = 0; s < sets.size(); ++s)
    for (size_t i = 0; i < sets[s].prompts.size(); ++i) {
      const Prompt& prompt = sets[s].prompts[i];
      ordered_json line{{"prompt", prompt.text.empty() ? prompt.conversation.messages.back().content : prompt.text},
                        {"predict", models.back().sets[s].replies[i]},
                        {"label", prompt.references[0]}};
      if (models.size() > 1) line["base"] = models.front().sets[s].replies[i];
      line["source"] = prompt.where;
      lines += json_line(line);
    }
  return lines;
}

ordered_json label_json(const std::vector<float>& classes, const LabelSet& labels) {
  if (labels.problem == Problem::kSingleLabel) return labels.name(static_cast<int64_t>(classes[0]));
  if (labels.problem == Problem::kRegression) {
    std::vector<double> numbers;
    // Writes the fewest digits that give the same float: 0.1, not 0.10000000149011612.
    for (const float number : classes) numbers.push_back(std::stod(fmt::format("{}", number)));
    return numbers.size() == 1 ? ordered_json(numbers[0]) : ordered_json(numbers);
  }
  ordered_json names = ordered_json::array();
  for (size_t k = 0; k < classes.size(); ++k)
    if (classes[k] != 0) names.push_back(labels.name(static_cast<int64_t>(k)));
  return names;
}

std::string label_lines(const Examples& rows, const ClassificationReport& report, const LabelSet& labels) {
  const auto each = static_cast<size_t>(labels.size());
  std::string lines;
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::span<const float> logits = std::span(report.logits).subspan(i * each, each);
    ordered_json line{{"predict", label_json(predicted_classes(logits, labels.problem), labels)}};
    if (const auto truth = rows.classes(static_cast<int64_t>(i)); !truth.empty())
      line["label"] = label_json({truth.begin(), truth.end()}, labels);
    if (labels.problem != Problem::kRegression) {
      const std::vector<double> shares = probabilities(logits, labels.problem);
      for (size_t k = 0; k < each; ++k) line["probabilities"][labels.name(static_cast<int64_t>(k))] = shares[k];
    }
    line["source"] = rows.source(static_cast<int64_t>(i));
    lines += json_line(line);
  }
  return lines;
}

// Returns a folder name for each set: the set's name with _ for /, and only its end if it is long. If two sets would
// get the same folder, the later one also gets a number.
std::vector<std::string> folder_names(const std::vector<EvalSet>& sets) {
  constexpr size_t kLongest = 200;  // file systems allow 255
  std::vector<std::string> out;
  for (const EvalSet& set : sets) {
    size_t begin = set.name.size() - std::min(set.name.size(), kLongest);
    while (begin > 0 && (set.name[begin] & 0xC0) == 0x80) ++begin;  // within a character
    std::string name = set.name.substr(begin);
    std::ranges::replace(name, '/', '_');
    std::string folder = name;
    for (int number = 2; std::ranges::find(out, folder) != out.end(); ++number)
      folder = fmt::format("{}_{}", name, number);
    out.push_back(folder);
  }
  return out;
}

}  // namespace

void write_predictions(const fs::path& folder, const std::vector<EvalSet>& sets, const std::vector<EvalColumn>& models,
                       const LabelSet* labels) {
  if (const std::string lines = reply_lines(sets, models); !lines.empty())
    write_file(folder / "generated_predictions.jsonl", lines);
  const std::vector<std::string> folders = folder_names(sets);
  for (size_t s = 0; s < sets.size(); ++s) {
    const std::optional<ClassificationReport>& report = models.back().sets[s].classes;
    if (!report) continue;
    const fs::path place = sets.size() == 1 ? folder : folder / folders[s];
    fs::create_directories(place);
    write_file(place / "predictions.jsonl", label_lines(sets[s].rows, *report, *labels));
    write_class_report(place, *report, *labels);
  }
}

std::string format_label_tables(const std::vector<EvalSet>& sets, const EvalColumn& model, const LabelSet* labels) {
  std::string out;
  for (size_t s = 0; s < sets.size(); ++s) {
    const std::optional<ClassificationReport>& report = model.sets[s].classes;
    if (!report) continue;
    const std::string tables = report->rows > 0
                                   ? format_class_tables(*report, *labels)
                                   : fmt::format("no row has a label; {} rows were predicted\n", sets[s].rows.size());
    if (!tables.empty()) out += fmt::format("\n{}\n{}", sets[s].name, tables);
  }
  return out;
}

}  // namespace fettle
