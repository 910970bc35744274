#include "hub/upload/requests.h"

#include <algorithm>
#include <cstdio>
#include <memory>

#include "base/json_text.h"

namespace fettle {
namespace {

constexpr int kAttempts = 5;

// Returns what the hub says about a refusal; "" when it says nothing.
std::string reason_of(const HttpReply& reply) {
  if (const std::string said = reply.header("x-error-message"); !said.empty()) return said;
  const nlohmann::json body = parse_json_or_discard<nlohmann::json>(reply.body);
  for (const char* key : {"error", "message"})
    if (body.is_object() && body.contains(key) && body[key].is_string()) return body[key].get<std::string>();
  return "";
}

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

}  // namespace

HttpReply post_again(const HubSettings& settings, const std::string& url, const HttpBody& body) {
  return send_again(settings, url, kAttempts, [&] { return http_post(settings, url, body); });
}

void expect_done(const HubSettings& settings, const HttpReply& reply, const std::string& what) {
  if (reply.status == 200 || reply.status == 201) return;
  const std::string said = reason_of(reply), because = said.empty() ? "" : " (" + said + ")";
  if (reply.status == 401)
    throw UserError("{}: {} does not accept the token{}; set HF_TOKEN to a token that may write", what,
                    host_of(settings.endpoint), because);
  if (reply.status == 403)
    throw UserError("{}: the token may not do this{}; use a token with write access to this account or organisation",
                    what, because);
  if (reply.status == 404)
    throw UserError("{}: {} has no such repository or branch, or hides it from this token{}; check the name", what,
                    host_of(settings.endpoint), because);
  throw UserError("{}: {} answers with status {}{}; try again later", what, host_of(settings.endpoint), reply.status,
                  because);
}

nlohmann::json object_of(const HubSettings& settings, const HttpReply& reply, const std::string& what) {
  expect_done(settings, reply, what);
  nlohmann::json out = parse_json_or_discard<nlohmann::json>(reply.body);
  if (out.is_object()) return out;
  throw UserError("{}: {} sends an answer that is not a JSON object; check HF_ENDPOINT", what,
                  host_of(settings.endpoint));
}

HttpReply put_file(const HubSettings& settings, const std::string& url, const std::filesystem::path& file,
                   int64_t begin, int64_t count, const std::function<void(int64_t)>& sent) {
  const HttpReply reply = send_again(settings, url, kAttempts, [&] {
    const File opened(std::fopen(file.c_str(), "rb"), std::fclose);
    if (!opened || std::fseek(opened.get(), begin, SEEK_SET) != 0)
      throw UserError("{}: cannot be read; it may have been removed meanwhile", file.string());
    int64_t left = count;
    const auto read = [&](char* to, size_t most) {
      const size_t got = std::fread(to, 1, std::min(most, static_cast<size_t>(left)), opened.get());
      left -= static_cast<int64_t>(got);
      return got;
    };
    return http_put(settings, url, count, read, sent);
  });
  if (reply.status != 200 && reply.status != 201)
    throw UserError("{}: {} does not store the file: status {}; try again", file.string(), host_of(url), reply.status);
  return reply;
}

}  // namespace fettle
