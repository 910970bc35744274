// Tests the exit code and the message of every kind of error.
#include <gtest/gtest.h>

#include <filesystem>
#include <new>
#include <system_error>

#include "base/report_error.h"

namespace fettle {
namespace {

template <typename Error>
void expect(const Error& error, ExitCode code, const std::string& text, const std::string& printed) {
  try {
    throw error;
  } catch (const std::exception&) {
    EXPECT_EQ(current_failure().code, code) << text;
    EXPECT_NE(current_failure().text.find(text), std::string::npos) << current_failure().text;
    testing::internal::CaptureStderr();
    EXPECT_EQ(report_error(), static_cast<int>(code)) << text;
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find(printed + text), std::string::npos) << said;
    EXPECT_EQ(said.find("please report it") != std::string::npos, code == ExitCode::kInternal) << said;
  }
}

TEST(ReportError, HasACodeAndAMessageForEachKind) {
  expect(UserError("no such key"), ExitCode::kUser, "no such key", "error: ");
  expect(DoesNotFit("too large"), ExitCode::kDoesNotFit, "too large", "error: ");
  expect(DeviceError("no plugin"), ExitCode::kDevice, "no plugin", "error: ");
  expect(InternalError("rank 3"), ExitCode::kInternal, "rank 3", "internal error: ");
  const std::error_code full = std::make_error_code(std::errc::no_space_on_device);
  expect(std::filesystem::filesystem_error("write", "/a/file", full), ExitCode::kDoesNotFit, "cannot use /a/file",
         "error: ");
  const std::error_code denied = std::make_error_code(std::errc::permission_denied);
  expect(std::filesystem::filesystem_error("write", "/a/file", denied), ExitCode::kUser, "cannot use /a/file",
         "error: ");
  const std::error_code no_thread = std::make_error_code(std::errc::resource_unavailable_try_again);
  expect(std::system_error(no_thread), ExitCode::kDoesNotFit, "the system starts no more threads", "error: ");
  expect(std::system_error(full), ExitCode::kInternal, "No space left", "internal error: ");
  expect(std::bad_alloc(), ExitCode::kDoesNotFit, "the machine has no free memory left", "error: ");
  expect(std::runtime_error("odd"), ExitCode::kInternal, "odd", "internal error: ");
}

TEST(ReportError, PassesOnWhatIsNotAnException) {
  try {
    throw 3;
  } catch (int) {
    EXPECT_THROW(current_failure(), int);
  }
}

}  // namespace
}  // namespace fettle
