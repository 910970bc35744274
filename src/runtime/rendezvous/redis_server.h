// Defines RedisServer: a Redis server that ends with this process.
#pragma once

#include <sys/types.h>

#include <string>

namespace fettle {

// The server keeps nothing on disk, accepts only clients that know the password, and has no commands that change its
// settings, run code or shut it down. The server ends when this object is destroyed or when this process ends in any
// way. The signals that ask a job to end (SIGTERM, SIGINT, SIGHUP, SIGUSR1 and SIGUSR2) do not end it, so that the
// processes can still use it while they save a checkpoint.
//
// Make the object on a thread that outlives the object, because Linux ends the server when that thread ends.
class RedisServer {
 public:
  // If `local` is true, only programs on this host may connect. An older server does not know all commands that are
  // switched off, and starts without the settings for those. Throws UserError when
  // redis-server is not installed, cannot use the port or does not start for another reason.
  RedisServer(int port, const std::string& password, bool local);
  RedisServer(const RedisServer&) = delete;
  ~RedisServer();

 private:
  // Starts the server and returns its log. If the server ends at once, process_ is -1.
  std::string start(const std::string& settings);

  pid_t process_ = -1;
  int log_ = -1;  // open as long as the server runs: a write to a closed pipe would end the server
};

}  // namespace fettle
