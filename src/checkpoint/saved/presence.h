// Defines Presence: the file by which a process says that it works in a folder, and the test whether one still does.
//
// The file is FOLDER/.fettle-ID, where ID is the process's name (process_name.h). It contains the owner's host, process
// id and start. Its modification time is the owner's last heartbeat; a thread renews it. Unfinished files and folders
// have the ID in their names too, so it can be found out whether they are leftovers.
//
// Owner and reader on the same kernel, also in different containers: the owner's lock on its file ends with the owner.
// Where the file system has no locks, a process with the owner's id must exist and have started at the owner's start.
// On different machines: a lock shows that the owner is alive. Without one, it counts as dead when its last heartbeat
// is older than Pace::dead_after.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

namespace fettle {

struct Owner {
  std::string id;
  std::string host;       // its name, for messages
  std::string boot;       // of the kernel it runs on; empty: not known
  std::string pid_space;  // in which its number counts; containers have their own
  int64_t pid = 0;
  int64_t started = 0;   // ticks from the boot to its start: tells it from a later process with its number
  std::string since;     // when it began to work in the folder, for messages
  bool locks = false;    // it holds a lock on its file
  bool run = false;      // a training run, which wants the folder for itself
  bool settled = false;  // it has the folder for itself

  static Owner own();  // this process
  nlohmann::json json() const;
  // "the run on HOST (process PID, since MOMENT)".
  std::string text() const;
};

// Reads a file that json() was written to. Fields that are missing or broken stay empty.
Owner read_owner(const std::filesystem::path& file);

// Seconds.
struct Pace {
  double heartbeat = 10, dead_after = 120;
};

class Presence {
 public:
  // The presence of this process in `folder`, shared by all who ask for it. Throws UserError or DoesNotFit when the
  // folder cannot be written.
  static std::shared_ptr<Presence> in(const std::filesystem::path& folder);
  // The same for a training run, which has the folder for itself. Throws UserError naming the run that is there.
  // Removes what dead runs left of themselves and says so; when only time can tell whether a run on another machine is
  // dead, waits for it, which InterruptScope may end.
  static std::shared_ptr<Presence> alone_in(const std::filesystem::path& folder, Pace pace = {});
  ~Presence();  // removes the file
  Presence(const Presence&) = delete;

  // Throws UserError when another run took the folder over, because this process sent no heartbeat for a while or its
  // file was removed.
  void check();

 private:
  Presence(std::filesystem::path folder, bool run, Pace pace);
  void create();
  void write();
  void become_alone();
  // Whether a live run other than this one is there. With `wait` false, one that may be alive counts.
  bool found_another(bool wait, Owner& other);
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

enum class Life { kAlive, kDead, kUnknown };

// Whether the process called `id` still works in `folder`, where this process has a presence; dead when it has no file
// there. Times are compared with that of this process's file, which is renewed for it: both are the file server's.
Life life_of(const std::filesystem::path& folder, const std::string& id, double dead_after = Pace().dead_after);
// Removes the files of dead processes. This process has a presence in the folder.
void remove_dead_presences(const std::filesystem::path& folder);

// FOLDER/.fettle-ID
std::filesystem::path presence_file(const std::filesystem::path& folder, const std::string& id);

}  // namespace fettle
