// Defines checks of HTTP requests that all servers of Fettle use: who may send a request, and in which form.
#pragma once

#include <optional>
#include <string>

namespace httplib {
struct Request;
}

namespace fettle {

// Why a request is refused: an HTTP status and a sentence for the client.
struct HttpRefusal {
  int status = 400;
  std::string text;
};

// Returns whether the host is "localhost" or an address of this machine alone (127.x.x.x or ::1). Returns false for all
// other names, also those that begin with "127.": "127.example.com" may be any machine.
bool is_loopback(const std::string& host);

// Returns whether the keys are equal. For keys of the same length, the time does not depend on where the keys differ.
bool same_key(const std::string& given, const std::string& wanted);

// Returns whether the request has the header "Authorization: Bearer KEY" with this key. The scheme may be written in
// upper or lower case.
bool has_key(const httplib::Request& request, const std::string& key);

// A page of another site must not use a server on this machine, even if the site's name resolves to this machine.
// `listens_at` is the server's --host. If the server listens only on this machine, refuses a Host header that does not
// name this machine. Always refuses an Origin header other than the server's own; behind a proxy, this origin may begin
// with "https". Returns nullopt for all other requests, also for those with neither header: no browser sends them, but
// health checks of HTTP/1.0 do.
std::optional<HttpRefusal> refuse_caller(const std::string& listens_at, const httplib::Request& request);

// Refuses compressed bodies and bodies without a length, because the HTTP library cannot know the size of such a body
// before it reads the body.
std::optional<HttpRefusal> refuse_body(const httplib::Request& request);

}  // namespace fettle
