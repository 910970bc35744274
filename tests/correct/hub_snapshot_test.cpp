// Tests snapshots of repositories, which are fetched from a hub on this machine.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <thread>

#include "environment.h"
#include "hub/snapshot.h"
#include "hub_server.h"

namespace {
bool links_are_possible = true;
bool locks_exclude = true;
}  // namespace
// Replaces libc's symlink() in this program, because few test machines have a file system without links.
extern "C" int symlink(const char* target, const char* link) noexcept {
  if (links_are_possible) return symlinkat(target, AT_FDCWD, link);
  errno = EPERM;
  return -1;
}

// Replaces libc's flock() in this program: if locks_exclude is false, every process gets the lock of a blob, as on a
// file system whose locks are known to one host only.
extern "C" int flock(int descriptor, int operation) noexcept {
  char path[4096] = {};
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  const bool named = readlink(link.c_str(), path, sizeof path - 1) > 0;
  if (!locks_exclude && named && std::string_view(path).ends_with(".lock")) return 0;
  return static_cast<int>(syscall(SYS_flock, descriptor, operation));
}

namespace fettle {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const RepoName kModel{RepoKind::kModel, "org/small", ""};

std::string bytes_of(size_t count) {
  std::string out;
  for (size_t i = 0; i < count; ++i) out += static_cast<char>('a' + i * i % 23);
  return out;
}

class HubSnapshot : public testing::Test {
 protected:
  HubSnapshot() {
    hub.put("models/org/small/config.json", "{\"model_type\": \"llama\"}");
    hub.put("models/org/small/README.md", "A model.");
    hub.put("models/org/small/deep/down/notes.txt", "notes");
    hub.put("models/org/small/model.safetensors", weights);
    hub.put("models/org/small/empty.txt", "");
  }
  Snapshot open(const RepoName& repo = kModel) { return Snapshot::open(hub.settings(), repo); }
  std::string fetched(const Snapshot& snapshot, const std::string& name) { return read_text(snapshot.folder() / name); }
  fs::path blob_of_weights() {
    return hub.cache() / "models--org--small/blobs" / find_file(open().files(), "model.safetensors")->etag;
  }
  std::vector<std::string> ranges() {
    std::vector<std::string> out;
    for (const json& request : hub.log())
      if (request["place"] == "cdn") out.push_back(request["range"]);
    return out;
  }

  const std::string weights = bytes_of(200000);
  HubServer hub;
};

TEST_F(HubSnapshot, FetchesTheFilesThatAreAskedFor) {
  const Snapshot snapshot = open();
  std::vector<std::string> names;
  for (const HubFile& file : snapshot.files()) names.push_back(file.path);
  EXPECT_THAT(names, ElementsAre("README.md", "config.json", "deep/down/notes.txt", "empty.txt", "model.safetensors"));
  snapshot.fetch({"config.json", "deep/down/notes.txt", "empty.txt", "model.safetensors"});
  EXPECT_EQ(fetched(snapshot, "config.json"), "{\"model_type\": \"llama\"}");
  EXPECT_EQ(fetched(snapshot, "deep/down/notes.txt"), "notes");
  EXPECT_EQ(fetched(snapshot, "empty.txt"), "");
  EXPECT_EQ(fetched(snapshot, "model.safetensors"), weights);
  EXPECT_FALSE(fs::exists(snapshot.folder() / "README.md"));
}

TEST_F(HubSnapshot, LaysTheCacheOutAsHuggingfaceHubDoes) {
  const Snapshot snapshot = open();
  snapshot.fetch({"deep/down/notes.txt", "model.safetensors"});
  snapshot.mark_missing({"tokenizer.json", "config.json"});
  const fs::path folder = hub.cache() / "models--org--small";
  EXPECT_EQ(snapshot.folder(), folder / "snapshots" / snapshot.commit());
  EXPECT_EQ(read_text(folder / "refs/main"), snapshot.commit());
  const std::string etag = find_file(snapshot.files(), "model.safetensors")->etag;
  EXPECT_EQ(etag.size(), 64u);
  EXPECT_EQ(fs::read_symlink(snapshot.folder() / "model.safetensors"), "../../blobs/" + etag);
  EXPECT_EQ(fs::read_symlink(snapshot.folder() / "deep/down/notes.txt"),
            "../../../../blobs/" + find_file(snapshot.files(), "deep/down/notes.txt")->etag);
  EXPECT_TRUE(fs::exists(folder / ".no_exist" / snapshot.commit() / "tokenizer.json"));
  EXPECT_FALSE(fs::exists(folder / ".no_exist" / snapshot.commit() / "config.json"));
  EXPECT_TRUE(fs::exists(hub.cache() / ".locks/models--org--small" / (etag + ".lock")));
  const json tree = json::parse(read_text(folder / "trees" / (snapshot.commit() + ".json")));
  EXPECT_EQ(tree["files"]["model.safetensors"]["lfs_sha256"], etag);
  struct stat status {};
  ASSERT_EQ(stat(hub.cache().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
}

TEST_F(HubSnapshot, FetchesNothingTwice) {
  open().fetch({"config.json", "model.safetensors"});
  hub.forget_log();
  open().fetch({"config.json", "model.safetensors"});
  EXPECT_THAT(hub.log(), IsEmpty());  // the process even remembers the commit of the branch
}

TEST_F(HubSnapshot, ABrokenConnectionContinuesWhereItEnded) {
  hub.set_faults({{{"kind", "cut"}, {"match", "model.safetensors"}, {"after", 70000}, {"times", 2}}});
  const Snapshot snapshot = open();
  snapshot.fetch({"model.safetensors"});
  EXPECT_EQ(fetched(snapshot, "model.safetensors"), weights);
  EXPECT_THAT(ranges(), ElementsAre("", "bytes=70000-", "bytes=140000-"));
}

TEST_F(HubSnapshot, WhatAnEarlierRunLeftIsContinued) {
  write_text(blob_of_weights().string() + ".incomplete", weights.substr(0, 1234));
  const Snapshot snapshot = open();
  snapshot.fetch({"model.safetensors"});
  EXPECT_EQ(fetched(snapshot, "model.safetensors"), weights);
  EXPECT_THAT(ranges(), ElementsAre("bytes=1234-"));
  EXPECT_FALSE(fs::exists(blob_of_weights().string() + ".incomplete"));
}

// A process that is killed cannot rename its part.
TEST_F(HubSnapshot, WhatAKilledProcessLeftIsContinued) {
  const Snapshot snapshot = open();
  hub.set_faults({{{"kind", "slow"}, {"match", "model.safetensors"}, {"rate", 50000}}});
  const pid_t child = fork();
  if (child == 0) {
    snapshot.fetch({"model.safetensors"});
    _exit(0);
  }
  const auto part_size = [&] {
    std::error_code none;
    for (fs::directory_iterator it(blob_of_weights().parent_path(), none), end; !none && it != end; ++it)
      if (it->path().extension() == ".incomplete") return static_cast<int64_t>(fs::file_size(it->path(), none));
    return int64_t{0};
  };
  for (int tries = 0; part_size() < 1000 && tries < 1000; ++tries)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  const int64_t left = part_size();
  ASSERT_GE(left, 1000);
  snapshot.fetch({"model.safetensors"});
  EXPECT_EQ(fetched(snapshot, "model.safetensors"), weights);
  EXPECT_THAT(ranges(), ElementsAre("", fmt::format("bytes={}-", left)));
  EXPECT_EQ(part_size(), 0);
}

// Another machine may still be writing its part. After a while without a change, it is not.
TEST_F(HubSnapshot, ThePartOfAnotherMachineIsLeftToIt) {
  const Snapshot snapshot = open();
  const std::string blob = blob_of_weights().string();
  const fs::path recent = blob + ".00000000-1.incomplete", old = blob + ".00000000-2.incomplete";
  write_text(recent, weights.substr(0, 5000));
  write_text(old, weights.substr(0, 1234));
  fs::last_write_time(old, fs::file_time_type::clock::now() - std::chrono::hours(2));
  snapshot.fetch({"model.safetensors"});
  EXPECT_EQ(fetched(snapshot, "model.safetensors"), weights);
  EXPECT_THAT(ranges(), ElementsAre("bytes=1234-"));
  EXPECT_EQ(read_text(recent), weights.substr(0, 5000));
  EXPECT_FALSE(fs::exists(old));
}

TEST_F(HubSnapshot, AServerThatIgnoresRangesIsReadFromTheStart) {
  write_text(blob_of_weights().string() + ".incomplete", weights.substr(0, 1234));
  hub.set_faults({{{"kind", "norange"}}});
  const Snapshot snapshot = open();
  snapshot.fetch({"model.safetensors"});
  EXPECT_EQ(fetched(snapshot, "model.safetensors"), weights);
}

TEST_F(HubSnapshot, DamagedRemainsAreFetchedAgain) {
  write_text(blob_of_weights().string() + ".incomplete", std::string(5000, 'x'));
  const Snapshot snapshot = open();
  snapshot.fetch({"model.safetensors"});
  EXPECT_EQ(fetched(snapshot, "model.safetensors"), weights);
  EXPECT_THAT(ranges(), ElementsAre("bytes=5000-", ""));
}

TEST_F(HubSnapshot, AWrongChecksumIsFetchedOnceMore) {
  hub.set_faults({{{"kind", "wrong"}, {"match", "model.safetensors"}}});
  const Snapshot snapshot = open();
  snapshot.fetch({"model.safetensors"});
  EXPECT_EQ(fetched(snapshot, "model.safetensors"), weights);
}

TEST_F(HubSnapshot, ATruncatedBlobIsFetchedAgain) {
  const Snapshot snapshot = open();
  snapshot.fetch({"model.safetensors"});
  fs::resize_file(blob_of_weights(), 100);
  snapshot.fetch({"model.safetensors"});
  EXPECT_EQ(fetched(snapshot, "model.safetensors"), weights);
}

TEST_F(HubSnapshot, AStalledConnectionIsGivenUpAndContinued) {
  hub.set_faults({{{"kind", "stall"}, {"match", "model.safetensors"}, {"after", 50000}, {"seconds", 20}}});
  const auto start = std::chrono::steady_clock::now();
  const Snapshot snapshot = open();
  snapshot.fetch({"model.safetensors"});
  EXPECT_EQ(fetched(snapshot, "model.safetensors"), weights);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(15));
  EXPECT_THAT(ranges(), ElementsAre("", "bytes=50000-"));
}

TEST_F(HubSnapshot, ASlowLinkIsNoStall) {
  hub.set_faults({{{"kind", "slow"}, {"match", "model.safetensors"}, {"rate", 150000}}});
  const Snapshot snapshot = open();
  snapshot.fetch({"model.safetensors"});
  EXPECT_EQ(fetched(snapshot, "model.safetensors"), weights);
  EXPECT_EQ(ranges().size(), 1u);
}

TEST_F(HubSnapshot, BusyAnswersAreTriedAgain) {
  hub.set_faults({{{"kind", "status"}, {"status", 429}, {"match", "/revision/"}, {"headers", {{"Retry-After", "0"}}}},
                  {{"kind", "status"}, {"status", 503}, {"match", "/tree/"}},
                  {{"kind", "status"}, {"status", 500}, {"match", "model.safetensors"}, {"at", "cdn"}, {"times", 2}}});
  const Snapshot snapshot = open();
  snapshot.fetch({"model.safetensors"});
  EXPECT_EQ(fetched(snapshot, "model.safetensors"), weights);
}

// All files of a host wait when it is busy. The user reads it once.
TEST_F(HubSnapshot, ALongPauseIsSaidOnce) {
  const Snapshot snapshot = open();
  hub.set_faults({{{"kind", "status"},
                   {"status", 429},
                   {"match", "/resolve/"},
                   {"headers", {{"Retry-After", "6"}}},
                   {"times", 2}}});
  testing::internal::CaptureStderr();
  snapshot.fetch({"config.json", "model.safetensors"});
  const std::string said = testing::internal::GetCapturedStderr(),
                    wanted = "127.0.0.1 answers with status 429; trying again in 6 s";
  EXPECT_THAT(said, HasSubstr(wanted));
  EXPECT_EQ(said.find(wanted), said.rfind(wanted)) << said;
  EXPECT_EQ(fetched(snapshot, "model.safetensors"), weights);
}

TEST_F(HubSnapshot, TheTokenGoesToTheHubAlone) {
  hub.put("models/org/small/.gated", "");
  HubSettings settings = hub.settings();
  settings.token = "good";
  const Snapshot snapshot = Snapshot::open(settings, kModel);
  snapshot.fetch({"config.json", "model.safetensors"});
  EXPECT_EQ(fetched(snapshot, "model.safetensors"), weights);
  size_t to_hub = 0, to_cdn = 0;
  for (const json& request : hub.log()) {
    const bool own = request["place"] == "hub";
    ++(own ? to_hub : to_cdn);
    EXPECT_EQ(request["token"], own ? "Bearer good" : "") << request;
  }
  EXPECT_GE(to_hub, 4u);
  EXPECT_EQ(to_cdn, 1u);
}

TEST_F(HubSnapshot, ABranchATagAndACommitAreRevisions) {
  hub.put("models/org/small@v%1/config.json", "{\"version\": 1}");
  const Snapshot branch = open({RepoKind::kModel, "org/small", "v/1"});
  branch.fetch({"config.json"});
  EXPECT_EQ(fetched(branch, "config.json"), "{\"version\": 1}");
  EXPECT_EQ(read_text(hub.cache() / "models--org--small/refs/v/1"), branch.commit());
  hub.forget_log();
  const Snapshot commit = open({RepoKind::kModel, "org/small", branch.commit()});
  commit.fetch({"config.json"});
  EXPECT_THAT(hub.log(), IsEmpty());  // a commit never changes
  EXPECT_EQ(commit.folder(), branch.folder());
}

TEST_F(HubSnapshot, ARepositoryThatMovedIsFollowed) {
  hub.put("models/old/.moved", "org/small");
  const Snapshot snapshot = open({RepoKind::kModel, "old", ""});
  EXPECT_EQ(snapshot.files().size(), 5u);
}

TEST_F(HubSnapshot, WithoutANetworkTheCopyIsUsed) {
  RepoName commit = kModel;
  {
    const Snapshot snapshot = open();
    snapshot.fetch({"config.json"});
    commit.revision = snapshot.commit();
  }
  HubSettings away = hub.settings();
  hub.stop();
  testing::internal::CaptureStderr();
  away.endpoint = "http://127.0.0.1:9";
  const Snapshot copy = Snapshot::open(away, kModel);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("org/small: 127.0.0.1 does not accept a connection; using the copy of commit " +
                        commit.revision.substr(0, 12)));
  copy.fetch({"config.json"});
  EXPECT_THAT(user_error([&] {
                copy.fetch({"README.md", "model.safetensors"});
              }),
              HasSubstr("lacks README.md and 1 more files, and 127.0.0.1 does not accept a connection"));

  away.offline = true;
  const Snapshot offline = Snapshot::open(away, kModel);
  offline.fetch({"config.json"});
  EXPECT_THAT(user_error([&] { offline.fetch({"README.md"}); }), HasSubstr("HF_HUB_OFFLINE forbids downloads"));
}

// The branch moves, and the process ends before it fetches a file of the new commit.
TEST_F(HubSnapshot, ACommitWithoutAFileDoesNotReplaceTheCopy) {
  const Snapshot before = open();
  before.fetch({"config.json"});
  hub.put("models/org/small/config.json", "{\"model_type\": \"qwen3\"}");
  const Snapshot after = open({RepoKind::kModel, "org/small", "main"});  // this process asks for the revision again
  ASSERT_NE(after.commit(), before.commit());
  HubSettings offline = hub.settings();
  offline.offline = true;
  const Snapshot copy = Snapshot::open(offline, kModel);
  EXPECT_EQ(copy.commit(), before.commit());
  copy.fetch({"config.json"});
  after.fetch({"config.json"});
  EXPECT_EQ(Snapshot::open(offline, kModel).commit(), after.commit());
}

// The blob may belong to another commit, too.
TEST_F(HubSnapshot, WithoutANetworkBlobsThatAreThereAreUsed) {
  const Snapshot snapshot = open();
  snapshot.fetch({"config.json", "model.safetensors"});
  fs::remove(snapshot.folder() / "model.safetensors");
  HubSettings offline = hub.settings();
  offline.offline = true;
  const Snapshot copy = Snapshot::open(offline, kModel);
  copy.fetch({"model.safetensors"});
  EXPECT_EQ(fetched(copy, "model.safetensors"), weights);
  EXPECT_THAT(user_error([&] { copy.fetch({"README.md", "config.json"}); }), HasSubstr("lacks README.md, and"));
}

// A network's login page answers every request, or redirects it.
TEST_F(HubSnapshot, WhenSomethingElseAnswersTheCopyIsUsed) {
  const std::string commit = open().commit();
  open().fetch({"config.json"});
  const json page = {{"kind", "status"}, {"status", 200}, {"match", "/revision/"}, {"body", "<html>Log in</html>"}};
  const json no_commit = {{"kind", "status"}, {"status", 200}, {"match", "/revision/"}};
  const json other_scheme = {{"kind", "redirect"}, {"match", "/revision/"}, {"to", "ftp://login"}};
  const json endless = {{"kind", "redirect"}, {"match", "/api/models"}, {"to", "/api/models/again"}, {"times", 99}};
  int revisions = 0;
  for (const auto& [fault, words] :
       {std::pair{page, "something other than JSON"}, std::pair{no_commit, "found no commit"},
        std::pair{other_scheme, "redirects to ftp"}, std::pair{endless, "redirects again and again"}}) {
    hub.set_faults(json::array({fault}));
    // The process asks only once for a revision.
    const RepoName again{RepoKind::kModel, "org/small", "v" + std::to_string(++revisions)};
    write_text(hub.cache() / "models--org--small/refs" / again.revision, commit);
    testing::internal::CaptureStderr();
    const Snapshot copy = Snapshot::open(hub.settings(), again);
    EXPECT_THAT(testing::internal::GetCapturedStderr(),
                testing::AllOf(HasSubstr(words), HasSubstr("using the copy of commit " + commit.substr(0, 12))));
    EXPECT_EQ(copy.commit(), commit);
    copy.fetch({"config.json"});
  }
}

// All parts of a run use one commit: after a question that failed, the hub may answer again, with a newer commit.
TEST_F(HubSnapshot, AfterAFailedQuestionTheCopyIsUsedThroughout) {
  const std::string commit = open().commit();
  open().fetch({"config.json"});
  hub.put("models/org/small/config.json", "{\"model_type\": \"qwen3\"}");
  const RepoName again{RepoKind::kModel, "org/small", "main"};  // this process has not asked for this revision yet
  hub.set_faults({{{"kind", "status"}, {"status", 500}, {"match", "/revision/"}}});
  testing::internal::CaptureStderr();
  EXPECT_EQ(open(again).commit(), commit);
  const Snapshot second = open(again);
  const std::string said = testing::internal::GetCapturedStderr(), wanted = "using the copy of commit";
  EXPECT_EQ(second.commit(), commit);
  EXPECT_FALSE(second.online());
  EXPECT_THAT(said, HasSubstr(wanted));
  EXPECT_EQ(said.find(wanted), said.rfind(wanted)) << said;
}

TEST_F(HubSnapshot, AnUnreachableHubIsAskedOnce) {
  open().fetch({"config.json"});
  HubSettings away = hub.settings();
  away.endpoint = "http://127.0.0.1:9";
  testing::internal::CaptureStderr();
  Snapshot::open(away, kModel);
  Snapshot::open(away, kModel).fetch({"config.json"});
  const std::string said = testing::internal::GetCapturedStderr(), wanted = "127.0.0.1 does not accept a connection";
  EXPECT_THAT(said, HasSubstr(wanted));
  EXPECT_EQ(said.find(wanted), said.rfind(wanted)) << said;
}

TEST_F(HubSnapshot, ACopyWithoutAListingIsUsedAsItIs) {
  const Snapshot snapshot = open();
  snapshot.fetch({"config.json"});
  fs::remove_all(hub.cache() / "models--org--small/trees");
  HubSettings settings = hub.settings();
  settings.offline = true;
  const Snapshot offline = Snapshot::open(settings, kModel);
  ASSERT_EQ(offline.files().size(), 1u);
  EXPECT_EQ(offline.files()[0].path, "config.json");
  offline.fetch({"config.json"});
}

TEST_F(HubSnapshot, WaitsForAnotherProcessThatFetchesTheSameFile) {
  const Snapshot snapshot = open();
  const HubFile file = *find_file(snapshot.files(), "model.safetensors");
  const fs::path lock = hub.cache() / ".locks/models--org--small" / (file.etag + ".lock");
  fs::create_directories(lock.parent_path());
  const int held = ::open(lock.c_str(), O_RDWR | O_CREAT, 0664);
  ASSERT_EQ(flock(held, LOCK_EX), 0);
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    write_text(hub.cache() / "models--org--small/blobs" / file.etag, weights);
    close(held);
  });
  testing::internal::CaptureStderr();
  snapshot.fetch({"model.safetensors"});
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("another process is downloading model.safetensors"));
  other.join();
  EXPECT_EQ(fetched(snapshot, "model.safetensors"), weights);
  EXPECT_THAT(ranges(), IsEmpty());
}

TEST_F(HubSnapshot, SeveralProcessesFetchOneCopy) {
  hub.set_faults({{{"kind", "slow"}, {"match", "model.safetensors"}, {"rate", 400000}, {"times", 9}}});
  std::vector<pid_t> children;
  for (int child = 0; child < 3; ++child) {
    children.push_back(fork());
    if (children.back() != 0) continue;
    const Snapshot snapshot = open();
    snapshot.fetch({"config.json", "model.safetensors"});
    _exit(fetched(snapshot, "model.safetensors") == weights ? 0 : 1);
  }
  for (const pid_t child : children) {
    int status = 1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(ranges().size(), 1u);
}

TEST_F(HubSnapshot, WithoutLocksEachProcessFetchesItsOwnCopy) {
  hub.set_faults({{{"kind", "slow"}, {"match", "model.safetensors"}, {"rate", 400000}, {"times", 9}}});
  locks_exclude = false;
  std::vector<pid_t> children;
  for (int child = 0; child < 3; ++child) {
    children.push_back(fork());
    if (children.back() != 0) continue;
    const Snapshot snapshot = open();
    const std::string error = user_error([&] { snapshot.fetch({"model.safetensors"}); });
    _exit(error == "no error" && fetched(snapshot, "model.safetensors") == weights ? 0 : 1);
  }
  locks_exclude = true;
  for (const pid_t child : children) {
    int status = 1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_THAT(list_tree(blob_of_weights().parent_path()), ElementsAre(blob_of_weights().filename().string()));
}

TEST_F(HubSnapshot, ManyFilesAtATime) {
  for (int i = 0; i < 30; ++i) hub.put("models/org/small/part-" + std::to_string(i) + ".bin", bytes_of(10000 + i));
  const Snapshot snapshot = open();
  std::vector<std::string> paths;
  for (const HubFile& file : snapshot.files()) paths.push_back(file.path);
  snapshot.fetch(paths);
  for (int i = 0; i < 30; ++i) EXPECT_EQ(fetched(snapshot, "part-" + std::to_string(i) + ".bin"), bytes_of(10000 + i));
}

TEST_F(HubSnapshot, AMirrorThatNamesTheHubIsAskedForTheNextPage) {
  for (int i = 0; i < 30; ++i) hub.put("models/org/small/part-" + std::to_string(i) + ".bin", bytes_of(10));
  hub.put("models/org/small/.mirrored", "");
  EXPECT_EQ(std::ranges::count_if(open().files(), [](const HubFile& file) { return file.path.starts_with("part-"); }),
            30);
}

TEST_F(HubSnapshot, ModelScope) {
  HubSettings settings = hub.settings(Hub::kModelScope);
  settings.token = "good";
  const Snapshot snapshot = Snapshot::open(settings, kModel);
  snapshot.fetch({"config.json", "model.safetensors"});
  EXPECT_EQ(snapshot.folder(), hub.cache() / "models/org--small/snapshots/master");
  EXPECT_EQ(fetched(snapshot, "model.safetensors"), weights);
  for (const json& request : hub.log()) EXPECT_EQ(request["cookie"], "m_session_id=good");
  settings.offline = true;
  EXPECT_EQ(Snapshot::open(settings, {RepoKind::kModel, "org/small", "main"}).folder(), snapshot.folder());
  settings.offline = false;
  const Snapshot data = [&] {
    hub.put("datasets/org/rows/train.jsonl", "{}\n");
    return Snapshot::open(settings, {RepoKind::kDataset, "org/rows", ""});
  }();
  data.fetch({"train.jsonl"});
  EXPECT_EQ(fetched(data, "train.jsonl"), "{}\n");
}

TEST_F(HubSnapshot, WithoutLinksFilesOfEqualContentAreAllThere) {
  hub.put("models/org/small/again.txt", "notes");
  const Snapshot snapshot = open();
  links_are_possible = false;
  snapshot.fetch({"again.txt", "deep/down/notes.txt", "config.json"});
  links_are_possible = true;
  EXPECT_FALSE(fs::is_symlink(snapshot.folder() / "again.txt"));
  EXPECT_EQ(fetched(snapshot, "again.txt"), "notes");
  EXPECT_EQ(fetched(snapshot, "deep/down/notes.txt"), "notes");
}

// Two processes fetch the same files at the same time, and both make the links.
TEST_F(HubSnapshot, WithoutLinksTheSecondProcessLeavesTheFileOfTheFirst) {
  const Snapshot snapshot = open();
  const RepoFolder second(hub.settings(), kModel);
  const HubFile file = *find_file(snapshot.files(), "config.json");
  links_are_possible = false;
  snapshot.fetch({"config.json"});
  second.link(snapshot.commit(), file);
  links_are_possible = true;
  EXPECT_EQ(fetched(snapshot, "config.json"), "{\"model_type\": \"llama\"}");
}

TEST_F(HubSnapshot, TheSecondProcessLeavesTheLinkOfTheFirst) {
  const Snapshot snapshot = open();
  const fs::path link = snapshot.folder() / "config.json";
  snapshot.fetch({"config.json"});
  struct stat before {};
  struct stat after {};
  ASSERT_EQ(lstat(link.c_str(), &before), 0);
  RepoFolder(hub.settings(), kModel).link(snapshot.commit(), *find_file(snapshot.files(), "config.json"));
  ASSERT_EQ(lstat(link.c_str(), &after), 0);
  EXPECT_EQ(after.st_ino, before.st_ino);
  EXPECT_EQ(after.st_ctim.tv_nsec, before.st_ctim.tv_nsec);
}

// The file of a branch of ModelScope changes while other processes read it.
TEST_F(HubSnapshot, AnOldLinkIsReplacedInOneStep) {
  const HubSettings settings = hub.settings(Hub::kModelScope);
  const Snapshot snapshot = Snapshot::open(settings, kModel);
  snapshot.fetch({"config.json", "deep/down/notes.txt"});
  const RepoFolder folder(settings, kModel);
  HubFile one = *find_file(snapshot.files(), "config.json"),
          other = *find_file(snapshot.files(), "deep/down/notes.txt");
  other.path = one.path;
  std::atomic<bool> ends = false;
  std::atomic<int> missing = 0;
  std::thread reader([&] {
    while (!ends) missing += fs::exists(snapshot.folder() / one.path) ? 0 : 1;
  });
  for (int i = 0; i < 400; ++i) folder.link(snapshot.commit(), i % 2 == 0 ? other : one);
  ends = true;
  reader.join();
  EXPECT_EQ(missing, 0);
  EXPECT_EQ(fetched(snapshot, "config.json"), "{\"model_type\": \"llama\"}");
  EXPECT_EQ(std::distance(fs::directory_iterator(snapshot.folder()), {}), 2) << "config.json and deep, nothing more";
}

TEST_F(HubSnapshot, ModelScopeTakesABranchWithASlash) {
  hub.put("models/org/small@with%slash/deep/config.json", "{}");
  const Snapshot snapshot =
      Snapshot::open(hub.settings(Hub::kModelScope), {RepoKind::kModel, "org/small", "with/slash"});
  snapshot.fetch({"deep/config.json"});
  EXPECT_EQ(fetched(snapshot, "deep/config.json"), "{}");
}

// The snapshot of a branch of ModelScope is named by the branch, so it keeps its folder when the branch changes. A new
// process must fetch the changed file.
TEST_F(HubSnapshot, ModelScopeTakesFilesThatChanged) {
  const HubSettings settings = hub.settings(Hub::kModelScope);
  const auto content_in_child = [&] {
    const pid_t child = fork();
    if (child == 0) {
      Snapshot::open(settings, kModel).fetch({"config.json"});
      _exit(0);
    }
    waitpid(child, nullptr, 0);
    return read_text(hub.cache() / "models/org--small/snapshots/master/config.json");
  };
  EXPECT_EQ(content_in_child(), "{\"model_type\": \"llama\"}");
  hub.put("models/org/small/config.json", "{\"model_type\": \"qwen3\"}");
  EXPECT_EQ(content_in_child(), "{\"model_type\": \"qwen3\"}");
}

}  // namespace
}  // namespace fettle
