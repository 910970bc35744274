#include "hub/download.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "base/environment.h"
#include "base/error.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/process_name.h"
#include "base/seconds_since.h"
#include "base/size_text.h"
#include "hub/digest.h"
#include "hub/download_progress.h"
#include "hub/file_lock.h"
#include "hub/http.h"
#include "hub/refusal.h"
#include "hub/variables.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;

constexpr int kMostAttempts = 5;  // consecutive attempts without a new byte
constexpr int kMostHops = 10;
constexpr std::chrono::minutes kLeftAfter(15);

[[noreturn]] void throw_disk_error(Hub hub, const fs::path& file, int code) {
  if (code == ENOSPC || code == EDQUOT)
    throw DoesNotFit("{}: the disk is full; make room, or set {} to another disk (what was fetched is kept)",
                     file.string(), variables_of(hub).cache);
  throw UserError("{}: {}; check the cache folder", file.string(), std::strerror(code));
}

fs::path shared_part(const fs::path& blob) {
  return blob.string() + ".incomplete";
}

// Returns a name that no other download of the blob has. It begins with this machine's boot id, see is_left.
fs::path own_part(const fs::path& blob) {
  return fmt::format("{}.{}-{}.incomplete", blob.string(), boot_id().substr(0, 8), random_hex(1));
}

// Returns whether the process that wrote this part under its own name has ended. Locks show this for processes of this
// machine only: some file systems do not pass them on to others. A part that has not changed for a while counts as
// left.
bool is_left(const fs::path& part, const fs::path& blob) {
  std::error_code failed;
  const auto changed = fs::last_write_time(part, failed);
  if (failed) return false;
  if (fs::file_time_type::clock::now() - changed > kLeftAfter) return true;
  const std::string here = fmt::format("{}.{}-", blob.filename().string(), boot_id().substr(0, 8));
  if (!part.filename().string().starts_with(here)) return false;
  const int descriptor = ::open(part.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  const bool free = descriptor >= 0 && flock(descriptor, LOCK_EX | LOCK_NB) == 0;
  if (descriptor >= 0) ::close(descriptor);
  return free;
}

// The files ETAG.NAME.incomplete, by ETAG. huggingface_hub makes files of such names, too.
using Parts = std::multimap<std::string, fs::path>;

Parts list_parts(const fs::path& blobs) {
  Parts out;
  std::error_code failed;
  for (fs::directory_iterator it(blobs, failed), end; !failed && it != end; it.increment(failed)) {
    const std::string name = it->path().filename().string();
    const std::string etag = name.substr(0, name.find('.'));
    if (name.ends_with(".incomplete") && name != etag + ".incomplete") out.emplace(etag, it->path());
  }
  return out;
}

// Returns the files with parts of the blob.
std::vector<fs::path> all_parts(const Parts& parts, const fs::path& blob) {
  std::vector<fs::path> out{shared_part(blob)};
  for (auto [part, end] = parts.equal_range(blob.filename().string()); part != end; ++part) out.push_back(part->second);
  return out;
}

// Returns those to which no process writes. The first is the shared one.
std::vector<fs::path> left_parts(const Parts& parts, const fs::path& blob) {
  std::vector<fs::path> out = all_parts(parts, blob);
  out.erase(std::remove_if(out.begin() + 1, out.end(), [&](const fs::path& part) { return !is_left(part, blob); }),
            out.end());
  return out;
}

// Removes the parts of complete blobs that ended processes left.
void remove_useless_parts(const RepoFolder& folder, const Parts& parts) {
  for (const auto& [etag, part] : parts) {
    std::error_code failed;
    if (fs::exists(folder.blob(etag), failed) && is_left(part, folder.blob(etag))) fs::remove(part, failed);
  }
}

// Returns the largest file of at most `most` bytes, and its size; an empty path and 0 when there is none.
std::pair<fs::path, int64_t> largest(const std::vector<fs::path>& files, int64_t most) {
  std::pair<fs::path, int64_t> best{"", 0};
  for (const fs::path& file : files) {
    std::error_code missing;
    const auto size = static_cast<int64_t>(fs::file_size(file, missing));
    if (!missing && size > best.second && size <= most) best = {file, size};
  }
  return best;
}

// The part of a blob that is fetched so far, with the checksum of its bytes. While this process writes, the file has a
// name of its own, so processes do not disturb each other even where locks exclude nobody. Afterwards it is
// ETAG.incomplete, which the next download continues.
class PartFile {
 public:
  PartFile(Hub hub, const fs::path& blob, const HubFile& wanted, const Parts& parts)
      : PartFile(hub, wanted, left_parts(parts, blob), own_part(blob)) {
    take_over();  // if this is interrupted, the destructor keeps the part
  }
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;
  ~PartFile() {
    struct stat status {};
    if (fstat(descriptor_, &status) == 0 && status.st_size == 0) remove();
    if (!gone_) ::rename(path_.c_str(), left_[0].c_str());
    ::close(descriptor_);
  }

  int64_t size() const { return size_; }

  // Returns false when the file would become larger than the listing says, or when writing fails.
  bool append(const char* bytes, size_t count) {
    if (static_cast<int64_t>(count) > wanted_.size - size_) return false;
    for (size_t done = 0; done < count;) {
      const ssize_t written = pwrite(descriptor_, bytes + done, count - done, size_ + static_cast<off_t>(done));
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) {
        error_ = written < 0 ? errno : ENOSPC;
        return false;
      }
      done += static_cast<size_t>(written);
    }
    digest_->add(bytes, count);
    size_ += static_cast<int64_t>(count);
    return true;
  }

  void start_again() {
    if (ftruncate(descriptor_, 0) != 0) throw_disk_error(hub_, path_, errno);
    size_ = 0;
    digest_.emplace(wanted_.etag, wanted_.size);
  }

  // Renames the file to `blob` if its size and checksum are right. Returns false otherwise. If another process has
  // finished the blob meanwhile, keeps that, because programs may be reading it.
  bool finish(const fs::path& blob) {
    if (size_ != wanted_.size || digest_->text() != wanted_.etag) return false;
    const auto is_finished = [&] {
      struct stat status {};
      return stat(blob.c_str(), &status) == 0 && status.st_size == wanted_.size;
    };
    if (is_finished()) {
      remove();
    } else if (fsync(descriptor_) != 0 || ::rename(path_.c_str(), blob.c_str()) != 0) {
      const int error = errno;
      if (!is_finished()) throw_disk_error(hub_, path_, error);
    }
    gone_ = true;
    for (const fs::path& left : left_) ::unlink(left.c_str());
    return true;
  }

  void remove() {
    if (!gone_) ::unlink(path_.c_str());
    gone_ = true;
  }
  // Throws if append() could not write.
  void check() const {
    if (error_ != 0) throw_disk_error(hub_, path_, error_);
  }

 private:
  PartFile(Hub hub, const HubFile& wanted, std::vector<fs::path> left, fs::path own)
      : hub_(hub), wanted_(wanted), left_(std::move(left)), path_(std::move(own)) {
    // Only one process succeeds in renaming the part. Others see from its time that it is in use.
    if (const fs::path part = largest(left_, wanted_.size).first; !part.empty()) {
      std::error_code failed;
      fs::last_write_time(part, fs::file_time_type::clock::now(), failed);
      ::rename(part.c_str(), path_.c_str());
    }
    descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (descriptor_ < 0) throw_disk_error(hub_, path_, errno);
    static_cast<void>(flock(descriptor_, LOCK_EX | LOCK_NB) == 0);
  }

  // Continues with the bytes that an earlier download left.
  void take_over() {
    digest_.emplace(wanted_.etag, wanted_.size);
    struct stat status {};
    if (fstat(descriptor_, &status) != 0) throw_disk_error(hub_, path_, errno);
    if (status.st_size > wanted_.size) return start_again();
    std::string block(size_t{1} << 20, '\0');
    while (size_ < status.st_size) {
      const ssize_t count = pread(descriptor_, block.data(), block.size(), size_);
      if (count <= 0) return start_again();
      digest_->add(block.data(), static_cast<size_t>(count));
      size_ += count;
      InterruptScope::check("reading what was fetched before");
    }
  }

  Hub hub_;
  const HubFile& wanted_;
  std::vector<fs::path> left_;  // the parts of earlier downloads; the first is ETAG.incomplete
  fs::path path_;
  bool gone_ = false;  // the file has become the blob, or was removed
  int descriptor_ = -1;
  int64_t size_ = 0;
  int error_ = 0;
  std::optional<Digest> digest_;
};

// One file that is being downloaded. Must not move in memory, because libcurl keeps a pointer to it.
struct Transfer {
  Download wanted;
  FileLock lock;
  PartFile part;
  Curl easy{curl_easy_init(), curl_easy_cleanup};
  HeaderList headers{nullptr, curl_slist_free_all};
  HttpReply reply{};
  std::string url{};
  int hops = 0, failures = 0, wrong = 0;
  int64_t size_at_start = 0;
  Clock::time_point not_before = Clock::now();
  bool running = false;

  Transfer(Hub hub, const Download& download, FileLock taken, const fs::path& blob, const Parts& parts)
      : wanted(download), lock(std::move(taken)), part(hub, blob, wanted.file, parts), url(wanted.url) {}
};

// Returns the offset at which the bytes of a reply with status 206 begin; -1 when the reply has no Content-Range with
// an offset in bytes.
int64_t start_of_range(const HttpReply& reply) {
  const std::string text = reply.header("content-range");  // for example "bytes 100-199/200"
  const bool has_start = text.starts_with("bytes ") && text.size() > 6 && text[6] >= '0' && text[6] <= '9';
  return has_start ? std::strtoll(text.c_str() + 6, nullptr, 10) : -1;
}

// Adds bytes of a reply to the file. If this function returns less than `count`, libcurl ends the transfer with
// CURLE_WRITE_ERROR.
size_t take_bytes(char* bytes, size_t, size_t count, void* owner) {
  Transfer& transfer = *static_cast<Transfer*>(owner);
  long status = 0;
  curl_easy_getinfo(transfer.easy.get(), CURLINFO_RESPONSE_CODE, &status);
  if (status != 200 && status != 206) return count;  // ignores the body of a redirect or an error
  if (transfer.reply.status == 0) {
    transfer.reply.status = status;
    if (status == 200 && transfer.part.size() > 0) transfer.part.start_again();
    if (status == 206 && start_of_range(transfer.reply) != transfer.part.size()) return 0;
  }
  return transfer.part.append(bytes, count) ? count : 0;
}

size_t take_transfer_header(char* bytes, size_t, size_t count, void* owner) {
  take_header_line(static_cast<Transfer*>(owner)->reply, {bytes, count});
  return count;
}

class Downloads {
 public:
  Downloads(const HubSettings& settings, const RepoName& repo, const RepoFolder& folder, std::vector<Download> files,
            const std::string& title)
      : settings_(settings), repo_(repo), folder_(folder), waiting_(std::move(files)), progress_(title) {
    internal_check(multi_ != nullptr, "libcurl does not start");
    int64_t bytes = 0;
    for (const Download& one : waiting_) bytes += one.file.size;
    progress_.start(waiting_.size(), bytes);
  }
  ~Downloads() {
    for (const auto& transfer : transfers_)
      if (transfer->running) curl_multi_remove_handle(multi_.get(), transfer->easy.get());
  }

  void run() {
    while (!waiting_.empty() || !transfers_.empty()) {
      InterruptScope::check("downloading; the next start continues with what was fetched");
      take_more();
      start_due();
      int running = 0;
      curl_multi_perform(multi_.get(), &running);
      take_finished();
      show();
      if (!can_go_on()) curl_multi_poll(multi_.get(), nullptr, 0, 100, nullptr);
    }
    progress_.finish();
  }

 private:
  // Adds transfers of files that no other process is fetching, up to settings_.parallel at a time.
  void take_more() {
    if (!freed_ && seconds_since(looked_) < 0.2) return;
    looked_ = Clock::now();
    freed_ = false;
    for (auto next = waiting_.begin(); next != waiting_.end();) {
      if (transfers_.size() >= static_cast<size_t>(settings_.parallel)) break;
      if (folder_.has_blob(next->file)) {
        progress_.add(next->file.size, false);
        next = waiting_.erase(next);
        continue;
      }
      std::optional<FileLock> lock = FileLock::try_take(folder_.lock(next->file.etag));
      if (!lock) {
        if (transfers_.empty()) progress_.say_waiting(next->file.path);
        ++next;
        continue;
      }
      if (folder_.has_blob(next->file)) continue;  // another process finished it before the lock was taken
      transfers_.push_back(std::make_unique<Transfer>(
          settings_.hub, *next, std::move(*lock), folder_.blob(next->file.etag), list_parts(folder_.path() / "blobs")));
      next = waiting_.erase(next);
      finish_if_whole(*transfers_.back());
    }
    forget_done();
  }

  static bool is_due(const Transfer& transfer) { return !transfer.running && Clock::now() >= transfer.not_before; }

  // Returns whether the loop in run() can go on without waiting for bytes.
  bool can_go_on() const {
    if (waiting_.empty() && transfers_.empty()) return true;
    if (freed_ && !waiting_.empty()) return true;
    return std::any_of(transfers_.begin(), transfers_.end(), [](const auto& transfer) { return is_due(*transfer); });
  }

  void start_due() {
    for (const auto& transfer : transfers_)
      if (is_due(*transfer)) start(*transfer);
  }

  void start(Transfer& transfer) {
    transfer.reply = {};
    transfer.size_at_start = transfer.part.size();
    CURL* easy = transfer.easy.get();
    prepare(easy, settings_, transfer.url, transfer.part.size(), transfer.headers);
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION,
                     CURL_HTTP_VERSION_1_1);  // with HTTP/2, all transfers would share one connection
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take_bytes);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, &transfer);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, take_transfer_header);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, &transfer);
    curl_easy_setopt(easy, CURLOPT_PRIVATE, &transfer);
    internal_check(curl_multi_add_handle(multi_.get(), easy) == CURLM_OK, "libcurl refuses a transfer");
    transfer.running = true;
  }

  void take_finished() {
    int left = 0;
    while (const CURLMsg* message = curl_multi_info_read(multi_.get(), &left)) {
      if (message->msg != CURLMSG_DONE) continue;
      const CURLcode code = message->data.result;
      char* owner = nullptr;
      curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &owner);
      Transfer& transfer = *reinterpret_cast<Transfer*>(owner);
      curl_easy_getinfo(message->easy_handle, CURLINFO_RESPONSE_CODE, &transfer.reply.status);
      curl_multi_remove_handle(multi_.get(), message->easy_handle);
      transfer.running = false;
      finish(transfer, code);
    }
    forget_done();
  }

  // Returns whether the hub itself refused the file. It lists the files of gated repositories to everyone, so their
  // terms come up here.
  bool is_refusal(const Transfer& transfer) const {
    const std::string code = transfer.reply.header("x-error-code");
    return (transfer.reply.status == 401 || transfer.reply.status == 403) && !code.empty() &&
           same_origin(transfer.url, settings_.endpoint);
  }

  // Returns what to do when a file cannot be fetched because of the status of its reply. The token is sent to the hub
  // only, so it does not matter to the hosts to which the hub redirects.
  std::string status_remedy(const Transfer& transfer) const {
    if (transfer.reply.status != 401 && transfer.reply.status != 403) return "start again to list the files anew";
    if (same_origin(transfer.url, settings_.endpoint))
      return fmt::format("does the token in {} belong to someone who may read the file?",
                         variables_of(settings_.hub).token);
    return fmt::format(
        "the hub redirects to this host, and a proxy or firewall may block it: allow {} and check https_proxy, or "
        "start again",
        settings_.hub == Hub::kHuggingFace ? "*.hf.co and *.xethub.hf.co" : "this host");
  }

  // Decides what to do after a transfer has ended, with or without a reply.
  void finish(Transfer& transfer, CURLcode code) {
    transfer.part.check();
    const long status = transfer.reply.status;
    if (transfer.part.size() > transfer.size_at_start) transfer.failures = 0;
    if (code == CURLE_OK && is_redirect(status) && ++transfer.hops <= kMostHops) {
      transfer.url = redirect_target(transfer.url, transfer.reply.header("location"));
      return;
    }
    if (code == CURLE_OK && (status == 200 || status == 206)) {
      if (transfer.part.size() < transfer.wanted.file.size) return retry(transfer, "the file ended too early");
      return finish_if_whole(transfer);
    }
    if (code == CURLE_OK && status == 416) {
      transfer.part.start_again();
      return retry(transfer, "the server cannot continue the file");
    }
    if (code == CURLE_OK && is_refusal(transfer)) throw_refusal(settings_, repo_, transfer.reply);
    const HubVariables names = variables_of(settings_.hub);
    if (code == CURLE_OK && is_redirect(status))
      throw UserError("{}: {} redirects again and again; check {} and https_proxy", transfer.wanted.file.path,
                      host_of(transfer.url), names.endpoint);
    if (code == CURLE_OK && !is_transient(status))
      throw UserError("{}: {} answers with status {}; {}", transfer.wanted.file.path, host_of(transfer.url), status,
                      status_remedy(transfer));
    if (code == CURLE_WRITE_ERROR)
      return take_as_wrong(transfer, "is longer than the listing says, or is another part of the file");
    if (code == CURLE_OK)
      return retry(transfer, fmt::format("{} answers with status {}", host_of(transfer.url), status));
    const long proxy = status_of_proxy(transfer.easy.get());
    const std::string why = failure_text(code, transfer.url, proxy);
    if (refuses(proxy)) throw UserError("{}: {}", transfer.wanted.file.path, why);
    retry(transfer, why);
  }

  void retry(Transfer& transfer, const std::string& why) {
    if (++transfer.failures >= kMostAttempts)
      throw UserError("{}: {}, {} times; start again to continue (what was fetched is kept)", transfer.wanted.file.path,
                      why, kMostAttempts);
    const double wait = settings_.pause_seconds * (1 << (transfer.failures - 1));
    const double seconds = pause_of(transfer.reply, wait, 300);
    const Clock::time_point now = Clock::now();
    transfer.not_before = now + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    // The other files of a busy host have to wait, too; the user reads this once.
    Clock::time_point& said_until = said_until_[host_of(transfer.url)];
    if (now >= said_until && say_pause(why, seconds)) said_until = transfer.not_before;
    transfer.url = transfer.wanted.url;  // the address of the last redirect may have expired
    transfer.hops = 0;
  }

  void finish_if_whole(Transfer& transfer) {
    if (transfer.part.size() < transfer.wanted.file.size) return;
    if (transfer.part.finish(folder_.blob(transfer.wanted.file.etag))) {
      done_.push_back(&transfer);
      return;
    }
    take_as_wrong(transfer, "does not have the checksum in the listing");
  }

  // Fetches the file again from the start. Throws UserError the second time.
  void take_as_wrong(Transfer& transfer, const char* how) {
    const std::string& path = transfer.wanted.file.path;
    if (++transfer.wrong >= 2) {
      transfer.part.remove();
      throw UserError(
          "{}: the content that {} sends {} ({}...). It was fetched twice. A proxy or mirror may change files: check "
          "{} and https_proxy, or copy the model from another machine",
          path, host_of(settings_.endpoint), how, transfer.wanted.file.etag.substr(0, 12),
          variables_of(settings_.hub).endpoint);
    }
    warn("{}: the content that {} sends {}; the file is fetched again from the start", path,
         host_of(settings_.endpoint), how);
    transfer.part.start_again();
    transfer.url = transfer.wanted.url;
    transfer.hops = 0;
  }

  void forget_done() {
    for (const Transfer* transfer : done_) {
      progress_.add(transfer->wanted.file.size, true);
      transfers_.erase(std::find_if(transfers_.begin(), transfers_.end(),
                                    [&](const auto& other) { return other.get() == transfer; }));
    }
    freed_ = freed_ || !done_.empty();
    done_.clear();
  }

  void show() {
    int64_t partial = 0;
    for (const auto& transfer : transfers_) partial += transfer->part.size();
    progress_.show(partial);
  }

  const HubSettings& settings_;
  const RepoName& repo_;
  const RepoFolder& folder_;
  std::vector<Download> waiting_;
  std::map<std::string, Clock::time_point> said_until_;  // by host: the end of the pause that the user knows of
  DownloadProgress progress_;
  std::unique_ptr<CURLM, CURLMcode (*)(CURLM*)> multi_{curl_multi_init(), curl_multi_cleanup};
  std::vector<std::unique_ptr<Transfer>> transfers_;
  std::vector<const Transfer*> done_;
  Clock::time_point looked_{};
  bool freed_ = true;  // there may be room for a further transfer
};

// Throws DoesNotFit when the missing bytes do not fit on the disk.
void check_room(Hub hub, const RepoFolder& folder, const std::vector<Download>& files, const Parts& parts) {
  int64_t needed = 0;
  for (const Download& one : files)
    needed += one.file.size - largest(all_parts(parts, folder.blob(one.file.etag)), one.file.size).second;
  std::error_code failed;
  const fs::space_info room = fs::space(folder.path(), failed);
  if (!failed && static_cast<int64_t>(room.available) < needed)
    throw DoesNotFit("{} needs {} more, but its disk has {} left; make room, or set {} to another disk",
                     folder.path().string(), size_text(needed), size_text(static_cast<int64_t>(room.available)),
                     variables_of(hub).cache);
}

}  // namespace

void download(const HubSettings& settings, const RepoName& repo, const RepoFolder& folder, std::vector<Download> files,
              const std::string& title) {
  files.erase(
      std::remove_if(files.begin(), files.end(), [&](const Download& one) { return folder.has_blob(one.file); }),
      files.end());
  std::set<std::string> contents;  // two files may have the same content
  files.erase(std::remove_if(files.begin(), files.end(),
                             [&](const Download& one) { return !contents.insert(one.file.etag).second; }),
              files.end());
  if (files.empty()) return;
  folder.make();
  const Parts parts = list_parts(folder.path() / "blobs");
  remove_useless_parts(folder, parts);
  check_room(settings.hub, folder, files, parts);
  const InterruptScope interrupts;
  Downloads(settings, repo, folder, std::move(files), title).run();
}

}  // namespace fettle
