// Defines json_place: where a text stops being JSON, in words.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace fettle {

// "line 2, column 7, at `nope}]`" (without the line where there is only one), or "its end" for a text that is cut off.
// `byte` counts from 1, as a parser's error has it.
std::string json_place(std::string_view text, size_t byte);

}  // namespace fettle
