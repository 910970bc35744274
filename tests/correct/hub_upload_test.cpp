// Tests uploads to a hub. The repository has the folder's files after one commit. Large files are sent only once, and
// in parts if the hub asks for parts. Broken connections are tried again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hub/upload/upload.h"
#include "hub_server.h"

namespace fettle {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::StartsWith;

class HubUpload : public testing::Test {
 protected:
  HubUpload() {
    write_text(folder() / "config.json", "{\"model_type\": \"llama\"}");
    write_text(folder() / "model.safetensors", weights_);
    write_text(folder() / "logs/notes.txt", "");
  }
  std::filesystem::path folder() const { return folder_ / "out"; }
  HubSettings settings() const {
    HubSettings out = server_.settings();
    out.token = "good";
    return out;
  }
  UploadReport send(const std::string& name = "me/tuned") {
    return upload_folder(
        settings(), {.folder = folder(), .repo = read_repo_name(RepoKind::kModel, name).value(), .message = "first"});
  }
  std::string sent(const std::string& file) const { return read_text(server_.path() / "models/me" / file); }
  // Returns the number of requests of this method whose paths begin with `path`.
  size_t requests(const std::string& method, const std::string& path) const {
    size_t count = 0;
    for (const auto& one : server_.log())
      count += one["method"] == method && one["path"].get<std::string>().starts_with(path);
    return count;
  }

  std::string weights_ = std::string(100'000, 'w') + "end";
  HubServer server_;
  TempFolder folder_;
};

TEST_F(HubUpload, TheRepositoryHasTheFilesAfterOneCommit) {
  const UploadReport report = send();
  EXPECT_EQ(report.files, 3u);
  EXPECT_EQ(report.bytes, 100'003 + 23);
  EXPECT_EQ(report.sent_bytes, 100'003);
  EXPECT_EQ(report.commit.size(), 40u);
  EXPECT_THAT(report.url, testing::EndsWith("/me/tuned"));
  EXPECT_EQ(sent("tuned/model.safetensors"), weights_);
  EXPECT_EQ(sent("tuned/config.json"), "{\"model_type\": \"llama\"}");
  EXPECT_EQ(sent("tuned/logs/notes.txt"), "");
  EXPECT_TRUE(std::filesystem::exists(server_.path() / "models/me/tuned/.private"));
  EXPECT_EQ(read_text(server_.path() / "commits.jsonl"), R"({"repo": "me/tuned", "lines": 4, "summary": "first"})"
                                                         "\n");
}

TEST_F(HubUpload, ANewRepositoryIsPublicOnlyIfAsked) {
  upload_folder(settings(), {.folder = folder(), .repo = {.id = "me/open"}, .is_public = true, .message = "x"});
  EXPECT_FALSE(std::filesystem::exists(server_.path() / "models/me/open/.private"));
}

TEST_F(HubUpload, LargeFilesThatTheHubHasAreNotSentAgain) {
  send();
  write_text(folder() / "config.json", "{}");
  const UploadReport again = send();
  EXPECT_EQ(again.sent_bytes, 0);
  EXPECT_EQ(requests("PUT", "/upload/"), 1u);
  EXPECT_EQ(sent("tuned/config.json"), "{}");
}

TEST_F(HubUpload, EqualLargeFilesAreSentOnce) {
  write_text(folder() / "copy.safetensors", weights_);
  EXPECT_EQ(send().sent_bytes, 100'003);
  EXPECT_EQ(sent("tuned/copy.safetensors"), weights_);
}

TEST_F(HubUpload, PartsAreSentAndJoined) {
  server_.put("part_size", "30000");
  send();
  EXPECT_EQ(requests("PUT", "/part/"), 4u);
  EXPECT_EQ(sent("tuned/model.safetensors"), weights_);
}

TEST_F(HubUpload, BrokenConnectionsAndBusyServersAreTriedAgain) {
  server_.set_faults({{{"kind", "cut"}, {"match", "/upload/"}, {"at", "cdn"}, {"after", 5000}, {"times", 2}},
                      {{"kind", "status"}, {"match", "/upload/"}, {"at", "cdn"}, {"status", 503}},
                      {{"kind", "status"}, {"match", "/commit/"}, {"at", "hub"}, {"status", 500}}});
  send();
  EXPECT_EQ(requests("PUT", "/upload/"), 4u);
  EXPECT_EQ(sent("tuned/model.safetensors"), weights_);
}

TEST_F(HubUpload, TheTokenGoesToTheHubOnly) {
  server_.put("part_size", "30000");
  send();
  for (const auto& one : server_.log())
    EXPECT_EQ(one["token"], one["place"] == "hub" ? "Bearer good" : "") << one["path"];
}

TEST_F(HubUpload, ABranchGetsTheCommit) {
  send();
  std::filesystem::create_directories(server_.path() / "models/me/tuned@second");
  server_.put("models/me/tuned@second/old.txt", "kept");
  write_text(folder() / "config.json", "{}");
  send("me/tuned@second");
  EXPECT_EQ(sent("tuned@second/config.json"), "{}");
  EXPECT_EQ(sent("tuned@second/old.txt"), "kept");
  EXPECT_THAT(sent("tuned/config.json"), StartsWith("{\"model_type\""));
}

TEST_F(HubUpload, FilesThatTheRepositoryIgnoresAreLeftOut) {
  write_text(folder() / "private.ignored", "x");
  EXPECT_EQ(send().files, 3u);
  EXPECT_FALSE(std::filesystem::exists(server_.path() / "models/me/tuned/private.ignored"));
}

TEST(UploadedFiles, AreTheResultWithoutCheckpointsAndLogs) {
  const TempFolder folder;
  for (const char* file :
       {"adapter_model.safetensors", "README.md", ".lock", ".cache/x", "checkpoint-4/state/manifest.json",
        "checkpoint-6.tmp-0a/x", "trainer_log.jsonl", "fettle_run.json", "report.html", "runs/events", "train.log",
        "recipe.yaml", "generated_predictions.jsonl", "wandb/run", "head/weights.bin",
        "profile/plugins/profile/step_1/x.pb", "head/state", "checkpoint-4/adapter_model.safetensors"})
    write_text(folder / file, "x");
  EXPECT_THAT(uploaded_files(folder.path()),
              ElementsAre("README.md", "adapter_model.safetensors", "head/state", "head/weights.bin"));
  EXPECT_THAT(uploaded_files(folder / "checkpoint-4"), ElementsAre("adapter_model.safetensors"));
  EXPECT_THAT(uploaded_files(folder / "checkpoint-4/state"), ElementsAre("manifest.json"));
  EXPECT_THAT(uploaded_files(folder / "runs/.."), testing::Not(IsEmpty()));
}

}  // namespace
}  // namespace fettle
