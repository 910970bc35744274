// Tests from where models are fetched and where they are kept. Fettle reads the same environment variables as
// huggingface_hub.
#include <gtest/gtest.h>

#include "environment.h"
#include "hub/http.h"
#include "hub/repo_name.h"
#include "hub/settings.h"
#include "temp_folder.h"

namespace fettle {
namespace {

class HubEnvironment : public testing::Test {
 protected:
  TempFolder home;
  Environment home_is{"HOME", home.path().string()}, cache_home{"XDG_CACHE_HOME", std::nullopt},
      hf_home{"HF_HOME", std::nullopt}, hub_cache{"HF_HUB_CACHE", std::nullopt},
      old_cache{"HUGGINGFACE_HUB_CACHE", std::nullopt}, token{"HF_TOKEN", std::nullopt},
      old_token{"HUGGING_FACE_HUB_TOKEN", std::nullopt}, token_path{"HF_TOKEN_PATH", std::nullopt},
      offline{"HF_HUB_OFFLINE", std::nullopt}, old_offline{"TRANSFORMERS_OFFLINE", std::nullopt},
      endpoint{"HF_ENDPOINT", std::nullopt}, scope{"USE_MODELSCOPE_HUB", std::nullopt};
};

TEST_F(HubEnvironment, Defaults) {
  const HubSettings settings = read_hub_settings(Hub::kHuggingFace);
  EXPECT_EQ(settings.endpoint, "https://huggingface.co");
  EXPECT_EQ(settings.cache, home / ".cache/huggingface/hub");
  EXPECT_EQ(settings.token, "");
  EXPECT_FALSE(settings.offline);
  EXPECT_EQ(hub_of_environment(), Hub::kHuggingFace);
}

TEST_F(HubEnvironment, PlacesOfTheCache) {
  const auto cache = [] { return read_hub_settings(Hub::kHuggingFace).cache; };
  const Environment xdg("XDG_CACHE_HOME", "/xdg");
  EXPECT_EQ(cache(), "/xdg/huggingface/hub");
  const Environment base("HF_HOME", "~/models");
  EXPECT_EQ(cache(), home / "models/hub");
  const Environment older("HUGGINGFACE_HUB_CACHE", "/older");
  EXPECT_EQ(cache(), "/older");
  const Environment own("HF_HUB_CACHE", "/own");
  EXPECT_EQ(cache(), "/own");
}

// The same as in huggingface_hub, which calls expandvars(expanduser(...)).
TEST_F(HubEnvironment, PathsMayNameVariables) {
  const Environment user("FETTLE_TEST_USER", "someone"), unset("FETTLE_TEST_UNSET", std::nullopt);
  const Environment base("HF_HOME", "~/$FETTLE_TEST_USER/${FETTLE_TEST_USER}s$");
  EXPECT_EQ(read_hub_settings(Hub::kHuggingFace).cache, home / "someone/someones$/hub");
  write_text(home / "someone/someones$/token", "hf_file\n");
  EXPECT_EQ(read_hub_settings(Hub::kHuggingFace).token, "hf_file");
  write_text(home / "someone/token", "hf_other\n");
  const Environment path("HF_TOKEN_PATH", "~/${FETTLE_TEST_USER}/token"),
      own("HF_HUB_CACHE", "/scratch/$FETTLE_TEST_USER/$FETTLE_TEST_UNSET");
  EXPECT_EQ(read_hub_settings(Hub::kHuggingFace).token, "hf_other");
  EXPECT_EQ(read_hub_settings(Hub::kHuggingFace).cache, "/scratch/someone/$FETTLE_TEST_UNSET");
}

TEST_F(HubEnvironment, WithoutAHomeAFileHereIsNoToken) {
  const Environment no_home("HOME", std::nullopt);
  const std::filesystem::path before = std::filesystem::current_path();
  write_text(home / "token", "some-text\n");
  std::filesystem::current_path(home.path());
  const HubSettings settings = read_hub_settings(Hub::kHuggingFace);
  std::filesystem::current_path(before);
  EXPECT_EQ(settings.token, "");
  EXPECT_EQ(settings.cache, "");
}

TEST_F(HubEnvironment, Tokens) {
  const auto token = [] { return read_hub_settings(Hub::kHuggingFace).token; };
  write_text(home / ".cache/huggingface/token", "hf_file\n");
  EXPECT_EQ(token(), "hf_file");
  write_text(home / "elsewhere", " hf_other \n");
  const Environment path("HF_TOKEN_PATH", "~/elsewhere");
  EXPECT_EQ(token(), "hf_other");
  const Environment older("HUGGING_FACE_HUB_TOKEN", "hf_older");
  EXPECT_EQ(token(), "hf_older");
  const Environment set("HF_TOKEN", "hf_set\n");
  EXPECT_EQ(token(), "hf_set");
  const Environment none("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1");
  EXPECT_EQ(token(), "");
}

TEST_F(HubEnvironment, Switches) {
  const Environment mirror("HF_ENDPOINT", "https://hub.example.org/");
  const Environment off("HF_HUB_OFFLINE", "yes");
  const Environment wait("HF_HUB_DOWNLOAD_TIMEOUT", "90");
  const HubSettings settings = read_hub_settings(Hub::kHuggingFace);
  EXPECT_EQ(settings.endpoint, "https://hub.example.org");
  EXPECT_TRUE(settings.offline);
  EXPECT_EQ(settings.stall_seconds, 90);
  const Environment model_scope("USE_MODELSCOPE_HUB", "1");
  EXPECT_EQ(hub_of_environment(), Hub::kModelScope);
}

TEST_F(HubEnvironment, PasswordsInAddressesAreNotShown) {
  for (const char* address : {"https://me:secret@hub.example.org", "me:sec/ret@hub.example.org"}) {
    const Environment mirror("HF_ENDPOINT", address);
    EXPECT_EQ(user_error([] { read_hub_settings(Hub::kHuggingFace); }),
              "HF_ENDPOINT: 'https://***@hub.example.org' has an @; Fettle takes no name and password from an address, "
              "so leave them out");
  }
  EXPECT_EQ(user_error([] { host_of("http://me:secret@127.0.0.1:port"); }),
            "'http://***@127.0.0.1:port' is not an address that can be fetched");
  EXPECT_EQ(without_login("postgresql://me:s@cret@db/mlflow"), "postgresql://***@db/mlflow");
  EXPECT_EQ(without_login("sqlite:///a@b.db"), "sqlite://***@b.db");
  EXPECT_EQ(without_login("http://127.0.0.1:5000"), "http://127.0.0.1:5000");
}

TEST_F(HubEnvironment, ModelScope) {
  EXPECT_EQ(read_hub_settings(Hub::kModelScope).endpoint, "https://www.modelscope.cn");
  EXPECT_EQ(read_hub_settings(Hub::kModelScope).cache, home / ".cache/modelscope");
  const Environment domain("MODELSCOPE_DOMAIN", "www.modelscope.ai");
  const Environment cache("MODELSCOPE_CACHE", "/ms");
  const Environment token("MODELSCOPE_API_TOKEN", "ms-1");
  EXPECT_EQ(read_hub_settings(Hub::kModelScope).endpoint, "https://www.modelscope.ai");
  EXPECT_EQ(read_hub_settings(Hub::kModelScope).cache, "/ms");
  EXPECT_EQ(read_hub_settings(Hub::kModelScope).token, "ms-1");
}

TEST(RepoNames, AreReadWithTheirRevision) {
  const auto name = read_repo_name(RepoKind::kModel, "Qwen/Qwen3-0.6B@refs/pr/1");
  ASSERT_TRUE(name);
  EXPECT_EQ(name->id, "Qwen/Qwen3-0.6B");
  EXPECT_EQ(name->revision, "refs/pr/1");
  EXPECT_TRUE(read_repo_name(RepoKind::kModel, "gpt2"));
  EXPECT_TRUE(read_repo_name(RepoKind::kDataset, "a_b/c.d-e"));
  for (const char* wrong : {"", "/abs", "./a", "../a", "a/../b", "a//b", "a/b/c", "a--b/c", "a/b.", "-a/b", "a b",
                            "~/a", "a/b.git", "a/..", "http://a/b", "a/b\n", "C:\\a"})
    EXPECT_FALSE(read_repo_name(RepoKind::kModel, wrong)) << wrong;
  EXPECT_TRUE(read_repo_name(RepoKind::kModel, "someone/" + std::string(96, 'a')));
  EXPECT_FALSE(read_repo_name(RepoKind::kModel, "someone/" + std::string(97, 'a')));
}

TEST(Certificates, AreThoseOfTheUserOrTheSystem) {
  const TempFolder root;
  const Environment first("SSL_CERT_FILE", std::nullopt), second("CURL_CA_BUNDLE", std::nullopt),
      third("REQUESTS_CA_BUNDLE", std::nullopt);
  EXPECT_EQ(certificates(root.path()), "");
  write_text(root / "etc/ssl/ca-bundle.pem", "");
  EXPECT_EQ(certificates(root.path()), root / "etc/ssl/ca-bundle.pem") << "openSUSE";
  write_text(root / "etc/pki/tls/certs/ca-bundle.crt", "");
  EXPECT_EQ(certificates(root.path()), root / "etc/pki/tls/certs/ca-bundle.crt") << "Fedora";
  write_text(root / "etc/ssl/certs/ca-certificates.crt", "");
  EXPECT_EQ(certificates(root.path()), "") << "libcurl's default";
  const Environment other("REQUESTS_CA_BUNDLE", "/mine.pem");
  EXPECT_EQ(certificates(root.path()), "/mine.pem");
  const Environment own("SSL_CERT_FILE", "/own.pem");
  EXPECT_EQ(certificates(root.path()), "/own.pem");
}

}  // namespace
}  // namespace fettle
