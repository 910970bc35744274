#include "doctor/machine_checks.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstring>

#include "base/error.h"
#include "base/seconds_since.h"
#include "base/size_text.h"
#include "runtime/vendors/choice.h"
#include "runtime/vendors/libraries.h"
#include "runtime/vendors/plugin.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kWritten = 64'000'000;

// A file without a name, which the system deletes when the file is closed.
class TrialFile {
 public:
  explicit TrialFile(const fs::path& folder) {
    std::string name = (folder / "fettle-doctor-XXXXXX").string();
    fd_ = mkstemp(name.data());
    if (fd_ < 0) throw UserError("{}: cannot be written: {}", folder.string(), std::strerror(errno));
    unlink(name.c_str());
  }
  ~TrialFile() { close(fd_); }
  TrialFile(const TrialFile&) = delete;
  TrialFile& operator=(const TrialFile&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

// Calls `move` repeatedly until kWritten bytes are written or read.
template <typename Move>
void move_all(const fs::path& folder, Move move) {
  std::vector<char> part(1 << 20, 'x');
  for (int64_t done = 0; done < kWritten;) {
    const auto count = static_cast<size_t>(std::min<int64_t>(kWritten - done, static_cast<int64_t>(part.size())));
    const ssize_t moved = move(part.data(), count);
    if (moved <= 0) throw UserError("{}: {}", folder.string(), moved < 0 ? std::strerror(errno) : "a file is cut off");
    done += moved;
  }
}

}  // namespace

bool check_plugin(Findings& findings, const std::string& plugin) {
  fs::path path;
  const bool found = findings.attempt("plugin", [&]() -> Finding {
    path = Plugin::find(plugin);
    if (path.empty()) Plugin::load(plugin);  // throws an error that lists the searched places and the remedy
    return {"plugin", Verdict::kGood, path.string(), ""};
  });
  if (!found) return false;
  if (plugin.empty())
    for (const std::string_view absent : choose_plugin().absent)
      findings.add({fmt::format("plugin {}", absent), Verdict::kNote, absence_text(absent),
                    std::string(vendor_named(absent)->remedy)});
  const Vendor& vendor = vendor_of_file(path.filename().string());
  bool driver_is_missing = false;
  findings.attempt("libraries", [&]() -> Finding {
    std::vector<std::string> names;
    for (const Library& library : check_libraries(path, vendor)) {
      names.push_back(library.name);
      if (library.reason.empty()) continue;
      driver_is_missing = driver_is_missing || library.name == vendor.driver.library;
      findings.add({"library",
                    Verdict::kBad,
                    fmt::format("{} is missing: {}", library.name, library.reason),
                    std::string(vendor.remedy),
                    {{"name", library.name}}});
    }
    const bool complete = findings.all().back().check != "library";
    return {"libraries",
            complete ? Verdict::kGood : Verdict::kNote,
            names.empty() ? "the plugin needs no libraries"
            : complete    ? fmt::format("all {} libraries that the plugin loads are installed", names.size())
                          : fmt::format("the plugin loads {} libraries; the ones above are missing", names.size()),
            "",
            {{"names", names}}};
  });
  // The driver's library may be in a folder that only the plugin's RUNPATH names. Then the check of the libraries has
  // loaded it.
  if (!vendor.driver.library.empty())
    findings.attempt("driver", [&]() -> Finding {
      if (driver_is_missing)
        return {"driver", Verdict::kSkipped, fmt::format("only {} tells its version", vendor.driver.library), ""};
      const std::string version = driver_version(vendor), lack = lack_of_driver(vendor);
      if (!lack.empty())
        return {"driver",
                Verdict::kBad,
                fmt::format("{}, but {}", version, lack),
                fmt::format("update the driver to {} or later", vendor.driver.least_release),
                {{"version", version}}};
      if (!version.empty()) return {"driver", Verdict::kGood, version, "", {{"version", version}}};
      return {"driver", Verdict::kBad, fmt::format("{} does not answer", vendor.driver.library),
              fmt::format("install the driver (docs/gpus.md); {}", device_state(vendor))};
    });
  return true;
}

namespace {

Finding measured_disk(const std::string& check, const fs::path& wanted) {
  fs::path folder = fs::absolute(wanted);
  for (; !fs::is_directory(folder); folder = folder.parent_path())
    if (fs::exists(folder)) throw UserError("{} is not a folder", folder.string());
  const int64_t free = static_cast<int64_t>(fs::space(folder).available);
  if (free < 2 * kWritten)
    return {check,
            Verdict::kBad,
            fmt::format("{} has {} left", folder.string(), size_text(free)),
            "free some space",
            {{"free_bytes", free}}};
  const TrialFile file(folder);
  const auto writing = Clock::now();
  move_all(folder, [&](char* part, size_t count) { return write(file.fd(), part, count); });
  if (fsync(file.fd()) != 0) throw UserError("{}: {}", folder.string(), std::strerror(errno));
  const double written = kWritten / seconds_since(writing);
  posix_fadvise(file.fd(), 0, 0, POSIX_FADV_DONTNEED);
  lseek(file.fd(), 0, SEEK_SET);
  const auto reading = Clock::now();
  move_all(folder, [&](char* part, size_t count) { return read(file.fd(), part, count); });
  const double read_back = kWritten / seconds_since(reading);
  return {check,
          Verdict::kGood,
          fmt::format("{}: writes {}/s, reads {}/s, {} free", folder.string(), size_text(static_cast<int64_t>(written)),
                      size_text(static_cast<int64_t>(read_back)), size_text(free)),
          "",
          {{"folder", folder.string()},
           {"write_bytes_per_s", written},
           {"read_bytes_per_s", read_back},
           {"free_bytes", free}}};
}

}  // namespace

Finding check_disk(const std::string& check, const fs::path& wanted, std::string_view name) {
  const std::string remedy = fmt::format("set {} to a folder that you can write to", name);
  try {
    return measured_disk(check, wanted);
  } catch (const UserError& error) {
    return {check, Verdict::kBad, error.what(), remedy};
  } catch (const fs::filesystem_error& error) {
    return {check, Verdict::kBad, fmt::format("{}: {}", error.path1().string(), error.code().message()), remedy};
  }
}

}  // namespace fettle
