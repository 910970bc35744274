// Defines system messages that several formats have as their default.
#pragma once

namespace fettle {

// Stanford Alpaca, for instructions without an input
inline constexpr const char* kAlpacaSystem =
    "Below is an instruction that describes a task. Write a response that appropriately completes the request.";

// Vicuna, LLaVA and Granite 3's models for images
inline constexpr const char* kVicunaSystem =
    "A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, detailed, "
    "and polite answers to the user's questions.";

}  // namespace fettle
