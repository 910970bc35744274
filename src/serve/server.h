// Defines run_serve, the command `fettle serve`: an HTTP server that speaks OpenAI's protocol.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "run/request.h"

namespace fettle {

struct ServeOptions {
  std::string host = "127.0.0.1";
  int port = 8080;      // 0: any free port
  std::string api_key;  // empty: requests need no key
  std::string name;     // the first model's name for clients; empty: the last part of the adapter's or model's name
  std::vector<std::string> lora_modules;  // NAME=PATH: adapters to serve by their names
  int64_t rows = 16;                      // replies that are written at the same time
  int64_t max_waiting = 64;               // requests that may wait for a row
};

// Opens the port, loads the model, then prints the server's address on standard error and answers requests. After
// SIGINT, SIGTERM or SIGHUP, refuses new requests, completes all replies that were accepted, and returns 0. A second
// signal ends the process at once, and so does a signal while the model is loaded. Throws UserError when the address
// cannot be used. Also throws the errors of served_models, Session and Scheduler.
int run_serve(const Request& request, const ServeOptions& options);

}  // namespace fettle
