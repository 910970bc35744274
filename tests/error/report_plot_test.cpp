// Tests that a plot that cannot be written is a user error.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "report/plot.h"
#include "temp_folder.h"

namespace fettle {
namespace {

TEST(LossPlot, NamesTheFileItCannotWrite) {
  const TempFolder folder;
  const std::string message = user_error([&] {
    write_loss_plot(folder / "missing/training_loss", {"run", {{1, 2.0}}, {}});
  });
  EXPECT_THAT(message, testing::HasSubstr("missing/training_loss.png"));
}

}  // namespace
}  // namespace fettle
