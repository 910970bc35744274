#include "runtime/rendezvous/redis_server.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/environment.h"
#include "base/error.h"

namespace fettle {
namespace {

// The commands that change the server's settings, run code, copy data or stop the server.
std::vector<std::string> forbidden_commands() {
  return {"CONFIG", "DEBUG",    "MODULE",  "SAVE",    "BGSAVE",   "BGREWRITEAOF", "SHUTDOWN",
          "ACL",    "EVAL",     "EVAL_RO", "SCRIPT",  "EVALSHA",  "EVALSHA_RO",   "REPLICAOF",
          "FCALL",  "FCALL_RO", "SLAVEOF", "MIGRATE", "FUNCTION", "FLUSHALL",     "FLUSHDB"};
}

// Returns the server's settings. The server reads them from standard input, so that other users cannot see the password
// among its arguments. At the log level "notice", the server prints that it is ready. Without "bind", the server
// listens at all addresses.
std::string settings(int port, const std::string& password, bool local, const std::vector<std::string>& forbidden) {
  std::string text = fmt::format(
      "port {}\n{}requirepass {}\nsave \"\"\nappendonly no\ndaemonize no\ndir /\nloglevel notice\n"
      "protected-mode yes\nmaxclients 100000\ntcp-backlog 4096\n",
      port, local ? "bind 127.0.0.1\n" : "", password);
  for (const std::string& command : forbidden) text += fmt::format("rename-command {} \"\"\n", command);
  return text;
}

bool is_ready(const std::string& log) {
  return log.find("Ready to accept connections") != std::string::npos;
}

// Returns the server's log. Stops reading when the log says that the server is ready, or when the server ends.
std::string read_log(int log) {
  std::string text;
  char part[4096];
  for (ssize_t count; (count = read(log, part, sizeof part)) != 0;) {
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) break;
    text.append(part, static_cast<size_t>(count));
    if (is_ready(text)) break;
  }
  return text;
}

// Removes the command that the server does not know, according to its log. Returns false if it names no such command.
bool drop_unknown(std::vector<std::string>& commands, const std::string& log) {
  if (log.find("No such command in rename-command") == std::string::npos) return false;
  return std::erase_if(commands, [&](const std::string& command) {
           return log.find("rename-command " + command + " ") != std::string::npos;
         }) > 0;
}

}  // namespace

RedisServer::RedisServer(int port, const std::string& password, bool local) {
  std::vector<std::string> forbidden = forbidden_commands();
  std::string log = start(settings(port, password, local, forbidden));
  // An older server does not know all commands, and ends at the first one that it does not know.
  while (process_ < 0 && drop_unknown(forbidden, log)) log = start(settings(port, password, local, forbidden));
  if (process_ >= 0) return;
  if (log.find("cannot run redis-server") != std::string::npos)
    throw UserError(
        "process 0 runs on {} and starts redis-server, through which the processes find each other, but that program "
        "is not installed; install the package redis-server there, or start with srun --mpi=pmix or mpirun",
        host_name());
  if (log.find("Address already in use") != std::string::npos)
    throw UserError(
        "redis-server did not start on port {} of {}: another program uses the port; set FETTLE_STORE_PORT (or --port "
        "of `fettle launch`) to a free port, the same on every host",
        port, host_name());
  throw UserError(
      "redis-server did not start on {}: {}; check that this program works there, or start with srun --mpi=pmix or "
      "mpirun",
      host_name(),
      log.empty() ? "it ended without a message" : log.substr(log.size() - std::min<size_t>(log.size(), 500)));
}

std::string RedisServer::start(const std::string& text) {
  int in[2], out[2];
  internal_check(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0, "redis: pipe2: {}", std::strerror(errno));
  fcntl(out[1], F_SETFL, O_NONBLOCK);  // nobody reads the pipe later, so the server must not block on a full pipe
  const pid_t parent = getpid();
  process_ = fork();
  internal_check(process_ >= 0, "redis: fork: {}", std::strerror(errno));
  if (process_ == 0) {
    dup2(in[0], 0);
    dup2(out[1], 1);
    dup2(out[1], 2);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    // A signal to the whole process group, such as Ctrl-C, must not end the server before the processes are done.
    setpgid(0, 0);
    // SLURM and systemd signal every process of a job. Blocked signals stay blocked in the program that execlp()
    // starts.
    sigset_t blocked;
    sigemptyset(&blocked);
    for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2}) sigaddset(&blocked, number);
    sigprocmask(SIG_BLOCK, &blocked, nullptr);
    execlp("redis-server", "redis-server", "-", nullptr);
    dprintf(1, "cannot run redis-server: %s", std::strerror(errno));
    _exit(127);
  }
  close(in[0]);
  close(out[1]);
  // If the server has already ended, write() raises SIGPIPE, which would end this process. The signal is ignored, so
  // that this process can report the server's log.
  const auto before = signal(SIGPIPE, SIG_IGN);
  const bool sent = write(in[1], text.data(), text.size()) == static_cast<ssize_t>(text.size());
  signal(SIGPIPE, before);
  close(in[1]);
  const std::string log = read_log(out[0]);
  if (sent && is_ready(log)) {
    log_ = out[0];
    return log;
  }
  close(out[0]);
  int status = 0;
  waitpid(process_, &status, 0);
  process_ = -1;
  return log;
}

RedisServer::~RedisServer() {
  if (process_ <= 0) return;
  kill(process_, SIGKILL);
  waitpid(process_, nullptr, 0);
  close(log_);
}

}  // namespace fettle
