// Defines Jobs: the commands of Fettle that the board runs as child processes.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace fettle {

// Thread-safe. Each child has its own process group, so that Ctrl-C reaches only the board.
class Jobs {
 public:
  // `program` is the file that the children run.
  explicit Jobs(std::filesystem::path program) : program_(std::move(program)) {}
  ~Jobs();  // ends the children of query(); the processes of detach() continue
  Jobs(const Jobs&) = delete;

  // Starts a command whose output is kept in memory, such as `fettle plan`. Returns its number. Throws UserError when
  // too many commands run already.
  int64_t query(const std::vector<std::string>& arguments);
  // Returns {running, code, out, err}, where `out` is empty while the command runs; nullopt for an unknown number.
  // The oldest ended commands are forgotten, so their numbers become unknown.
  std::optional<nlohmann::ordered_json> state(int64_t number);
  // Sends SIGTERM at the first call and SIGKILL at later calls. Returns false when the command is not running.
  bool end(int64_t number);

  // Starts a command that continues when the board ends. Its output is appended to the file descriptor `output`, which
  // this function closes. The command runs in `folder`, or in the board's own folder if `folder` is "" or is gone.
  // Returns the command's process id.
  pid_t detach(const std::vector<std::string>& arguments, int output, const std::string& folder = "");
  // Returns the exit code of a process of detach(), or 128 + the number of the signal that ended it. Returns nullopt
  // while the process runs.
  std::optional<int> detached_code(pid_t process);

 private:
  struct Query {
    pid_t process = -1;
    int out = -1, err = -1;  // files in memory
    bool running = true, asked = false;
    int code = 0;
  };
  pid_t start(const std::vector<std::string>& arguments, int out, int err, const std::string& folder = "");
  void look();
  void forget_oldest();

  std::filesystem::path program_;
  std::mutex mutex_;
  std::map<int64_t, Query> queries_;
  std::map<pid_t, std::optional<int>> detached_;
  int64_t next_ = 1;
};

}  // namespace fettle
