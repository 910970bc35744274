// Defines the requests that change something on the hub, with retries, and the checks of their replies.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "hub/http.h"

namespace fettle {

// Sends `body` and returns the reply. Tries again after a broken connection or a transient status, five times in all.
// The hub may get the request more than once, so the request must be idempotent.
HttpReply post_again(const HubSettings& settings, const std::string& url, const HttpBody& body);

// Throws UserError if the status of the reply is neither 200 nor 201. `what` says what was asked for ("making the
// repository ORG/NAME"), and the message says what the user can do.
void expect_done(const HubSettings& settings, const HttpReply& reply, const std::string& what);

// Returns the JSON object of a reply. Throws like expect_done. Also throws UserError when the body is no JSON object.
nlohmann::json object_of(const HubSettings& settings, const HttpReply& reply, const std::string& what);

// Sends `count` bytes of the file from `begin` on, by PUT. Calls `sent` with the number of bytes sent so far. Tries
// again like post_again; each try starts again from `begin`, so the number may fall. Throws UserError when the reply is
// not 200 or 201.
HttpReply put_file(const HubSettings& settings, const std::string& url, const std::filesystem::path& file,
                   int64_t begin, int64_t count, const std::function<void(int64_t)>& sent);

}  // namespace fettle
