#include <gtest/gtest.h>

#include "base/error.h"
#include "data/read/dataset_info.h"
#include "data/read/hub_folder.h"
#include "data_fixtures.h"

namespace fettle {
namespace {

struct HubFolderErrors : ::testing::Test {
  TempFolder folder;

  std::string message(const std::string& subset, const std::string& split) {
    try {
      split_files(folder.path(), subset, split);
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  }
  void expect(const std::string& subset, const std::string& split, const std::string& part) {
    EXPECT_NE(message(subset, split).find(part), std::string::npos) << message(subset, split);
  }
};

TEST_F(HubFolderErrors, MissingSplitsAndSubsets) {
  folder.write("train_sft-00000-of-00001.jsonl", "{}\n");
  folder.write("train_gen-00000-of-00001.jsonl", "{}\n");
  expect("", "", "there is no split 'train'; the splits are train_gen, train_sft. Name one of them with `split`");
  expect("", "test", "there is no split 'test'");
  expect("en", "", "there is no subset 'en'");
}

TEST_F(HubFolderErrors, FilesWithoutASplitAreNotUsedForOtherSplits) {
  folder.write("a.jsonl", "{}\n");
  expect("", "test", "there is no split 'test'");
}

TEST_F(HubFolderErrors, UnusableReadmes) {
  folder.write("a.jsonl", "{}\n");
  const std::string head = "---\nconfigs:\n";
  folder.write("README.md", head + "- config_name: en\n  data_files: a.jsonl\n- config_name: de\n---\n");
  expect("", "", "none of its subsets is the default; its subsets are en, de");
  expect("fr", "", "there is no subset 'fr'; its subsets are en, de");
  folder.write("README.md", head + "- config_name: en\n  data_files: gone/*.jsonl\n---\n");
  expect("", "", "names files that do not exist");
  folder.write("README.md", head + "- 7\n---\n");
  expect("", "", "is not in the Hugging Face Hub's format");
  folder.write("README.md", "---\n\t: [\n---\n");
  expect("", "", "README.md");
}

TEST(FindSource, UnknownNames) {
  const TempFolder folder;
  folder.write("rows.jsonl", "{}\n");
  for (const std::string& name :
       {std::string("part-*.jsonl"), std::string("gone.jsonl"), std::string(5000, 'x'), std::string("rows.jsonl/a")}) {
    try {
      find_source(name, folder.path());
      ADD_FAILURE() << name;
    } catch (const UserError& error) {
      const char* const said = name[0] == 'p' ? "no file matches part-*.jsonl" : "is not a file";
      EXPECT_NE(std::string(error.what()).find(said), std::string::npos) << error.what();
    }
  }
}

TEST(ReadRows, APointerOfGitLfsIsNamed) {
  const TempFolder folder;
  for (const char* name : {"rows.jsonl", "rows.txt", "rows.csv.gz", "rows.parquet"}) {
    const std::filesystem::path file = folder.write(name, "version https://git-lfs.github.com/spec/v1\noid sha256:1\n");
    try {
      read_rows(file, [](const Row&) { return true; });
      ADD_FAILURE() << name;
    } catch (const UserError& error) {
      EXPECT_EQ(error.what(),
                file.string() + ": is a Git LFS pointer, not the file itself; run 'git lfs pull' in its folder");
    }
  }
}

}  // namespace
}  // namespace fettle
