// Defines run_fettle, which runs the program as a user does, and words for runs of the reference models.
#pragma once

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "paths.h"
#include "temp_folder.h"

namespace fettle {

struct Outcome {
  int code = 0;  // exit code, or 128 + the signal that ended the process
  std::string out, err;
  int64_t most_resident = 0;  // maximum resident memory of the process in bytes
};

// A run in the background. Its output goes to files in `folder`. If `place` is given, the run's current folder is
// `place`. If `data_limit` is not 0, the run may allocate at most `data_limit` bytes.
class Running {
 public:
  Running(const std::filesystem::path& folder, const std::vector<std::string>& arguments, const std::string& input = "",
          const std::string& place = "", rlim_t data_limit = 0)
      : folder_(folder) {
    write_text(folder / "stdin", input);
    process_ = fork();
    if (process_ != 0) return;
    if (!place.empty() && chdir(place.c_str()) != 0) _exit(126);
    const rlimit limit{data_limit, data_limit};
    if (data_limit != 0 && setrlimit(RLIMIT_DATA, &limit) != 0) _exit(126);
    for (const auto& [name, fd, mode] : {std::tuple{"stdin", 0, "r"}, {"stdout", 1, "w"}, {"stderr", 2, "w"}})
      if (freopen((folder / name).c_str(), mode, fd == 0 ? stdin : fd == 1 ? stdout : stderr) == nullptr) _exit(126);
    const std::string program = program_file();
    std::vector<char*> argv{const_cast<char*>(program.c_str())};
    for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    execv(program.c_str(), argv.data());
    _exit(127);
  }
  pid_t process() const { return process_; }
  void send(int signal) const { kill(process_, signal); }
  bool ended() const {
    siginfo_t info{};
    return waitid(P_PID, static_cast<id_t>(process_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0;
  }
  Outcome wait() const {
    int status = 0;
    rusage usage{};
    wait4(process_, &status, 0, &usage);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read_text(folder_ / "stdout"),
            read_text(folder_ / "stderr"), usage.ru_maxrss * 1024};
  }

 private:
  std::filesystem::path folder_;
  pid_t process_;
};

inline Outcome run_fettle(const TempFolder& folder, const std::vector<std::string>& arguments,
                          const std::string& input = "") {
  return Running(folder.path(), arguments, input).wait();
}

inline std::filesystem::path reference_model(const std::string& family) {
  return source_folder() / "tests/reference/models" / family;
}

// Returns key=value words for a short LoRA run over the reference rows.
inline std::vector<std::string> train_words(const std::filesystem::path& output, const std::string& family = "llama") {
  return {"train",
          "model_name_or_path=" + reference_model(family).string(),
          "dataset=" + (reference_model(family).parent_path() / "rows.jsonl").string(),
          "output_dir=" + output.string(),
          "plugin=cpu",
          "cutoff_len=40",
          "per_device_train_batch_size=2",
          "learning_rate=0.002",
          "logging_steps=1",
          "save_strategy=no",
          "lora_rank=4",
          "max_steps=6"};
}

// A word for a small program, which the vendors' compilers compile sooner.
inline const std::string kFewWeights = "lora_target=q_proj";

inline std::vector<std::string> with(std::vector<std::string> words, const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// Returns the losses in trainer_log.jsonl by step, as text.
inline std::vector<std::string> logged_losses(const std::filesystem::path& output) {
  std::vector<std::string> losses;
  std::ifstream in(output / "trainer_log.jsonl");
  for (std::string line; std::getline(in, line);) {
    const auto record = nlohmann::json::parse(line);
    if (record.contains("loss") && !record["loss"].is_null()) losses.push_back(record["loss"].dump());
  }
  return losses;
}

inline bool wait_until(const std::function<bool()>& condition, std::chrono::seconds limit = std::chrono::seconds(120)) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

}  // namespace fettle
