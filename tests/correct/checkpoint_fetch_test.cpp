// Tests which files of a model are fetched, and which a copy in the cache may lack.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/fetch/fetch_model.h"
#include "hub_server.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const RepoName kModel{RepoKind::kModel, "org/small", ""};
using Weights = ModelRepository::Weights;

// For example, vLLM and `hf download --include` fetch only some files. The cache may have the list of all files.
TEST(FetchModel, WithoutANetworkACopyMayLackFilesThatTheModelWorksWithout) {
  HubServer hub;
  const std::vector<std::string> needless{"tokenizer.model", "tekken.json", "merges.txt", "preprocessor_config.json",
                                          "modeling_own.py"};
  const std::vector<std::string> needed{"config.json", "tokenizer.json", "chat_template.jinja", "model.safetensors"};
  for (const auto& names : {needless, needed})
    for (const std::string& name : names) hub.put("models/org/small/" + name, name);
  hub.put("models/org/small/config.json", R"({"auto_map": {"AutoModel": "modeling_own.Model"}})");
  const fs::path folder = fetch_model(hub.settings(), kModel, Weights::kRequired);
  hub.stop();
  HubSettings offline = hub.settings();
  offline.offline = true;
  const auto drop = [&](const std::string& name) {
    ASSERT_TRUE(fs::remove(folder / fs::read_symlink(folder / name))) << name;
    ASSERT_TRUE(fs::remove(folder / name)) << name;
  };
  for (const std::string& name : needless) drop(name);
  EXPECT_EQ(user_error([&] { fetch_model(offline, kModel, Weights::kRequired); }), "no error");
  for (const char* name : {"model.safetensors", "tokenizer.json", "chat_template.jinja"}) {
    drop(name);
    EXPECT_THAT(user_error([&] { fetch_model(offline, kModel, Weights::kRequired); }),
                HasSubstr(std::string("lacks ") + name));
  }
}

// Without a tokenizer.json, the other vocabulary files make the tokenizer.
TEST(FetchModel, WithoutATokenizerJsonTheVocabularyIsNeeded) {
  HubServer hub;
  for (const char* name : {"config.json", "vocab.json", "merges.txt"})
    hub.put(std::string("models/org/small/") + name, name);
  hub.put("models/org/small/config.json", "{}");
  const fs::path folder = fetch_model(hub.settings(), kModel, Weights::kIgnored);
  HubSettings offline = hub.settings();
  offline.offline = true;
  fs::remove(folder / fs::read_symlink(folder / "merges.txt"));
  EXPECT_THAT(user_error([&] { fetch_model(offline, kModel, Weights::kIgnored); }), HasSubstr("lacks merges.txt"));
}

}  // namespace
}  // namespace fettle
