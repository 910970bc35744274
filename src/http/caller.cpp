#include "http/caller.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <httplib.h>

#include <string_view>

#include "base/text.h"

namespace fettle {
namespace {

// Returns the host of a Host header or of an origin, without the port.
std::string host_of(std::string text) {
  if (const size_t scheme = text.find("://"); scheme != std::string::npos) text.erase(0, scheme + 3);
  if (text.starts_with('[')) return text.substr(1, text.find(']') - 1);
  return text.substr(0, text.find(':'));
}

}  // namespace

bool is_loopback(const std::string& host) {
  in_addr address{};
  const bool is_ipv4 = inet_pton(AF_INET, host.c_str(), &address) == 1;
  return host == "localhost" || host == "::1" || (is_ipv4 && ntohl(address.s_addr) >> 24 == 127);
}

bool same_key(const std::string& given, const std::string& wanted) {
  unsigned char differs = given.size() == wanted.size() ? 0 : 1;
  for (size_t i = 0; i < given.size() && i < wanted.size(); ++i)
    differs |= static_cast<unsigned char>(given[i] ^ wanted[i]);
  return differs == 0;
}

bool has_key(const httplib::Request& request, const std::string& key) {
  constexpr std::string_view kScheme = "bearer ";
  const std::string given = request.get_header_value("Authorization");
  return lower_case(given.substr(0, kScheme.size())) == kScheme && same_key(given.substr(kScheme.size()), key);
}

std::optional<HttpRefusal> refuse_caller(const std::string& listens_at, const httplib::Request& request) {
  const std::string named = request.get_header_value("Host"), host = host_of(named);
  const std::string origin = request.get_header_value("Origin");
  // A browser always sends a Host header, so a request with neither header is not from a page of another site.
  if (!request.has_header("Host") && origin.empty()) return std::nullopt;
  if (is_loopback(listens_at) && !is_loopback(host))
    return HttpRefusal{403, fmt::format("the Host header is '{}'; use the address 127.0.0.1 or localhost. Behind a "
                                        "proxy, start the server with a --host that other machines can reach",
                                        host)};
  if (!origin.empty() && origin != "http://" + named && origin != "https://" + named)
    return HttpRefusal{403, fmt::format("web pages of {} may not use this server; a proxy must pass on the Host "
                                        "header, and the server needs a --host that other machines can reach",
                                        origin)};
  return std::nullopt;
}

std::optional<HttpRefusal> refuse_body(const httplib::Request& request) {
  if (!request.has_header("Content-Length") || request.has_header("Transfer-Encoding"))
    return HttpRefusal{411, "the body's length is unknown; send it with Content-Length"};
  if (request.has_header("Content-Encoding")) return HttpRefusal{415, "the body is compressed; send it uncompressed"};
  return std::nullopt;
}

}  // namespace fettle
