#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "base/error.h"
#include "environment.h"
#include "processes.h"
#include "runtime/rendezvous/redis_server.h"
#include "runtime/rendezvous/redis_store.h"
#include "runtime/rendezvous/rendezvous.h"
#include "temp_folder.h"

namespace fettle {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::ThrowsMessage;

TEST(Rendezvous, SaysWhichProcessesAreMissing) {
  const ProcessPlace place = place_of(0, 3, free_port());
  EXPECT_THAT([&] { Rendezvous(place, open_redis_store(place), Rendezvous::Seconds(0.1)); },
              ThrowsMessage<DeviceError>(HasSubstr("2 of 3 processes did not answer within 0 s: 1, 2")));
}

TEST(Rendezvous, SaysAgainAndAgainWhichProcessesAreMissing) {
  const ProcessPlace place = place_of(0, 3, free_port());
  testing::internal::CaptureStderr();
  const Rendezvous::Seconds wait(0.5), report(0.2);
  EXPECT_THROW(Rendezvous(place, open_redis_store(place), wait, report), DeviceError);
  const std::string text = testing::internal::GetCapturedStderr(), said = "waiting for these of 3 processes: 1, 2";
  EXPECT_THAT(text, HasSubstr(said));
  EXPECT_NE(text.find(said), text.rfind(said)) << text;
}

TEST(Rendezvous, SaysThatProcess0CannotBeReached) {
  const ProcessPlace place = place_of(1, 2, free_port());
  EXPECT_THAT([&] { open_redis_store(place, Rendezvous::Seconds(0.1)); },
              ThrowsMessage<UserError>(
                  AllOf(HasSubstr("cannot reach process 0 at 127.0.0.1:"), HasSubstr("FETTLE_STORE_PORT"))));
}

TEST(Rendezvous, RefusesAnotherRunsStore) {
  const int port = free_port();
  const RedisServer server(port, "one", true);
  EXPECT_THAT([&] { RedisStore("127.0.0.1", port, "two", 0.1); },
              ThrowsMessage<UserError>(HasSubstr("no other run uses the port")));
}

// Process 0 of this run has found the port taken and has ended. The others need not wait until their time is over.
TEST(Rendezvous, SaysSoonThatAnotherRunsStoreHasThePort) {
  const int port = free_port();
  const RedisServer server(port, "one", true);
  const auto start = Clock::now();
  EXPECT_THAT(
      [&] { RedisStore("127.0.0.1", port, "two", 60, 8, 0.3); },
      ThrowsMessage<UserError>(AllOf(HasSubstr("a server of another run uses 127.0.0.1:" + std::to_string(port)),
                                     HasSubstr("set FETTLE_STORE_PORT"))));
  EXPECT_GE(seconds_since(start), 0.3);
  EXPECT_LT(seconds_since(start), 20);
}

TEST(Rendezvous, SaysThatThePortIsTaken) {
  for (const bool local : {true, false}) {
    const int port = free_port();
    const RedisServer server(port, "one", local);
    EXPECT_THAT(
        [&] { RedisServer(port, "two", local); },
        ThrowsMessage<UserError>(AllOf(HasSubstr("another program uses the port"), HasSubstr("FETTLE_STORE_PORT"))));
  }
}

// Redis's settings are larger than a pipe's buffer, so Fettle is still writing them when the process that finds no
// redis-server has already ended.
TEST(Rendezvous, SaysThatRedisIsMissing) {
  const Environment nowhere("PATH", "/nowhere");
  EXPECT_THAT([&] { RedisServer(free_port(), std::string(1u << 20, 'x'), true); },
              ThrowsMessage<UserError>(HasSubstr("install the package redis-server")));
}

// Makes a redis-server that is this shell script.
void write_server(const TempFolder& folder, const std::string& script) {
  write_text(folder / "redis-server", "#!/bin/sh\n" + script);
  std::filesystem::permissions(folder / "redis-server", std::filesystem::perms::owner_all);
}

TEST(Rendezvous, SaysThatRedisEndedWithoutAMessage) {
  const TempFolder folder;
  write_server(folder, "/bin/cat >/dev/null\n");
  const Environment silent("PATH", folder.path().string());
  EXPECT_THAT([&] { RedisServer(free_port(), "one", true); },
              ThrowsMessage<UserError>(HasSubstr("it ended without a message")));
}

// A free port does not help a server that cannot start at all.
TEST(Rendezvous, NamesThePortOnlyWhenItIsTaken) {
  const TempFolder folder;
  write_server(folder, "/bin/cat >/dev/null\necho cannot load libssl\n");
  const Environment broken("PATH", folder.path().string());
  EXPECT_THAT([&] { RedisServer(free_port(), "one", true); },
              ThrowsMessage<UserError>(AllOf(HasSubstr("cannot load libssl"), Not(HasSubstr("FETTLE_STORE_PORT")))));
}

TEST(Launchers, NameTheVariableThatIsWrong) {
  std::map<std::string, std::string> variables{{"RANK", "2"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}};
  const auto find = [&] { find_place([&](const char* name) { return variables[name]; }); };
  EXPECT_THAT(find, ThrowsMessage<UserError>(HasSubstr("RANK is '2', wanted a number from 0 to 1")));
  variables["RANK"] = "1";
  variables["MASTER_ADDR"] = "";
  EXPECT_THAT(find, ThrowsMessage<UserError>(HasSubstr("MASTER_ADDR is not set")));
  variables["WORLD_SIZE"] = "";
  EXPECT_THAT(find, ThrowsMessage<UserError>(HasSubstr("WORLD_SIZE is ''")));
  variables["WORLD_SIZE"] = "15";
  variables["PET_NPROC_PER_NODE"] = "8";
  EXPECT_THAT(find, ThrowsMessage<UserError>(HasSubstr("WORLD_SIZE is 15, which is not a multiple of")));
}

TEST(Launchers, MpiexecNeedsAnAddressForSeveralHosts) {
  std::map<std::string, std::string> variables{
      {"PMI_RANK", "1"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};
  EXPECT_THAT([&] { find_place([&](const char* name) { return variables[name]; }); },
              ThrowsMessage<UserError>(
                  AllOf(HasSubstr("mpiexec of MPICH"), HasSubstr("process 1 of 4, but MASTER_ADDR is not set"))));
}

}  // namespace
}  // namespace fettle
