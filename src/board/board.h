// Defines run_board, the command `fettle board`: a web page over the runs of a folder.
#pragma once

#include <string>

namespace fettle {

struct BoardOptions {
  std::string folder;
  std::string host = "127.0.0.1";
  int port = 8090;         // 0: any free port
  std::string token;       // empty: a random one
  bool read_only = false;  // true: the board only shows runs, and cannot start or stop them
};

// Serves the page. First prints the board's address, with the token, on standard error. Ends after SIGINT, SIGTERM or
// SIGHUP; runs that the board started go on. Throws UserError when the folder or the address cannot be used. Returns 0.
int run_board(const BoardOptions& options);

}  // namespace fettle
