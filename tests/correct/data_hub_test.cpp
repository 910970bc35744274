// Tests which files the name of a data set on a hub means. The hub runs on this machine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/read/dataset_info.h"
#include "data/read/hub_rows.h"
#include "environment.h"
#include "hub/snapshot.h"
#include "hub_server.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kRow = "{\"text\": \"a\"}\n";

class HubRows : public testing::Test {
 protected:
  DataSource find(const std::string& name, const std::string& info = "", Hub kind = Hub::kHuggingFace) {
    const TempFolder folder;
    if (!info.empty()) write_text(folder / "dataset_info.json", info);
    return find_source(name, folder.path(), hub.settings(kind));
  }
  // Returns the names of the files inside the repository. Checks that the files exist.
  std::vector<std::string> names(const DataSource& source) {
    std::vector<std::string> out;
    for (const fs::path& file : source.files) {
      EXPECT_TRUE(fs::is_regular_file(file)) << file;
      const std::string path = file.string();
      const size_t snapshot = path.find("/snapshots/") + 11;
      out.push_back(path.substr(path.find('/', snapshot) + 1));
    }
    return out;
  }
  bool was_fetched(const std::string& name) {
    for (const auto& request : hub.log())
      if (request["path"].get<std::string>().find(name) != std::string::npos) return true;
    return false;
  }
  HubServer hub;
};

TEST_F(HubRows, APlainNameIsItsTrainingSplit) {
  hub.put("datasets/org/rows/data/train-00000-of-00002.jsonl", kRow);
  hub.put("datasets/org/rows/data/train-00001-of-00002.jsonl", "{\"text\": \"b\"}\n");
  hub.put("datasets/org/rows/data/test-00000-of-00001.jsonl", "{\"text\": \"c\"}\n");
  hub.put("datasets/org/rows/image.png", "not rows");
  hub.put("datasets/org/rows/.ipynb_checkpoints/train-checkpoint.jsonl", kRow);
  EXPECT_THAT(names(find("org/rows")),
              ElementsAre("data/train-00000-of-00002.jsonl", "data/train-00001-of-00002.jsonl"));
  EXPECT_FALSE(was_fetched("test-00000"));
  EXPECT_FALSE(was_fetched("image.png"));
}

TEST_F(HubRows, AnEntryNamesSubsetSplitAndFolder) {
  hub.put("datasets/org/rows/README.md",
          "---\nconfigs:\n- config_name: en\n  data_files: en/*.jsonl\n- config_name: de\n  data_files:\n"
          "  - split: train\n    path: de/one.jsonl\n  - split: test\n    path: de/two.jsonl\n---\n");
  for (const char* file :
       {"en/one.jsonl", "de/one.jsonl", "de/two.jsonl", "deep/more/train.jsonl", "deep/more/test.jsonl"})
    hub.put(std::string("datasets/org/rows/") + file, kRow);
  EXPECT_THAT(names(find("mine", R"({"mine": {"hf_hub_url": "org/rows", "subset": "de", "split": "test"}})")),
              ElementsAre("de/two.jsonl"));
  EXPECT_THAT(names(find("mine", R"({"mine": {"hf_hub_url": "org/rows", "folder": "deep/more"}})")),
              ElementsAre("deep/more/train.jsonl"));
  const DataSource source = find("mine", R"({"mine": {"hf_hub_url": "org/rows", "subset": "en", "ms_hub_url": "x/y",
      "formatting": "sharegpt", "columns": {"messages": "talk"}}})");
  EXPECT_EQ(source.formatting, "sharegpt");
  EXPECT_EQ(source.column("messages"), "talk");
  // In ms-swift, the name of a data set may end with its subset and a number of rows.
  const DataSource part = find("org/rows:en#5");
  EXPECT_THAT(names(part), ElementsAre("en/one.jsonl"));
  EXPECT_EQ(part.num_samples, 5);
  EXPECT_THAT(names(find("org/rows:de")), ElementsAre("de/one.jsonl"));
  EXPECT_THAT(user_error([&] { find("org/rows:en/de"); }),
              HasSubstr("list each subset as a data set of its own, beginning with org/rows:en"));
  EXPECT_THAT(user_error([&] { find("org/rows:v2.jsonl"); }), HasSubstr("is not a file"));
  EXPECT_THAT(user_error([&] { find("org/rows:v*.jsonl"); }), HasSubstr("no file matches"));
}

// Axolotl's and TRL's `data_files`.
TEST_F(HubRows, AnEntryNamesFiles) {
  for (const char* file : {"train.jsonl", "more/one.jsonl", "more/two.jsonl", "more/deep/one.jsonl", "odd.py"})
    hub.put(std::string("datasets/org/rows/") + file, kRow);
  const auto named = [&](const std::string& file, const std::string& also = "") {
    return names(find("mine", R"({"mine": {"hf_hub_url": "org/rows", "file": ")" + file + '"' + also + "}}"));
  };
  EXPECT_THAT(named("more/two.jsonl", R"(, "split": "train")"), ElementsAre("more/two.jsonl"));
  EXPECT_FALSE(was_fetched("/train.jsonl"));
  EXPECT_THAT(named("more/*.jsonl"), ElementsAre("more/one.jsonl", "more/two.jsonl"));
  EXPECT_THAT(named("**/one.jsonl"), ElementsAre("more/deep/one.jsonl", "more/one.jsonl"));
  EXPECT_THAT(named("./one.jsonl", R"(, "folder": "more")"), ElementsAre("more/one.jsonl"));
  const DataSource several =
      find("mine", R"({"mine": {"hf_hub_url": "org/rows", "file": ["train.jsonl", "more/one.jsonl"]}})");
  EXPECT_THAT(names(several), ElementsAre("train.jsonl", "more/one.jsonl")) << "in the order of the list";
  EXPECT_THAT(user_error([&] { named("none.jsonl"); }), HasSubstr("org/rows has no file none.jsonl"));
}

TEST_F(HubRows, AFileOnThisMachineComesFirst) {
  const TempFolder folder;
  write_text(folder / "org/rows/train.jsonl", kRow);
  EXPECT_EQ(find_source("org/rows", folder.path(), hub.settings()).files[0], folder / "org/rows/train.jsonl");
  write_text(folder / "dataset_info.json", R"({"mine": {"hf_hub_url": "org/rows"}})");
  EXPECT_EQ(find_source("mine", folder.path(), hub.settings()).files[0], folder / "org/rows/train.jsonl");
  EXPECT_TRUE(hub.log().empty());
}

TEST_F(HubRows, RowsOfAScriptComeFromTheParquetBranch) {
  hub.put("datasets/org/made/made.py", "raise RuntimeError()");
  hub.put("datasets/org/made/raw/train.jsonl", kRow);
  const std::string branch = "datasets/org/made@refs%convert%parquet/";
  hub.put(branch + "default/train/0000.parquet", "p0");
  hub.put(branch + "default/train/0001.parquet", "p1");
  hub.put(branch + "default/partial-test/0000.parquet", "p2");
  hub.put(branch + "small/train_sft/0000.parquet", "p3");
  EXPECT_THAT(names(find("org/made")), ElementsAre("default/train/0000.parquet", "default/train/0001.parquet"));
  testing::internal::CaptureStderr();
  EXPECT_THAT(names(find("m", R"({"m": {"hf_hub_url": "org/made", "split": "test"}})")),
              ElementsAre("default/partial-test/0000.parquet"));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("converted only the first part of the split test"));
  EXPECT_THAT(names(find("m", R"({"m": {"hf_hub_url": "org/made", "subset": "small"}})")),
              ElementsAre("small/train_sft/0000.parquet"));
  EXPECT_THAT(user_error([&] { find("m", R"({"m": {"hf_hub_url": "org/made", "subset": "large"}})"); }),
              HasSubstr("org/made has no subset 'large'; it has default, small. Write, for example, `org/made:default` "
                        "in `dataset`"));
  EXPECT_THAT(user_error([&] { find("m", R"({"m": {"hf_hub_url": "org/made", "subset": "small", "split": "x"}})"); }),
              HasSubstr("Write, for example, `{hf_hub_url: org/made, subset: small, split: train_sft}` in `dataset`"));
  EXPECT_FALSE(was_fetched("made.py"));
}

// A machine without a network has the cache of another machine.
TEST_F(HubRows, RowsOfAScriptAreUsedWithoutANetwork) {
  const RepoName made{RepoKind::kDataset, "org/made", ""};
  hub.put("datasets/org/made/made.py", "raise RuntimeError()");
  hub.put("datasets/org/made/README.md", "A data set.");
  Snapshot::open(hub.settings(), made).fetch({"README.md"});
  HubSettings away = hub.settings();
  away.endpoint = "http://127.0.0.1:9";
  const auto find_away = [&](const std::string& split) {
    return find_source(R"({"hf_hub_url": "org/made", "split": ")" + split + "\"}", "", away);
  };
  for (const bool offline : {true, false}) {
    away.offline = offline;
    EXPECT_THAT(user_error([&] { find_away("train"); }),
                HasSubstr("org/made: the copy in the cache has no file of rows. Run `fettle download org/made "
                          "--dataset` where there is a network"));
  }
  for (const char* split : {"train", "test"})
    hub.put(std::string("datasets/org/made@refs%convert%parquet/default/") + split + "/0000.parquet", split);
  EXPECT_THAT(fetch_rows(hub.settings(), made).string(), HasSubstr("datasets--org--made/snapshots/"));
  for (const bool offline : {true, false}) {
    away.offline = offline;
    EXPECT_THAT(names(find_away("train")), ElementsAre("default/train/0000.parquet"));
    EXPECT_THAT(names(find_away("test")), ElementsAre("default/test/0000.parquet"));
  }
}

TEST_F(HubRows, TheCopyOfOneSplitIsUsedWithoutANetwork) {
  hub.put("datasets/org/made/made.py", "raise RuntimeError()");
  hub.put("datasets/org/made@refs%convert%parquet/default/train/0000.parquet", "p");
  find("org/made");
  HubSettings away = hub.settings();
  away.offline = true;
  EXPECT_THAT(names(find_source("org/made", "", away)), ElementsAre("default/train/0000.parquet"));
}

TEST_F(HubRows, FilesBesideAScriptAreUsedWithoutANetwork) {
  hub.put("datasets/org/made/made.py", "raise RuntimeError()");
  hub.put("datasets/org/made/train.jsonl", kRow);
  find("org/made");
  HubSettings away = hub.settings();
  away.endpoint = "http://127.0.0.1:9";
  EXPECT_THAT(find_source("org/made", "", away).files, testing::SizeIs(1));
}

TEST_F(HubRows, AllRowsAreThoseOfAllSplits) {
  const RepoName rows{RepoKind::kDataset, "org/rows", ""};
  hub.put("datasets/org/rows/README.md", "A data set.");
  EXPECT_THAT(user_error([&] { fetch_rows(hub.settings(), rows); }), HasSubstr("org/rows has no file of rows"));
  const RepoName more{RepoKind::kDataset, "org/more", ""};
  for (const char* file : {"README.md", "train.jsonl", "deep/test.jsonl", "picture.png", ".hidden/train.jsonl"})
    hub.put(std::string("datasets/org/more/") + file, kRow);
  const fs::path folder = fetch_rows(hub.settings(), more);
  for (const char* file : {"README.md", "train.jsonl", "deep/test.jsonl"}) EXPECT_TRUE(fs::exists(folder / file));
  for (const char* file : {"picture.png", ".hidden"}) EXPECT_FALSE(fs::exists(folder / file)) << file;
}

TEST_F(HubRows, ARevisionFollowsAnAt) {
  hub.put("datasets/org/rows/old.jsonl", kRow);
  hub.put("datasets/org/rows@v2/new.jsonl", kRow);
  EXPECT_THAT(names(find("org/rows@v2")), ElementsAre("new.jsonl"));
}

TEST_F(HubRows, ModelScopeTakesItsOwnName) {
  hub.put("datasets/face/rows/a.jsonl", kRow);
  hub.put("datasets/scope/rows/b.jsonl", kRow);
  const Environment endpoint("MODELSCOPE_ENDPOINT", hub.endpoint()), cache("MODELSCOPE_CACHE", hub.cache().string());
  const std::string both = R"({"m": {"hf_hub_url": "face/rows", "ms_hub_url": "scope/rows"}})";
  EXPECT_THAT(names(find("m", both)), ElementsAre("a.jsonl"));
  EXPECT_THAT(names(find("m", both, Hub::kModelScope)), ElementsAre("b.jsonl"));
  EXPECT_THAT(names(find("m", R"({"m": {"ms_hub_url": "scope/rows"}})")), ElementsAre("b.jsonl"));
}

TEST_F(HubRows, OnlyNamesWithASlashAreLookedForOnTheHub) {
  hub.put("datasets/rows/train.jsonl", kRow);
  EXPECT_THAT(user_error([&] { find("rows", R"({"row": {"file_name": "x"}})"); }), HasSubstr("did you mean 'row'?"));
  EXPECT_THAT(user_error([&] { find("films"); }), HasSubstr("with `dataset_dir: ONLINE`, it is a name on the hub"));
  EXPECT_TRUE(hub.log().empty());
  EXPECT_EQ(find(R"({"hf_hub_url": "rows"})").files.size(), 1u);
  EXPECT_EQ(find_source("rows", "ONLINE", hub.settings()).files.size(), 1u);
}

TEST_F(HubRows, WhatCannotBeRead) {
  hub.put("datasets/org/pictures/train/a.png", "x");
  EXPECT_THAT(user_error([&] { find("org/pictures"); }), HasSubstr("org/pictures has no file of rows"));
  hub.put("datasets/org/made/made.py", "x");
  EXPECT_THAT(user_error([&] { find("org/made"); }),
              HasSubstr("a Python script makes the rows of this data set. Fettle does not run scripts"));
  EXPECT_THAT(user_error([&] { find("org/none"); }),
              HasSubstr("'org/none' is neither a file or folder on this machine nor a data set of"));
  EXPECT_THAT(user_error([&] { find("m", R"({"m": {"hf_hub_url": "../up"}})"); }),
              HasSubstr("'../up' is neither a folder nor a name of a data set on the hub"));
  EXPECT_THAT(user_error([&] { find("m", R"({"m": {"om_hub_url": "org/rows"}})"); }),
              HasSubstr("Fettle cannot fetch the data set"));
  hub.put("datasets/org/subsets/README.md",
          "---\nconfigs:\n- config_name: main\n  data_files: main/*.jsonl\n- config_name: more\n---\n");
  hub.put("datasets/org/subsets/main/a.jsonl", kRow);
  EXPECT_THAT(user_error([&] { find("org/subsets"); }),
              testing::StartsWith("org/subsets: none of its subsets is the default; its subsets are main, more. Write, "
                                  "for example, `org/subsets:main` in `dataset`"));
  for (const char* split : {"test_gen", "train_sft"})
    hub.put(fmt::format("datasets/org/splits/data/{}-00000-of-00001.jsonl", split), kRow);
  EXPECT_THAT(user_error([&] { find("org/splits"); }),
              testing::StartsWith("org/splits: there is no split 'train'; the splits are test_gen, train_sft. Write, "
                                  "for example, `{hf_hub_url: org/splits, split: train_sft}` in `dataset`"));
  hub.put("datasets/org/flat/dataset_dict.json", R"({"splits": ["train"]})");
  hub.put("datasets/org/flat/a.jsonl", kRow);
  EXPECT_THAT(user_error([&] { find("org/flat"); }), HasSubstr("org/flat: there is no split 'train'"));
  // Beside the shards of the only split, another file changes nothing.
  hub.put("datasets/org/one/data/train_sft-00000-of-00001.jsonl", kRow);
  hub.put("datasets/org/one/test.jsonl", kRow);
  EXPECT_EQ(user_error([&] { find("org/one"); }), "no error");
  EXPECT_THAT(user_error([&] { find("m", R"({"m": {"hf_hub_url": "org/splits", "folder": "data"}})"); }),
              HasSubstr("`{hf_hub_url: org/splits, folder: data, split: train_sft}`"));
}

}  // namespace
}  // namespace fettle
