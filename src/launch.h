// Defines launch, the command that starts one training run on several hosts over ssh.
#pragma once

#include <string>
#include <vector>

namespace fettle {

struct LaunchOptions {
  std::string hosts;               // names that ssh knows, with commas; the first one runs process 0
  int per_host = 1;                // processes on each host
  std::string shell = "ssh";       // called as: SHELL HOST COMMAND
  std::string address;             // where the others reach the first host; empty: its name in `hosts`, without a user
  int port = 0;                    // of the store on the first host; 0: the usual one
  std::vector<std::string> words;  // what follows `fettle train`
};

// Runs `fettle train WORDS` on every host, in this process's current folder, with the program at this program's path,
// and with the environment variables of find_place (runtime/rendezvous/launchers.h). If this process gets a signal
// (interrupt.h), it sends SIGTERM to all. Returns the exit code of the first process that failed, else 0. Throws
// UserError.
int launch(const LaunchOptions& options);

}  // namespace fettle
