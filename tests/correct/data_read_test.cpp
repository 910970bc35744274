#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "data/read/data_files.h"
#include "data/read/dataset_info.h"
#include "data/read/hub_folder.h"
#include "data_fixtures.h"
#include "temp_folder.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

struct HubFolder : ::testing::Test {
  TempFolder folder;

  void files(const Names& names) {
    for (const std::string& name : names) folder.write(name, "{\"text\": \"a\"}\n");
  }
  Names chosen(const std::string& split = "", const std::string& subset = "") {
    Names out;
    for (const fs::path& file : split_files(folder.path(), subset, split))
      out.push_back(file.lexically_relative(folder.path()).string());
    return out;
  }
};

TEST_F(HubFolder, ShardNamesGiveTheSplit) {
  files({"data/train-00001-of-00002.parquet", "data/train-00000-of-00002.parquet", "data/test-00000-of-00001.parquet",
         "data/train_gen-00000-of-00001.parquet"});
  EXPECT_EQ(chosen(), (Names{"data/train-00000-of-00002.parquet", "data/train-00001-of-00002.parquet"}));
  EXPECT_EQ(chosen("train_gen"), (Names{"data/train_gen-00000-of-00001.parquet"}));
  EXPECT_EQ(chosen("test"), (Names{"data/test-00000-of-00001.parquet"}));
}

TEST_F(HubFolder, FilesBesideShardsBelongToOtherSplits) {
  const Names shards = {"train_sft-00000-of-00002.parquet", "train_sft-00001-of-00002.parquet"};
  files(shards);
  files({"notes.parquet"});
  testing::internal::CaptureStderr();
  EXPECT_EQ(chosen(), shards);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("the split train_sft, 2 of 3 files"), std::string::npos);
  EXPECT_THROW(chosen("train"), UserError);
  files({"validation.parquet", "train-00000-of-00001.parquet", "train.parquet"});
  EXPECT_EQ(chosen("validation"), (Names{"validation.parquet"}));
  EXPECT_EQ(chosen(), (Names{"train-00000-of-00001.parquet"})) << "train.parquet may have the same rows";
}

// The datasets library once wrote a checksum into the names of shards.
TEST_F(HubFolder, ShardNamesMayHaveAChecksum) {
  files({"data/train_sft-00000-of-00003-a3ecf92756993583.parquet",
         "data/train_gen-00000-of-00003-a6c9fb894be3e50b.parquet"});
  EXPECT_EQ(chosen("train_sft"), (Names{"data/train_sft-00000-of-00003-a3ecf92756993583.parquet"}));
}

TEST_F(HubFolder, WordsInFileAndFolderNamesGiveTheSplit) {
  files({"my_train_file.jsonl", "dev/a.jsonl", "eval-2.csv", "pretrained.jsonl"});
  EXPECT_EQ(chosen(), (Names{"my_train_file.jsonl"}));
  EXPECT_EQ(chosen("validation"), (Names{"dev/a.jsonl"}));
  EXPECT_EQ(chosen("test"), (Names{"eval-2.csv"}));
}

TEST_F(HubFolder, FilesWithoutASplitAreForTraining) {
  files({"b.jsonl", "a.jsonl.gz"});
  EXPECT_EQ(chosen(), (Names{"a.jsonl.gz", "b.jsonl"}));
  EXPECT_EQ(chosen("train"), (Names{"a.jsonl.gz", "b.jsonl"}));
  files({"test.jsonl"});
  EXPECT_EQ(chosen(), (Names{"a.jsonl.gz", "b.jsonl"}));
}

TEST_F(HubFolder, TheSameRowsInSeveralFormatsAreReadOnce) {
  files({"a.csv", "a.parquet", "a.jsonl.gz", "b.jsonl", "b.jsonl.gz", "c.csv", "c/a.json"});
  EXPECT_EQ(chosen(), (Names{"a.parquet", "b.jsonl", "c.csv", "c/a.json"}));
  const TempFolder texts;
  for (const char* name : {"notes.md", "notes.txt"}) texts.write(name, "a\n");
  EXPECT_EQ(split_files(texts.path(), "", "").size(), 2);
}

TEST_F(HubFolder, FilesThatTheReadmeNamesAreReadBesideTheSameNamesInOtherFormats) {
  files({"train.csv", "train.jsonl", "test.csv", "data/a.csv", "data/a.json"});
  folder.write("README.md", R"(---
configs:
- config_name: default
  data_files:
  - split: train
    path: train.csv
  - split: test
    path: test.csv
- config_name: folder
  data_dir: data
---
)");
  EXPECT_EQ(chosen(), (Names{"train.csv"}));
  EXPECT_EQ(chosen("test"), (Names{"test.csv"}));
  EXPECT_EQ(chosen("", "folder"), (Names{"data/a.json"}));
}

TEST_F(HubFolder, TheOnlySplitIsUsedUnlessAnotherIsRequested) {
  files({"validation.jsonl"});
  EXPECT_EQ(chosen(), (Names{"validation.jsonl"}));
  EXPECT_EQ(chosen("validation"), (Names{"validation.jsonl"}));
}

TEST_F(HubFolder, ReadsFoldersOfSaveToDisk) {
  files({"dataset_dict.json", "train/data-00000-of-00001.arrow", "train/state.json", "train/dataset_info.json",
         "test/data-00000-of-00001.arrow"});
  EXPECT_EQ(chosen(), (Names{"train/data-00000-of-00001.arrow"}));
  files(
      {"train/cache-0123456789abcdef.arrow", "train/cache-0123456789abcdef_00000_of_00002.arrow", "train/config.json"});
  EXPECT_EQ(chosen(), (Names{"train/data-00000-of-00001.arrow"})) << "what `map` left is no data";
}

// save_to_disk does not remove the shards of an earlier one, but state.json lists only its own.
TEST_F(HubFolder, ShardsOfAnEarlierSaveToDiskAreLeftOut) {
  files({"data-00000-of-00002.arrow", "data-00001-of-00002.arrow", "data-00000-of-00001.arrow", "other/a.arrow"});
  folder.write("state.json", R"({"_data_files": [{"filename": "data-00000-of-00001.arrow"}], "_split": null})");
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(chosen(), (Names{"data-00000-of-00001.arrow", "other/a.arrow"}));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ::testing::HasSubstr("2 .arrow files are left out, because state.json does not list them"));
  folder.write("state.json", R"({"epoch": 3})");
  EXPECT_EQ(chosen().size(), 4u) << "state.json of another program";
  folder.write("state.json", R"({"_data_files": [{"filename": "data-00000-of-00003.arrow"}]})");
  EXPECT_EQ(chosen().size(), 4u) << "the files were renamed";
}

TEST_F(HubFolder, TheFoldersOfSaveToDiskAreTheSplits) {
  files({"dataset_dict.json", "train_sft/data-00000-of-00001.arrow", "train_gen/data-00000-of-00001.arrow",
         "test_sft/data-00000-of-00001.arrow"});
  EXPECT_EQ(chosen("train_sft"), (Names{"train_sft/data-00000-of-00001.arrow"}));
  EXPECT_EQ(chosen("test_sft"), (Names{"test_sft/data-00000-of-00001.arrow"}));
  EXPECT_THROW(chosen(), UserError) << "no split is called train";
}

TEST_F(HubFolder, ReadmeNamesSubsetsAndSplits) {
  files({"en/one.jsonl", "en/two.jsonl", "en/held.jsonl", "de/deep/one.jsonl", "de/x.csv"});
  folder.write("README.md", R"(---
license: mit
configs:
- config_name: en
  default: true
  data_files:
  - split: train
    path: ["en/one.jsonl", "en/tw*.jsonl"]
  - split: test
    path: en/held.jsonl
- config_name: de
  data_files: "de/**/*.jsonl"
- config_name: table
  data_dir: de
  data_files: "*.csv"
---
# A data set
)");
  EXPECT_EQ(chosen(), (Names{"en/one.jsonl", "en/two.jsonl"}));
  EXPECT_EQ(chosen("test"), (Names{"en/held.jsonl"}));
  EXPECT_EQ(chosen("", "de"), (Names{"de/deep/one.jsonl"}));
  EXPECT_EQ(chosen("", "table"), (Names{"de/x.csv"}));
}

TEST_F(HubFolder, TwoStarsInAPatternMatchFoldersAndOneStarAName) {
  files({"a/x.jsonl", "a/b/x.jsonl", "a/b/c/x.jsonl", "x.jsonl"});
  auto matching = [&](const std::string& pattern) {
    folder.write("README.md", "---\nconfigs:\n- config_name: default\n  data_files: \"" + pattern + "\"\n---\n");
    return chosen();
  };
  EXPECT_EQ(matching("*/**/x.jsonl"), (Names{"a/b/c/x.jsonl", "a/b/x.jsonl", "a/x.jsonl"}));
  EXPECT_EQ(matching("a/*/**/c/*.jsonl"), (Names{"a/b/c/x.jsonl"}));
  EXPECT_EQ(matching("**/b/*"), (Names{"a/b/x.jsonl"}));
  EXPECT_EQ(matching("a/**"), (Names{"a/b/c/x.jsonl", "a/b/x.jsonl", "a/x.jsonl"}));
  EXPECT_EQ(matching("**/*.jsonl"), (Names{"a/b/c/x.jsonl", "a/b/x.jsonl", "a/x.jsonl", "x.jsonl"}));
  EXPECT_EQ(matching("**/**/x*"), (Names{"a/b/c/x.jsonl", "a/b/x.jsonl", "a/x.jsonl", "x.jsonl"}));
}

TEST_F(HubFolder, ASubsetMayBeAFolder) {
  files({"en/train.jsonl", "en/test.jsonl", "de/train.jsonl"});
  folder.write("README.md", "---\nlicense: mit\n---\n");
  EXPECT_EQ(chosen("", "de"), (Names{"de/train.jsonl"}));
  EXPECT_EQ(chosen("test", "en"), (Names{"en/test.jsonl"}));
}

TEST_F(HubFolder, FilesMayBeLinksElsewhere) {
  files({"blobs/ab12"});
  fs::create_directories(folder.path() / "snapshot" / "data");
  for (const char* name : {"train", "test"})
    fs::create_symlink("../../blobs/ab12", folder.path() / "snapshot" / "data" / (std::string(name) + ".jsonl"));
  const auto found = split_files(folder.path() / "snapshot", "", "");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].filename(), "train.jsonl");
}

TEST_F(HubFolder, LinksToFoldersAreFollowed) {
  files({"elsewhere/deep/train-2.jsonl", "set/train-1.jsonl"});
  fs::create_directory_symlink("../elsewhere", folder.path() / "set" / "more");
  const fs::path set = folder.path() / "set";
  const std::vector<fs::path> both = {set / "more/deep/train-2.jsonl", set / "train-1.jsonl"};
  EXPECT_EQ(split_files(set, "", ""), both);
  EXPECT_EQ(data_files(set / "**/*.jsonl"), both);
}

TEST_F(HubFolder, NoFileCountsTwiceBecauseOfALink) {
  files({"set/v1/a.jsonl", "set/v2/b.jsonl"});
  const fs::path set = folder.path() / "set";
  fs::create_directory_symlink("v2", set / "latest");
  fs::create_directory_symlink(".", set / "self");
  fs::create_directory_symlink("../..", set / "v1" / "up");
  files({"elsewhere/c.jsonl"});
  fs::create_directory_symlink("../elsewhere", set / "w");
  fs::create_directory_symlink("../elsewhere", set / "x");
  fs::create_directory_symlink(".", folder.path() / "elsewhere" / "self");
  const std::vector<fs::path> first = {set / "latest/b.jsonl", set / "v1/a.jsonl", set / "w/c.jsonl"};
  EXPECT_EQ(split_files(set, "", ""), first) << "each file by the first of its names";
  EXPECT_EQ(data_files(set / "**/*.jsonl"), first);
  EXPECT_EQ(data_files(set / "*/*.jsonl"), first);
  for (const char* name : {"latest", "v2", "w", "x"})
    EXPECT_EQ(data_files(set / "**" / name / "*.jsonl").size(), 1u) << name;
  EXPECT_EQ(split_files(set, "v2", ""), std::vector<fs::path>{set / "v2/b.jsonl"}) << "though `latest` has the file";
}

// One link leads to a folder, and another one leads to the folder around it.
TEST_F(HubFolder, NoFileIsLostBecauseOfALink) {
  files({"store/other.jsonl", "store/v1/a.jsonl"});
  const auto found = [&](const std::string& data, const std::string& part, const std::string& whole) {
    const fs::path set = folder.path() / data;
    fs::create_directory(set);
    fs::create_directory_symlink("../store/v1", set / part);
    fs::create_directory_symlink("../store", set / whole);
    std::set<fs::path> real;
    for (const fs::path& file : split_files(set, "", "")) real.insert(fs::canonical(file));
    return real;
  };
  const fs::path store = fs::canonical(folder.path()) / "store";
  const std::set<fs::path> both = {store / "other.jsonl", store / "v1/a.jsonl"};
  EXPECT_EQ(found("one", "a_v1", "z_all"), both);
  EXPECT_EQ(found("two", "z_v1", "a_all"), both);
}

TEST_F(HubFolder, LinksInHiddenFoldersHideNothing) {
  files({"store/a.jsonl", "set/.cache/b.jsonl"});
  fs::create_directory_symlink("../../store", folder.path() / "set/.cache/x");
  fs::create_directory_symlink("../store", folder.path() / "set/rows");
  EXPECT_EQ(split_files(folder.path() / "set", "", ""), std::vector<fs::path>{folder.path() / "set/rows/a.jsonl"});
}

TEST_F(HubFolder, FilesBehindLinksToFilesCountOnce) {
  files({"a.jsonl"});
  fs::create_symlink("a.jsonl", folder.path() / "b.jsonl");
  EXPECT_EQ(chosen(), Names{"a.jsonl"});
  EXPECT_EQ(data_files(folder.path() / "*.jsonl"), std::vector<fs::path>{folder.path() / "a.jsonl"});
}

TEST_F(HubFolder, PatternsAreLookedForInTheFolderOfDataSets) {
  files({"part-1.jsonl", "part-2.jsonl", "other.jsonl", "a/rows.jsonl", "b/rows.jsonl", "b/deep/rows.jsonl"});
  auto found = [&](const std::string& name) {
    Names out;
    for (const fs::path& file : find_source(name, folder.path()).files)
      out.push_back(file.lexically_relative(folder.path()).string());
    return out;
  };
  EXPECT_EQ(found("part-*.jsonl"), (Names{"part-1.jsonl", "part-2.jsonl"}));
  EXPECT_EQ(found("part-[2-9].jsonl"), (Names{"part-2.jsonl"}));
  EXPECT_EQ(found("*/rows.jsonl"), (Names{"a/rows.jsonl", "b/rows.jsonl"}));
  EXPECT_EQ(found((folder.path() / "part-?.jsonl").string()), (Names{"part-1.jsonl", "part-2.jsonl"}));
  folder.write("dataset_info.json", R"({"mine": {"file_name": "part-*.jsonl"}})");
  EXPECT_EQ(found("mine"), (Names{"part-1.jsonl", "part-2.jsonl"}));
}

TEST_F(HubFolder, TwoStarsInADataSetsNameMatchFolders) {
  files({"x.jsonl", "a/x.jsonl", "a/b/x.jsonl", "a/b/y.csv", "a/.hidden/x.jsonl", ".x.jsonl"});
  auto found = [&](const std::string& name) {
    Names out;
    for (const fs::path& file : find_source(name, folder.path()).files)
      out.push_back(file.lexically_relative(folder.path()).string());
    return out;
  };
  EXPECT_EQ(found((folder.path() / "**/*.jsonl").string()), (Names{"a/b/x.jsonl", "a/x.jsonl", "x.jsonl"}));
  EXPECT_EQ(found((folder.path() / "*/**/?.csv").string()), (Names{"a/b/y.csv"}));
  EXPECT_EQ(found("a/**"), (Names{"a/b/x.jsonl", "a/b/y.csv", "a/x.jsonl"})) << "a name in the folder of data sets";
  folder.write("a/README.md", "# About these rows\n");
  EXPECT_EQ(found("a/**"), (Names{"a/b/x.jsonl", "a/b/y.csv", "a/x.jsonl"})) << "README.md describes the rows";
  EXPECT_EQ(found((folder.path() / "*/README.md").string()), (Names{"a/README.md"}));
  folder.write("dataset_info.json", R"({"mine": {"file_name": "a/**/x.jsonl"}})");
  EXPECT_EQ(found("mine"), (Names{"a/b/x.jsonl", "a/x.jsonl"}));
  const fs::path here = fs::current_path();
  fs::current_path(folder.path());
  const auto relative = find_source("**/x.jsonl", "data").files;
  fs::current_path(here);
  EXPECT_EQ(relative, (std::vector<fs::path>{"a/b/x.jsonl", "a/x.jsonl", "x.jsonl"}));
}

TEST_F(HubFolder, AnEntryMayListFiles) {
  files({"b.jsonl", "a.jsonl", "hub/d.jsonl", "hub/c.jsonl", "hub/e.jsonl"});
  const fs::path& at = folder.path();
  EXPECT_EQ(find_source(R"({"file_name": ["b.jsonl", "a.jsonl"]})", at).files,
            (std::vector<fs::path>{at / "b.jsonl", at / "a.jsonl"}));
  EXPECT_EQ(find_source(R"({"hf_hub_url": "hub", "file": ["d.jsonl", "c.jsonl"]})", at).files,
            (std::vector<fs::path>{at / "hub/d.jsonl", at / "hub/c.jsonl"}));
  files({"hub/more/train.jsonl", "hub/more/train.csv", "hub/more/test.jsonl"});
  EXPECT_EQ(find_source(R"({"hf_hub_url": "hub", "file": ["c.jsonl", "more"]})", at).files,
            (std::vector<fs::path>{at / "hub/c.jsonl", at / "hub/more/train.jsonl"}));
  EXPECT_THROW(find_source(R"({"file_name": ["a.jsonl", 1]})", at), UserError);
  EXPECT_THROW(find_source(R"({"file_name": ["a.jsonl", "none.jsonl"]})", at), UserError);
}

// Recipes of Axolotl and TRL name files of the current folder. dataset_info.json names files of its own folder.
TEST_F(HubFolder, AnEntryLooksFirstInItsOwnFolder) {
  const fs::path here = fs::current_path();
  files({"rows.jsonl", "data/rows.jsonl"});
  folder.write("data/dataset_info.json", R"({"mine": {"file_name": "rows.jsonl"}})");
  fs::current_path(folder.path());
  const auto text = find_source(R"({"file_name": "rows.jsonl"})", "data").files,
             plain = find_source("rows.jsonl", "data").files;
  const auto mine = find_source("mine", "data").files;
  fs::remove("rows.jsonl");
  const auto other = find_source(R"({"file_name": "rows.jsonl"})", "data").files;
  fs::current_path(here);
  EXPECT_EQ(text, std::vector<fs::path>{"rows.jsonl"});
  EXPECT_EQ(plain, text);
  EXPECT_EQ(mine, std::vector<fs::path>{"data/rows.jsonl"});
  EXPECT_EQ(other, mine);
}

// Tables such as that of eval name their rows so.
TEST(SetTitle, NamesThePartOfADataSet) {
  EXPECT_EQ(set_title("rows.jsonl"), "rows.jsonl");
  EXPECT_EQ(set_title(R"({"hf_hub_url": "org/rows", "split": "train"})"), "org/rows");
  EXPECT_EQ(set_title(R"({"hf_hub_url": "org/rows", "folder": "de"})"), "org/rows (de)");
  EXPECT_EQ(set_title(R"({"hf_hub_url": "org/rows", "subset": "en", "split": "test"})"), "org/rows (en, test)");
  EXPECT_EQ(set_title(R"({"file_name": ["a.jsonl", "b.jsonl"]})"), "a.jsonl, b.jsonl");
  EXPECT_EQ(set_title(R"({"file_name": ["a.jsonl", "b.jsonl", "c.jsonl"]})"), "a.jsonl and 2 more files");
  EXPECT_EQ(set_title(R"({"hf_hub_url": "org/rows", "file": ["a", "b", "c"]})"), "org/rows (a and 2 more files)");
}

TEST_F(HubFolder, DatasetInfoNamesSplitAndSubset) {
  files({"hub/en/train.jsonl", "hub/en/test.jsonl"});
  folder.write("dataset_info.json", R"({"mine": {"hf_hub_url": "hub", "subset": "en", "split": "test"}})");
  const DataSource source = find_source("mine", folder.path());
  ASSERT_EQ(source.files.size(), 1u);
  EXPECT_EQ(source.files[0], folder.path() / "hub/en/test.jsonl");
  ASSERT_EQ(find_source("hub", folder.path()).files.size(), 1u);
  EXPECT_EQ(find_source("hub", folder.path()).files[0], folder.path() / "hub/en/train.jsonl");
}

}  // namespace
}  // namespace fettle
