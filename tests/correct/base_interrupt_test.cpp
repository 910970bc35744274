#include <gtest/gtest.h>
#include <pty.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "base/interrupt.h"
#include "base/log.h"

namespace fettle {
namespace {

TEST(Interrupt, ScopesNest) {
  const InterruptScope outer;
  { const InterruptScope inner; }
  std::raise(SIGINT);  // this would end the process if the inner scope had removed the handler
  EXPECT_EQ(InterruptScope::signal(), SIGINT);
  {
    const InterruptScope inner;
    EXPECT_EQ(InterruptScope::signal(), SIGINT);
    std::raise(SIGTERM);
    EXPECT_EQ(InterruptScope::signal(), SIGTERM);
  }
}

TEST(Interrupt, ASecondSignalEndsTheProcessInAnInnerScopeToo) {
  EXPECT_EXIT(
      {
        const InterruptScope outer;
        std::raise(SIGINT);
        const InterruptScope inner;
        std::this_thread::sleep_for(std::chrono::milliseconds(1100));
        std::raise(SIGINT);
      },
      testing::KilledBySignal(SIGINT), "");
}

// A launcher may deliver a signal to the process group and to each process. The second delivery must not end the run,
// but a second signal of a person must, also after an inner scope has ended.
TEST(Interrupt, ASignalThatIsDeliveredTwiceCountsOnce) {
  EXPECT_EXIT(
      {
        const InterruptScope outer;
        {
          const InterruptScope inner;
          InterruptNotice notice;
          notice.set("stopping");
          std::raise(SIGTERM);
          std::raise(SIGTERM);
        }
        std::raise(SIGTERM);
        if (InterruptScope::signal() != SIGTERM) std::exit(1);
        std::this_thread::sleep_for(std::chrono::milliseconds(1100));
        std::raise(SIGTERM);
      },
      testing::KilledBySignal(SIGTERM), "^stopping\n$");
}

// Reads from `terminal` until `text` has come. Returns whether it came.
bool comes(int terminal, const std::string& text) {
  std::string all;
  char part[64];
  for (ssize_t got = 0; all.find(text) == all.npos; all.append(part, static_cast<size_t>(got)))
    if ((got = read(terminal, part, sizeof part)) <= 0) return false;
  return true;
}

// Launchers do not type.
TEST(Interrupt, ASecondCtrlCOfAPersonEndsTheProcessAtOnce) {
  int terminal = -1;
  const pid_t process = forkpty(&terminal, nullptr, nullptr, nullptr);
  ASSERT_GE(process, 0);
  if (process == 0) {
    const InterruptScope scope;
    char read_first = 0;
    for (const char* text : {"<begun>", "<typed once>"})
      if (write(STDOUT_FILENO, text, std::strlen(text)) < 0 || read(STDIN_FILENO, &read_first, 1) < 0 ||
          read_first != '\n')
        break;
    _exit(InterruptScope::signal() == SIGINT ? 0 : 1);
  }
  // Ctrl-C and the end of a line, in one piece: the process gets the signal before it reads the line.
  const std::string keys = "\x03\n";
  EXPECT_TRUE(comes(terminal, "<begun>"));
  EXPECT_EQ(write(terminal, keys.data(), keys.size()), std::ssize(keys));
  EXPECT_TRUE(comes(terminal, "<typed once>"));
  EXPECT_EQ(write(terminal, keys.data(), keys.size()), std::ssize(keys));
  int status = 0;
  waitpid(process, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT);
  close(terminal);
}

TEST(Interrupt, ASignalOfAnotherKindIsRecordedToo) {
  const InterruptScope scope;
  std::raise(SIGINT);
  std::raise(SIGTERM);
  std::raise(SIGINT);
  EXPECT_EQ(InterruptScope::signal(), SIGTERM);
}

TEST(Interrupt, SignalsOfTerminalsAndSchedulersAreRecordedUnlessTheyAreIgnored) {
  for (const int signal : {SIGHUP, SIGUSR1, SIGUSR2}) {
    {
      const InterruptScope scope;
      std::raise(signal);
      EXPECT_EQ(InterruptScope::signal(), signal);
    }
    std::signal(signal, SIG_IGN);  // as nohup and a shell's trap '' do
    {
      const InterruptScope scope;
      std::raise(signal);
      EXPECT_EQ(InterruptScope::signal(), 0);
    }
    EXPECT_EQ(std::signal(signal, SIG_DFL), SIG_IGN);
  }
}

TEST(Interrupt, ANoticeIsPrintedAtOnce) {
  const InterruptScope scope;
  testing::internal::CaptureStderr();
  {
    InterruptNotice notice;
    notice.set("earlier");
    notice.set("stopping");
    std::raise(SIGINT);
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "stopping\n");
    set_log_level(LogLevel::kQuiet);
    notice.set("quiet");
    testing::internal::CaptureStderr();
    std::raise(SIGTERM);
    set_log_level(LogLevel::kInfo);
  }
  std::raise(SIGHUP);  // the notice is gone
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

// Ctrl-C also ends `tee` in `fettle train | tee log`, but the run must still save its checkpoint.
TEST(Interrupt, AClosedPipeDoesNotEndTheProcess) {
  EXPECT_EXIT(
      {
        const InterruptScope scope;
        int ends[2];
        if (pipe(ends) != 0 || close(ends[0]) != 0 || dup2(ends[1], STDERR_FILENO) < 0) std::exit(1);
        InterruptNotice notice;
        notice.set("stopping");
        std::raise(SIGINT);
        std::exit(7);
      },
      testing::ExitedWithCode(7), "");
}

// Runs `body` in a process with the id 1, as in a container. Returns its exit code, or nullopt if this system allows no
// such process.
std::optional<int> code_of_first_process(const std::function<void()>& body) {
  constexpr int kNotAllowed = 99;
  const pid_t outer = fork();
  if (outer == 0) {
    if (unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) _exit(kNotAllowed);
    const pid_t first = fork();
    if (first < 0) _exit(kNotAllowed);
    if (first == 0) {
      body();
      _exit(3);
    }
    int status = 0;
    waitpid(first, &status, 0);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 4);
  }
  int status = 0;
  waitpid(outer, &status, 0);
  const int code = WEXITSTATUS(status);
  return code == kNotAllowed ? std::nullopt : std::optional(code);
}

TEST(Interrupt, EndsTheFirstProcessOfAContainer) {
  const auto plain = code_of_first_process([] {
    end_on_signals();
    std::raise(SIGTERM);
  });
  if (!plain) GTEST_SKIP() << "this system does not allow a namespace of process ids";
  EXPECT_EQ(plain, 128 + SIGTERM);
  const auto in_scope = code_of_first_process([] {
    const InterruptScope scope;
    std::raise(SIGINT);
    std::this_thread::sleep_for(std::chrono::milliseconds(1100));
    std::raise(SIGINT);
  });
  EXPECT_EQ(in_scope, 128 + SIGINT);
}

TEST(Interrupt, NewScopeHasNoSignal) {
  {
    const InterruptScope first;
    std::raise(SIGTERM);
  }
  const InterruptScope second;
  EXPECT_EQ(InterruptScope::signal(), 0);
}

}  // namespace
}  // namespace fettle
