// Defines Presence: a file that shows that a process works in a folder, and the test whether that process is still
// alive.
//
// The file is FOLDER/.fettle-ID, where ID is the process's name (process_name.h). The process is called the file's
// owner. The file contains the owner's host, process id and start time. Its modification time is the owner's last
// heartbeat; a thread of the owner renews it. The names of unfinished files and folders also contain the ID, so that
// another process can find out whether they are leftovers.
//
// A process that wants to know whether the owner is alive is called the reader. If owner and reader run on the same
// kernel, even in different containers, the owner's lock on its file decides, because the lock ends with the owner. If
// the file system has no locks, and owner and reader are in one container, the owner is alive if a process with its id
// and start time exists. In all other cases, the heartbeats decide. An owner without a lock counts as dead when its
// last heartbeat is older than Pace::dead_after. An owner with a lock never counts as dead, because it may be stopped.
// But the lock does not show that it is alive: if its machine died, the file server keeps the lock for a while.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>

#include "base/seconds_since.h"

namespace fettle {

struct Owner {
  std::string id;
  std::string host;       // the host's name, for messages
  std::string boot;       // boot id of the owner's kernel; empty: not known
  std::string pid_space;  // PID namespace of the owner; containers have their own
  int64_t pid = 0;
  int64_t started = 0;   // ticks from the boot to the owner's start; a later process with this pid has another value
  std::string since;     // when the owner began to work in the folder, for messages
  bool locks = false;    // the owner has a lock on its file
  bool run = false;      // the owner is a training run, which needs the folder exclusively
  bool settled = false;  // the owner has the folder for itself

  static Owner own();  // describes this process
  nlohmann::json json() const;
  // Returns "the run on HOST (process PID, since MOMENT)", or "a run (.fettle-ID)" if `host` is empty.
  std::string text() const;
};

// Reads the fields of a file that contains json(), in the order of json(). If a field is missing or broken, leaves
// `boot` empty, and this field and all later fields keep their defaults. Here the default of `run` is true, unlike in
// Owner.
Owner read_owner(const std::filesystem::path& file);

// Times in seconds. `heartbeat`: the time between two heartbeats. `dead_after`: an owner counts as dead when its last
// heartbeat is this old.
struct Pace {
  double heartbeat = 10, dead_after = 120;
};

enum class Life { kAlive, kDead, kUnknown };

class Presence {
 public:
  // Returns the presence of this process in `folder`. All callers share it. Throws UserError or DoesNotFit when the
  // folder cannot be written.
  static std::shared_ptr<Presence> in(const std::filesystem::path& folder);
  // Returns a new presence of this process, which is a training run and uses the folder exclusively. Throws UserError,
  // which names the other run, when another live run is in the folder. Removes the presence files and the small
  // unfinished files of dead runs, and prints a message for each dead run. If only heartbeats can show whether another
  // run is alive, waits up to Pace::dead_after for its next heartbeat, or for the end of its lock. If it still holds
  // the lock then, throws UserError, which names the file to remove if that run's host is dead. A signal that
  // InterruptScope catches ends the wait.
  static std::shared_ptr<Presence> alone_in(const std::filesystem::path& folder, Pace pace = {});
  ~Presence();  // removes the file and the stop_mark
  Presence(const Presence&) = delete;

  // Throws UserError when another run took over the folder: this process sent no heartbeat for a while, or its file was
  // removed.
  void check();

 private:
  Presence(std::filesystem::path folder, bool run, Pace pace);
  void create();
  void write();
  void become_alone();
  // Returns whether another live run is in the folder, and sets `other` to the owner of that run's file. When `wait` is
  // false, a run that may be alive counts as alive.
  bool found_another(bool wait, Owner& other);
  // What a waiting process has seen of another one: since when, its first heartbeat, and whether its lock is held.
  struct Seen {
    Clock::time_point since = Clock::now();
    std::optional<double> heartbeat;
    bool locked = false;
  };
  std::optional<Life> life_now(const std::string& id, Seen& seen) const;
  bool goes_first(const Owner& other, const std::string& id, double waited) const;
  void remove_dead(const Owner& dead, const std::string& id);
  void renew();
  void beat();

  std::filesystem::path folder_, file_;
  Owner owner_;
  Pace pace_;
  int fd_ = -1;
  std::atomic<bool> lost_ = false;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool ends_ = false;
  std::thread heart_;
};

// Returns whether the process called `id` still works in `folder`. A process without a file there is dead. Returns
// kUnknown when only the heartbeat can decide and the last heartbeat is recent: the process may have died since then.
// Also returns kUnknown when the process is on another machine and its lock is held.
// This process must have a presence in the folder: life_of renews this process's file and compares the modification
// times of both files, because the file server sets both times.
Life life_of(const std::filesystem::path& folder, const std::string& id, double dead_after = Pace().dead_after);
// Returns whether the process that owns this file is alive. A held lock counts as a sign of life here. The caller needs
// no presence in the folder. If only the
// heartbeat can decide, compares the heartbeat's time with this machine's clock.
bool is_alive(const std::filesystem::path& file);
// Removes the presence files and the small unfinished files of dead processes. This process must have a presence in the
// folder.
void remove_dead_presences(const std::filesystem::path& folder);

// Returns FOLDER/.fettle-ID.
std::filesystem::path presence_file(const std::filesystem::path& folder, const std::string& id);
// Returns the name of a file in the owner's folder. The file shows that somebody has asked the owner to stop, and that
// no second signal may follow, because it would end the owner at once. It is removed with the presence file.
std::string stop_mark(const std::string& id);

}  // namespace fettle
