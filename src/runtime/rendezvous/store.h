// Defines Store: the keys and values that the processes of a run share.
#pragma once

#include <optional>
#include <string>

namespace fettle {

// Thread-safe. Keys and values are any bytes. Every call may throw DeviceError when the store cannot be reached.
class Store {
 public:
  // Means that the caller does not know which process puts the key.
  static constexpr int kAnyone = -1;

  Store() = default;
  Store(const Store&) = delete;
  virtual ~Store() = default;

  // Sets the value of a key. Only one process may put a given key; a later value replaces the earlier one.
  virtual void put(const std::string& key, const std::string& value) = 0;
  // Returns the value of the key; nullopt when no process has put the key yet. `owner` is the rank of the process that
  // puts the key, or kAnyone. With PMIx, only the process `owner` is asked, or all processes for kAnyone. Redis ignores
  // `owner`.
  virtual std::optional<std::string> try_get(const std::string& key, int owner = kAnyone) = 0;
  // Ends all processes of the run with this exit code, if the launcher can do that; otherwise returns.
  virtual void end_job(int exit_code, const std::string& message) {
    static_cast<void>(exit_code);
    static_cast<void>(message);
  }
};

}  // namespace fettle
