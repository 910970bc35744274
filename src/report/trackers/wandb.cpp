// Weights & Biases: an offline run, which `wandb sync FOLDER` uploads. A resumed run writes a second offline run with
// the same id. W&B appends the second run to the first.
//
// Source: wandb's datastore.py (LevelDB's log format with zlib's CRC-32) and wandb_internal.proto.
#include <wandb_record.pb.h>
#include <zlib.h>

#include <ctime>

#include "base/environment.h"
#include "report/trackers/append_file.h"
#include "report/trackers/tracker.h"

namespace fettle {
namespace {

using wandb::Record;

constexpr size_t kBlockBytes = 32768, kHeadBytes = 7;

// Writes records in blocks of 32 KiB. A record that crosses the end of a block is split into parts.
class BlockLog {
 public:
  explicit BlockLog(const std::filesystem::path& file) : file_(file) {
    put(std::string(":W&B\xe1\xbe\0", kHeadBytes));  // mark, magic number 0xbee1, version 0
  }

  void append(std::string_view data) {
    std::string bytes;
    bool first = true, last = false;
    while (!last) {
      size_t room = kBlockBytes - (at_ + bytes.size()) % kBlockBytes;
      if (room < kHeadBytes) {
        bytes.append(room, '\0');
        room = kBlockBytes;
      }
      const std::string_view part = data.substr(0, room - kHeadBytes);
      last = part.size() == data.size();
      bytes += head(part, first ? (last ? kFull : kFirst) : (last ? kLast : kMiddle));
      bytes += part;
      data.remove_prefix(part.size());
      first = false;
    }
    put(bytes);
  }

 private:
  enum Part : uint8_t { kFull = 1, kFirst, kMiddle, kLast };

  static std::string head(std::string_view part, Part type) {
    const Bytef type_byte = type;
    auto crc = static_cast<uint32_t>(crc32(0, &type_byte, 1));
    crc =
        static_cast<uint32_t>(crc32(crc, reinterpret_cast<const Bytef*>(part.data()), static_cast<uInt>(part.size())));
    std::string out;
    for (int i = 0; i < 4; ++i) out += static_cast<char>(crc >> (8 * i) & 0xff);
    out += static_cast<char>(part.size() & 0xff);
    out += static_cast<char>(part.size() >> 8);
    return out += static_cast<char>(type);
  }
  void put(std::string_view bytes) {
    file_.append(bytes);
    at_ += bytes.size();
  }

  AppendFile file_;
  size_t at_ = 0;
};

// Returns the path of the file for a new offline run. If the same run starts twice within one second, the second folder
// is named after the next second.
std::filesystem::path run_file(const TrackedRun& run) {
  const std::string wanted = environment("WANDB_DIR");
  const std::filesystem::path parent = (wanted.empty() ? run.folder : std::filesystem::path(wanted)) / "wandb";
  std::filesystem::path folder;
  std::error_code ignored;
  for (std::time_t start = std::time(nullptr); folder.empty() || std::filesystem::exists(folder, ignored); ++start) {
    std::tm parts{};
    localtime_r(&start, &parts);
    char date[32];
    std::strftime(date, sizeof date, "%Y%m%d_%H%M%S", &parts);
    folder = parent / ("offline-run-" + std::string(date) + "-" + run.id);
  }
  return folder / ("run-" + run.id + ".wandb");
}

template <typename Items>
void add_item(Items& items, const std::string& key, const nlohmann::json& value) {
  wandb::Item& item = *items.Add();
  item.set_key(key);
  item.set_value_json(value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

class Wandb : public Tracker {
 public:
  explicit Wandb(const TrackedRun& run) : log_(run_file(run)), start_(std::time(nullptr)) {
    Record header;
    header.mutable_header()->mutable_version_info()->set_producer("fettle");
    write(header);
    Record record;
    wandb::Run& out = *record.mutable_run();
    out.set_run_id(run.id);
    out.set_project(run.project);
    out.set_display_name(run.name);
    out.set_host(host_name());
    out.mutable_start_time()->set_seconds(start_);
    out.set_starting_step(run.resumed_step);
    out.set_resumed(run.resumed_step > 0);
    for (const auto& [key, value] : run.config.items()) add_item(*out.mutable_config()->mutable_update(), key, value);
    write(record);
  }

  void log(const TrackedFigures& figures) override {
    Record record;
    wandb::History& out = *record.mutable_history();
    for (const auto& [name, value] : figures.values) add_item(*out.mutable_item(), name, value);
    add_item(*out.mutable_item(), "train/global_step", figures.step);
    add_item(*out.mutable_item(), "_step", figures.step);
    add_item(*out.mutable_item(), "_timestamp", figures.time);
    add_item(*out.mutable_item(), "_runtime", figures.time - static_cast<double>(start_));
    out.mutable_step()->set_num(figures.step);
    for (const auto& [name, value] : figures.values) summary_[name] = value;
    write(record);
  }

  void finish(bool succeeded) override {
    Record record;
    for (const auto& [name, value] : summary_.items())
      add_item(*record.mutable_summary()->mutable_update(), name, value);
    if (!summary_.empty()) write(record);
    Record end;
    end.mutable_exit()->set_exit_code(succeeded ? 0 : 1);
    end.mutable_exit()->set_runtime(static_cast<int32_t>(std::time(nullptr) - start_));
    write(end);
  }

 private:
  void write(Record& record) {
    record.set_num(++records_);
    log_.append(record.SerializeAsString());
  }

  BlockLog log_;
  std::time_t start_;
  int64_t records_ = 0;
  nlohmann::json summary_ = nlohmann::json::object();  // the last value of each metric
};

}  // namespace

std::unique_ptr<Tracker> open_wandb(const TrackedRun& run) {
  return std::make_unique<Wandb>(run);
}

}  // namespace fettle
