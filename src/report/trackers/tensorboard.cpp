// TensorBoard: event files, which are TFRecords of Event. A resumed run writes another file into the same folder. The
// start record of this file makes TensorBoard drop the steps that are computed again.
//
// Source: the formats are described in TensorFlow's core/lib/io/record_writer.h and core/util/event.proto.
#include <event.pb.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <ctime>

#include "base/environment.h"
#include "report/trackers/append_file.h"
#include "report/trackers/tracker.h"

namespace fettle {
namespace {

using tensorboard::Event;

// Returns the CRC-32C (Castagnoli) in the form of TFRecords: rotated, plus a constant. A plain CRC is weak for data
// that contains CRCs.
uint32_t masked_crc(std::string_view bytes) {
  static const std::array<uint32_t, 256> table = [] {
    std::array<uint32_t, 256> out{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t crc = i;
      for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0);
      out[i] = crc;
    }
    return out;
  }();
  uint32_t crc = ~0u;
  for (const char byte : bytes) crc = (crc >> 8) ^ table[(crc ^ static_cast<uint8_t>(byte)) & 0xff];
  return std::rotr(~crc, 15) + 0xa282ead8u;
}

template <typename T>
std::string little_endian(T value) {
  std::string out;
  for (size_t i = 0; i < sizeof value; ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
  return out;
}

std::string tf_record(const std::string& data) {
  const std::string length = little_endian(static_cast<uint64_t>(data.size()));
  return length + little_endian(masked_crc(length)) + data + little_endian(masked_crc(data));
}

std::filesystem::path event_file(const TrackedRun& run) {
  std::string date(64, '\0');
  const std::tm parts = run.started.parts();
  date.resize(std::strftime(date.data(), date.size(), "%b%d_%H-%M-%S", &parts));
  const std::filesystem::path folder = run.logging_dir.empty() ? run.folder / "runs" / date : run.logging_dir;
  return folder / ("events.out.tfevents." + std::to_string(std::time(nullptr)) + "." + host_name() + "." +
                   std::to_string(getpid()) + ".0");
}

// Returns the text as Markdown code, between two fences. A fence has more backticks than any row of backticks in the
// text.
std::string as_code(const std::string& text) {
  size_t longest = 0, row = 0;
  for (const char c : text) {
    row = c == '`' ? row + 1 : 0;
    longest = std::max(longest, row);
  }
  const std::string fence(longest + 1, '`');
  return fence + text + fence;
}

// Adds the recipe as a table (Markdown) for TensorBoard's text page.
void add_text(tensorboard::Summary& summary, const nlohmann::json& config) {
  std::string text = "| key | value |\n|---|---|\n";
  for (const auto& [key, value] : config.items()) text += "| " + key + " | " + as_code(value.dump()) + " |\n";
  tensorboard::Summary::Value& one = *summary.add_value();
  one.set_tag("recipe/text_summary");
  one.mutable_metadata()->mutable_plugin_data()->set_plugin_name("text");
  tensorboard::Tensor& tensor = *one.mutable_tensor();
  tensor.set_dtype(7);
  tensor.mutable_tensor_shape()->add_dim()->set_size(1);
  tensor.add_string_val(text);
}

class TensorBoard : public Tracker {
 public:
  explicit TensorBoard(const TrackedRun& run) : file_(event_file(run)) {
    Event version = event(0, static_cast<double>(std::time(nullptr)));
    version.set_file_version("brain.Event:2");
    write(version);
    if (run.resumed_step > 0) {
      Event start = event(run.resumed_step + 1, version.wall_time());
      start.mutable_session_log()->set_status(tensorboard::SessionLog::START);
      write(start);
    } else {
      Event recipe = event(0, version.wall_time());
      add_text(*recipe.mutable_summary(), run.config);
      write(recipe);
    }
  }

  void log(const TrackedFigures& figures) override {
    Event out = event(figures.step, figures.time);
    for (const auto& [name, value] : tracked_names(figures.values)) {
      tensorboard::Summary::Value& one = *out.mutable_summary()->add_value();
      one.set_tag(name);
      one.set_simple_value(static_cast<float>(value));
    }
    write(out);
  }
  void finish(bool) override {}

 private:
  static Event event(int64_t step, double time) {
    Event out;
    out.set_step(step);
    out.set_wall_time(time);
    return out;
  }
  void write(const Event& event) { file_.append(tf_record(event.SerializeAsString())); }

  AppendFile file_;
};

}  // namespace

std::unique_ptr<Tracker> open_tensorboard(const TrackedRun& run) {
  return std::make_unique<TensorBoard>(run);
}

}  // namespace fettle
