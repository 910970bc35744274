// Defines HostShards: a global array, or a part of one, in host memory.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/arrays/box.h"
#include "base/arrays/host_array.h"

namespace fettle {

// A global array as its distinct boxes (rectangular parts). The bytes of a box are contiguous. With several processes,
// HostShards has only the boxes that this process owns. The owner of a box is the process of the first device that
// stores the box.
struct HostShards {
  struct Shard {
    Box box;
    HostArray bytes;
  };
  Shape shape;  // the global shape
  std::vector<Shard> shards;
};

// A function that calls `use` with the array called `name`. If the array is on a disk, it calls `use` for one layer
// after another, with the boxes of that layer. The same array may be fetched several times.
using FetchArray = std::function<void(const std::string& name, const std::function<void(const HostShards&)>& use)>;

}  // namespace fettle
