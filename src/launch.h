// Defines launch, the command that starts one training run on several hosts over ssh.
#pragma once

#include <string>
#include <vector>

namespace fettle {

struct LaunchOptions {
  std::string hosts;               // names for ssh, separated by commas; the first host runs process 0
  int per_host = 1;                // processes on each host
  std::string shell = "ssh";       // called as: SHELL HOST COMMAND; ssh also gets options
  std::string address;             // at which the other hosts reach the first host; empty: its name in `hosts`
  int port = 0;                    // port on the first host at which the processes meet; 0: the default port
  std::vector<std::string> words;  // the words of `fettle train`
};

// Runs `fettle train WORDS` on every host and waits for all processes. Every process uses the current folder and the
// program path of this process. Each process gets environment variables, which find_place
// (runtime/rendezvous/launchers.h) reads. The processes that still run get SIGTERM in two cases: when this process gets
// a signal (interrupt.h), or 20 seconds after a process has failed. 20 seconds later, the shells that still run are
// killed if one process has failed and this process got no signal. The 20 seconds are 2.5 times the default of
// FETTLE_HEARTBEAT_SECONDS and change with it. Returns the exit code of the first process that failed, else 0. Throws
// UserError for wrong options.
int launch(const LaunchOptions& options);

}  // namespace fettle
