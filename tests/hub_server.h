// Defines HubServer: a hub on this machine for one test (tests/hub/server.py). The test writes the repositories into
// the folder of the hub.
#pragma once

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "hub/settings.h"
#include "paths.h"
#include "temp_folder.h"

namespace fettle {

class HubServer {
 public:
  HubServer() {
    write_text(folder_ / "faults.json", "[]");
    setenv("no_proxy", "127.0.0.1", 1);
    const std::string script = (source_folder() / "tests/hub/server.py").string(), root = folder_.path().string();
    const pid_t parent = getpid();
    process_ = fork();
    if (process_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);
      execlp("python3", "python3", script.c_str(), root.c_str(), nullptr);
      _exit(127);
    }
    for (int tries = 0; !std::filesystem::exists(folder_ / "ports.json"); ++tries) {
      if (tries > 3000) throw std::runtime_error("tests/hub/server.py does not start");
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    port_ = nlohmann::json::parse(read_text(folder_ / "ports.json"))["hub"];
  }
  ~HubServer() { stop(); }
  HubServer(const HubServer&) = delete;
  HubServer& operator=(const HubServer&) = delete;

  void stop() {
    if (process_ <= 0) return;
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
    process_ = 0;
  }

  std::string endpoint() const { return "http://127.0.0.1:" + std::to_string(port_); }
  // Returns the folder with the repositories. It has files such as path() / "models/ORG/NAME/config.json".
  const std::filesystem::path& path() const { return folder_.path(); }
  std::filesystem::path cache() const { return cache_.path() / "hub"; }
  void put(const std::string& file, const std::string& content) { write_text(path() / file, content); }
  void set_faults(const nlohmann::json& faults) { write_text(path() / "faults.json", faults.dump()); }

  HubSettings settings(Hub hub = Hub::kHuggingFace) const {
    return {.hub = hub,
            .endpoint = endpoint(),
            .cache = cache(),
            .connect_seconds = 5,
            .stall_seconds = 1,
            .pause_seconds = 0.01};
  }

  // Returns the requests so far, as objects with the keys place ("hub" or "cdn"), method, path, token, range and
  // cookie.
  std::vector<nlohmann::json> log() const {
    std::vector<nlohmann::json> out;
    if (!std::filesystem::exists(path() / "log.jsonl")) return out;
    std::ifstream file(path() / "log.jsonl");
    for (std::string line; std::getline(file, line);) out.push_back(nlohmann::json::parse(line));
    return out;
  }
  void forget_log() { std::filesystem::remove(path() / "log.jsonl"); }

 private:
  TempFolder folder_, cache_;
  pid_t process_ = 0;
  int port_ = 0;
};

}  // namespace fettle
