// Defines Socket and answer_of, with which tests talk to the servers of Fettle byte by byte.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace fettle {

enum class Buffers { kUsual, kSmall };

// A connection to a port of this machine. With small buffers, few bytes are on their way before the client reads them:
// small segments make Linux take a small buffer on the server's side, too.
class Socket {
 public:
  explicit Socket(int port, Buffers buffers = Buffers::kUsual) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    const int segment = 536, receive = 4096;
    if (buffers == Buffers::kSmall) {
      setsockopt(fd_, IPPROTO_TCP, TCP_MAXSEG, &segment, sizeof segment);
      setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive, sizeof receive);
    }
    sockaddr_in to{.sin_family = AF_INET, .sin_port = htons(static_cast<uint16_t>(port))};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0;
    const timeval limit{.tv_sec = 60};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }
  ~Socket() { close(fd_); }
  Socket(const Socket&) = delete;
  bool connected() const { return connected_; }
  // Returns the number of bytes that the server has sent and the client has not read, in the buffers of both sides.
  size_t waiting_bytes() const {
    sockaddr_in own{}, other{};
    socklen_t size = sizeof own;
    getsockname(fd_, reinterpret_cast<sockaddr*>(&own), &size);
    getpeername(fd_, reinterpret_cast<sockaddr*>(&other), &size);
    int received = 0;
    ioctl(fd_, FIONREAD, &received);
    std::ifstream table("/proc/net/tcp");
    unsigned from = 0, to = 0, sent = 0;
    for (std::string line; std::getline(table, line);)
      if (std::sscanf(line.c_str(), " %*d: %*8x:%x %*8x:%x %*x %x:", &from, &to, &sent) == 3 &&
          from == ntohs(other.sin_port) && to == ntohs(own.sin_port))
        return static_cast<size_t>(received) + sent;
    return static_cast<size_t>(received);
  }
  void send_text(const std::string& text) const {
    EXPECT_EQ(send(fd_, text.data(), text.size(), MSG_NOSIGNAL), std::ssize(text));
  }
  // Reads until `wanted` has arrived. If `wanted` is empty, reads to the end.
  std::string read_until(const std::string& wanted) const {
    std::string out;
    char block[4096];
    while (wanted.empty() || out.find(wanted) == std::string::npos) {
      const ssize_t got = recv(fd_, block, sizeof block, 0);
      if (got <= 0) break;
      out.append(block, static_cast<size_t>(got));
    }
    return out;
  }

 private:
  int fd_;
  bool connected_ = false;
};

// An HTTP answer. `body` does not contain the sizes of chunks.
struct Answer {
  int status = 0;
  std::string head, body;
  nlohmann::json parsed() const { return nlohmann::json::parse(body); }
};

inline std::string without_chunks(const std::string& body) {
  std::string out;
  for (size_t at = 0; at < body.size();) {
    const size_t end = body.find("\r\n", at), length = std::stoul(body.substr(at, end - at), nullptr, 16);
    out += body.substr(end + 2, length);
    at = end + 2 + length + 2;
  }
  return out;
}

inline Answer answer_of(const std::string& text) {
  const size_t end = text.find("\r\n\r\n");
  if (end == std::string::npos) return {0, text, ""};
  Answer out{std::stoi(text.substr(9, 3)), text.substr(0, end), text.substr(end + 4)};
  if (out.head.find("chunked") != std::string::npos) out.body = without_chunks(out.body);
  return out;
}

// Returns a POST request with this body, or a GET request if the body is empty. `headers` has further header lines.
// Each line ends with "\r\n".
inline std::string http_request(int port, const std::string& path, const std::string& body,
                                const std::string& headers = "") {
  return (body.empty() ? "GET " : "POST ") + path + " HTTP/1.1\r\nHost: 127.0.0.1:" + std::to_string(port) +
         "\r\nConnection: close\r\n" + headers + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

}  // namespace fettle
