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
  std::string unread;  // the file that would tell, when it cannot be read
};

// Reads the keys deepspeed (a file, or its content), fsdp (words), fsdp_config (a file, or its content) and fsdp_*;
// returns nullopt for other keys. Looks for a file beside `recipe` too. DeepSpeed names what goes to host memory; FSDP
// moves both.
std::optional<OffloadWish> offload_wish(std::string_view key, const GivenValue& given,
                                        const std::filesystem::path& recipe);

}  // namespace fettle
