#include "tokenizer/post_processor.h"

#include <algorithm>

#include "base/error.h"

namespace fettle {
namespace {

using PairPiece = PostProcessor::PairPiece;

void add_tokens(std::vector<PairPiece>& pieces, const std::vector<int32_t>& ids, uint8_t type) {
  for (int32_t id : ids) pieces.push_back({PairPiece::Kind::kToken, id, type});
}

// Returns the parts of a row of two texts: `before`, the first text, `after`, `before`, the second text, `after`.
std::vector<PairPiece> one_after_another(const std::vector<int32_t>& before, const std::vector<int32_t>& after) {
  std::vector<PairPiece> pieces;
  for (uint8_t type : {uint8_t{0}, uint8_t{1}}) {
    add_tokens(pieces, before, type);
    pieces.push_back({type == 0 ? PairPiece::Kind::kFirst : PairPiece::Kind::kSecond, 0, type});
    add_tokens(pieces, after, type);
  }
  return pieces;
}

// Reads the id from a pair such as ["[SEP]", 102].
int32_t read_token_id(const JsonField& field) {
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
  std::vector<PairPiece> pair = one_after_another(before, after);
  result.templates_.push_back({{std::move(before), std::move(after)}, std::move(pair)});
  return result;
}

std::vector<PostProcessor::Template> PostProcessor::read_templates(const JsonField& field) {
  const std::string& type = field.at("type").string();
  field.expect_only({"type", "add_prefix_space", "trim_offsets", "use_regex", "sep", "cls", "processors", "single",
                     "pair", "special_tokens"});
  if (type == "ByteLevel") return {};  // ByteLevel changes offsets, but no ids
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    const int32_t cls = read_token_id(field.at("cls")), sep = read_token_id(field.at("sep"));
    const bool roberta = type == "RobertaProcessing";
    const uint8_t second = roberta ? 0 : 1;  // RoBERTa has one token type, and two separators between the texts
    std::vector<PairPiece> pair = {{PairPiece::Kind::kToken, cls}, {PairPiece::Kind::kFirst}};
    add_tokens(pair, roberta ? std::vector{sep, sep} : std::vector{sep}, 0);
    pair.push_back({PairPiece::Kind::kSecond, 0, second});
    add_tokens(pair, {sep}, second);
    return {{{{cls}, {sep}}, std::move(pair)}};
  }
  if (type == "Sequence") {
    std::vector<Template> result;
    bool after_template = false;
    for (const JsonField& step : field.at("processors").elements()) {
      // Hugging Face's library passes each part of a template as a separate text to the next step. Fettle cannot.
      if (after_template && step.at("type").string() != "ByteLevel") {
        step.fail("found a {} after a TemplateProcessing; only ByteLevel may follow a TemplateProcessing",
                  step.at("type").string());
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
  auto ids_of = [&field](const JsonField& piece) {
    const JsonField id = piece.at("SpecialToken").at("id");
    const auto token = field.at("special_tokens").find(id.string());
    if (!token) id.fail("the token '{}' is not in special_tokens of the template", id.string());
    std::vector<int32_t> ids;
    for (const JsonField& each : token->at("ids").elements()) ids.push_back(static_cast<int32_t>(each.integer()));
    return ids;
  };
  Template result{{{}}, {}};
  for (const JsonField& piece : field.at("single").elements()) {
    if (auto sequence = piece.find("Sequence")) {
      if (sequence->at("id").string() != "A") sequence->fail("a template for one text can only use sequence A");
      result.between.emplace_back();
      continue;
    }
    for (int32_t id : ids_of(piece)) result.between.back().push_back(id);
  }
  if (const auto pair = field.find("pair")) {
    for (const JsonField& piece : pair->elements()) {
      const auto sequence = piece.find("Sequence");
      const JsonField about = sequence ? *sequence : piece.at("SpecialToken");
      const auto type = static_cast<uint8_t>(about.at("type_id").integer());
      if (sequence)
        result.pair.push_back(
            {about.at("id").string() == "A" ? PairPiece::Kind::kFirst : PairPiece::Kind::kSecond, 0, type});
      else
        add_tokens(result.pair, ids_of(piece), type);
    }
  } else {
    result.pair = one_after_another({}, {});
  }
  return {result};
}

std::vector<PairPiece> PostProcessor::pair() const {
  if (templates_.size() > 1)
    throw UserError(
        "the tokenizer cannot join pairs of texts: its post_processor has several templates and none of them is for "
        "pairs");
  return templates_.empty() ? one_after_another({}, {}) : templates_[0].pair;
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
