#include "checkpoint/saved/result_folder.h"

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files/file_error.h"
#include "base/files/json_file.h"
#include "base/files/output_file.h"
#include "base/process_name.h"
#include "checkpoint/saved/atomic_folder.h"
#include "checkpoint/saved/checkpoint_list.h"

namespace fettle {
namespace fs = std::filesystem;
namespace {

const char* const kComplete = ".result";
const char* const kDrops = ".drops.json";  // a file in kComplete: the list of the files that drop() named
// Other programs recognise a model or adapter folder by these files.
constexpr const char* kEntries[] = {"config.json", "adapter_config.json"};

bool is_entry(const std::string& name) {
  return std::find(std::begin(kEntries), std::end(kEntries), name) != std::end(kEntries);
}

void move_file(const fs::path& from, const fs::path& to) {
  std::error_code code;
  fs::create_directories(to.parent_path(), code);
  if (std::rename(from.c_str(), to.c_str()) != 0) throw_file_error("create", to, errno);
}

void remove_file(const fs::path& file) {
  std::error_code code;
  fs::remove(file, code);
  if (code) throw_file_error("delete", file, code.value());
}

}  // namespace

ResultFolder::ResultFolder(const fs::path& output_dir)
    : output_dir_(output_dir),
      working_(output_dir / (std::string(kComplete) + ".tmp-" + process_name())),
      presence_(Presence::in(output_dir)) {
  finish_result(output_dir);  // moves the result of an earlier attempt into place
  std::error_code code;
  fs::remove_all(working_, code);
  fs::create_directories(working_, code);
  if (code) throw_file_error("create", working_, code.value());
}

ResultFolder::~ResultFolder() {
  std::error_code ignored;
  if (!counts_) fs::remove_all(working_, ignored);
}

void ResultFolder::commit() {
  if (!counts_) {
    std::erase_if(dropped_, [&](const std::string& file) { return fs::exists(working_ / file); });
    write_json_file(working_ / kDrops, dropped_);
    sync_tree(working_);
    presence_->check();
    move_file(working_, output_dir_ / kComplete);
    counts_ = true;
    sync_path(output_dir_);
  }
  finish_result(output_dir_);
}

bool has_cut_off_result(const fs::path& output_dir) {
  std::error_code ignored;
  return fs::is_directory(output_dir / kComplete, ignored);
}

void require_ended_run(const fs::path& output_dir, const std::string& entry, std::string_view key) {
  if (has_cut_off_result(output_dir))
    throw UserError(
        "{}: a run was interrupted while it moved its result to this folder; start the run again with "
        "resume_from_checkpoint=true, which completes the move, or move the files of {}/{} yourself",
        output_dir.string(), output_dir.string(), kComplete);
  const std::vector<CheckpointFolder> checkpoints = list_checkpoints(output_dir);
  const auto newest = std::find_if(checkpoints.rbegin(), checkpoints.rend(), [&](const CheckpointFolder& one) {
    return (one.complete || !fs::exists(state_folder(one.path))) && fs::exists(one.path / entry);
  });
  if (newest == checkpoints.rend()) return;
  throw UserError("{} has no {}: its run has not ended; set {} to {}, or resume the run with resume_from_checkpoint",
                  output_dir.string(), entry, key, newest->path.string());
}

void finish_result(const fs::path& output_dir) {
  const fs::path result = output_dir / kComplete;
  if (!has_cut_off_result(output_dir)) return;
  std::vector<std::string> drops, entries, others;
  if (fs::exists(result / kDrops)) drops = read_json_file(result / kDrops).get<std::vector<std::string>>();
  for (const auto& file : fs::recursive_directory_iterator(result))
    if (const std::string name = fs::relative(file.path(), result).string(); !file.is_directory() && name != kDrops)
      (is_entry(name) ? entries : others).push_back(name);
  for (const auto* names : {&entries, &drops})
    for (const std::string& name : *names)
      if (is_entry(name)) remove_file(output_dir / name);
  sync_path(output_dir);
  for (const std::string& name : others) move_file(result / name, output_dir / name);
  for (const std::string& name : drops) remove_file(output_dir / name);
  sync_path(output_dir);
  for (const std::string& name : entries) move_file(result / name, output_dir / name);
  sync_path(output_dir);
  remove_folder(result);
}

}  // namespace fettle
