#include "export/gguf/model_card.h"

#include <sstream>

#include "base/files/mapped_file.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;

// Returns the text without the white space and quotes around it.
std::string unquoted(const std::string& text) {
  const char* around = " \t\r\"'";
  const size_t first = text.find_first_not_of(around);
  return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(around) - first + 1);
}

}  // namespace

void set_card_metadata(const fs::path& folder, GgufMetadata& metadata) {
  const fs::path card = folder / "README.md";
  if (!fs::is_regular_file(card)) return;
  std::istringstream lines(read_file(card));
  std::string line;
  if (!std::getline(lines, line) || unquoted(line) != "---") return;
  while (std::getline(lines, line) && unquoted(line) != "---")
    for (const auto& [field, key] : {std::pair{"license:", "general.license"},
                                     {"license_name:", "general.license.name"},
                                     {"license_link:", "general.license.link"}})
      if (line.starts_with(field))
        if (const std::string value = unquoted(line.substr(std::string_view(field).size())); !value.empty())
          metadata.set(key, value);
}

std::string license_text(const fs::path& folder) {
  for (const char* name : {"LICENSE", "LICENSE.txt", "LICENSE.md"})
    if (fs::is_regular_file(folder / name)) return read_file(folder / name);
  return "";
}

}  // namespace fettle
