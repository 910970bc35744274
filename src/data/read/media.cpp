#include "data/read/media.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/text.h"
#include "data/read/columns.h"

namespace fettle {
namespace {

using nlohmann::ordered_json;

struct MediaColumn {
  std::string_view name, what, mark;  // `mark` stands in the text where the first of the media belongs
};

constexpr MediaColumn kMediaColumns[] = {{"images", "images", "<image>"}, {"image", "an image", "<image>"},
                                         {"videos", "videos", "<video>"}, {"video", "a video", "<video>"},
                                         {"audios", "sound", "<audio>"},  {"audio", "sound", "<audio>"}};

// Returns whether the value names media or holds their data. Rows without media have null, "" or an empty list, in a
// CSV file perhaps as text. Parquet and Arrow files have the data itself, which is read as an object with `bytes`.
bool has_media(const ordered_json& value) {
  if (value.is_string()) {
    static constexpr std::string_view kNone[] = {"", "[]", "nan", "none", "null"};
    return std::ranges::find(kNone, lower_case(std::string(trimmed(value.get_ref<const std::string&>())))) ==
           std::end(kNone);
  }
  return value.is_structured() && (value.contains("bytes") || std::ranges::any_of(value, [](const ordered_json& item) {
                                     return item.is_number() || has_media(item);
                                   }));
}

const MediaColumn* find_media_column(const std::string& name) {
  const auto* column = std::ranges::find(kMediaColumns, lower_case(name), &MediaColumn::name);
  return column == std::end(kMediaColumns) ? nullptr : column;
}

// Returns the row's first column with media that belong to its text; nullptr if it has none.
const MediaColumn* media_of(const ordered_json& row, const DataSource& source) {
  for (const auto& item : row.items()) {
    const MediaColumn* column = find_media_column(item.key());
    if (column == nullptr || !has_media(item.value())) continue;
    if (source.columns.empty() ||
        row.dump(-1, ' ', false, ordered_json::error_handler_t::replace).find(column->mark) != std::string::npos)
      return column;
  }
  return nullptr;
}

}  // namespace

bool is_empty_media(const std::string& column, const ordered_json& value) {
  return find_media_column(column) != nullptr && !has_media(value);
}

bool needs_media(const ordered_json& row, const DataSource& source) {
  return media_of(row, source) != nullptr;
}

void refuse_media(const ordered_json& row, const DataSource& source) {
  const MediaColumn* column = media_of(row, source);
  if (column == nullptr) return;
  if (!source.columns.empty())
    bad_row(
        "the row has {} (column '{}') with the mark {} in a text, but Fettle trains on text only; leave such rows out",
        column->what, column->name, column->mark);
  bad_row(
      "the row has {} (column '{}'), but Fettle trains on text only; leave such rows out. If their text makes sense "
      "without it, remove the column, or name the columns with text in an entry of dataset_info.json",
      column->what, column->name);
}

}  // namespace fettle
