// Defines kChatPage, the HTML of the page at / of `fettle serve`: a conversation in the browser, with one model or
// with two models side by side. The page loads nothing from other servers.
#pragma once

#include <string_view>

namespace fettle {

extern const std::string_view kChatPage;

}  // namespace fettle
