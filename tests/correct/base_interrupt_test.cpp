#include <gtest/gtest.h>

#include <csignal>

#include "base/interrupt.h"

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
        std::raise(SIGINT);
      },
      testing::KilledBySignal(SIGINT), "");
}

TEST(Interrupt, AHangUpIsRecordedUnlessItIsIgnored) {
  {
    const InterruptScope scope;
    std::raise(SIGHUP);
    EXPECT_EQ(InterruptScope::signal(), SIGHUP);
  }
  std::signal(SIGHUP, SIG_IGN);  // nohup does this, too
  {
    const InterruptScope scope;
    std::raise(SIGHUP);
    EXPECT_EQ(InterruptScope::signal(), 0);
  }
  EXPECT_EQ(std::signal(SIGHUP, SIG_DFL), SIG_IGN);
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
