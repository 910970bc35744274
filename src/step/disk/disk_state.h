// Defines DiskState: the optimizer state of this process's devices in a file, and the updates that read and write it.
// With offload_dir_weights, the file also has the f32 weights of the layers' matrices.
//
// A step first computes all gradients, because clipping needs their norm. Then a small program runs for each layer of
// each weight, one after another, and updates this layer. While the program runs, the state of the next layers is read
// from the file, and the state of the previous layers is written (ZeRO-Infinity, Rajbhandari et al. 2021). The state of
// the first layers is read while the gradients are computed.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/seconds_since.h"
#include "disk/scratch_file.h"
#include "disk/staging_ring.h"
#include "disk/transfer_queue.h"
#include "programs/devices.h"
#include "step/disk/disk_layout.h"
#include "step/state/host_shards.h"

namespace fettle {

// What the updates have done so far.
struct DiskTraffic {
  int64_t read = 0, written = 0;  // bytes
  // `during` and `seconds` leave out the first call of update(). In a new run, this call reads no optimizer state from
  // the disk, because the file has none yet.
  int64_t during = 0;  // bytes that were read and written while update() ran
  double seconds = 0;  // duration of the calls of update()
};

class DiskState {
 public:
  // Makes the file, with zeros, and compiles the programs of the updates. Throws DoesNotFit and UserError like
  // ScratchFile.
  DiskState(Devices& devices, const Run& run);

  // Starts to read the state that the next update needs first.
  void read_ahead();
  // Updates all trained weights in `buffers` and their state. `gradients` has the outputs of the training step; this
  // function deletes the gradients among them. `scalars` has the optimizer's scalars. Throws UserError or DoesNotFit
  // when the disk fails; the weights and the state are then lost.
  void update(const Devices& devices, std::map<std::string, DeviceBuffer>& buffers,
              std::map<std::string, DeviceBuffer>& gradients, std::map<std::string, DeviceBuffer>& scalars);

  bool contains(const std::string& name) const { return arrays_.contains(name); }
  // Calls `use` for each layer of the array `name`, one after another, with the boxes of the layer that this process
  // owns. A box is the part of a layer that a device has. The boxes of all processes together cover the array.
  void read(const std::string& name, const std::function<void(const HostShards&)>& use);
  // Writes the array `name`: the boxes of this process's devices. `fill` provides the values in pieces; several threads
  // call it.
  void write(const std::string& name, const FillBox& fill);

  // Describes the traffic: "offload_dir: /scratch: read 53.90 GB and wrote 53.90 GB by io_uring; after the first
  // update: 94.00 GB in 12.50 s of updates, 7.52 GB/s". The last figures (DiskTraffic::during and `seconds`) leave out
  // the first update, and what is read or written while gradients are computed.
  std::string describe() const;

 private:
  // A weight of the run, with the program that updates a layer of it.
  struct Weight {
    std::string input, gradient;
    bool stacked;
    std::shared_ptr<const Executable> update;
  };
  // One layer of one weight.
  struct Unit {
    size_t weight;
    int64_t layer;
  };
  // The state of a unit in host memory, while it is read, updated and written. This happens in the order of the units.
  struct Stage {
    size_t unit;
    std::span<std::byte> bytes;
    TransferQueue::Ticket ticket;     // for the read, then for the write
    std::vector<DeviceBuffer> state;  // the new state, while the update runs
    enum { kRead, kUpdated, kWritten } phase = kRead;
  };
  struct Place {
    size_t weight, array;
  };
  const DiskParam& param(const Unit& unit) const { return layout_.params[unit.weight]; }
  int64_t file_offset(const Unit& unit) const;
  bool start_read();
  void store_updated(Stage& stage);
  void make_room();
  void finish_writes();
  Stage& stage_of(size_t unit);
  void run_update(const Devices& devices, Stage& stage, std::map<std::string, DeviceBuffer>& buffers,
                  std::map<std::string, DeviceBuffer>& gradients, std::map<std::string, DeviceBuffer>& scalars);
  template <typename Visit>
  void for_each_box(const std::string& name, const Visit& visit);

  std::string folder_;
  DiskLayout layout_;
  std::vector<Weight> weights_;
  std::vector<Unit> units_;
  std::map<std::string, Place> arrays_;
  ScratchFile file_;
  StagingRing ring_;
  std::deque<Stage> stages_;  // oldest first
  size_t next_read_ = 0;      // the unit that is read next
  DiskTraffic traffic_;
  bool first_ = true;  // no update has run yet
  DiskEngine engine_;
  TransferQueue queue_;  // destroyed first: it waits for transfers to and from ring_
};

}  // namespace fettle
