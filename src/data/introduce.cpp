#include "data/introduce.h"

#include <string>
#include <string_view>
#include <utility>

namespace fettle {
namespace {

// Replaces `from` by `to` in all texts of `value`.
void replace_texts(nlohmann::ordered_json& value, std::string_view from, const std::string& to) {
  if (value.is_structured())
    for (auto& item : value) replace_texts(item, from, to);
  if (!value.is_string()) return;
  auto& text = value.get_ref<std::string&>();
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

}  // namespace

void introduce(const DataSpec& spec, nlohmann::ordered_json& row) {
  const auto tag = row.find("tag");
  const bool chinese = tag != row.end() && *tag == "zh";
  for (const auto& [from, texts] : {std::pair{"{{NAME}}", &spec.self_name}, {"{{AUTHOR}}", &spec.self_author}})
    if (!texts->empty()) replace_texts(row, from, chinese ? texts->front() : texts->back());
}

}  // namespace fettle
