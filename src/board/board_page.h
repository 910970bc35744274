// Declares the texts of src/board/page, which the build embeds (cmake/embed.cmake).
#pragma once

#include <string_view>

namespace fettle {

extern const std::string_view kBoardPage;      // board.html
extern const std::string_view kBoardStyle;     // board.css
extern const std::string_view kBoardScript;    // board.js
extern const std::string_view kComposeScript;  // compose.js: the form for a new run

}  // namespace fettle
