// Defines http_get, http_post, http_put, and functions for HTTP requests that http_get and downloads share. Fettle
// follows redirects without libcurl's help, so that libcurl does not send the token to other hosts.
#pragma once

#include <curl/curl.h>

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/error.h"
#include "hub/settings.h"

namespace fettle {

struct HttpReply {
  long status = 0;
  std::map<std::string, std::string> headers;  // by lower-case name; if a name occurs twice, its last value
  std::string body;

  std::string header(const std::string& name) const;  // "" when it is missing
};

// Thrown when no complete reply came: no network, no such host, a refused or broken connection, a stall, a certificate
// that is not trusted, a body that is too long.
class HttpFailure : public UserError {
 public:
  HttpFailure(CURLcode code, const std::string& what) : UserError("{}", what), code_(code) {}
  CURLcode code() const { return code_; }
  // Returns true when no connection to the host was possible, or when a proxy refused to make one.
  bool unreachable() const;

 private:
  CURLcode code_;
};

// Thrown when the hub refused a request, and when something else than a hub answered, such as a network's login page.
// The message says why, and what the user can do.
class HubRefusal : public UserError {
 public:
  enum class Reason { kNoRepo, kNoRevision, kNoAccess, kOther };
  HubRefusal(Reason reason, const std::string& what) : UserError("{}", what), reason_(reason) {}
  Reason reason() const { return reason_; }

 private:
  Reason reason_;
};

// Returns the host of an address without the port: "cdn.example.org".
std::string host_of(const std::string& url);
// Returns the address with *** in place of a user's name and password ("https://me:secret@host"), for messages.
std::string without_login(std::string url);
// Returns whether both addresses have the same scheme, host and port.
bool same_origin(const std::string& a, const std::string& b);
// Returns the address to which a redirect leads. Throws UserError when the new address is neither http nor https, and
// when it is http but the old one is https.
std::string redirect_target(const std::string& from, const std::string& location);
// Returns the address in a reply, for the next request. A mirror may pass on addresses of https://huggingface.co; they
// become the same paths of settings.endpoint.
std::string at_endpoint(const HubSettings& settings, const std::string& url);
// Returns the text in percent-encoding. If `keep_slashes` is true, slashes are not encoded.
std::string escaped(const std::string& text, bool keep_slashes);

bool is_redirect(long status);
// Returns whether the same request may succeed later: 408, 429, 500, 502, 503, 504.
bool is_transient(long status);
// Returns how many seconds to wait: as many as the reply asks for (Retry-After, or RateLimit's t=), but at least
// `otherwise` and at most `most`.
double pause_of(const HttpReply& reply, double otherwise, double most);
// Says why a request is sent again after `seconds`: to the user if this is more than 5 s, else to the debug log.
// Returns whether it told the user.
bool say_pause(const std::string& why, double seconds);
// Returns the path of the file with the certificates to trust: the one that the user has set for this or for other
// tools, else the system's. Returns "" for libcurl's own default, which is Debian's file. The wheel's libcurl has this
// default on other distributions, too. `root` is the folder with this machine's folder etc; only tests give another
// one.
std::string certificates(const std::filesystem::path& root = "/");
// Returns the status with which a proxy answered the last request for a connection (CONNECT); 0 without such an answer.
long status_of_proxy(CURL* easy);
// Returns whether a proxy with this status makes no connection, also not later.
bool refuses(long proxy_status);
// Returns why a transfer ended with `code`. `proxy_status` is that of status_of_proxy.
std::string failure_text(CURLcode code, const std::string& url, long proxy_status);

using Curl = std::unique_ptr<CURL, void (*)(CURL*)>;
using HeaderList = std::unique_ptr<curl_slist, void (*)(curl_slist*)>;

// Prepares `easy` for one request. If `from` > 0, requests the bytes from that offset on. Adds the token if the address
// has the origin of the endpoint. `headers` must outlive the request.
void prepare(CURL* easy, const HubSettings& settings, const std::string& url, int64_t from, HeaderList& headers);
// Adds one header line to `reply`. libcurl passes such lines to the CURLOPT_HEADERFUNCTION. A status line begins a new
// reply, so it removes the earlier headers.
void take_header_line(HttpReply& reply, std::string_view line);

// Calls `send` until its reply has a status that is not transient (is_transient), up to `attempts` times in all, and
// returns the last reply. Pauses between the calls (say_pause). Also tries again after HttpFailure. Throws HttpFailure
// after the last attempt, and at once when the host cannot be reached. After a signal, throws like
// InterruptScope::check.
HttpReply send_again(const HubSettings& settings, const std::string& url, int attempts,
                     const std::function<HttpReply()>& send);

// Returns the reply to a GET of a small body, after redirects. After a failure or a transient status, tries again, up
// to `attempts` times in all; a host that cannot be reached is tried only once. Throws HttpFailure when no reply came,
// and for a body of more than 64 MiB. After a signal, throws like InterruptScope::check.
HttpReply http_get(const HubSettings& settings, const std::string& url, int attempts);

// What a POST sends.
struct HttpBody {
  std::string text;
  std::string type = "application/json";
  std::string accept = {};   // the requested media type of the reply; "": any
  int patience_seconds = 0;  // the server may be silent for this much longer than settings.stall_seconds
};

// Returns the reply to a POST. Does not follow redirects, does not try again and does not react to signals. The request
// takes at most settings.connect_seconds + settings.stall_seconds + body.patience_seconds. Throws HttpFailure when no
// reply came.
HttpReply http_post(const HubSettings& settings, const std::string& url, const HttpBody& body);

// Returns the reply to a PUT of `count` bytes. read(to, most) writes the next bytes to `to`, at most `most`, and
// returns their number. If read() returns 0, the request fails. Calls `sent` with the number of bytes sent so far.
// Does not follow redirects and does not try again. Throws HttpFailure when no reply came. After a signal, throws like
// InterruptScope::check.
HttpReply http_put(const HubSettings& settings, const std::string& url, int64_t count,
                   const std::function<size_t(char* to, size_t most)>& read, const std::function<void(int64_t)>& sent);

}  // namespace fettle
