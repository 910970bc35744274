// Reads and writes JSON files as Hugging Face's libraries do.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

namespace fettle {

// Throws UserError naming file:line:column when missing, unreadable or not JSON. NaN and Infinity are not JSON.
nlohmann::json read_json_file(const std::filesystem::path& path);

// Keys sorted, indent 2, ASCII only, a newline at the end. Flushed to the disk. Throws UserError as write_file does.
void write_json_file(const std::filesystem::path& path, const nlohmann::json& value);

}  // namespace fettle
