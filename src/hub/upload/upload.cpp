#include "hub/upload/upload.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/base64.h"
#include "base/error.h"
#include "base/files/run_files.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "hub/hub_api.h"
#include "hub/upload/large_files.h"
#include "hub/upload/requests.h"
#include "hub/variables.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr size_t kSample = 512;      // the hub reads the first kSample bytes of a file to decide how to store the file
constexpr size_t kInOneCall = 256;   // files in one request
constexpr int kCommitSeconds = 300;  // the hub may need this long for a commit

struct SentFile {
  std::string path;  // path in the repository
  fs::path file;
  int64_t size = 0;
  bool large = false;    // goes to the store of large files
  bool ignored = false;  // the repository's .gitignore excludes the file
  std::string sha256;    // set for a large file
};

std::string revision_of(const RepoName& repo) {
  return repo.revision.empty() ? "main" : repo.revision;
}

std::string first_bytes(const fs::path& file, size_t most) {
  std::ifstream in(file, std::ios::binary);
  std::string bytes(most, '\0');
  in.read(bytes.data(), static_cast<std::streamsize>(most));
  if (in.bad() || !in.is_open()) throw UserError("{}: cannot be read; check the file's permissions", file.string());
  bytes.resize(static_cast<size_t>(in.gcount()));
  return bytes;
}

void make_repo(const HubSettings& settings, const Upload& upload) {
  const std::string& id = upload.repo.id;
  const size_t slash = id.find('/');
  json request{{"name", id.substr(slash == std::string::npos ? 0 : slash + 1)}, {"private", !upload.is_public}};
  if (slash != std::string::npos) request["organization"] = id.substr(0, slash);
  const HttpReply reply = post_again(settings, settings.endpoint + "/api/repos/create", {request.dump()});
  if (reply.status == 409) return;  // the repository exists
  // The token may lack the right to make repositories, but have the right to write to this one. So a refusal to make
  // the repository does not matter if the repository exists.
  if (reply.status == 401 || reply.status == 402 || reply.status == 403)
    if (http_get(settings, fmt::format("{}/api/models/{}", settings.endpoint, id), 1).status == 200) return;
  object_of(settings, reply, "making the repository " + id);
  info("made the {} repository {}", upload.is_public ? "public" : "private", id);
}

// Asks the hub which files are large, and which ones the repository ignores.
void ask_modes(const HubSettings& settings, const RepoName& repo, std::vector<SentFile>& files) {
  const std::string url =
      fmt::format("{}/api/models/{}/preupload/{}", settings.endpoint, repo.id, escaped(revision_of(repo), false));
  for (size_t first = 0; first < files.size(); first += kInOneCall) {
    const size_t end = std::min(files.size(), first + kInOneCall);
    json asked = json::array();
    for (size_t i = first; i < end; ++i)
      asked.push_back({{"path", files[i].path},
                       {"sample", encode_base64(first_bytes(files[i].file, kSample))},
                       {"size", files[i].size}});
    const json request{{"files", std::move(asked)}};
    const json reply = object_of(settings, post_again(settings, url, {request.dump()}),
                                 fmt::format("asking how {} stores files", repo.id));
    for (const json& answer : reply.value("files", json::array())) {
      const auto file = std::find_if(files.begin(), files.end(), [&](const SentFile& one) {
        return answer.is_object() && answer.value("path", json()) == one.path;
      });
      if (file == files.end()) continue;
      file->large = answer.value("uploadMode", json()) == "lfs" && file->size > 0;
      file->ignored = answer.value("shouldIgnore", json()) == true;
    }
  }
}

// Returns the lines that describe the commit: its message, then one line for each file.
std::string commit_lines(const std::vector<SentFile>& files, const std::string& message) {
  const auto line = [](const char* key, json value) { return json{{"key", key}, {"value", value}}.dump() + "\n"; };
  std::string out = line("header", {{"summary", message}, {"description", ""}});
  for (const SentFile& file : files) {
    if (file.ignored) continue;
    if (file.large)
      out += line("lfsFile", {{"path", file.path}, {"algo", "sha256"}, {"oid", file.sha256}, {"size", file.size}});
    else
      out += line("file", {{"path", file.path},
                           {"content", encode_base64(first_bytes(file.file, static_cast<size_t>(file.size)))},
                           {"encoding", "base64"}});
  }
  return out;
}

bool is_left_out(const fs::path& path) {
  const std::string name = path.filename().string();
  constexpr std::array<std::string_view, 7> kLogs{kProgressLog, kRunFile, kReportFile, kTrainOutput,
                                                  kTrainRecipe, "runs",   "wandb"};
  return name.ends_with("predictions.jsonl") || name.starts_with('.') || name.starts_with("checkpoint-") ||
         name.find(".tmp-") != std::string::npos || std::ranges::find(kLogs, name) != kLogs.end() ||
         ((name == "state" || name == "weights") &&
          fs::exists(path / "manifest.json")) ||               // a checkpoint's exact arrays
         (name == "profile" && fs::exists(path / "plugins"));  // profiles of steps
}

}  // namespace

std::vector<std::string> uploaded_files(const fs::path& folder) {
  std::vector<std::string> out;
  for (auto at = fs::recursive_directory_iterator(folder); at != fs::recursive_directory_iterator(); ++at) {
    if (is_left_out(at->path())) {
      if (at->is_directory()) at.disable_recursion_pending();
      continue;
    }
    if (at->is_regular_file()) out.push_back(at->path().lexically_relative(folder).generic_string());
  }
  std::ranges::sort(out);
  return out;
}

UploadReport upload_folder(const HubSettings& settings, const Upload& upload) {
  const InterruptScope interrupts;
  if (settings.hub != Hub::kHuggingFace)
    throw UserError("upload: ModelScope is not supported; unset USE_MODELSCOPE_HUB to send to Hugging Face's hub");
  if (settings.offline) throw UserError("upload: {0} forbids uploads; unset {0}", offline_variable());
  if (settings.token.empty() && environment_is_on("HF_HUB_DISABLE_IMPLICIT_TOKEN"))
    throw UserError("upload: HF_HUB_DISABLE_IMPLICIT_TOKEN forbids the use of your token; unset this variable");
  if (settings.token.empty())
    throw UserError("upload: there is no token; set HF_TOKEN to one that may write, or log in with `hf auth login`");
  if (!fs::is_directory(upload.folder))
    throw UserError("upload: {} is not a folder; name the folder of an adapter or a model", upload.folder.string());
  std::vector<SentFile> files;
  UploadReport report{.url = page_url(settings, upload.repo)};
  for (const std::string& path : uploaded_files(upload.folder)) {
    const fs::path file = upload.folder / path;
    files.push_back({.path = path, .file = file, .size = static_cast<int64_t>(fs::file_size(file))});
  }
  if (files.empty()) throw UserError("upload: {} has no files to send", upload.folder.string());
  make_repo(settings, upload);
  ask_modes(settings, upload.repo, files);
  std::vector<LargeFile> large;
  for (SentFile& file : files) {
    if (file.ignored) {
      info("{} is left out: the repository's .gitignore says so", file.path);
      continue;
    }
    ++report.files;
    report.bytes += file.size;
    if (!file.large) continue;
    file.sha256 = sha256_of(file.file);
    large.push_back({file.file, file.size, file.sha256});
  }
  report.sent_bytes = send_large_files(settings, upload.repo, large);
  const std::string url = fmt::format("{}/api/models/{}/commit/{}", settings.endpoint, upload.repo.id,
                                      escaped(revision_of(upload.repo), false));
  const json reply = object_of(
      settings,
      post_again(settings, url, {commit_lines(files, upload.message), "application/x-ndjson", "", kCommitSeconds}),
      "committing to " + upload.repo.id);
  if (const auto commit = reply.find("commitOid"); commit != reply.end() && commit->is_string())
    report.commit = commit->get<std::string>();
  return report;
}

}  // namespace fettle
