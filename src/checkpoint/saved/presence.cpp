#include "checkpoint/saved/presence.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <map>
#include <sstream>
#include <utility>
#include <vector>

#include "base/environment.h"
#include "base/error.h"
#include "base/files/file_error.h"
#include "base/interrupt.h"
#include "base/local_time.h"
#include "base/log.h"
#include "base/process_name.h"
#include "base/seconds_since.h"

namespace fettle {
namespace fs = std::filesystem;
namespace {

using Json = nlohmann::json;
constexpr std::string_view kFilePrefix = ".fettle-";

std::string first_line(const char* file) {
  std::string line;
  std::ifstream in(file);
  std::getline(in, line);
  return line;
}

// Returns when the process started, in ticks since the boot; 0 when there is no such process.
int64_t start_of(int64_t pid) {
  const std::string stat = first_line(fmt::format("/proc/{}/stat", pid).c_str());
  const size_t name_end = stat.rfind(')');  // the process's name, before the last ')', may contain any character
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(stat.substr(name_end + 1));
  std::string skipped;
  for (int field = 3; field < 22; ++field) fields >> skipped;
  int64_t ticks = 0;
  fields >> ticks;
  return ticks;
}

struct flock whole_file(short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  return lock;
}

enum class Lock { kFree, kHeld, kUnknown };

Lock lock_on(const fs::path& file) {
  const int fd = ::open(file.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return Lock::kUnknown;
  struct flock lock = whole_file(F_WRLCK);
  const int result = fcntl(fd, F_OFD_GETLK, &lock);
  ::close(fd);
  return result != 0 ? Lock::kUnknown : lock.l_type == F_UNLCK ? Lock::kFree : Lock::kHeld;
}

// Sets `seconds` to the time of the file's last change; on a network file system, asks the server for it. Returns false
// when the file no longer exists.
bool changed_at(const fs::path& file, double& seconds) {
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return errno != ENOENT;
  struct stat status {};
  const bool known = fstat(fd, &status) == 0;
  ::close(fd);
  if (known) seconds = static_cast<double>(status.st_mtim.tv_sec) + 1e-9 * static_cast<double>(status.st_mtim.tv_nsec);
  return true;
}

std::vector<std::string> ids_in(const fs::path& folder) {
  std::vector<std::string> ids;
  std::error_code code;
  for (fs::directory_iterator it(folder, code), end; !code && it != end; it.increment(code)) {
    const std::string name = it->path().filename().string();
    if (name.starts_with(kFilePrefix)) ids.push_back(name.substr(kFilePrefix.size()));
  }
  return ids;
}

// Removes the small unfinished files (NAME.tmp-ID) of a dead process, and then its presence file. If this process is
// killed in between, the presence file remains and shows the next process that the owner is dead.
void remove_presence(const fs::path& folder, const std::string& id) {
  std::vector<fs::path> files;
  std::error_code code;
  for (fs::directory_iterator it(folder, code), end; !code && it != end; it.increment(code))
    if (it->path().filename().string().ends_with(".tmp-" + id) && it->is_regular_file(code))
      files.push_back(it->path());
  files.push_back(presence_file(folder, id));
  for (const fs::path& file : files) fs::remove(file, code);
}

std::mutex registry_mutex;
// The registry does not own the presences: the callers of in() and alone_in() do.
std::map<fs::path, std::weak_ptr<Presence>>& registry() {
  static std::map<fs::path, std::weak_ptr<Presence>> known;
  return known;
}

fs::path registered_name(const fs::path& folder) {
  std::error_code code;
  const fs::path real = fs::canonical(folder, code);
  return code ? fs::absolute(folder) : real;
}

}  // namespace

Owner Owner::own() {
  std::error_code code;
  return {.id = process_name(),
          .host = host_name(),
          .boot = boot_id(),
          .pid_space = fs::read_symlink("/proc/self/ns/pid", code).string(),
          .pid = getpid(),
          .started = start_of(getpid()),
          .since = LocalTime::now().text()};
}

Json Owner::json() const {
  return {{"host", host},   {"boot", boot},       {"pid_space", pid_space},
          {"pid", pid},     {"started", started}, {"since", since},
          {"locks", locks}, {"run", run},         {"settled", settled}};
}

std::string Owner::text() const {
  if (host.empty()) return fmt::format("a run ({}{})", kFilePrefix, id);
  return fmt::format("the run on {} (process {}, since {})", host, pid, since);
}

Owner read_owner(const fs::path& file) {
  std::ifstream in(file);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  Owner owner;
  if (const std::string name = file.filename().string(); name.starts_with(kFilePrefix))
    owner.id = name.substr(kFilePrefix.size());
  const Json fields = Json::parse(text, nullptr, false);
  owner.run = true;  // the default, if the file lacks `run`
  try {
    owner.host = fields.at("host").get<std::string>();
    owner.boot = fields.at("boot").get<std::string>();
    owner.pid_space = fields.at("pid_space").get<std::string>();
    owner.pid = fields.at("pid").get<int64_t>();
    owner.started = fields.at("started").get<int64_t>();
    owner.since = fields.at("since").get<std::string>();
    owner.locks = fields.at("locks").get<bool>();
    owner.run = fields.at("run").get<bool>();
    owner.settled = fields.at("settled").get<bool>();
  } catch (const Json::exception&) {
    owner.boot.clear();  // the file is incomplete: only its heartbeat can show that the owner is alive
  }
  return owner;
}

fs::path presence_file(const fs::path& folder, const std::string& id) {
  return folder / (std::string(kFilePrefix) + id);
}

// The name is that of an unfinished file, so all that cleans up after dead processes removes it.
std::string stop_mark(const std::string& id) {
  return ".stop.tmp-" + id;
}

namespace {

// What is known about the owner of a file without its heartbeat. kLockedElsewhere: the owner is on another machine and
// its lock is held. If that machine has died, the file server keeps the lock for a while (NFS: about 90 s).
enum class Sign { kAlive, kDead, kLockedElsewhere, kNone };

Sign sign_of(const fs::path& file) {
  const Owner owner = read_owner(file), own = Owner::own();
  const bool known = !owner.boot.empty() && !own.boot.empty(), same_kernel = known && owner.boot == own.boot;
  const Lock lock = lock_on(file);
  if (lock == Lock::kHeld) return known && !same_kernel ? Sign::kLockedElsewhere : Sign::kAlive;
  if (same_kernel && owner.locks && lock == Lock::kFree) return Sign::kDead;
  if (same_kernel && owner.pid_space == own.pid_space)
    return owner.started != 0 && start_of(owner.pid) == owner.started ? Sign::kAlive : Sign::kDead;
  return Sign::kNone;
}

}  // namespace

Life life_of(const fs::path& folder, const std::string& id, double dead_after) {
  if (id == process_name()) return Life::kAlive;
  const fs::path file = presence_file(folder, id);
  double last = 0, present = 0;
  if (!changed_at(file, last)) return Life::kDead;
  switch (sign_of(file)) {
    case Sign::kAlive: return Life::kAlive;
    case Sign::kDead: return Life::kDead;
    case Sign::kLockedElsewhere: return Life::kUnknown;
    case Sign::kNone: break;
  }
  const fs::path now = presence_file(folder, process_name());
  utimensat(AT_FDCWD, now.c_str(), nullptr, 0);
  changed_at(now, present);
  return present - last > dead_after ? Life::kDead : Life::kUnknown;
}

bool is_alive(const fs::path& file) {
  if (const Sign sign = sign_of(file); sign != Sign::kNone) return sign != Sign::kDead;
  double last = 0;
  return changed_at(file, last) && static_cast<double>(std::time(nullptr)) - last < Pace().dead_after;
}

void remove_dead_presences(const fs::path& folder) {
  for (const std::string& id : ids_in(folder))
    if (is_process_name(id) && life_of(folder, id) == Life::kDead) remove_presence(folder, id);
}

std::shared_ptr<Presence> Presence::in(const fs::path& folder) {
  const std::lock_guard lock(registry_mutex);
  std::weak_ptr<Presence>& known = registry()[registered_name(folder)];
  // After a fork the registry still has the parent's presence, which must not be used for this process.
  if (auto there = known.lock(); there && there->owner_.id == process_name()) return there;
  const std::shared_ptr<Presence> made(new Presence(folder, false, {}));
  known = made;
  return made;
}

std::shared_ptr<Presence> Presence::alone_in(const fs::path& folder, Pace pace) {
  const std::shared_ptr<Presence> made(new Presence(folder, true, pace));
  made->become_alone();
  const std::lock_guard lock(registry_mutex);
  registry()[registered_name(folder)] = made;
  return made;
}

Presence::Presence(fs::path folder, bool run, Pace pace)
    : folder_(std::move(folder)), owner_(Owner::own()), pace_(pace) {
  owner_.run = run;
  file_ = presence_file(folder_, owner_.id);
  create();
  heart_ = std::thread([this] { beat(); });
}

Presence::~Presence() {
  if (owner_.id != process_name()) {  // after a fork: the file and the thread are the parent's
    heart_.detach();
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  ended_.notify_all();
  heart_.join();
  ::unlink((folder_ / stop_mark(owner_.id)).c_str());
  ::unlink(file_.c_str());
  if (fd_ >= 0) ::close(fd_);
}

void Presence::create() {
  const int fd = ::open(file_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) throw_file_error("write", file_, errno);
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
  struct flock lock = whole_file(F_WRLCK);
  owner_.locks = fcntl(fd_, F_OFD_SETLK, &lock) == 0;
  write();
}

void Presence::write() {
  std::string text = owner_.json().dump() + "\n";
  if (owner_.settled) text.insert(text.size() - 1, " ");  // pads `true` to the length of `false`
  if (pwrite(fd_, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size())) return;
  const int error_number = errno;
  ::unlink(file_.c_str());
  throw_file_error("write", file_, error_number);
}

// Every run first creates its own file and then looks for others. So if two runs begin at the same time, at least one
// sees the other. If they see each other, the run with the smaller id continues.
void Presence::become_alone() {
  Owner other;
  if (found_another(true, other))
    throw UserError(
        "output_dir: {} works in {}: two runs would delete each other's checkpoints; wait until that run ends, stop "
        "it, or choose another folder",
        other.text(), folder_.string());
  owner_.settled = true;
  write();
}

bool Presence::found_another(bool wait, Owner& other) {
  bool told = false;
  std::map<std::string, Seen> seen;
  for (const auto begin = Clock::now();; std::this_thread::sleep_for(std::chrono::milliseconds(50))) {
    if (wait) InterruptScope::check("waiting for another run in output_dir");
    bool unclear = false;
    for (const std::string& id : ids_in(folder_)) {
      if (id == owner_.id) continue;
      const Owner found = read_owner(presence_file(folder_, id));
      const std::optional<Life> life = found.run ? life_now(id, seen[id]) : std::nullopt;
      if (!life) continue;
      if (*life == Life::kDead) {
        remove_dead(found, id);
      } else if (!wait || (*life == Life::kAlive && goes_first(found, id, seconds_since(begin)))) {
        other = found;
        return true;
      } else {
        unclear = true;
        if (*life == Life::kUnknown && seen[id].locked && seconds_since(seen[id].since) > pace_.dead_after)
          throw UserError(
              "output_dir: {} has sent no heartbeat for {} s, but still holds the lock on its file in {}: its host may "
              "be dead, or the run is stopped; if it has ended, remove {} and start again",
              found.text(), pace_.dead_after, folder_.string(), presence_file(folder_, id).string());
        if (*life == Life::kUnknown && !std::exchange(told, true))
          info("output_dir: waiting up to {} s for a heartbeat of {}", pace_.dead_after, found.text());
      }
    }
    if (!unclear) return false;
  }
}

// Returns whether the process `id` is alive; nullopt if its file is gone. If life_of() cannot decide, a changed
// heartbeat shows that the process is alive. A lock that becomes free shows nothing: a file server also takes the lock
// of a live process that it does not reach.
std::optional<Life> Presence::life_now(const std::string& id, Seen& seen) const {
  const fs::path file = presence_file(folder_, id);
  const Life life = life_of(folder_, id, pace_.dead_after);
  const Lock lock = lock_on(file);
  double heartbeat = 0;
  // Comes after lock_on(): a process that ends removes its file before it releases the lock.
  if (!changed_at(file, heartbeat)) return std::nullopt;
  if (life != Life::kUnknown) return life;
  if (!seen.heartbeat) seen.heartbeat = heartbeat;
  if (*seen.heartbeat != heartbeat) return Life::kAlive;
  seen.locked = lock == Lock::kHeld;
  return life;
}

// Returns whether the other living run goes first. A run that already has the folder goes first; otherwise, the run
// with the smaller id goes first. The other run also goes first if its file still lacks the host after kHalfWritten
// (the file may be incomplete), or if it does not give up within Pace::dead_after (its machine may be slow).
bool Presence::goes_first(const Owner& other, const std::string& id, double waited) const {
  constexpr double kHalfWritten = 5;  // seconds; a live owner writes its host into its new file faster than this
  if (other.settled) return true;
  if (other.host.empty()) return waited > kHalfWritten;
  return id < owner_.id || waited > pace_.dead_after;
}

void Presence::remove_dead(const Owner& dead, const std::string& id) {
  info("{} was killed or crashed; this run takes over {}", dead.text(), folder_.string());
  remove_presence(folder_, id);
}

// Renews the heartbeat. If the file is missing, because another run took this process for dead or somebody removed it,
// creates it again. Does not create it if this process is a run and another run works in the folder.
void Presence::renew() {
  if (utimensat(AT_FDCWD, file_.c_str(), nullptr, 0) == 0 || errno != ENOENT) return;
  try {
    Owner other;
    if (owner_.run && found_another(false, other))
      lost_ = true;
    else
      create();
  } catch (const Error&) {
    // The folder is gone or cannot be written now. The next heartbeat tries again.
  }
}

void Presence::beat() {
  std::unique_lock lock(mutex_);
  while (!ended_.wait_for(lock, std::chrono::duration<double>(pace_.heartbeat), [this] { return ends_; }))
    if (!lost_) renew();
}

void Presence::check() {
  if (std::error_code code; !lost_ && !fs::exists(file_, code) && !code) {
    const std::lock_guard lock(mutex_);
    renew();
  }
  if (lost_)
    throw UserError(
        "output_dir: another run has taken over {}: this run sent no heartbeat for {} s (it was stopped, or it lost "
        "the file server), or its file {} was removed; this run ends and changes nothing in the folder",
        folder_.string(), pace_.dead_after, file_.filename().string());
}

}  // namespace fettle
