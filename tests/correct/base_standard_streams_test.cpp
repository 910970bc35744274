#include <gtest/gtest.h>

#include <cstdlib>

#include "base/files/standard_streams.h"

namespace fettle {
namespace {

TEST(StandardStreams, AFileIsNeverOpenedAsOneOfThem) {
  EXPECT_EXIT(
      {
        for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) close(fd);
        hold_standard_streams();
        const int file = open("/dev/zero", O_RDONLY);
        std::_Exit(file > STDERR_FILENO && write(STDERR_FILENO, "lost", 4) == 4 ? 7 : 1);
      },
      testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace fettle
