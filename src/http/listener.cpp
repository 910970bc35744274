#include "http/listener.h"

#include <httplib.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/error.h"
#include "base/interrupt.h"

namespace fettle {

std::string url_host(const std::string& host) {
  return host.find(':') == std::string::npos ? host : "[" + host + "]";
}

HttpListener::HttpListener(std::string host, int port, const HttpLimits& limits)
    : host_(std::move(host)), port_(port), server_(std::make_unique<httplib::Server>()) {
  server_->new_task_queue = [threads = limits.threads] { return new httplib::ThreadPool(threads); };
  // The library sets SO_REUSEPORT by default, which would let two servers share a port.
  server_->set_socket_options([this](auto socket) {
    socket_ = static_cast<int>(socket);
    const int yes = 1;
    setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  });
  server_->set_payload_max_length(limits.largest_body);
  server_->set_tcp_nodelay(true);
  server_->set_read_timeout(10);
  server_->set_write_timeout(30);
  // The body of a refused request is not read. If the connection stayed open, the body would be taken for the next
  // request.
  server_->set_keep_alive_max_count(1);
}

HttpListener::~HttpListener() = default;

int HttpListener::bind() {
  const int port = port_ == 0 ? server_->bind_to_any_port(host_) : server_->bind_to_port(host_, port_) ? port_ : -1;
  if (port <= 0)
    throw UserError("cannot listen at {} port {}: {}; choose another --host or --port", host_, port_,
                    std::strerror(errno));
  ::listen(socket_, 256);  // the library's own queue has room for only five clients
  return port;
}

void HttpListener::run(const std::function<void()>& before_end) {
  using std::chrono::milliseconds;
  if (InterruptScope::signal() != 0) return;
  std::atomic<bool> ended = false;
  std::thread listener([&] {
    server_->listen_after_bind();
    ended = true;
  });
  while (!ended && InterruptScope::signal() == 0) std::this_thread::sleep_for(milliseconds(50));
  const bool failed = ended;
  before_end();
  // stop() has no effect before the server runs.
  while (!ended && !server_->is_running()) std::this_thread::sleep_for(milliseconds(1));
  server_->stop();
  listener.join();
  if (failed)
    throw UserError("the server can no longer accept connections at {} port {}; start it again", host_, port_);
}

}  // namespace fettle
