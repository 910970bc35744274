// Tests commands whose models and data sets are names on a hub. The hub runs on this machine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>

#include <algorithm>
#include <regex>

#include "environment.h"
#include "hub_server.h"
#include "paths.h"
#include "run_fettle.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class HubCommands : public testing::Test {
 protected:
  HubCommands() {
    copy("llama", "models/org/llama");
    hub.put("models/org/llama/chat_template.jinja",
            "{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>{% endfor %}"
            "{% if add_generation_prompt %}<assistant>{% endif %}");
    write_text(hub.path() / "datasets/org/rows/train.jsonl",
               "{\"messages\": [{\"role\": \"user\", \"content\": \"Say a.\"}, {\"role\": \"assistant\", \"content\": "
               "\"a\"}]}\n{\"messages\": [{\"role\": \"user\", \"content\": \"Say b.\"}, {\"role\": \"assistant\", "
               "\"content\": \"b\"}]}\n");
  }
  void copy(const std::string& family, const std::string& to) {
    for (const auto& entry : fs::directory_iterator(reference_model(family)))
      if (entry.is_regular_file()) hub.put(to + "/" + entry.path().filename().string(), read_text(entry.path()));
  }
  // Returns the files that were requested from the hub.
  std::vector<std::string> fetched() {
    std::set<std::string> names;
    for (const auto& request : hub.log()) {
      const std::string path = request["path"];
      if (request["place"] == "hub" && path.find("/resolve/") != std::string::npos)
        names.insert(path.substr(path.rfind('/') + 1));
    }
    return {names.begin(), names.end()};
  }
  Outcome run(const std::vector<std::string>& words) { return Running(folder.path(), words, "", folder.path()).wait(); }

  HubServer hub;
  TempFolder folder;
  Environment offline{"HF_HUB_OFFLINE", std::nullopt}, endpoint{"HF_ENDPOINT", hub.endpoint()},
      cache{"HF_HUB_CACHE", hub.cache().string()}, token{"HF_TOKEN", std::nullopt},
      token_path{"HF_TOKEN_PATH", (folder / "token").string()};
};

TEST_F(HubCommands, DownloadPrintsTheFolder) {
  hub.put("models/org/llama/pytorch_model.bin", "never fetched");
  hub.put("models/org/llama/consolidated.safetensors", "never fetched");
  const Outcome outcome = run({"download", "org/llama"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const fs::path snapshot = outcome.out.substr(0, outcome.out.size() - 1);
  EXPECT_EQ(read_text(snapshot / "model.safetensors"), read_text(reference_model("llama") / "model.safetensors"));
  EXPECT_TRUE(fs::exists(snapshot / "tokenizer.json"));
  EXPECT_FALSE(fs::exists(snapshot / "pytorch_model.bin"));
  EXPECT_FALSE(fs::exists(snapshot / "consolidated.safetensors"));
  EXPECT_THAT(outcome.err, HasSubstr("downloaded org/llama ("));
  EXPECT_EQ(run({"download", "org/llama@v9"}).code, 2);
  const Outcome rows = run({"download", "org/rows", "--dataset"});
  EXPECT_EQ(rows.code, 0) << rows.err;
  EXPECT_THAT(rows.out, HasSubstr("datasets--org--rows/snapshots/"));
}

TEST_F(HubCommands, AMisspeltFolderIsSuggested) {
  fs::create_directories(folder / "models/base");
  const auto said = [&](const std::string& name) {
    return run({"data", "model_name_or_path=" + name, "dataset=org/rows", "output_dir=out"}).err;
  };
  EXPECT_THAT(said("modles"),
              AllOf(HasSubstr("error: there is no file or folder `modles` here (did you mean `models`?); "
                              "as a name on the hub: 'modles' is neither"),
                    Not(HasSubstr("`models/base`"))));
  EXPECT_THAT(said("models/bse"),
              HasSubstr("there is no file or folder `models/bse` here (did you mean `models/base`?)"));
  EXPECT_THAT(said("some-name"),
              HasSubstr("error: there is no file or folder `some-name` here; as a name on the hub: "));
  EXPECT_THAT(said("org/none"), Not(HasSubstr("there is no file or folder")));
  write_text(folder / "chats.jsonl", "");
  const Outcome rows = run({"data", "model_name_or_path=org/llama", "dataset=./chat.jsonl", "output_dir=out"});
  EXPECT_THAT(rows.err, HasSubstr("(did you mean './chats.jsonl'?)"));
}

// Runs the program with its standard error on a terminal, and returns what it writes there.
std::string on_a_terminal(const std::vector<std::string>& words) {
  winsize window{.ws_row = 24, .ws_col = 120, .ws_xpixel = 0, .ws_ypixel = 0};
  int terminal = -1;
  const pid_t process = forkpty(&terminal, nullptr, nullptr, &window);
  if (process == 0) {
    const std::string program = program_file();
    std::vector<char*> argv{const_cast<char*>(program.c_str())};
    for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    execv(program.c_str(), argv.data());
    _exit(127);
  }
  std::string out;
  char buffer[4096];
  for (ssize_t count = 0; (count = read(terminal, buffer, sizeof buffer)) > 0;) out.append(buffer, count);
  close(terminal);
  waitpid(process, nullptr, 0);
  return out;
}

TEST_F(HubCommands, DownloadShowsItsProgress) {
  const std::string rows(600000, 'x');
  hub.put("datasets/org/rows/big.txt", rows);
  hub.set_faults({{{"kind", "slow"}, {"match", "big.txt"}, {"rate", 250000}}});  // the download takes 2.4 s
  const std::string said = on_a_terminal({"download", "org/rows", "--dataset", "--include", "big.txt"});
  EXPECT_THAT(said, HasSubstr("1 file, 0.60 MB"));
  EXPECT_THAT(said, HasSubstr("downloaded org/rows"));
  // The live line grows: bytes so far, share, speed, time left.
  const std::regex line(R"(of 0\.60 MB \((\d+)%\) \| [\d.]+ [kM]B/s \| 0:00:0\d left)");
  std::vector<int> shares;
  for (std::sregex_iterator found(said.begin(), said.end(), line), none; found != none; ++found)
    shares.push_back(std::stoi((*found)[1]));
  ASSERT_GE(shares.size(), 2u) << said;
  EXPECT_TRUE(std::ranges::is_sorted(shares)) << said;
  EXPECT_LT(shares.front(), 60) << said;
  EXPECT_GT(shares.back(), shares.front()) << said;
}

TEST_F(HubCommands, PlanAndDataFetchNoWeights) {
  for (const char* name : {"README.md", "LICENSE"}) hub.put("models/org/llama/" + std::string(name), name);
  const Outcome plan =
      run({"plan", "model_name_or_path=org/llama", "cutoff_len=64", "per_device_train_batch_size=1", "--shards"});
  EXPECT_EQ(plan.code, 0) << plan.err;
  const Outcome data = run({"data", "model_name_or_path=org/llama", "dataset=org/rows", "data_cache=off"});
  EXPECT_EQ(data.code, 0) << data.err;
  for (const char* name : {"config.json", "README.md", "LICENSE"}) EXPECT_THAT(fetched(), testing::Contains(name));
  EXPECT_THAT(fetched(), testing::Contains("train.jsonl"));
  EXPECT_THAT(fetched(), Not(testing::Contains(HasSubstr("safetensors"))));
}

TEST_F(HubCommands, TrainsFromNamesAndKeepsThem) {
  const std::string out = (folder / "out").string();
  const Outcome outcome =
      run({"train", "model_name_or_path=org/llama", "dataset=org/rows", "output_dir=" + out, "plugin=cpu",
           "max_steps=1", "per_device_train_batch_size=1", "cutoff_len=64", "plot_loss=false", "data_cache=off"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto config = nlohmann::json::parse(read_text(folder / "out/adapter_config.json"));
  EXPECT_EQ(config["base_model_name_or_path"], "org/llama");
  EXPECT_TRUE(fs::exists(folder / "out/tokenizer.json"));
  EXPECT_FALSE(fs::is_symlink(folder / "out/tokenizer.json"));

  // The adapter is put on the hub, with a chat of its own. The export fetches it from there and does not fetch the base
  // again.
  const std::map<std::string, std::string> chat{
      {"chat_template.jinja", "{% for m in messages %}({{ m.role }}){{ m.content }}{{ eos_token }}{% endfor %}"},
      {"additional_chat_templates/tool_use.jinja", "{{ messages | length }}"}};
  for (const char* file : {"adapter_config.json", "adapter_model.safetensors"})
    hub.put(std::string("models/org/adapter/") + file, read_text(folder / "out" / file));
  for (const auto& [file, text] : chat) hub.put("models/org/adapter/" + file, text);
  const Outcome exported = run({"export", "model_name_or_path=org/llama", "adapter_name_or_path=org/adapter",
                                "export_dir=" + (folder / "merged").string(), "plugin=cpu", "cutoff_len=64"});
  EXPECT_EQ(exported.code, 0) << exported.err;
  EXPECT_TRUE(fs::exists(folder / "merged/model.safetensors"));
  for (const auto& [file, text] : chat) EXPECT_EQ(read_text(folder / "merged" / file), text) << file;
}

TEST_F(HubCommands, AnAdapterOfTheHubNamesThoseBelowIt) {
  for (const char* file : {"adapter_config.json", "adapter_model.safetensors"})
    hub.put(std::string("models/org/second/") + file, read_text(reference_model("llama") / "adapter_final" / file));
  hub.put("models/org/second/earlier_adapters.json",
          R"({"model_name_or_path": "org/llama", "adapter_name_or_path": ["org/first"], "create_new_adapter": true})");
  const Outcome outcome = run({"export", "model_name_or_path=org/llama", "adapter_name_or_path=org/second",
                               "export_dir=" + (folder / "merged").string(), "plugin=cpu", "cutoff_len=64"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("was trained on org/llama with org/first merged into it"));
}

TEST_F(HubCommands, AFolderOfThatNameComesFirst) {
  fs::create_directories(folder / "org");
  fs::copy(reference_model("llama"), folder / "org/llama", fs::copy_options::recursive);
  write_text(folder / "text.txt", "hello\n");
  EXPECT_EQ(run({"tokenize", "org/llama", "text.txt"}).code, 0);
  EXPECT_TRUE(hub.log().empty());
}

TEST_F(HubCommands, TokenizersAndTemplatesOfTheHub) {
  write_text(folder / "text.txt", "hello\n");
  write_text(folder / "talk.json", "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}]}");
  const Outcome ids = run({"tokenize", "org/llama", "text.txt"});
  EXPECT_EQ(ids.code, 0) << ids.err;
  EXPECT_EQ(ids.out, run({"tokenize", reference_model("llama").string(), "text.txt"}).out);
  const Outcome text = run({"render", "org/llama", "talk.json"});
  EXPECT_EQ(text.out, "<user>hi</s>") << text.err;
}

TEST_F(HubCommands, ARecipeIsFetchedForAMachineWithoutANetwork) {
  write_text(folder / "tune.yaml", "model_name_or_path: org/llama\ndataset: org/rows\noutput_dir: out\n");
  hub.put("models/org/llama/README.md", "A model.");
  const Outcome outcome = run({"download", "tune.yaml"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("models--org--llama/snapshots/"), HasSubstr("train.jsonl\n")));
  hub.stop();
  // A copy that was fetched without the model card can be used, too.
  for (const auto& commit : fs::directory_iterator(hub.cache() / "models--org--llama/snapshots"))
    EXPECT_TRUE(fs::remove(commit.path() / "README.md"));
  const Environment off("HF_HUB_OFFLINE", "1");
  const Outcome data = run({"data", "tune.yaml", "data_cache=off"});
  EXPECT_EQ(data.code, 0) << data.err;
  const Outcome other = run({"data", "tune.yaml", "model_name_or_path=org/other"});
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err,
              AllOf(HasSubstr("error: org/other is not on this machine: it is not in " + hub.cache().string()),
                    HasSubstr("HF_HUB_OFFLINE forbids downloads"), HasSubstr("fettle download org/other")));
}

TEST_F(HubCommands, FlagsOfDownloadWithARecipe) {
  copy("llama", "models/org/base");
  write_text(folder / "tune.yaml",
             "model_name_or_path: org/llama\neval_base_model: org/base\ndataset: org/rows\noutput_dir: out\n");
  for (const char* flag : {"--revision=v1", "--dataset", "--subset=en", "--split=train", "--include=*", "--all"}) {
    const std::string word = flag, name = word.substr(0, word.find('='));
    const Outcome outcome = run({"download", "tune.yaml", "--no-weights", word});
    EXPECT_EQ(outcome.code, 2) << flag;
    EXPECT_THAT(outcome.err, HasSubstr("tune.yaml: a recipe says itself what to fetch; leave out " + name)) << flag;
  }
  EXPECT_TRUE(hub.log().empty());
  const Outcome configs = run({"download", "tune.yaml", "--no-weights"});
  EXPECT_EQ(configs.code, 0) << configs.err;
  EXPECT_THAT(configs.out, AllOf(HasSubstr("models--org--llama/"), HasSubstr("models--org--base/")));
  EXPECT_THAT(fetched(), AllOf(testing::Contains("config.json"), Not(testing::Contains("model.safetensors"))));
  const Environment scope("MODELSCOPE_ENDPOINT", hub.endpoint()), place("MODELSCOPE_CACHE", (folder / "ms").string());
  const Outcome all = run({"download", "tune.yaml", "--modelscope"});
  EXPECT_EQ(all.code, 0) << all.err;
  for (const char* name : {"org--llama", "org--base"})
    EXPECT_TRUE(fs::exists(folder / "ms/models" / name / "snapshots/master/model.safetensors")) << name;
}

TEST_F(HubCommands, ModelsWithoutUsableFiles) {
  hub.put("models/org/none/config.json", "{}");
  hub.put("models/org/none/model-q4.onnx", "");
  const Outcome none = run({"download", "org/none"});
  EXPECT_EQ(none.code, 2);
  EXPECT_THAT(none.err, HasSubstr("org/none has no weights that Fettle reads"));
  hub.put("models/org/broken/config.json", "{}");
  hub.put("models/org/broken/model.safetensors.index.json", "{\"weight_map\": {\"a\": \"../../evil\"}}");
  EXPECT_THAT(run({"download", "org/broken"}).err,
              HasSubstr("says that tensor 'a' is in \"../../evil\", but the repository"));
  hub.put("models/org/adapter/adapter_config.json", "{}");
  EXPECT_THAT(run({"data", "model_name_or_path=org/adapter"}).err, HasSubstr("org/adapter is an adapter, not a model"));
  hub.put("models/org/both/adapter_config.json", "{}");
  hub.put("models/org/both/adapter_model.safetensors", "");
  hub.put("models/org/both/config.json", "{}");
  EXPECT_THAT(run({"train", "model_name_or_path=org/both", "dataset=r.jsonl", "output_dir=out"}).err,
              HasSubstr("org/both is an adapter, not a model; set adapter_name_or_path to it"));
  EXPECT_EQ(run({"download", "org/both"}).code, 0);
  EXPECT_THAT(run({"chat", "model_name_or_path=org/llama", "adapter_name_or_path=org/llama"}).err,
              HasSubstr("org/llama is not an adapter: it has no adapter_config.json"));
  EXPECT_THAT(run({"download", "org/rows", "--dataset", "--split", "train", "--all"}).err,
              HasSubstr("leave out --all"));
  EXPECT_THAT(run({"download", "org/llama", "--no-weights", "--all"}).err, HasSubstr("leave out --dataset, --all"));
  EXPECT_THAT(run({"download", "../up"}).err, HasSubstr("'../up' is not a name on a hub"));
}

TEST_F(HubCommands, GgufFilesByTheirName) {
  const Environment cache("FETTLE_CACHE", (folder / "cache").string());
  const std::string bytes = read_text(source_folder() / "tests/reference/gguf/models/llama.gguf");
  hub.put("models/org/gguf/x-Q8_0.gguf", bytes);
  EXPECT_EQ(run({"download", "org/gguf"}).code, 0);
  hub.put("models/org/best/model-best-of-8.gguf", bytes);
  EXPECT_EQ(run({"download", "org/best"}).code, 0);
  hub.put("models/org/two/x-Q8_0.gguf", bytes);
  hub.put("models/org/two/x-Q4_K_M.gguf", "");
  const Outcome both = run({"download", "org/two"});
  EXPECT_EQ(both.code, 2);
  EXPECT_THAT(both.err,
              HasSubstr("org/two has 2 GGUF files: x-Q4_K_M.gguf, x-Q8_0.gguf; name one as org/two/FILE.gguf"));
  for (const char* name : {"org/two:q8_0", "org/two/x-Q8_0.gguf"}) {
    const Outcome one = run({"download", name, "--revision", "main"});
    EXPECT_EQ(one.code, 0) << one.err;
    EXPECT_THAT(one.out, testing::EndsWith("/x-Q8_0.gguf\n"));
  }
  write_text(folder / "text.txt", "ab\n");
  const std::string text = (folder / "text.txt").string();
  EXPECT_EQ(run({"tokenize", "org/two:q8_0", text}).code, 0);
  EXPECT_EQ(run({"tokenize", "org/two/x-Q8_0.gguf", text}).code, 0);
  EXPECT_THAT(run({"tokenize", "org/two:Q4_K", text}).err, HasSubstr("no GGUF file matches 'Q4_K'"));
}

TEST_F(HubCommands, ModelScopeByItsSwitch) {
  const Environment scope("MODELSCOPE_ENDPOINT", hub.endpoint()), place("MODELSCOPE_CACHE", (folder / "ms").string()),
      nothing("HF_ENDPOINT", "http://127.0.0.1:9");
  const Outcome data = run({"data", "model_name_or_path=org/llama", "dataset=org/rows", "use_modelscope=true"});
  EXPECT_EQ(data.code, 0) << data.err;
  EXPECT_TRUE(fs::exists(folder / "ms/models/org--llama/snapshots/master/config.json"));
  const Environment on("USE_MODELSCOPE_HUB", "1");
  EXPECT_EQ(run({"download", "org/llama"}).code, 0);
}

TEST_F(HubCommands, KeysOfTheRecipe) {
  hub.put("models/org/llama@v1/config.json", "{\"model_type\": \"unknown_one\"}");
  EXPECT_THAT(run({"data", "model_name_or_path=org/llama", "revision=v1", "dataset=org/rows"}).err,
              HasSubstr("snapshots"));
  hub.put("models/org/llama/.gated", "");
  const Outcome gated = run({"data", "model_name_or_path=org/llama", "dataset=org/rows"});
  EXPECT_THAT(gated.err, HasSubstr("error: org/llama is gated"));
  const Outcome open = run({"data", "model_name_or_path=org/llama", "dataset=org/rows", "hf_hub_token=good",
                            "cache_dir=" + (folder / "mine").string()});
  EXPECT_EQ(open.code, 0) << open.err;
  EXPECT_TRUE(fs::exists(folder / "mine/models--org--llama"));
}

}  // namespace
}  // namespace fettle
