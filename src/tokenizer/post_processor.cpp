#include "tokenizer/post_processor.h"

#include <algorithm>

namespace fettle {
namespace {

// The id of ["[SEP]", 102].
int32_t read_pair(const JsonField& field) {
  const std::vector<JsonField> pair = field.elements();
  if (pair.size() != 2) field.fail("wanted a token and its id");
  return static_cast<int32_t>(pair[1].integer());
}

}  // namespace

PostProcessor PostProcessor::read(const JsonField& field) {
  PostProcessor result;
  result.templates_ = read_templates(field);
  return result;
}

PostProcessor PostProcessor::around(std::vector<int32_t> before, std::vector<int32_t> after) {
  PostProcessor result;
  result.templates_.push_back({{std::move(before), std::move(after)}});
  return result;
}

std::vector<PostProcessor::Template> PostProcessor::read_templates(const JsonField& field) {
  const std::string& type = field.at("type").string();
  field.expect_only({"type", "add_prefix_space", "trim_offsets", "use_regex", "sep", "cls", "processors", "single",
                     "pair", "special_tokens"});
  if (type == "ByteLevel") return {};  // it changes offsets only
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    return {{{{read_pair(field.at("cls"))}, {read_pair(field.at("sep"))}}}};
  }
  if (type == "Sequence") {
    std::vector<Template> result;
    bool after_template = false;
    for (const JsonField& step : field.at("processors").elements()) {
      // The reference treats what a template has put together as several texts.
      if (after_template && step.at("type").string() != "ByteLevel") {
        step.fail("a {} after a TemplateProcessing is not supported", step.at("type").string());
      }
      after_template |= step.at("type").string() == "TemplateProcessing";
      for (Template& each : read_templates(step)) result.push_back(std::move(each));
    }
    return result;
  }
  if (type != "TemplateProcessing") {
    field.fail(
        "the post_processor type '{}' is not supported; supported are BertProcessing, ByteLevel, RobertaProcessing, "
        "Sequence, TemplateProcessing",
        type);
  }
  Template result{{{}}};
  for (const JsonField& piece : field.at("single").elements()) {
    if (auto sequence = piece.find("Sequence")) {
      if (sequence->at("id").string() != "A") sequence->fail("a template for one text can only use sequence A");
      result.between.emplace_back();
      continue;
    }
    const JsonField id = piece.at("SpecialToken").at("id");
    const auto token = field.at("special_tokens").find(id.string());
    if (!token) id.fail("the token '{}' is not in special_tokens of the template", id.string());
    for (const JsonField& each : token->at("ids").elements()) {
      result.between.back().push_back(static_cast<int32_t>(each.integer()));
    }
  }
  return {result};
}

std::pair<std::vector<int32_t>, std::vector<int32_t>> PostProcessor::ids_around() const {
  constexpr int32_t kText = -1;
  std::vector<int32_t> ids = {kText};
  apply(ids, true);
  const auto first = std::find(ids.begin(), ids.end(), kText);
  const auto last = std::find(ids.rbegin(), ids.rend(), kText).base();
  return {{ids.begin(), first}, {last, ids.end()}};
}

void PostProcessor::apply(std::vector<int32_t>& ids, bool add_special_tokens) const {
  for (const Template& each : templates_) {
    if (!add_special_tokens && each.between.size() == 2) continue;
    std::vector<int32_t> result;
    for (size_t i = 0; i < each.between.size(); ++i) {
      if (i > 0) result.insert(result.end(), ids.begin(), ids.end());
      if (add_special_tokens) result.insert(result.end(), each.between[i].begin(), each.between[i].end());
    }
    ids = std::move(result);
  }
}

}  // namespace fettle
