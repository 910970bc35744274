// Tests which requests the servers refuse before they look at the path.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>

#include "http/caller.h"

namespace fettle {
namespace {

using testing::HasSubstr;

TEST(HttpCaller, KnowsTheNamesOfThisMachine) {
  for (const char* host : {"127.0.0.1", "127.9.8.7", "localhost", "::1"}) EXPECT_TRUE(is_loopback(host)) << host;
  for (const char* host : {"", "0.0.0.0", "10.0.0.1", "127.example.com", "127.0.0.1.example.com",
                           "localhost.example.com", "127.1", "::", "example.com"})
    EXPECT_FALSE(is_loopback(host)) << host;
}

TEST(HttpCaller, ComparesKeys) {
  EXPECT_TRUE(same_key("Bearer a", "Bearer a"));
  EXPECT_TRUE(same_key("", ""));
  for (const char* given : {"", "Bearer", "Bearer ", "Bearer b", "Bearer aa", "bearer a"})
    EXPECT_FALSE(same_key(given, "Bearer a")) << given;
}

int status(const char* listens_at, const char* host, const char* origin = "") {
  httplib::Request request;
  if (*host != '\0') request.set_header("Host", host);
  if (*origin != '\0') request.set_header("Origin", origin);
  const std::optional<HttpRefusal> refusal = refuse_caller(listens_at, request);
  return refusal ? refusal->status : 200;
}

TEST(HttpCaller, RefusesOtherHostsOnThisMachine) {
  for (const char* host : {"127.0.0.1:8090", "localhost:8090", "[::1]:8090", "127.0.0.1"})
    EXPECT_EQ(status("127.0.0.1", host), 200) << host;
  for (const char* host : {"evil.example:8090", "127.0.0.1.evil.example", "192.168.0.7:8090", "[::2]:8090"})
    EXPECT_EQ(status("127.0.0.1", host), 403) << host;
  EXPECT_EQ(status("0.0.0.0", "gpu01:8090"), 200) << "other machines may use any name of this one";
  EXPECT_EQ(status("127.0.0.1", ""), 200) << "health checks in HTTP/1.0 have no Host header";
  EXPECT_EQ(status("127.0.0.1", "", "http://127.0.0.1:8090"), 403);
  httplib::Request empty;
  empty.set_header("Host", "");
  EXPECT_TRUE(refuse_caller("127.0.0.1", empty));
}

TEST(HttpCaller, TheSchemeOfTheKeyMayBeInLowerCase) {
  const auto has = [](const char* given) {
    httplib::Request request;
    request.set_header("Authorization", given);
    return has_key(request, "aB");
  };
  for (const char* given : {"Bearer aB", "bearer aB", "BEARER aB"}) EXPECT_TRUE(has(given)) << given;
  for (const char* given : {"", "aB", "Bearer", "Bearer ", "BeareraB", "Bearer ab", "Bearer AB", "Basic aB"})
    EXPECT_FALSE(has(given)) << given;
  EXPECT_FALSE(has_key({}, "aB"));
}

TEST(HttpCaller, RefusesOtherOrigins) {
  EXPECT_EQ(status("127.0.0.1", "127.0.0.1:8090", "http://127.0.0.1:8090"), 200);
  EXPECT_EQ(status("0.0.0.0", "gpu01", "https://gpu01"), 200) << "behind a proxy with TLS";
  EXPECT_EQ(status("0.0.0.0", "gpu01", "https://gpu02"), 403);
  for (const char* origin : {"http://evil.example", "null", "ftp://127.0.0.1:8090", "http://127.0.0.1:9000",
                             "http://localhost:8090", "http://127.0.0.1:8090.evil.example", "http://127.0.0.1"})
    EXPECT_EQ(status("127.0.0.1", "127.0.0.1:8090", origin), 403) << origin;
  EXPECT_EQ(status("0.0.0.0", "gpu01:8090", "http://gpu01:8090"), 200);
  EXPECT_EQ(status("0.0.0.0", "gpu01:8090", "http://evil.example"), 403);
}

TEST(HttpCaller, RefusesBodiesOfUnknownSize) {
  const auto refused = [](const httplib::Headers& headers) {
    httplib::Request request;
    request.headers = headers;
    const std::optional<HttpRefusal> refusal = refuse_body(request);
    return refusal ? refusal->status : 200;
  };
  EXPECT_EQ(refused({{"Content-Length", "3"}}), 200);
  EXPECT_EQ(refused({}), 411);
  EXPECT_EQ(refused({{"Content-Length", "3"}, {"Transfer-Encoding", "chunked"}}), 411);
  EXPECT_EQ(refused({{"Content-Length", "3"}, {"Content-Encoding", "gzip"}}), 415);
}

}  // namespace
}  // namespace fettle
