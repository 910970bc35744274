#include "train/write_in_parts.h"

#include <optional>

namespace fettle {

void write_array(StateWriter& state, const std::string& name, const HostShards& array) {
  for (const HostShards::Shard& shard : array.shards)
    state.add(name, array.shape, shard.box, {shard.bytes.data(), static_cast<size_t>(shard.bytes.bytes())});
}

void write_state(StateWriter& state, const std::vector<StateArray>& arrays, const FetchArray& fetch) {
  for (const StateArray& array : arrays)
    fetch(array.name, [&](const HostShards& values) { write_array(state, array.name, values); });
}

void write_in_parts(const Processes& processes, const std::string& name,
                    const std::function<std::filesystem::path()>& make_folder,
                    const std::function<void(StateWriter&)>& write_own,
                    const std::function<void(StateWriter&)>& complete) {
  const std::filesystem::path folder =
      processes.agree(name + ": folder", [&] { return processes.first() ? make_folder().string() : std::string(); })[0];
  std::optional<StateWriter> state;
  processes.agree(name + ": parts", [&] {
    state.emplace(folder, processes.rank());
    write_own(*state);
    if (!processes.first()) state->finish_part();
    return "";
  });
  processes.agree(name + ": commit", [&] {
    if (!processes.first()) return "";
    state->add_parts(processes.count());
    complete(*state);
    return "";
  });
}

}  // namespace fettle
