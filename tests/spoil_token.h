// Defines spoil_token, which damages a copy of a model so that prompts with one token fail.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace fettle {

// Makes the embedding of `token` NaN in a folder with model.safetensors in f32, so that the token's keys and values are
// NaN.
inline void spoil_token(const std::filesystem::path& folder, int32_t token) {
  std::fstream file(folder / "model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
  uint64_t head = 0;
  file.read(reinterpret_cast<char*>(&head), sizeof head);
  std::string text(head, ' ');
  file.read(text.data(), static_cast<std::streamsize>(head));
  const nlohmann::json weight = nlohmann::json::parse(text)["model.embed_tokens.weight"];
  const std::vector<float> row(weight["shape"][1].get<size_t>(), std::numeric_limits<float>::quiet_NaN());
  const auto bytes = static_cast<std::streamsize>(row.size() * sizeof(float));
  file.seekp(static_cast<std::streamoff>(sizeof head + head + weight["data_offsets"][0].get<uint64_t>()) +
             token * bytes);
  file.write(reinterpret_cast<const char*>(row.data()), bytes);
}

}  // namespace fettle
