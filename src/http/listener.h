// Defines HttpListener: an HTTP server (of the library httplib) at one address. A signal ends the server.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

namespace httplib {
class Server;
}

namespace fettle {

struct HttpLimits {
  size_t threads = 8;             // largest number of requests that are answered at the same time
  size_t largest_body = 8 << 20;  // bytes
};

// Returns the host as it stands in a URL: an IPv6 address is in brackets.
std::string url_host(const std::string& host);

// Each connection serves one request.
class HttpListener {
 public:
  HttpListener(std::string host, int port, const HttpLimits& limits);
  ~HttpListener();
  HttpListener(const HttpListener&) = delete;

  httplib::Server& server() { return *server_; }  // the handlers of requests are added here
  // Opens the port and returns its number. Throws UserError when the address cannot be used.
  int bind();
  // Answers requests until InterruptScope has a signal, or until the server can no longer accept connections. Then
  // calls `before_end`. Requests are still answered until `before_end` returns. Throws UserError if the server could no
  // longer accept connections. If there is a signal at the start, returns without calling `before_end`.
  void run(const std::function<void()>& before_end);

 private:
  std::string host_;
  int port_, socket_ = -1;
  std::unique_ptr<httplib::Server> server_;
};

}  // namespace fettle
