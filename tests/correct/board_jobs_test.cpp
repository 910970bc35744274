// Tests the commands that the board runs as child processes, with a shell in place of Fettle.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <thread>

#include "board/jobs.h"
#include "temp_folder.h"

namespace fettle {
namespace {

using nlohmann::ordered_json;
using testing::HasSubstr;

bool comes_true(const std::function<bool()>& condition) {
  for (int i = 0; i < 1000 && !condition(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  return condition();
}

ordered_json ended_state(Jobs& jobs, int64_t number) {
  EXPECT_TRUE(comes_true([&] { return jobs.state(number).value()["running"] == false; }));
  return jobs.state(number).value();
}

TEST(Jobs, KeepTheOutputAndTheCodeOfACommand) {
  Jobs jobs("/bin/sh");
  const int64_t number = jobs.query({"-c", "echo result; echo problem >&2; exit 3"});
  EXPECT_EQ(ended_state(jobs, number),
            (ordered_json{{"running", false}, {"code", 3}, {"out", "result\n"}, {"err", "problem\n"}}));
  EXPECT_EQ(jobs.state(number + 1), std::nullopt);
  EXPECT_FALSE(jobs.end(number));
}

TEST(Jobs, EndACommandThatDoesNotWantTo) {
  Jobs jobs("/bin/sh");
  const int64_t number = jobs.query({"-c", "trap 'echo asked >&2' TERM; echo begun >&2; while :; do sleep 0.1; done"});
  const auto said = [&](const char* word) {
    return comes_true(
        [&] { return jobs.state(number).value()["err"].get<std::string>().find(word) != std::string::npos; });
  };
  EXPECT_TRUE(said("begun"));
  EXPECT_TRUE(jobs.end(number));
  EXPECT_TRUE(said("asked"));
  EXPECT_TRUE(jobs.end(number));
  EXPECT_EQ(ended_state(jobs, number)["code"], 128 + SIGKILL);
}

TEST(Jobs, RunThreeCommandsAtMost) {
  Jobs jobs("/bin/sh");
  for (int i = 0; i < 3; ++i) jobs.query({"-c", "sleep 60"});
  EXPECT_THAT(user_error([&] { jobs.query({"-c", "true"}); }), HasSubstr("3 commands of this board still run"));
  jobs.end(2);
  ended_state(jobs, 2);
  EXPECT_EQ(jobs.query({"-c", "true"}), 4);
}

TEST(Jobs, ForgetTheOldest) {
  Jobs jobs("/bin/sh");
  for (int i = 0; i < 60; ++i) ended_state(jobs, jobs.query({"-c", "true"}));
  EXPECT_EQ(jobs.state(1), std::nullopt);
  EXPECT_NE(jobs.state(60), std::nullopt);
}

TEST(Jobs, ADetachedOneGoesOnAndInheritsNothing) {
  const TempFolder folder;
  const int held =
      // A child process must not inherit this file, nor a port of the board.
      ::open((folder / "held").c_str(), O_CREAT | O_RDWR, 0600);
  const auto output = [&] { return ::open((folder / "out").c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600); };
  pid_t process = -1;
  {
    Jobs jobs("/bin/sh");
    process = jobs.detach(
        {"-c", "ls /proc/self/fd; while [ ! -e '" + (folder / "go").string() + "' ]; do sleep 0.05; done; echo done"},
        output());
    EXPECT_EQ(jobs.detached_code(process), std::nullopt);
    const pid_t second = jobs.detach({"-c", "exit 7"}, output());
    EXPECT_TRUE(comes_true([&] { return jobs.detached_code(second).has_value(); }));
    EXPECT_EQ(jobs.detached_code(second), 7);
  }
  EXPECT_EQ(kill(process, 0), 0);
  write_text(folder / "go", "");
  EXPECT_TRUE(comes_true([&] { return read_text(folder / "out") == "0\n1\n2\n3\ndone\n"; }))
      << read_text(folder / "out") << "(3 is the folder that ls reads)";
  waitpid(process, nullptr, 0);
  close(held);
}

TEST(Jobs, ADetachedOneRunsInTheFolderThatIsNamed) {
  const TempFolder folder;
  Jobs jobs("/bin/sh");
  const auto said = [&](const std::string& where) {
    const int output = ::open((folder / "out").c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0600);
    const pid_t process = jobs.detach({"-c", "pwd -P"}, output, where);
    EXPECT_TRUE(comes_true([&] { return jobs.detached_code(process).has_value(); }));
    return read_text(folder / "out");
  };
  const std::string here = std::filesystem::current_path().string() + "\n";
  EXPECT_EQ(said(folder.path()), std::filesystem::canonical(folder.path()).string() + "\n");
  EXPECT_EQ(said(""), here);
  EXPECT_EQ(said(folder / "gone"), here);
}

TEST(Jobs, AProgramThatIsMissingSaysSo) {
  Jobs jobs("/nonexistent/program");
  const ordered_json state = ended_state(jobs, jobs.query({"plan"}));
  EXPECT_EQ(state["code"], 127);
}

}  // namespace
}  // namespace fettle
