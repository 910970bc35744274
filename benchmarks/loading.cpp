// Loads a model's frozen weights as `fettle train` does, and prints the speed and the host memory that it took.
//
// usage: bench_loading [--cold] key=value ... the recipe's keys: model_name_or_path, device_count, mesh, bf16, ...
//
// With the CPU plugin, the device arrays are in this process's memory, so they are subtracted. A(t) is the anonymous
// memory (RssAnon, which does not include mapped files). W(t) is the number of bytes that were written into device
// arrays. The host memory above the mapped files is the largest A(t) - A(0) - W(t), sampled each millisecond. The copy
// rate is that of the faster of two copies to the first device, one before loading and one after it.
//
// --cold first drops the model's files from the page cache.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <thread>

#include "base/error.h"
#include "base/seconds_since.h"
#include "checkpoint/load.h"
#include "config/recipe.h"
#include "programs/layouts.h"
#include "run/request.h"
#include "step/state/load_meter.h"

namespace fettle {
namespace {

int64_t status_bytes(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (int64_t kilobytes = 0; word == key && status >> kilobytes) return kilobytes * 1024;
  throw InternalError("no {} in /proc/self/status", key);
}

void drop_from_page_cache(const ModelRepository& repository) {
  for (const TensorFile& file : repository.files()) {
    const int fd = open(file.path().c_str(), O_RDONLY | O_CLOEXEC);
    const bool dropped = fd >= 0 && fdatasync(fd) == 0 && posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0;
    close(fd);
    if (!dropped) throw UserError("{}: cannot be dropped from the page cache", file.path().string());
  }
}

// Samples this process's memory until it is destroyed.
class Sampler {
 public:
  explicit Sampler(const std::atomic<int64_t>& written) : before_(status_bytes("RssAnon:")) {
    thread_ = std::jthread([this, &written](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        // Bytes that are written after RssAnon is read must not be subtracted, so `written` is read first.
        const int64_t done = written;
        above_ = std::max(above_, status_bytes("RssAnon:") - before_ - done);
        mapped_ = std::max(mapped_, status_bytes("RssFile:"));
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    });
  }
  void stop() { thread_ = {}; }
  int64_t above() const { return above_; }
  int64_t mapped() const { return mapped_; }

 private:
  int64_t before_, above_ = 0, mapped_ = 0;
  std::jthread thread_;
};

// Returns the rate of one copy from host memory to the first device, in bytes per second.
double copy_rate(const Devices& devices) {
  HostArray array = HostArray::zeros({DType::kF32, {int64_t{64} << 20}});
  std::ranges::fill(array.as<float>(), 1.0F);
  const Clock::time_point start = Clock::now();
  DeviceBuffer::upload(devices.client(), array, Layout::replicated(array.shape().dims, 1)).wait();
  return static_cast<double>(array.bytes()) / seconds_since(start);
}

void load(const Recipe& recipe, bool cold) {
  const Request request(recipe, Command::kEval);
  const ModelRepository& repository = request.repository();
  Devices devices(request.devices());
  const Run run = request.resolve(target_of(devices), Purpose::kInference);
  check_weights(repository, run.model);
  if (cold) drop_from_page_cache(repository);

  const double rate_before = copy_rate(devices);
  std::atomic<int64_t> written{0};
  std::vector<DeviceBuffer> arrays;
  LoadMeter meter(repository.total_bytes());
  Sampler memory(written);
  const Clock::time_point start = Clock::now();
  for (const Param& param : run.frozen) {
    const Dims dims = stacked_shape(param, DType::kF32).dims;
    arrays.push_back(load_param(
        devices.client(), param, run.precision.frozen, layout_of(run.partition(param), dims, run.sharding.mesh()),
        [&](const std::string& name) { return repository.find(name); },
        [&](int64_t bytes) {
          written += bytes;
          meter.add(bytes);
        }));
  }
  const double seconds = seconds_since(start);
  memory.stop();
  meter.finish();
  const double copies = std::max(rate_before, copy_rate(devices)), speed = static_cast<double>(written) / seconds;

  std::vector<int64_t> on_device(static_cast<size_t>(devices.count()));
  for (const DeviceBuffer& array : arrays)
    for (size_t i = 0; i < on_device.size(); ++i)
      on_device[i] += array.layout().boxes[i].elements() * byte_size(array.shape().dtype);
  fmt::print(
      "| {} | {} | {:.2f} GB in {} files | {:.2f} s | {:.2f} GB/s | {:.2f} GB/s | {:.2f} | {:.0f} MB | {:.2f} GB |\n",
      devices.count(), cold ? "disk" : "page cache", static_cast<double>(written) / 1e9, repository.files().size(),
      seconds, speed / 1e9, copies / 1e9, speed / copies, static_cast<double>(memory.above()) / 1e6,
      static_cast<double>(*std::max_element(on_device.begin(), on_device.end())) / 1e9);
}

}  // namespace
}  // namespace fettle

int main(int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  const bool cold = !words.empty() && words[0] == "--cold";
  if (cold) words.erase(words.begin());
  try {
    fettle::load(fettle::read_recipe({}, words), cold);
    return 0;
  } catch (const fettle::Error& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return static_cast<int>(error.code());
  }
}
