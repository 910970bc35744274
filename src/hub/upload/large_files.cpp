#include "hub/upload/large_files.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <mutex>

#include "base/interrupt.h"
#include "base/json_text.h"
#include "base/parallel.h"
#include "base/progress.h"
#include "base/size_text.h"
#include "base/text.h"
#include "hub/digest.h"
#include "hub/upload/requests.h"

namespace fettle {
namespace {

using nlohmann::json;

constexpr int kAtATime = 4;
constexpr size_t kInOneBatch = 100;
constexpr int kJoinSeconds = 300;  // the store may need this long to join the parts of a file
constexpr const char* kLfsType = "application/vnd.git-lfs+json";

// Shows the bytes sent so far, over all files.
class Progress {
 public:
  explicit Progress(int64_t all) : all_(all) {}
  // Shows that `now` bytes of a file or a part are sent. `before` is the number of these bytes that earlier calls have
  // counted; this call sets `before` to `now`.
  void show(int64_t& before, int64_t now) {
    const std::lock_guard lock(mutex_);
    sent_ += now - before;
    before = now;
    line_.show([&] { return fmt::format("sending large files: {} of {}", size_text(sent_), size_text(all_)); });
  }

 private:
  std::mutex mutex_;
  int64_t all_, sent_ = 0;
  ProgressLine line_;
};

// Returns the addresses of the parts of a multipart upload, in order: the members of `header` whose names are numbers.
std::vector<std::string> part_urls(const json& header) {
  std::map<int64_t, std::string> sorted;
  for (const auto& [name, value] : header.items())
    if (const std::optional<int64_t> number = digits_value(name); number && value.is_string())
      sorted[*number] = value.get<std::string>();
  std::vector<std::string> out;
  for (auto& [number, url] : sorted) out.push_back(std::move(url));
  return out;
}

// Returns the size of a part in bytes; 0 when the file is sent as a whole; -1 when the hub's text is not a number.
int64_t part_size(const json& header) {
  const auto at = header.find("chunk_size");
  if (at == header.end()) return 0;
  if (at->is_number_integer()) return at->get<int64_t>();
  return at->is_string() ? digits_value(at->get<std::string>()).value_or(-1) : -1;
}

void send_parts(const HubSettings& settings, const LargeFile& file, const json& action, int64_t size,
                Progress& progress) {
  const std::vector<std::string> urls = part_urls(action["header"]);
  if (size <= 0 || std::ssize(urls) != (file.size + size - 1) / size)
    throw UserError("{}: the hub asks for {} parts of {} bytes, but the file has {} bytes; try again",
                    file.file.string(), urls.size(), size, file.size);
  json parts = json::array();
  for (int64_t i = 0; i < std::ssize(urls); ++i) {
    int64_t before = 0;
    const int64_t begin = i * size, count = std::min(size, file.size - begin);
    const HttpReply reply = put_file(settings, urls[static_cast<size_t>(i)], file.file, begin, count,
                                     [&](int64_t now) { progress.show(before, now); });
    parts.push_back({{"partNumber", i + 1}, {"etag", reply.header("etag")}});
  }
  const json done{{"oid", file.sha256}, {"parts", parts}};
  expect_done(settings,
              post_again(settings, at_endpoint(settings, text_in(action, "href")),
                         {done.dump(), kLfsType, kLfsType, kJoinSeconds}),
              "joining the parts of " + file.file.filename().string());
}

void send_file(const HubSettings& settings, const LargeFile& file, const json& actions, Progress& progress) {
  const json action = actions["upload"];
  if (text_in(action, "href").empty())
    throw UserError("{}: the hub names no address for the file; try again", file.file.string());
  const json header = action.value("header", json::object());
  if (const int64_t size = header.is_object() ? part_size(header) : 0; size != 0) {
    send_parts(settings, file, action, size, progress);
  } else {
    int64_t before = 0;
    put_file(settings, at_endpoint(settings, text_in(action, "href")), file.file, 0, file.size,
             [&](int64_t now) { progress.show(before, now); });
  }
  const std::string verify =
      actions.contains("verify") ? at_endpoint(settings, text_in(actions["verify"], "href")) : "";
  if (verify.empty()) return;
  const json check{{"oid", file.sha256}, {"size", file.size}};
  const HttpReply reply = post_again(settings, verify, {check.dump()});
  if (reply.status != 200 && reply.status != 201)
    throw UserError("{}: the hub's copy of the file is incomplete or wrong; try again", file.file.string());
}

}  // namespace

std::string sha256_of(const std::filesystem::path& file) {
  constexpr std::streamsize kPiece = 4 << 20;
  std::ifstream in(file, std::ios::binary);
  Digest digest(std::string(64, '0'), 0);
  std::vector<char> bytes(kPiece);
  while (in) {
    InterruptScope::check("reading files for the hub");
    in.read(bytes.data(), kPiece);
    digest.add(bytes.data(), static_cast<size_t>(in.gcount()));
  }
  if (!in.eof()) throw UserError("{}: cannot be read; check the file's permissions", file.string());
  return digest.text();
}

int64_t send_large_files(const HubSettings& settings, const RepoName& repo, const std::vector<LargeFile>& files) {
  std::map<std::string, const LargeFile*> by_sum;  // equal files are sent once
  for (const LargeFile& file : files) by_sum[file.sha256] = &file;
  std::vector<const LargeFile*> all;
  for (const auto& [sum, file] : by_sum) all.push_back(file);
  std::vector<std::pair<const LargeFile*, json>> missing;
  int64_t bytes = 0;
  const std::string url = fmt::format("{}/{}.git/info/lfs/objects/batch", settings.endpoint, repo.id);
  for (size_t first = 0; first < all.size(); first += kInOneBatch) {
    json objects = json::array();
    for (size_t i = first; i < std::min(all.size(), first + kInOneBatch); ++i)
      objects.push_back({{"oid", all[i]->sha256}, {"size", all[i]->size}});
    json request{{"operation", "upload"},
                 {"transfers", {"basic", "multipart"}},
                 {"objects", std::move(objects)},
                 {"hash_algo", "sha256"}};
    if (!repo.revision.empty()) request["ref"] = {{"name", repo.revision}};
    const json reply = object_of(settings, post_again(settings, url, {request.dump(), kLfsType, kLfsType}),
                                 "asking which large files " + repo.id + " lacks");
    for (const json& object : reply.value("objects", json::array())) {
      const auto file = by_sum.find(text_in(object, "oid"));
      if (file == by_sum.end()) continue;
      if (object.contains("error"))
        throw UserError("{}: the hub refuses the file: {}", file->second->file.string(),
                        text_in(object["error"], "message"));
      if (!object.contains("actions") || !object["actions"].contains("upload")) continue;  // the hub has the file
      missing.emplace_back(file->second, object["actions"]);
      bytes += file->second->size;
    }
  }
  if (missing.empty()) return 0;
  Progress progress(bytes);
  parallel_for(std::ssize(missing), kAtATime, [&](int64_t i) {
    const auto& [file, actions] = missing[static_cast<size_t>(i)];
    send_file(settings, *file, actions, progress);
  });
  return bytes;
}

}  // namespace fettle
