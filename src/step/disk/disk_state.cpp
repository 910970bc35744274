#include "step/disk/disk_state.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/size_text.h"
#include "checkpoint/load.h"
#include "step/disk/update_program.h"

namespace fettle {

DiskState::DiskState(Devices& devices, const Run& run)
    : folder_(run.offload.dir),
      layout_(disk_layout(run, devices)),
      file_(run.offload.dir, std::max(layout_.file_bytes, kDiskBlock), "offload_dir"),
      ring_(layout_.staging_bytes),
      engine_(choose_disk_engine()),
      queue_(file_.descriptor(), "offload_dir: " + folder_, engine_) {
  // Keyed by the program's text: weights with the same shape, dtype and sharding share one compiled program.
  std::map<std::string, std::shared_ptr<const Executable>> compiled;
  for (size_t w = 0; w < run.trained.size(); ++w) {
    const Param& param = run.trained[w];
    const Program program = build_update(run, param);
    std::shared_ptr<const Executable>& executable = compiled[program.text(run.precision.tf32)];
    if (!executable) executable = std::make_shared<const Executable>(devices.compile(program));
    weights_.push_back({trained_input(param), gradient_output(param), param.stacked(), executable});
    for (int64_t layer = 0; layer < layout_.params[w].layers; ++layer) units_.push_back({w, layer});
    for (size_t a = 0; a < layout_.params[w].arrays.size(); ++a) arrays_[layout_.params[w].arrays[a].name] = {w, a};
  }
}

int64_t DiskState::file_offset(const Unit& unit) const {
  return param(unit).start + unit.layer * param(unit).block_bytes;
}

// Starts to read the next unit if there is room for it. Returns false when there is no room, or no unit left.
bool DiskState::start_read() {
  if (next_read_ == units_.size()) return false;
  while (!stages_.empty() && stages_.front().phase == Stage::kWritten && queue_.done(stages_.front().ticket))
    make_room();
  const Unit& unit = units_[next_read_];
  // The write of this unit in the previous step must be done before the unit is read again.
  while (std::ranges::any_of(stages_, [&](const Stage& stage) { return stage.unit == next_read_; })) make_room();
  const auto bytes = ring_.take(param(unit).block_bytes);
  if (!bytes) return false;
  stages_.push_back({next_read_++, *bytes, queue_.read(file_offset(unit), *bytes), {}});
  traffic_.read += param(unit).block_bytes;
  return true;
}

void DiskState::read_ahead() {
  while (start_read()) {
  }
}

// Waits until the state of the oldest stage is written, and frees the stage's memory.
void DiskState::make_room() {
  Stage& oldest = stages_.front();
  if (oldest.phase == Stage::kUpdated) store_updated(oldest);
  internal_check(oldest.phase == Stage::kWritten, "DiskState: the oldest block was not updated");
  queue_.wait(oldest.ticket);
  stages_.pop_front();
  ring_.give_back_oldest();
}

// Waits for the update of the stage, copies the stage's new state to host memory and starts to write this state to the
// file.
void DiskState::store_updated(Stage& stage) {
  const Unit& unit = units_[stage.unit];
  for (size_t a = 0; a < stage.state.size(); ++a) {
    const DiskArray& array = param(unit).arrays[a];
    for (size_t part = 0; part < array.parts.size(); ++part) {
      const int64_t at = array.offset + static_cast<int64_t>(part) * array.part_stride;
      stage.state[a].download_shard(array.parts[part].position, stage.bytes.data() + at, array.part_bytes);
    }
  }
  stage.state.clear();
  stage.ticket = queue_.write(file_offset(unit), stage.bytes);
  stage.phase = Stage::kWritten;
  traffic_.written += param(unit).block_bytes;
}

void DiskState::run_update(const Devices& devices, Stage& stage, std::map<std::string, DeviceBuffer>& buffers,
                           std::map<std::string, DeviceBuffer>& gradients,
                           std::map<std::string, DeviceBuffer>& scalars) {
  const Unit& unit = units_[stage.unit];
  const Weight& weight = weights_[unit.weight];
  Bindings inputs{{"weight", &buffers.at(weight.input)}, {"gradient", &gradients.at(weight.gradient)}};
  for (auto& [name, value] : scalars) inputs[name] = &value;
  inputs[kDivisor] = &gradients.at(kDivisor);
  if (const auto factor = gradients.find(kFactor); factor != gradients.end()) inputs[kFactor] = &factor->second;
  DeviceBuffer layer;
  if (weight.stacked) {
    layer = replicate(devices, HostArray::from<int32_t>({DType::kI32, {}}, {static_cast<int32_t>(unit.layer)}));
    inputs["layer"] = &layer;
  }
  const std::vector<DiskArray>& arrays = param(unit).arrays;
  std::vector<DeviceBuffer> state;
  for (const DiskArray& array : arrays) {
    const FillBox fill = [&](const Box& box, std::byte* out) {
      const auto part = std::ranges::find(array.parts, box, &DiskArray::Part::box) - array.parts.begin();
      std::memcpy(out, stage.bytes.data() + array.offset + part * array.part_stride,
                  static_cast<size_t>(array.part_bytes));
    };
    state.push_back(DeviceBuffer::upload(devices.client(), array.shape, array.layout, fill));
  }
  for (size_t a = 0; a < state.size(); ++a) inputs[fmt::format("state/{}", a)] = &state[a];
  std::map<std::string, DeviceBuffer> outputs = run_program(*weight.update, inputs);
  buffers.at(weight.input) = std::move(outputs.at("weight"));
  for (size_t a = 0; a < arrays.size(); ++a) stage.state.push_back(std::move(outputs.at(fmt::format("state/{}", a))));
  stage.phase = Stage::kUpdated;
}

DiskState::Stage& DiskState::stage_of(size_t unit) {
  const auto found = std::ranges::find(stages_, unit, &Stage::unit);
  internal_check(found != stages_.end(), "DiskState: block {} is not in memory", unit);
  return *found;
}

void DiskState::update(const Devices& devices, std::map<std::string, DeviceBuffer>& buffers,
                       std::map<std::string, DeviceBuffer>& gradients, std::map<std::string, DeviceBuffer>& scalars) {
  const Clock::time_point start = Clock::now();
  const int64_t before = queue_.bytes_moved();
  for (size_t u = 0; u < units_.size(); ++u) {
    read_ahead();
    while (next_read_ <= u)
      if (!start_read()) make_room();
    Stage& stage = stage_of(u);
    queue_.wait(stage.ticket);
    run_update(devices, stage, buffers, gradients, scalars);
    // The device computes this unit's update while the state of the previous unit is copied to the host.
    if (u > 0 && stages_.size() > 1)
      for (Stage& other : stages_)
        if (other.unit == u - 1 && other.phase == Stage::kUpdated) store_updated(other);
    if (u + 1 == units_.size() || units_[u + 1].weight != units_[u].weight)
      gradients.erase(weights_[units_[u].weight].gradient);
  }
  store_updated(stages_.back());
  next_read_ = 0;
  if (std::exchange(first_, false)) return;
  traffic_.seconds += seconds_since(start);
  traffic_.during += queue_.bytes_moved() - before;
}

void DiskState::finish_writes() {
  for (const Stage& stage : stages_)
    if (stage.phase == Stage::kWritten) queue_.wait(stage.ticket);
}

// Calls visit(array of one layer, number of the part, box in the whole array, offset in the file, memory for the box)
// for each part of each layer.
template <typename Visit>
void DiskState::for_each_box(const std::string& name, const Visit& visit) {
  finish_writes();
  const Place& place = arrays_.at(name);
  const DiskArray& array = layout_.params[place.weight].arrays[place.array];
  StagingRing memory(array.part_stride);
  const std::span<std::byte> bytes = *memory.take(array.part_stride);
  for (int64_t layer = 0; layer < layout_.params[place.weight].layers; ++layer)
    for (size_t part = 0; part < array.parts.size(); ++part) {
      Box box = array.parts[part].box;
      if (weights_[place.weight].stacked) box.start[0] += layer;
      visit(array, part, box,
            file_offset({place.weight, layer}) + array.offset + static_cast<int64_t>(part) * array.part_stride, bytes);
    }
}

void DiskState::read(const std::string& name, const std::function<void(const HostShards&)>& use) {
  HostShards of_layer;
  for_each_box(name, [&](const DiskArray& array, size_t part, const Box& box, int64_t offset, std::span<std::byte> to) {
    if (array.parts[part].owned) {
      queue_.wait(queue_.read(offset, to));
      HostArray values(Shape{array.shape.dtype, box.size});
      std::memcpy(values.data(), to.data(), static_cast<size_t>(array.part_bytes));
      of_layer.shards.push_back({box, std::move(values)});
    }
    if (part + 1 < array.parts.size() || of_layer.shards.empty()) return;
    of_layer.shape = array.whole;
    use(std::exchange(of_layer, {}));
  });
}

void DiskState::write(const std::string& name, const FillBox& fill) {
  for_each_box(name, [&](const DiskArray& array, size_t, const Box& box, int64_t offset, std::span<std::byte> from) {
    fill_box_in_pieces(box, byte_size(array.shape.dtype), from.data(), fill);
    queue_.wait(queue_.write(offset, from));
  });
}

std::string DiskState::describe() const {
  std::string text = fmt::format("offload_dir: {}: read {} and wrote {} by {}", folder_, size_text(traffic_.read),
                                 size_text(traffic_.written), name_of(engine_));
  if (traffic_.seconds > 0)
    text += fmt::format("; after the first update: {} in {:.2f} s of updates, {}/s", size_text(traffic_.during),
                        traffic_.seconds,
                        size_text(static_cast<int64_t>(static_cast<double>(traffic_.during) / traffic_.seconds)));
  return text;
}

}  // namespace fettle
