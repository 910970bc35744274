// Measures what a logged step costs with trackers: the time that the training thread spends in Trackers::log, and the
// CPU time of all threads. Logs one step every 5 ms, so that the trackers' thread wakes up for each step, as in a run.
// Prints a table in Markdown. MLflow is measured when MLFLOW_TRACKING_URI is set.
#include <sys/resource.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "base/seconds_since.h"
#include "report/trackers/trackers.h"

namespace fettle {
namespace {

constexpr int kSteps = 1000;
constexpr auto kPause = std::chrono::milliseconds(5);

double cpu_seconds() {
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(use.ru_utime) + seconds(use.ru_stime);
}

struct Cost {
  double caller = 0, cpu = 0;  // seconds per step
};

Cost measure(const std::vector<std::string>& names, const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  Trackers trackers(names, {.id = "abcd1234", .name = "speed", .project = "speed", .folder = folder, .config = {}});
  Cost cost;
  const double before = cpu_seconds();
  for (int step = 1; step <= kSteps; ++step) {
    const double value = 1.0 / step;
    const auto begin = std::chrono::steady_clock::now();
    trackers.log(step, {{"loss", value},
                        {"learning_rate", value},
                        {"grad_norm", value},
                        {"epoch", value},
                        {"tokens_per_second", value},
                        {"step_seconds", value},
                        {"memory_gb", value},
                        {"num_tokens", value}});
    cost.caller += seconds_since(begin) / kSteps;
    std::this_thread::sleep_for(kPause);
  }
  trackers.finish(true, 60);
  cost.cpu = (cpu_seconds() - before) / kSteps;
  return cost;
}

int run() {
  char name[] = "/tmp/fettle-trackers-XXXXXX";
  if (mkdtemp(name) == nullptr) return 1;
  const std::filesystem::path folder = name;
  setenv("TRACKIO_DIR", (folder / "trackio").c_str(), 1);
  std::vector<std::vector<std::string>> cases = {{}, {"tensorboard"}, {"wandb"}, {"trackio"}};
  if (std::getenv("MLFLOW_TRACKING_URI") != nullptr) cases.push_back({"mlflow"});
  std::cout << "| `report_to` | in the training thread | CPU time of all threads | under 1 % of a step from |\n"
               "|---|---|---|---|\n";
  Cost none;
  for (const std::vector<std::string>& names : cases) {
    const std::string title = names.empty() ? "none" : names[0];
    Cost cost = measure(names, folder / title);
    if (names.empty()) none = cost;
    cost.cpu -= none.cpu;
    std::cout << fmt::format("| {} | {:.1f} us | {:.0f} us | {:.1f} ms |\n", title, 1e6 * cost.caller, 1e6 * cost.cpu,
                             1e5 * std::max(cost.caller, cost.cpu))
              << std::flush;
  }
  std::filesystem::remove_all(folder);
  return 0;
}

}  // namespace
}  // namespace fettle

int main() {
  return fettle::run();
}
