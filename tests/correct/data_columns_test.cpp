// Tests types of columns in Parquet and Arrow files, and tables without a usual head line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "data/read/rows.h"
#include "data_fixtures.h"
#include "paths.h"

namespace fettle {
namespace {

using nlohmann::json;

std::vector<json> values(const std::filesystem::path& file) {
  std::vector<json> out;
  read_rows(file, [&](Row row) {
    row.parse();
    EXPECT_EQ(row.bad, "");
    out.emplace_back(row.value);
    return true;
  });
  return out;
}

// The datasets library and pyarrow wrote these files (tests/reference/data/make_types.py).
TEST(Columns, ObjectsWithDifferentFieldsAreRead) {
  const std::filesystem::path folder = source_folder() / "tests/reference/data";
  const std::vector<json> expected = values(folder / "json.jsonl");
  ASSERT_EQ(expected.size(), 2u);
  for (const char* name : {"json.parquet", "json.arrow"}) EXPECT_EQ(values(folder / name), expected) << name;
}

TEST(Columns, TypesOfArrowFiles) {
  const std::filesystem::path folder = source_folder() / "tests/reference/data";
  const std::vector<json> expected = values(folder / "types.jsonl"), read = values(folder / "types.arrow");
  ASSERT_EQ(read.size(), 3u);
  for (size_t i = 0; i < read.size(); ++i)
    for (const auto& [column, value] : expected[i].items()) EXPECT_EQ(read[i].at(column), value) << column;
  EXPECT_TRUE(read[0]["message"].contains("content")) << "a message without a text";
  EXPECT_FALSE(read[0]["message"].contains("name"));
}

TEST(Columns, TypesThatCannotBeReadAreNamed) {
  try {
    values(source_folder() / "tests/reference/data/union.arrow");
    ADD_FAILURE() << "no error";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(),
                testing::HasSubstr("union.arrow: the column 'either' has values of Arrow's type sparse_union"));
  }
}

// DataFrame.to_csv of pandas writes the index of the rows without a name.
TEST(Tables, ColumnsWithoutANameGetOne) {
  const TempFolder folder;
  ::testing::internal::CaptureStderr();
  const std::vector<json> rows = values(folder.write("a.csv", ",instruction,output,\n0,q,a,\n1,r,b,x\n"));
  const std::string said = ::testing::internal::GetCapturedStderr();
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[1], (json{{"Unnamed: 0", "1"}, {"instruction", "r"}, {"output", "b"}, {"Unnamed: 3", "x"}}));
  // pandas wrote an index, read it as a column, and wrote another one.
  EXPECT_EQ(values(folder.write("b.csv", ",Unnamed: 0,output\n0,1,b\n")),
            (std::vector<json>{{{"Unnamed: 0.1", "0"}, {"Unnamed: 0", "1"}, {"output", "b"}}}));
  EXPECT_NE(said.find("a.csv without a name are called 'Unnamed: 0', 'Unnamed: 3'"), std::string::npos) << said;
}

TEST(Tables, TheFirstLineMayNameTheSeparator) {
  const TempFolder folder;
  const json row{{"a, b", "1"}, {"c", "2"}};
  for (const char* line : {"sep=;\n", "SEP=;\r\n", "\"sep=;\"\n", "\xef\xbb\xbfsep=;\n"})
    EXPECT_THAT(values(folder.write("a.csv", std::string(line) + "a, b;c\n1;2\n")), testing::ElementsAre(row)) << line;
  int64_t line = 0;
  read_rows(folder.path() / "a.csv", [&](const Row& one) {
    line = one.line;
    return true;
  });
  EXPECT_EQ(line, 3);
}

}  // namespace
}  // namespace fettle
