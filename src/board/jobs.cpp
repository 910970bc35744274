#include "board/jobs.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace fettle {
namespace {

constexpr int64_t kMostOutput = 16 << 20;
constexpr int kMostRunning = 3;
constexpr size_t kMostKept = 50;

std::string content(int fd) {
  struct stat status {};
  fstat(fd, &status);
  std::string text(static_cast<size_t>(std::clamp<off_t>(status.st_size, 0, kMostOutput)), '\0');
  const ssize_t got = pread(fd, text.data(), text.size(), 0);
  text.resize(static_cast<size_t>(std::max<ssize_t>(0, got)));
  return text;
}

int exit_code(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

Jobs::~Jobs() {
  const std::lock_guard lock(mutex_);
  for (auto& [number, query] : queries_) {
    if (query.running) {
      kill(-query.process, SIGKILL);
      waitpid(query.process, nullptr, 0);
    }
    close(query.out);
    close(query.err);
  }
}

pid_t Jobs::start(const std::vector<std::string>& arguments, int out, int err, const std::string& folder) {
  std::vector<std::string> words{program_.string()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  const pid_t process = fork();
  if (process != 0) {
    const int error = errno;
    close(nothing);
    if (process < 0) throw UserError("cannot start {}: {}", program_.string(), std::strerror(error));
    setpgid(process, process);  // the child also calls setpgid, but perhaps only after the first signal to its group
    return process;
  }
  // This is the child. Locks that other threads of the parent hold are never released here, so use only system calls.
  setpgid(0, 0);
  signal(SIGPIPE, SIG_DFL);
  signal(SIGHUP, SIG_IGN);  // the terminal of the board may close
  dup2(nothing, 0);
  dup2(out, 1);
  dup2(err, 2);
  close_range(3, ~0U, 0);  // else the child would keep the board's port and its clients' connections open
  if (!folder.empty()) (void)!chdir(folder.c_str());
  execv(argv[0], argv.data());
  _exit(127);
}

void Jobs::look() {
  int status = 0;
  for (auto& [number, query] : queries_)
    if (query.running && waitpid(query.process, &status, WNOHANG) == query.process) {
      query.running = false;
      query.code = exit_code(status);
    }
  for (auto& [process, code] : detached_)
    if (!code && waitpid(process, &status, WNOHANG) == process) code = exit_code(status);
}

void Jobs::forget_oldest() {
  for (auto it = queries_.begin(); it != queries_.end() && queries_.size() > kMostKept;) {
    if (it->second.running) {
      ++it;
      continue;
    }
    close(it->second.out);
    close(it->second.err);
    it = queries_.erase(it);
  }
}

int64_t Jobs::query(const std::vector<std::string>& arguments) {
  const std::lock_guard lock(mutex_);
  look();
  forget_oldest();
  const auto running = std::ranges::count_if(queries_, [](const auto& one) { return one.second.running; });
  if (running >= kMostRunning)
    throw UserError("{} commands of this board still run; wait until one ends, or cancel one", running);
  Query made{.out = memfd_create("fettle-out", MFD_CLOEXEC), .err = memfd_create("fettle-err", MFD_CLOEXEC)};
  internal_check(made.out >= 0 && made.err >= 0, "jobs: memfd_create: {}", std::strerror(errno));
  made.process = start(arguments, made.out, made.err);
  queries_[next_] = made;
  return next_++;
}

std::optional<nlohmann::ordered_json> Jobs::state(int64_t number) {
  const std::lock_guard lock(mutex_);
  look();
  const auto found = queries_.find(number);
  if (found == queries_.end()) return std::nullopt;
  const Query& query = found->second;
  return nlohmann::ordered_json{{"running", query.running},
                                {"code", query.code},
                                {"out", query.running ? "" : content(query.out)},
                                {"err", content(query.err)}};
}

bool Jobs::end(int64_t number) {
  const std::lock_guard lock(mutex_);
  look();
  const auto found = queries_.find(number);
  if (found == queries_.end() || !found->second.running) return false;
  kill(-found->second.process, found->second.asked ? SIGKILL : SIGTERM);
  found->second.asked = true;
  return true;
}

pid_t Jobs::detach(const std::vector<std::string>& arguments, int output, const std::string& folder) {
  const std::lock_guard lock(mutex_);
  pid_t process = -1;
  try {
    process = start(arguments, output, output, folder);
  } catch (...) {
    close(output);
    throw;
  }
  close(output);
  detached_[process] = std::nullopt;
  return process;
}

std::optional<int> Jobs::detached_code(pid_t process) {
  const std::lock_guard lock(mutex_);
  look();
  const auto found = detached_.find(process);
  return found == detached_.end() ? std::nullopt : found->second;
}

}  // namespace fettle
