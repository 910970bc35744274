// Defines run_serve, the command `fettle serve`: a server that speaks OpenAI's protocol.
#pragma once

#include <cstdint>
#include <string>

#include "run/request.h"

namespace fettle {

struct ServeOptions {
  std::string host = "127.0.0.1";
  int port = 8080;      // 0: any free port
  std::string api_key;  // empty: requests need no key
  std::string name;     // the model's name for clients; empty: taken from the last adapter or the model
  int64_t rows = 16;    // replies that are written at the same time
  int64_t max_waiting = 64;
};

// Loads the model, then prints on standard error at which address it listens. After SIGINT, SIGTERM or SIGHUP it
// refuses new requests, completes the replies that are being written and returns; a second signal ends the process at
// once. Throws UserError when the address cannot be used, and what Session and Scheduler throw. Returns 0.
int run_serve(const Request& request, const ServeOptions& options);

}  // namespace fettle
