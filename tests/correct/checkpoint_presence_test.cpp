// Tests that only one run works in a folder. A second run is refused, and the folder of a dead run is taken over, on
// the same machine, in a container and on another machine.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "base/process_name.h"
#include "checkpoint/saved/presence.h"
#include "temp_folder.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kOther = "0123456789abcdef";

// Writes the presence file of another run and returns its path. The last heartbeat was `age` seconds ago.
fs::path write_owner(const fs::path& folder, Owner owner, int64_t age = 0) {
  owner.id = kOther;
  owner.run = owner.settled = true;
  const fs::path file = presence_file(folder, kOther);
  write_text(file, owner.json().dump());
  fs::last_write_time(file, fs::file_time_type::clock::now() - std::chrono::seconds(age));
  return file;
}

Owner elsewhere() {
  Owner owner = Owner::own();
  owner.host = "node7";
  owner.boot = "another";
  owner.pid = 4711;
  return owner;
}

// Takes the lock on a presence file, as a living owner does. The destructor releases the lock, as the end of a process
// does.
struct HeldLock {
  explicit HeldLock(const fs::path& file) : fd(open(file.c_str(), O_RDWR | O_CLOEXEC)) {
    struct flock lock {};
    lock.l_type = F_WRLCK;
    EXPECT_EQ(fcntl(fd, F_OFD_SETLK, &lock), 0);
  }
  ~HeldLock() { close(fd); }
  int fd;
};

std::string refusal(const fs::path& folder, Pace pace = {}) {
  return user_error([&] { Presence::alone_in(folder, pace); });
}

class OneRun : public testing::Test {
 protected:
  OneRun() { fs::create_directories(folder); }
  TempFolder place;
  fs::path folder = place / "out";
};

TEST_F(OneRun, LeavesNothingBehind) {
  {
    const auto presence = Presence::alone_in(folder);
    EXPECT_EQ(list_tree(folder).size(), 1u);
    EXPECT_EQ(Presence::in(folder), presence) << "who writes there shares it";
    presence->check();
  }
  EXPECT_THAT(list_tree(folder), IsEmpty());
}

TEST_F(OneRun, ASecondOneIsRefusedByNameAndOneAfterAKillIsNot) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t other = fork();
  if (other == 0) {
    const auto presence = Presence::alone_in(folder);
    EXPECT_EQ(write(ready[1], "x", 1), 1);
    pause();
    _exit(0);
  }
  char byte;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  EXPECT_THAT(refusal(folder), AllOf(HasSubstr("the run on " + std::string(host)), HasSubstr(folder.string()),
                                     HasSubstr("process " + std::to_string(other)), HasSubstr("since 2")));
  EXPECT_EQ(list_tree(folder).size(), 1u) << "the other's file stays, this one's does not";
  kill(other, SIGKILL);
  waitpid(other, nullptr, 0);
  EXPECT_EQ(list_tree(folder).size(), 1u);
  EXPECT_EQ(refusal(folder), "no error");
  EXPECT_THAT(list_tree(folder), IsEmpty());
}

TEST_F(OneRun, OfTwoThatBeginTogetherOneGoesOn) {
  constexpr int kRuns = 6;
  int done[2];
  ASSERT_EQ(pipe(done), 0);
  std::vector<pid_t> runs;
  for (int i = 0; i < kRuns; ++i) {
    runs.push_back(fork());
    if (runs.back() != 0) continue;
    std::shared_ptr<Presence> presence;
    const bool refused = user_error([&] { presence = Presence::alone_in(folder); }) != "no error";
    EXPECT_EQ(write(done[1], refused ? "r" : "a", 1), 1);
    pause();
    _exit(0);
  }
  std::string said;
  for (char byte; said.size() < kRuns && read(done[0], &byte, 1) == 1;) said += byte;
  EXPECT_EQ(std::count(said.begin(), said.end(), 'a'), 1) << said;
  for (const pid_t run : runs) {
    kill(run, SIGKILL);
    waitpid(run, nullptr, 0);
  }
}

// A container has its own process numbers, and often the same host name as other containers. So only the lock shows
// whether the owner is alive.
TEST_F(OneRun, InAnotherContainerIsJudgedByItsLock) {
  Owner owner = Owner::own();
  owner.pid_space = "pid:[1]";
  owner.locks = true;
  const fs::path file = write_owner(folder, owner);
  {
    const HeldLock lock(file);
    EXPECT_THAT(refusal(folder), HasSubstr("works in"));
  }
  EXPECT_EQ(refusal(folder), "no error") << "dead at once, however fresh its last heartbeat is";
}

TEST_F(OneRun, WhereThereAreNoLocksTheStartOfTheProcessTells) {
  Owner owner = Owner::own();
  write_owner(folder, owner);
  EXPECT_THAT(refusal(folder), HasSubstr("works in")) << "this process is alive";
  owner.started += 1;
  write_owner(folder, owner);
  EXPECT_EQ(refusal(folder), "no error") << "a later process has its number";
}

// A run may be killed right after it took a folder over. The next run must find no unfinished file whose owner is
// unknown.
TEST_F(OneRun, TakesTheUnfinishedFilesOfADeadRunAway) {
  Owner owner = Owner::own();
  owner.started -= 1;
  write_owner(folder, owner);
  write_text(folder / (std::string("run.json.tmp-") + kOther), "{");
  write_text(folder / "run.json.tmp-fedcba9876543210", "{");
  EXPECT_EQ(refusal(folder), "no error");
  EXPECT_THAT(list_tree(folder), testing::ElementsAre("run.json.tmp-fedcba9876543210"));
}

TEST_F(OneRun, OnAnotherMachineIsDeadAfterAWhile) {
  write_owner(folder, elsewhere(), 121);
  testing::internal::CaptureStderr();
  EXPECT_EQ(refusal(folder), "no error");
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("the run on node7 (process 4711, since 2"));
  write_owner(folder, elsewhere(), 0);
  EXPECT_EQ(refusal(folder, {.heartbeat = 10, .dead_after = 0.3}), "no error") << "it was waited for";
  write_text(presence_file(folder, kOther), "{\"host\": \"nod");
  EXPECT_EQ(refusal(folder, {.heartbeat = 10, .dead_after = 0.3}), "no error") << "half-written";
}

TEST_F(OneRun, OnAnotherMachineWithAHeartbeatIsAlive) {
  const fs::path file = write_owner(folder, elsewhere(), 1);
  std::atomic<bool> ends = false;
  std::thread heart([&] {
    while (!ends) {
      utimensat(AT_FDCWD, file.c_str(), nullptr, 0);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  });
  EXPECT_THAT(refusal(folder), AllOf(HasSubstr("node7"), HasSubstr("process 4711")));
  {
    const HeldLock lock(file);
    EXPECT_THAT(refusal(folder), AllOf(HasSubstr("node7"), HasSubstr("two runs")));
  }
  ends = true;
  heart.join();
}

// If a machine dies, the file server keeps the locks of its processes for a while.
TEST_F(OneRun, OnAnotherMachineWithALockAndNoHeartbeatIsWaitedFor) {
  const Pace pace{.heartbeat = 10, .dead_after = 60};
  const fs::path file = write_owner(folder, elsewhere(), 600);
  std::optional<HeldLock> lock(file);
  EXPECT_EQ(life_of(folder, kOther), Life::kUnknown);
  EXPECT_TRUE(is_alive(file));
  std::thread server([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    lock.reset();
  });
  EXPECT_EQ(refusal(folder, pace), "no error") << "its lock ended, and its heartbeat is old";
  server.join();
  EXPECT_FALSE(fs::exists(file));
}

// A stopped run sends no heartbeats either, so nobody may take over its folder.
TEST_F(OneRun, OnAnotherMachineWithALockIsNeverTakenOver) {
  const fs::path file = write_owner(folder, elsewhere(), 600);
  const HeldLock lock(file);
  EXPECT_THAT(refusal(folder, {.heartbeat = 10, .dead_after = 0.3}),
              AllOf(HasSubstr("node7"), HasSubstr("its host may be dead"), HasSubstr("remove " + file.string())));
  EXPECT_TRUE(fs::exists(file));
}

// Another run may take over the folder while this run is stopped (SIGSTOP) or cannot reach the file server.
TEST_F(OneRun, ThatWasTakenOverNoticesIt) {
  const auto presence = Presence::alone_in(folder, {.heartbeat = 0.02});
  const fs::path own = presence_file(folder, process_name());
  fs::remove(own);
  presence->check();
  EXPECT_TRUE(fs::exists(own)) << "nobody else is there: it shows itself again";
  write_owner(folder, elsewhere());
  fs::remove(own);
  EXPECT_THAT(user_error([&] { presence->check(); }), HasSubstr("another run has taken over"));
  EXPECT_FALSE(fs::exists(own));
}

TEST_F(OneRun, SendsHeartbeats) {
  const auto presence = Presence::alone_in(folder, {.heartbeat = 0.02});
  const fs::path own = presence_file(folder, process_name());
  const auto old = fs::file_time_type::clock::now() - std::chrono::hours(1);
  fs::last_write_time(own, old);
  for (int i = 0; i < 500 && fs::last_write_time(own) == old; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_GT(fs::last_write_time(own), old);
}

TEST_F(OneRun, DoesNotMindWhoOnlyWritesFiles) {
  Owner owner = elsewhere();
  owner.id = kOther;
  write_text(presence_file(folder, kOther), owner.json().dump());
  EXPECT_EQ(refusal(folder), "no error");
  EXPECT_TRUE(fs::exists(presence_file(folder, kOther)));
}

TEST_F(OneRun, NeedsAFolderThatCanBeWritten) {
  EXPECT_THAT(refusal(place / "none"), HasSubstr("cannot write"));
}

// Tests is_alive, by which programs that only read the folder, such as the board, see whether a run is alive.
TEST_F(OneRun, IsSeenByReaders) {
  {
    const auto presence = Presence::alone_in(folder);
    EXPECT_TRUE(is_alive(presence_file(folder, process_name())));
  }
  EXPECT_FALSE(is_alive(presence_file(folder, process_name()))) << "the file is gone";
  Owner here = Owner::own();
  here.locks = true;
  const fs::path file = write_owner(folder, here);
  EXPECT_FALSE(is_alive(file)) << "the lock ended with its owner";
  {
    const HeldLock lock(file);
    EXPECT_TRUE(is_alive(file));
  }
  here.locks = false;
  EXPECT_TRUE(is_alive(write_owner(folder, here))) << "without locks, this process counts";
  here.started += 1;
  EXPECT_FALSE(is_alive(write_owner(folder, here))) << "another process got its id";
  EXPECT_TRUE(is_alive(write_owner(folder, elsewhere(), 100)));
  EXPECT_FALSE(is_alive(write_owner(folder, elsewhere(), 130)));
  write_text(file, "{");
  fs::last_write_time(file, fs::file_time_type::clock::now() - std::chrono::hours(1));
  EXPECT_FALSE(is_alive(file));
}

}  // namespace
}  // namespace fettle
