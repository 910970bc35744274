#include "board/control.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "base/files/file_error.h"
#include "base/files/run_files.h"
#include "base/process_name.h"
#include "board/recipe_form.h"
#include "report/view/run_file.h"
#include "report/view/run_view.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

std::string text_of(const ordered_json& asked, const char* name) {
  const auto found = asked.find(name);
  if (found == asked.end() || !found->is_string()) throw UserError("the request lacks the text '{}'", name);
  return found->get<std::string>();
}

std::vector<std::string> words_of(const ordered_json& asked) {
  const auto found = asked.find("words");
  if (found == asked.end() || !found->is_array()) throw UserError("the request lacks the list 'words'");
  std::vector<std::string> words;
  for (const ordered_json& word : *found) {
    if (!word.is_string() || word.get_ref<const std::string&>().find('\0') != std::string::npos)
      throw UserError("an entry of 'words' is not a text of the form key=value");
    words.push_back(word.get<std::string>());
  }
  return words;
}

int64_t number_of(const ordered_json& asked) {
  const auto found = asked.find("number");
  if (found == asked.end() || !found->is_number_integer()) throw UserError("the request lacks the number of a command");
  return found->get<int64_t>();
}

// Throws UserError if `name` cannot be the path of a new run's folder below the board's folder.
void check_new_name(const std::string& name) {
  const std::string allowed =
      "up to 4 parts, with '/' between them; a part has 1 to 100 letters, digits, '.', '-' and '_', and does not begin "
      "with '.', '-' or 'checkpoint-'";
  size_t begin = 0;
  int parts = 0;
  for (;;) {
    const size_t end = std::min(name.find('/', begin), name.size());
    const std::string part = name.substr(begin, end - begin);
    bool sound = !part.empty() && part.size() <= 100 && part[0] != '.' && part[0] != '-' &&
                 !part.starts_with("checkpoint-") && ++parts <= 4;
    for (const char c : part)
      sound = sound && (std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '-' || c == '_');
    if (!sound) throw UserError("'{}' is not a valid name of a run; a name may have {}", name, allowed);
    if (end == name.size()) return;
    begin = end + 1;
  }
}

// Makes the folder of a new run below `root`. The parent folders may already exist, but must not be links.
void make_folder(const fs::path& root, const std::string& name) {
  fs::path at = root;
  std::error_code failed;
  for (const fs::path& part : fs::path(name)) {
    at /= part;
    if (fs::is_symlink(at, failed)) throw UserError("{} is a link; the board does not follow it", at.string());
    if (at == root / name && fs::exists(at, failed))
      throw UserError("there is already something at {}; choose another name", at.string());
    failed.clear();
    const bool made = fs::create_directory(at, failed);
    if (failed) throw UserError("cannot create {}: {}", at.string(), failed.message());
    if (!made && at == root / name)  // another request has just made the folder
      throw UserError("there is already something at {}; choose another name", at.string());
  }
}

bool runs_fettle(int64_t process) {
  std::error_code missing;
  const std::string program = fs::read_symlink(fmt::format("/proc/{}/exe", process), missing).filename().string();
  return !missing && (program == "fettle" || program == "fettle (deleted)");
}

}  // namespace

bool Control::works_on(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const auto found = started_.find(name);
  return found != started_.end() && !jobs_.detached_code(found->second);
}

ordered_json Control::check(const ordered_json& asked) const {
  return {{"yaml", recipe_yaml(words_of(asked), "")}};
}

ordered_json Control::query(const ordered_json& asked) {
  const std::string command = text_of(asked, "command");
  if (command != "plan" && command != "data") throw UserError("the board runs only the commands plan and data");
  const std::vector<std::string> words = words_of(asked);
  recipe_yaml(words, "");  // throws at once if a key is wrong
  std::vector<std::string> arguments{command, "--json"};
  arguments.insert(arguments.end(), words.begin(), words.end());
  return {{"number", jobs_.query(arguments)}};
}

ordered_json Control::query_state(const ordered_json& asked) {
  auto state = jobs_.state(number_of(asked));
  if (!state) throw UserError("this command is not known any more; run it again");
  return *state;
}

ordered_json Control::query_end(const ordered_json& asked) {
  return {{"ended", jobs_.end(number_of(asked))}};
}

void Control::launch(RunList& runs, const std::string& name, const std::vector<std::string>& arguments,
                     const std::string& folder) {
  const std::string path = name == "." ? "" : name;
  const int output = runs.files().append(run_path(path, kTrainOutput));
  if (output < 0) throw UserError("cannot write {} of the run {}: {}", kTrainOutput, name, std::strerror(errno));
  const pid_t process = jobs_.detach(arguments, output, folder);
  {
    const std::lock_guard lock(mutex_);
    started_[name] = process;
  }
  runs.refresh(0);
}

ordered_json Control::start(RunList& runs, const ordered_json& asked) {
  const std::string name = text_of(asked, "name");
  check_new_name(name);
  const fs::path folder = fs::absolute(runs.files().root()) / name;
  const std::string yaml = recipe_yaml(words_of(asked), folder.string());
  make_folder(runs.files().root(), name);
  const int file = runs.files().append(run_path(name, kTrainRecipe));
  const ssize_t written = file < 0 ? -1 : write(file, yaml.data(), yaml.size());
  const std::string why = written < 0 ? std::strerror(errno) : "only a part was written";
  if (file >= 0) close(file);
  if (written != std::ssize(yaml)) throw UserError("cannot write {}: {}", (folder / kTrainRecipe).string(), why);
  launch(runs, name, {"train", (folder / kTrainRecipe).string()});
  return {{"name", name}};
}

ordered_json Control::resume(RunList& runs, const ordered_json& asked) {
  const std::string name = text_of(asked, "name");
  const std::optional<std::string> path = runs.path_of(name);
  if (!path) throw UserError("there is no run '{}'", name);
  if (works_on(name) || runs.owner(name)) throw UserError("a process already works on the run '{}'", name);
  const ordered_json details = run_details(runs.files(), *path);
  if (details["checkpoints"].empty())
    throw UserError("the run '{}' has no checkpoint to continue from; start it again as a new run", name);
  const ordered_json& run = details["run"];
  if (!run.is_object() || !run.contains("recipe") || !run["recipe"].is_object())
    throw UserError("the run '{}' has no {} with its recipe; resume it in a terminal", name, kRunFile);
  std::vector<std::string> words;
  for (const auto& [key, value] : run["recipe"].items())
    if (key != "output_dir" && key != "resume_from_checkpoint" && key != "overwrite_output_dir")
      words.push_back(key + "=" + (value.is_string() ? value.get<std::string>() : value.dump()));
  words.push_back("output_dir=" + (fs::absolute(runs.files().root()) / *path).lexically_normal().string());
  words.push_back("resume_from_checkpoint=true");
  recipe_yaml(words, "");
  words.insert(words.begin(), "train");
  const auto folder = run.find("working_dir");  // relative paths of the recipe are relative to it
  launch(runs, name, words, folder != run.end() && folder->is_string() ? folder->get<std::string>() : "");
  return {{"name", name}};
}

ordered_json Control::stop(RunList& runs, const ordered_json& asked) {
  const std::string name = text_of(asked, "name");
  pid_t process = -1;
  const std::optional<Owner> owner = runs.owner(name);
  if (works_on(name)) {
    const std::lock_guard lock(mutex_);
    process = started_.at(name);
  } else {
    if (!owner) throw UserError("no process works on the run '{}'", name);
    const Owner own = Owner::own();
    if (owner->boot != own.boot || owner->pid_space != own.pid_space)
      throw UserError("{} works on '{}'; stop it there with `kill {}`", owner->text(), name, owner->pid);
    // The process id comes from a file that others could have written, so only processes of Fettle are stopped.
    if (owner->pid <= 1 || !runs_fettle(owner->pid))
      throw UserError("process {} is not a program called fettle, so the board does not stop it; use `kill {}`",
                      owner->pid, owner->pid);
    process = static_cast<pid_t>(owner->pid);
  }
  const std::lock_guard lock(mutex_);
  const auto known = asked_to_stop_.find(name);
  bool stopping = known != asked_to_stop_.end() && known->second == process;
  if (kill(process, 0) != 0) throw UserError("cannot stop process {}: {}", process, std::strerror(errno));
  // Other boards, and this one after a restart, see the mark. If the disk is full, only this board remembers.
  if (!stopping && owner && owner->pid == process && is_process_name(owner->id))
    stopping = runs.files().create(run_path(name == "." ? "" : name, stop_mark(owner->id))) == EEXIST;
  if (stopping)
    return {{"text", fmt::format("already stopping: the run finishes its step, saves a checkpoint and ends; `kill {}` "
                                 "in a terminal ends it at once",
                                 process)}};
  if (kill(process, SIGTERM) != 0) throw UserError("cannot stop process {}: {}", process, std::strerror(errno));
  asked_to_stop_[name] = process;
  return {{"text", "asked to stop: the run finishes its step, saves a checkpoint and ends"}};
}

}  // namespace fettle
