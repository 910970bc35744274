// Defines offload_wish: what a DeepSpeed or FSDP setting of another tool's recipe says about host memory.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "config/value.h"

namespace fettle {

struct OffloadWish {
  bool optimizer = false, param = false;
  std::string unread;  // the settings file that could not be read; empty when there is none
};

// Reads the keys deepspeed (a file, or its content), fsdp (words), fsdp_config (a file, or its content) and fsdp_*;
// returns nullopt for other keys. Also looks for a file in the recipe's folder. DeepSpeed's settings state what is
// offloaded; FSDP offloads both.
std::optional<OffloadWish> offload_wish(std::string_view key, const GivenValue& given,
                                        const std::filesystem::path& recipe);

}  // namespace fettle
