#include "hub/http.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "base/environment.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/seconds_since.h"
#include "base/text.h"
#include "hub/variables.h"

namespace fettle {
namespace {

constexpr size_t kLargestBody = size_t{64} << 20;
constexpr int kMostRedirects = 10;

using Url = std::unique_ptr<CURLU, void (*)(CURLU*)>;

Url parsed(const std::string& url) {
  Url out(curl_url(), curl_url_cleanup);
  if (curl_url_set(out.get(), CURLUPART_URL, url.c_str(), CURLU_NON_SUPPORT_SCHEME) != CURLUE_OK) {
    const std::string shown = without_login(url);
    throw UserError("'{}' is not an address that can be fetched", shown.substr(0, shown.find('?')));
  }
  return out;
}

std::string part_of(const Url& url, CURLUPart part) {
  char* text = nullptr;
  if (curl_url_get(url.get(), part, &text, part == CURLUPART_PORT ? CURLU_DEFAULT_PORT : 0) != CURLUE_OK) return "";
  const std::string out = text;
  curl_free(text);
  return out;
}

void start_curl() {
  static std::once_flag once;
  std::call_once(once, [] { internal_check(curl_global_init(CURL_GLOBAL_DEFAULT) == 0, "libcurl does not start"); });
}

size_t take_header(char* bytes, size_t, size_t count, void* reply) {
  take_header_line(*static_cast<HttpReply*>(reply), {bytes, count});
  return count;
}

size_t take_body(char* bytes, size_t, size_t count, void* reply) {
  std::string& body = static_cast<HttpReply*>(reply)->body;
  if (body.size() + count > kLargestBody) return 0;
  body.append(bytes, count);
  return count;
}

int stop_at_interrupt(void*, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return InterruptScope::signal() != 0 ? 1 : 0;
}

void add_header(HeaderList& headers, const std::string& line) {
  curl_slist* longer = curl_slist_append(headers.get(), line.c_str());
  internal_check(longer != nullptr, "libcurl cannot allocate memory");
  static_cast<void>(headers.release());
  headers.reset(longer);
}

// Sends the request for which the handle is set up.
HttpReply send(CURL* easy, const std::string& url) {
  HttpReply reply;
  curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, take_header);
  curl_easy_setopt(easy, CURLOPT_HEADERDATA, &reply);
  curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take_body);
  curl_easy_setopt(easy, CURLOPT_WRITEDATA, &reply);
  const CURLcode code = curl_easy_perform(easy);
  if (code == CURLE_ABORTED_BY_CALLBACK) InterruptScope::check("talking to the hub");
  if (code != CURLE_OK) {
    const long proxy = status_of_proxy(easy);
    throw HttpFailure(refuses(proxy) ? CURLE_COULDNT_CONNECT : code, failure_text(code, url, proxy));
  }
  curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &reply.status);
  return reply;
}

// Sends one GET request. Does not follow redirects and does not try again.
HttpReply get_once(CURL* easy, const HubSettings& settings, const std::string& url) {
  HeaderList headers(nullptr, curl_slist_free_all);
  prepare(easy, settings, url, 0, headers);
  curl_easy_setopt(easy, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(easy, CURLOPT_XFERINFOFUNCTION, stop_at_interrupt);
  return send(easy, url);
}

HttpReply get_after_redirects(CURL* easy, const HubSettings& settings, std::string url) {
  for (int hop = 0; hop <= kMostRedirects; ++hop) {
    HttpReply reply = get_once(easy, settings, url);
    if (!is_redirect(reply.status)) return reply;
    url = redirect_target(url, reply.header("location"));
  }
  throw HubRefusal(HubRefusal::Reason::kOther, fmt::format("{} redirects again and again; check {} and https_proxy",
                                                           host_of(url), variables_of(settings.hub).endpoint));
}

void pause(double seconds) {
  for (const auto start = Clock::now(); seconds_since(start) < seconds;) {
    InterruptScope::check("talking to the hub");
    std::this_thread::sleep_for(std::chrono::duration<double>(std::min(0.1, seconds)));
  }
}

}  // namespace

std::string HttpReply::header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? "" : found->second;
}

bool HttpFailure::unreachable() const {
  return code_ == CURLE_COULDNT_RESOLVE_HOST || code_ == CURLE_COULDNT_RESOLVE_PROXY || code_ == CURLE_COULDNT_CONNECT;
}

std::string host_of(const std::string& url) {
  const Url address = parsed(url);
  return part_of(address, CURLUPART_HOST);
}

std::string without_login(std::string url) {
  const size_t scheme = url.find("://"), end = url.rfind('@');
  if (scheme == std::string::npos || end == std::string::npos || end < scheme + 3) return url;
  return url.replace(scheme + 3, end - scheme - 3, "***");
}

bool same_origin(const std::string& a, const std::string& b) {
  const Url one = parsed(a), other = parsed(b);
  for (const CURLUPart part : {CURLUPART_SCHEME, CURLUPART_HOST, CURLUPART_PORT})
    if (lower_case(part_of(one, part)) != lower_case(part_of(other, part))) return false;
  return true;
}

std::string redirect_target(const std::string& from, const std::string& location) {
  if (location.empty())
    throw HubRefusal(
        HubRefusal::Reason::kOther,
        fmt::format("{} sends a redirect without an address; check {}, or for ModelScope {}", host_of(from),
                    variables_of(Hub::kHuggingFace).endpoint, variables_of(Hub::kModelScope).endpoint));
  const Url address = parsed(from);
  const std::string before = part_of(address, CURLUPART_SCHEME);
  const CURLUcode set = curl_url_set(address.get(), CURLUPART_URL, location.c_str(), CURLU_NON_SUPPORT_SCHEME);
  const std::string scheme = part_of(address, CURLUPART_SCHEME);
  if (set != CURLUE_OK || (scheme != "https" && scheme != "http") || (before == "https" && scheme != "https"))
    throw HubRefusal(HubRefusal::Reason::kOther,
                     fmt::format("{} redirects to {}, wanted {}; the redirect is not followed", host_of(from),
                                 set == CURLUE_OK ? scheme : "an unreadable address",
                                 before == "https" ? "https" : "http or https"));
  return part_of(address, CURLUPART_URL);
}

std::string at_endpoint(const HubSettings& settings, const std::string& url) {
  const std::string hub = "https://huggingface.co/";
  return url.starts_with(hub) ? settings.endpoint + url.substr(hub.size() - 1) : url;
}

std::string escaped(const std::string& text, bool keep_slashes) {
  std::string out;
  for (const unsigned char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
                       c == '_' || c == '.' || c == '~' || (c == '/' && keep_slashes);
    out += plain ? std::string(1, static_cast<char>(c)) : fmt::format("%{:02X}", c);
  }
  return out;
}

bool is_redirect(long status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

bool is_transient(long status) {
  return status == 408 || status == 429 || status == 500 || status == 502 || status == 503 || status == 504;
}

double pause_of(const HttpReply& reply, double otherwise, double most) {
  std::string text = reply.header("retry-after");
  if (text.empty()) {
    const std::string limit = reply.header("ratelimit");  // for example `"api";r=0;t=55`
    if (const size_t at = limit.find(";t="); at != std::string::npos) text = limit.substr(at + 3);
  }
  const double asked = std::strtod(text.c_str(), nullptr);  // strtod returns 0 for a date
  return std::min(std::max(asked, otherwise), most);
}

bool say_pause(const std::string& why, double seconds) {
  const std::string text = fmt::format("{}; trying again in {:.0f} s", why, seconds);
  if (seconds > 5)
    info("{}", text);
  else
    debug("{}", text);
  return seconds > 5;
}

std::string certificates(const std::filesystem::path& root) {
  for (const char* name : {"SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE"})
    if (const std::string file = environment(name); !file.empty()) return file;
  std::error_code none;
  if (std::filesystem::exists(root / "etc/ssl/certs/ca-certificates.crt", none)) return "";
  for (const char* name : {"etc/pki/tls/certs/ca-bundle.crt", "etc/ssl/ca-bundle.pem"})
    if (std::filesystem::exists(root / name, none)) return root / name;
  return "";
}

long status_of_proxy(CURL* easy) {
  long status = 0;
  curl_easy_getinfo(easy, CURLINFO_HTTP_CONNECTCODE, &status);
  return status;
}

bool refuses(long proxy_status) {
  return proxy_status >= 400 && !is_transient(proxy_status);
}

std::string failure_text(CURLcode code, const std::string& url, long proxy_status) {
  const std::string host = host_of(url);
  if (proxy_status == 407)
    return fmt::format(
        "the proxy wants a login before it connects to {}; put it into https_proxy (http://USER:PASSWORD@HOST:PORT)",
        host);
  if (proxy_status >= 400)
    return fmt::format(
        "the proxy does not connect to {} (status {}); it may block this host: allow it there, and check https_proxy",
        host, proxy_status);
  switch (code) {
    case CURLE_COULDNT_RESOLVE_HOST: return fmt::format("the host {} is not known here (no network?)", host);
    case CURLE_COULDNT_RESOLVE_PROXY: return "the proxy's host is not known here; check https_proxy";
    case CURLE_COULDNT_CONNECT: return fmt::format("{} does not accept a connection", host);
    case CURLE_OPERATION_TIMEDOUT: return fmt::format("{} did not answer in time", host);
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
      return fmt::format(
          "the certificate of {} is not trusted here; install ca-certificates, or name your network's certificates in "
          "SSL_CERT_FILE",
          host);
    case CURLE_WRITE_ERROR: return fmt::format("{} sends an answer that is too long", host);
    default: return fmt::format("{}: {}", host, lower_case(curl_easy_strerror(code)));
  }
}

void prepare(CURL* easy, const HubSettings& settings, const std::string& url, int64_t from, HeaderList& headers) {
  curl_easy_reset(easy);
  headers.reset();
  if (!settings.token.empty() && same_origin(url, settings.endpoint)) {
    add_header(headers, "Authorization: Bearer " + settings.token);
    if (settings.hub == Hub::kModelScope) add_header(headers, "Cookie: m_session_id=" + settings.token);
  }
  if (from > 0) add_header(headers, fmt::format("Range: bytes={}-", from));
  curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(easy, CURLOPT_URL, url.c_str());
  curl_easy_setopt(easy, CURLOPT_USERAGENT, "fettle");
#if LIBCURL_VERSION_NUM >= 0x075500
  curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
#else
  curl_easy_setopt(easy, CURLOPT_PROTOCOLS, static_cast<long>(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
  curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT, static_cast<long>(settings.connect_seconds));
  curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, static_cast<long>(settings.stall_seconds));
  curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, 256L * 1024);
  if (const std::string file = certificates(); !file.empty()) curl_easy_setopt(easy, CURLOPT_CAINFO, file.c_str());
}

void take_header_line(HttpReply& reply, std::string_view line) {
  while (!line.empty() && (line.back() == '\r' || line.back() == '\n')) line.remove_suffix(1);
  if (line.starts_with("HTTP/")) reply.headers.clear();
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) return;
  std::string_view value = line.substr(colon + 1);
  while (!value.empty() && value.front() == ' ') value.remove_prefix(1);
  reply.headers[lower_case(std::string(line.substr(0, colon)))] = value;
}

HttpReply send_again(const HubSettings& settings, const std::string& url, int attempts,
                     const std::function<HttpReply()>& send) {
  double wait = settings.pause_seconds;
  for (int attempt = 1;; ++attempt, wait *= 2) {
    InterruptScope::check("talking to the hub");
    const bool last = attempt >= attempts;
    try {
      HttpReply reply = send();
      if (last || !is_transient(reply.status)) return reply;
      const double seconds = pause_of(reply, wait, 300);
      say_pause(fmt::format("{} answers with status {}", host_of(url), reply.status), seconds);
      pause(seconds);
    } catch (const HttpFailure& failure) {
      if (last || failure.unreachable()) throw;
      say_pause(failure.what(), wait);
      pause(wait);
    }
  }
}

HttpReply http_get(const HubSettings& settings, const std::string& url, int attempts) {
  start_curl();
  const Curl easy(curl_easy_init(), curl_easy_cleanup);
  return send_again(settings, url, attempts, [&] { return get_after_redirects(easy.get(), settings, url); });
}

HttpReply http_post(const HubSettings& settings, const std::string& url, const HttpBody& body) {
  start_curl();
  const Curl easy(curl_easy_init(), curl_easy_cleanup);
  HeaderList headers(nullptr, curl_slist_free_all);
  prepare(easy.get(), settings, url, 0, headers);
  add_header(headers, "Content-Type: " + body.type);
  if (!body.accept.empty()) add_header(headers, "Accept: " + body.accept);
  const long stall = settings.stall_seconds + body.patience_seconds;
  curl_easy_setopt(easy.get(), CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(easy.get(), CURLOPT_POSTFIELDS, body.text.c_str());
  curl_easy_setopt(easy.get(), CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body.text.size()));
  curl_easy_setopt(easy.get(), CURLOPT_LOW_SPEED_TIME, stall);
  curl_easy_setopt(easy.get(), CURLOPT_TIMEOUT, settings.connect_seconds + stall);
  return send(easy.get(), url);
}

namespace {

// The callbacks of one PUT. libcurl calls them.
struct Sending {
  const std::function<size_t(char*, size_t)>& read;
  const std::function<void(int64_t)>& sent;
};

size_t read_more(char* to, size_t size, size_t count, void* sending) {
  const size_t got = static_cast<Sending*>(sending)->read(to, size * count);
  return got == 0 ? CURL_READFUNC_ABORT : got;
}

int report_sent(void* sending, curl_off_t, curl_off_t, curl_off_t, curl_off_t now) {
  static_cast<Sending*>(sending)->sent(now);
  return InterruptScope::signal() != 0 ? 1 : 0;
}

}  // namespace

HttpReply http_put(const HubSettings& settings, const std::string& url, int64_t count,
                   const std::function<size_t(char* to, size_t most)>& read, const std::function<void(int64_t)>& sent) {
  start_curl();
  const Curl easy(curl_easy_init(), curl_easy_cleanup);
  HeaderList headers(nullptr, curl_slist_free_all);
  prepare(easy.get(), settings, url, 0, headers);
  Sending sending{read, sent};
  curl_easy_setopt(easy.get(), CURLOPT_UPLOAD, 1L);
  curl_easy_setopt(easy.get(), CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(count));
  curl_easy_setopt(easy.get(), CURLOPT_READFUNCTION, read_more);
  curl_easy_setopt(easy.get(), CURLOPT_READDATA, &sending);
  curl_easy_setopt(easy.get(), CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(easy.get(), CURLOPT_XFERINFOFUNCTION, report_sent);
  curl_easy_setopt(easy.get(), CURLOPT_XFERINFODATA, &sending);
  return send(easy.get(), url);
}

}  // namespace fettle
