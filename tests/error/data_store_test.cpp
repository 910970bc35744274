#include <gtest/gtest.h>

#include "base/error.h"
#include "data/mix.h"
#include "data/store/token_store.h"
#include "data_fixtures.h"

namespace fettle {
namespace {

TEST(Mix, RefusesToRepeatWithoutEnd) {
  try {
    mix_sets({10, 10}, "interleave_over", {1, 1e-9}, 1);
    FAIL();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("interleave_over would repeat rows"), std::string::npos) << error.what();
  }
}

TEST(TokenWriter, NamesAFolderThatCannotBeMade) {
  const TestFolder folder;
  const auto file = folder.write("file", "");
  try {
    TokenWriter writer(file / "store");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("cannot be made"), std::string::npos) << error.what();
  }
}

TEST(TokenStore, IsNoneWhereThereIsNone) {
  const TestFolder folder;
  EXPECT_EQ(TokenStore::open(folder.path() / "none"), nullptr);
  folder.write("a/store.json", "[]");
  folder.write("b/store.json", R"({"format": 1, "tokens": {"bytes": 4, "xxh3": 0}})");
  folder.write("b/tokens", "1234");
  EXPECT_EQ(TokenStore::open(folder.path() / "a"), nullptr);
  EXPECT_EQ(TokenStore::open(folder.path() / "b"), nullptr);
}

}  // namespace
}  // namespace fettle
