// Tests uploads that are refused: the message says what to do, and the repository is as before.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "environment.h"
#include "hub/http.h"
#include "hub/upload/upload.h"
#include "hub_server.h"

namespace fettle {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class HubUploadError : public testing::Test {
 protected:
  HubUploadError() {
    write_text(folder_ / "model.safetensors", std::string(9000, 'x'));
    settings_ = server_.settings();
    settings_.token = "good";
  }
  std::string refused(const std::string& name = "me/tuned") {
    const std::string message =
        user_error([&] { upload_folder(settings_, {.folder = folder_.path(), .repo = {.id = name}}); });
    EXPECT_FALSE(std::filesystem::exists(server_.path() / "commits.jsonl"));
    return message;
  }
  HubServer server_;
  TempFolder folder_;
  HubSettings settings_;
};

TEST_F(HubUploadError, TokensThatAreMissingOrMayNotWrite) {
  settings_.token = "";
  EXPECT_THAT(refused(), AllOf(HasSubstr("there is no token"), HasSubstr("HF_TOKEN")));
  {
    const Environment none("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1");
    EXPECT_THAT(refused(), HasSubstr("HF_HUB_DISABLE_IMPLICIT_TOKEN forbids the use of your token"));
  }
  EXPECT_TRUE(server_.log().empty());
  settings_.token = "wrong";
  EXPECT_THAT(refused(), AllOf(HasSubstr("does not accept the token"), HasSubstr("Invalid credentials")));
  settings_.token = "good";
  server_.put("models/forbidden/model/config.json", "{}");
  EXPECT_THAT(refused("forbidden/model"), AllOf(HasSubstr("may not do this"), HasSubstr("read access only")));
}

TEST_F(HubUploadError, WhereNothingCanBeSent) {
  settings_.offline = true;
  const Environment off("HF_HUB_OFFLINE", std::nullopt), older("TRANSFORMERS_OFFLINE", std::nullopt);
  EXPECT_THAT(refused(), HasSubstr("unset HF_HUB_OFFLINE"));
  const Environment transformers("TRANSFORMERS_OFFLINE", "1");
  EXPECT_THAT(refused(), HasSubstr("unset TRANSFORMERS_OFFLINE"));
  settings_.offline = false;
  settings_.hub = Hub::kModelScope;
  EXPECT_THAT(refused(), HasSubstr("ModelScope"));
  settings_.hub = Hub::kHuggingFace;
  server_.stop();
  EXPECT_THAT(refused(), HasSubstr("does not accept a connection"));
}

TEST_F(HubUploadError, FoldersWithoutFiles) {
  std::filesystem::remove(folder_ / "model.safetensors");
  EXPECT_THAT(refused(), HasSubstr("has no files to send"));
  EXPECT_THAT(user_error([&] { upload_folder(settings_, {.folder = folder_ / "none", .repo = {.id = "me/x"}}); }),
              HasSubstr("is not a folder"));
}

TEST_F(HubUploadError, AFileThatTheHubRefuses) {
  server_.set_faults({{{"kind", "refused"}, {"at", "hub"}}});
  EXPECT_THAT(refused(), AllOf(HasSubstr("model.safetensors"), HasSubstr("too large for this account")));
}

TEST_F(HubUploadError, ServersThatFailAgainAndAgain) {
  server_.set_faults({{{"kind", "status"}, {"match", "/commit/"}, {"at", "hub"}, {"status", 503}, {"times", 99}}});
  EXPECT_THAT(refused(), AllOf(HasSubstr("committing to me/tuned"), HasSubstr("503")));
}

TEST_F(HubUploadError, ABranchThatDoesNotExist) {
  EXPECT_THAT(user_error([&] {
                upload_folder(settings_, {.folder = folder_.path(), .repo = {.id = "me/tuned", .revision = "none"}});
              }),
              HasSubstr("has no such repository or branch"));
}

}  // namespace
}  // namespace fettle
