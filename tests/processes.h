// Defines functions that run a C++ function in several processes, as a launcher would.
#pragma once

#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <vector>

#include "base/error.h"
#include "runtime/rendezvous/launchers.h"

namespace fettle {

// Returns a port of this host that no program uses now.
inline int free_port() {
  const int one = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  bind(one, reinterpret_cast<sockaddr*>(&address), size);
  getsockname(one, reinterpret_cast<sockaddr*>(&address), &size);
  close(one);
  return ntohs(address.sin_port);
}

inline ProcessPlace place_of(int rank, int size, int port) {
  return {.launcher = "a test",
          .rank = rank,
          .size = size,
          .local_rank = rank,
          .local_size = size,
          .address = "127.0.0.1",
          .port = port,
          .job = "a test"};
}

// Starts one process per rank. Its exit code is the value of `body`, or the code of the error that `body` throws.
inline std::vector<pid_t> start_processes(int count, const std::function<int(const ProcessPlace&)>& body) {
  const int port = free_port();
  std::vector<pid_t> processes;
  for (int rank = 0; rank < count; ++rank) {
    const pid_t process = fork();
    if (process == 0) {
      int code = 99;
      try {
        code = body(place_of(rank, count, port));
      } catch (const Error& error) {
        dprintf(2, "process %d: %s\n", rank, error.what());
        code = static_cast<int>(error.code());
      }
      _exit(code);
    }
    processes.push_back(process);
  }
  return processes;
}

// Waits for the processes and returns their exit codes. The code is 128 + signal for a process that a signal ended.
inline std::vector<int> wait_for(const std::vector<pid_t>& processes) {
  std::vector<int> codes;
  for (const pid_t process : processes) {
    int status = 0;
    waitpid(process, &status, 0);
    codes.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
  }
  return codes;
}

}  // namespace fettle
