// Defines read_json_file and write_json_file. Errors include the remedy.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

namespace fettle {

// Reads a JSON file. Json is nlohmann::json or nlohmann::ordered_json. Throws UserError when the file is missing,
// unreadable or not JSON; the message names the file and the position in it (base/json_text.h). Python writes Infinity,
// -Infinity and NaN, which are not JSON. Reads Infinity as the object {"__float__": "Infinity"}, which Transformers 5
// writes, and the other two words in the same way.
template <class Json = nlohmann::json>
Json read_json_file(const std::filesystem::path& path);
// Writes JSON like Hugging Face's libraries: keys sorted, ASCII only, a newline at the end.
void write_json_file(const std::filesystem::path& path, const nlohmann::json& value, int indent = 2);

}  // namespace fettle
