#include "launch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

#include "base/environment.h"
#include "base/error.h"
#include "base/files/own_program.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/process_name.h"
#include "base/seconds_since.h"
#include "config/flags.h"
#include "runtime/rendezvous/fate.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;

// ssh ends with an error instead of asking for a password, because a program in the background cannot ask. It also ends
// 8 seconds after the host stops answering.
constexpr const char* kSsh[] = {"-oBatchMode=yes", "-oServerAliveInterval=2", "-oServerAliveCountMax=4"};

// Quotes a word for sh, csh and fish. A backslash before these characters means the same in all of them only outside
// the quotes: inside, fish reads a backslash as a sign, and csh reads "!".
std::string shell_word(const std::string& text) {
  std::string out = "'";
  for (const char c : text)
    out += c == '\'' || c == '\\' || c == '!' ? std::string("'\\") + c + "'" : std::string(1, c);
  return out + "'";
}

// Removes a user: "me@gpu01" gives "gpu01".
std::string without_user(const std::string& host) {
  return host.substr(host.rfind('@') + 1);
}

// Returns whether the name means, on every host, the host itself.
bool is_own_name(const std::string& address) {
  return address == "localhost" || address.starts_with("localhost.") || address.starts_with("127.") || address == "::1";
}

// Returns the variables that the processes on the hosts get from this process: the settings of communication libraries
// and of XLA, and those settings of Fettle that all processes should share. Other users can see their values.
std::vector<std::pair<std::string, std::string>> passed_on() {
  constexpr std::string_view kBeginnings[] = {"NCCL_", "RCCL_", "UCX_", "XLA_"},
                             kNames[] = {"FETTLE_HEARTBEAT_SECONDS", "FETTLE_HANG_SECONDS", "FETTLE_CACHE",
                                         "FETTLE_COMPILE_CACHE_GB", "FETTLE_STORE_PORT"};
  std::vector<std::pair<std::string, std::string>> out;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry, name = text.substr(0, text.find('='));
    const bool sound = std::ranges::all_of(name, [](unsigned char c) { return std::isalnum(c) || c == '_'; });
    if (sound && (std::ranges::count(kNames, name) > 0 ||
                  std::ranges::any_of(kBeginnings, [&](std::string_view begin) { return name.starts_with(begin); })))
      out.emplace_back(name, environment(name.c_str()));
  }
  return out;
}

// Returns the command of one process for the user's login shell, which may be csh or fish. The command reads the
// password with which the processes find each other (docs/hosts.md) from standard input, because other users can see
// the arguments of a command. When the input ends, because this program closes it or has died, training gets SIGTERM.
// Training then saves a checkpoint and ends.
std::string command_of(const LaunchOptions& options, const std::vector<std::string>& hosts, int rank,
                       const std::string& job) {
  const int size = static_cast<int>(hosts.size()) * options.per_host;
  std::string text = "cd " + shell_word(fs::current_path().string()) + " && read -r FETTLE_STORE_PASSWORD && ";
  text += fmt::format(
      "export FETTLE_STORE_PASSWORD FETTLE_RANK={} FETTLE_SIZE={} FETTLE_LOCAL_RANK={} FETTLE_LOCAL_SIZE={} "
      "FETTLE_ADDRESS={} FETTLE_JOB={} && ",
      rank, size, rank % options.per_host, options.per_host,
      shell_word(options.address.empty() ? without_user(hosts[0]) : options.address), job);
  for (const auto& [name, value] : passed_on()) text += fmt::format("export {}={} && ", name, shell_word(value));
  if (options.port != 0) text += fmt::format("export FETTLE_STORE_PORT={} && ", options.port);
  text += "{ " + shell_word(own_program().string()) + " train";
  for (const std::string& word : options.words) text += " " + shell_word(word);
  // A shell gives background jobs an empty standard input. Descriptor 3 keeps the input of this command, so that a
  // background job can wait for the end of this input.
  text +=
      " </dev/null 3<&- & run=$!; { cat <&3 >/dev/null; kill -TERM $run; } 2>/dev/null & watch=$!; "
      "wait $run; code=$?; kill $watch 2>/dev/null; exit $code; } 3<&0";
  return "exec /bin/sh -c " + shell_word(text);
}

struct Started {
  pid_t process = -1;
  int input = -1;  // file descriptor; closing it ends the training
  std::string host;
};

Started start(const LaunchOptions& options, const std::vector<std::string>& hosts, int rank, const std::string& job,
              const std::string& password) {
  const std::string host = hosts[static_cast<size_t>(rank / options.per_host)];
  const std::string command = command_of(options, hosts, rank, job);
  int in[2];
  internal_check(pipe2(in, O_CLOEXEC) == 0, "launch: pipe2: {}", std::strerror(errno));
  const pid_t process = fork();
  internal_check(process >= 0, "launch: fork: {}", std::strerror(errno));
  if (process == 0) {
    dup2(in[0], 0);
    // Makes a new process group. Ctrl-C then reaches only `fettle launch`, and its kill() reaches the whole group.
    setpgid(0, 0);
    std::vector<const char*> words{options.shell.c_str()};
    if (fs::path(options.shell).filename() == "ssh") words.insert(words.end(), std::begin(kSsh), std::end(kSsh));
    for (const char* word : {host.c_str(), command.c_str(), static_cast<const char*>(nullptr)}) words.push_back(word);
    execvp(words[0], const_cast<char* const*>(words.data()));
    dprintf(2, "error: cannot run %s: %s\n", options.shell.c_str(), std::strerror(errno));
    _exit(127);
  }
  close(in[0]);
  const std::string line = password + "\n";
  if (write(in[1], line.data(), line.size()) < 0)
    warn("launch: the process on {} ended before it read its input", host);
  return {process, in[1], host};
}

}  // namespace

int launch(const LaunchOptions& options) {
  if (options.per_host < 1) throw UserError("--per-host: {} given, wanted 1 or more", options.per_host);
  std::vector<std::string> hosts;
  std::istringstream list(options.hosts);
  for (std::string host; std::getline(list, host, ',');) hosts.push_back(host);
  if (hosts.empty() || std::ranges::count(hosts, "") > 0 || options.hosts.ends_with(','))
    throw UserError("--hosts: '{}' given, wanted names separated by commas, such as gpu01,gpu02", options.hosts);
  if (options.hosts.find_first_of("[]") != std::string::npos)
    throw UserError(
        "--hosts: '{}' is a list of SLURM, wanted names separated by commas; in a job, give "
        "--hosts \"$(scontrol show hostnames | paste -sd,)\", or start the processes with srun",
        options.hosts);
  for (const std::string& word : options.words)
    if (const std::string name = secret_key_of(word); !name.empty())
      throw UserError(
          "{}: other users can see the words of `fettle launch` in the list of processes; remove this key, and set "
          "HF_TOKEN on every host or log in to the hub there",
          name);
  if (std::set<std::string>(hosts.begin(), hosts.end()).size() != hosts.size())
    throw UserError("--hosts: a host is named twice; to start several processes on each host, set --per-host");
  const std::string first = without_user(hosts[0]);
  if (options.address.empty() && is_own_name(first) &&
      !std::ranges::all_of(hosts, [](const std::string& host) { return is_own_name(without_user(host)); }))
    throw UserError(
        "--hosts: the other hosts cannot reach the first host as '{}'; name it as they do, or set --address", first);
  // When one process has failed, the other processes notice this after FateTimes::silence, and should end by
  // themselves. Those that still run after `patience` seconds get SIGTERM. The shells that still run after twice
  // `patience` are killed.
  const double patience = 2.5 * FateTimes::from_environment().silence;
  const InterruptScope interrupts;
  signal(SIGPIPE, SIG_IGN);
  const std::string job = random_hex(4), password = random_hex(4);
  std::vector<Started> running;
  for (int rank = 0; rank < static_cast<int>(hosts.size()) * options.per_host; ++rank)
    running.push_back(start(options, hosts, rank, job, password));

  int first_code = 0;
  Clock::time_point failed_at;
  bool passed_on = false, killed = false;
  const auto end_all = [&] {
    for (Started& one : running)
      if (one.input >= 0) close(std::exchange(one.input, -1));
  };
  for (size_t left = running.size(); left > 0;) {
    for (Started& one : running) {
      int status = 0;
      if (one.process < 0 || waitpid(one.process, &status, WNOHANG) != one.process) continue;
      const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      one.process = -1;
      --left;
      if (code == 0 || first_code != 0) continue;
      first_code = code;
      failed_at = Clock::now();
      if (!passed_on)
        log_line(LogLevel::kQuiet, fmt::format("the process on {} ended with exit code {}", one.host, code));
    }
    if (InterruptScope::signal() != 0 && !passed_on) {
      passed_on = true;
      end_all();
    }
    if (first_code != 0 && seconds_since(failed_at) > patience && !passed_on) {
      passed_on = true;
      end_all();
    }
    if (first_code != 0 && seconds_since(failed_at) > 2 * patience && InterruptScope::signal() == 0 && !killed) {
      killed = true;
      for (const Started& one : running) {
        if (one.process < 0) continue;
        warn("launch: the shell for {} does not end, so it is killed; the process there may still run", one.host);
        kill(-one.process, SIGKILL);
      }
    }
    if (left > 0) poll(nullptr, 0, 50);
  }
  end_all();
  return first_code;
}

}  // namespace fettle
