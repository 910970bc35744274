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
  std::string_view name, what;
};

constexpr MediaColumn kMediaColumns[] = {{"images", "images"}, {"image", "an image"}, {"videos", "videos"},
                                         {"video", "a video"}, {"audios", "sound"},   {"audio", "sound"}};

// Returns whether the value names media or holds their data. Rows without media have null, "" or an empty list, in a
// CSV file perhaps as text. Parquet files have the data in `bytes`; data that is not UTF-8 is read as null.
bool has_media(const ordered_json& value) {
  if (value.is_string()) {
    const std::string_view text = trimmed(value.get_ref<const std::string&>());
    return !text.empty() && text != "[]";
  }
  return value.is_structured() && (value.contains("bytes") || std::ranges::any_of(value, [](const ordered_json& item) {
                                     return item.is_number() || has_media(item);
                                   }));
}

}  // namespace

void refuse_media(const ordered_json& row, const DataSource& source) {
  for (const auto& item : row.items()) {
    const auto* column = std::ranges::find(kMediaColumns, item.key(), &MediaColumn::name);
    if (column == std::end(kMediaColumns) || !has_media(item.value())) continue;
    if (std::ranges::any_of(source.columns, [&](const auto& named) { return named.second == column->name; })) continue;
    bad_row(
        "the row has {} (column '{}'), but Fettle trains on text only; leave such rows out, or remove the column if "
        "their text makes sense without it",
        column->what, column->name);
  }
}

}  // namespace fettle
