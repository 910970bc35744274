#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <sstream>
#include <thread>

#include "data/batches/mix.h"
#include "data/dataset.h"
#include "data/store/data_cache.h"
#include "data/store/file_hashes.h"
#include "data_fixtures.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;

TEST(TokenStore, ReadsBackWhatWasWritten) {
  const TempFolder folder;
  const std::vector<Example> examples = {{{5, 6, 7}, {kIgnore, 6, 7}}, {{8}, {8}}, {{9, 10}, {kIgnore, 10}}};
  TokenWriter writer(folder.path() / "draft");
  writer.add(examples[0], 1, 10);
  writer.add(examples[1], 0, 20);
  writer.add(examples[2], 0, 30);
  EXPECT_EQ(TokenStore::open(folder.path() / "store"), nullptr);
  writer.finish({{"rows", 3}}, folder.path() / "store");
  EXPECT_FALSE(fs::exists(folder.path() / "draft"));
  const auto store = TokenStore::open(folder.path() / "store");
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(store->report()["rows"], 3);
  const Examples rows(store, {"a.jsonl", "b.jsonl"}), kept(examples);
  ASSERT_EQ(rows.size(), 3u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(rows[i].input_ids, examples[static_cast<size_t>(i)].input_ids);
    EXPECT_EQ(rows[i].labels, examples[static_cast<size_t>(i)].labels);
    EXPECT_EQ(rows.trained_tokens(i), examples[static_cast<size_t>(i)].trained_tokens());
    EXPECT_EQ(kept[i].labels, rows[i].labels);
  }
  EXPECT_EQ(rows.source(0), "b.jsonl:10");
  EXPECT_EQ(rows.source(2), "a.jsonl:30");
}

TEST(TokenStore, KeepsClassesAndTokenTypes) {
  const TempFolder folder;
  Example pair{{5, 6, 7}, {kIgnore, kIgnore, kIgnore}};
  pair.classes = {2, 0.5f};
  pair.second_text = {0, 1, 1};
  Example other = pair;
  other.classes = {2, 1};
  const Example unlabelled{{8}, {kIgnore}};
  TokenWriter writer(folder.path() / "draft", 2);
  writer.add(pair, 0, 1);
  writer.add(other, 0, 2);
  writer.add(unlabelled, 0, 3);
  writer.finish({}, folder.path() / "store");
  for (const Examples& rows :
       {Examples(TokenStore::open(folder.path() / "store"), {"a"}), Examples({pair, other, unlabelled})}) {
    EXPECT_EQ(rows.classes_per_row(), 2);
    EXPECT_EQ(rows[0].input_ids, pair.input_ids);
    EXPECT_EQ(rows[0].classes, pair.classes);
    EXPECT_EQ(rows[0].second_text, pair.second_text);
    EXPECT_NE(rows.digest(0), rows.digest(1));
    EXPECT_EQ(rows.trained_tokens(1), 1);
    EXPECT_TRUE(rows.classes(2).empty());
    EXPECT_TRUE(rows[2].second_text.empty());
    EXPECT_EQ(rows.trained_tokens(2), 0);
  }
}

TEST(TokenStore, ADraftThatIsNotFinishedIsRemoved) {
  const TempFolder folder;
  { TokenWriter(folder.path() / "draft").add({{1}, {1}}, 0, 1); }
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(Examples, CanBeJoinedAndSelected) {
  auto list = [](int first, int count) {
    std::vector<Example> rows;
    for (int i = first; i < first + count; ++i) rows.push_back({{i}, {i}, std::to_string(i)});
    return Examples(rows);
  };
  auto show = [](const Examples& rows) {
    std::string out;
    for (size_t i = 0; i < rows.size(); ++i) {
      EXPECT_EQ(rows.source(static_cast<int64_t>(i)), std::to_string(rows[static_cast<int64_t>(i)].input_ids[0]));
      out += rows.source(static_cast<int64_t>(i)) + " ";
    }
    return out;
  };
  Examples all = list(0, 3);
  all.append(list(10, 2));
  EXPECT_EQ(show(all), "0 1 2 10 11 ");
  const Examples some = all.select({4, 1, 1});
  EXPECT_EQ(show(some), "11 1 1 ");
  EXPECT_EQ(show(some.select({2, 0})), "1 11 ");
  all.append(some);
  all.append(list(20, 1));
  EXPECT_EQ(show(all), "0 1 2 10 11 11 1 1 20 ");
}

struct Cache : ::testing::Test {
  TempFolder folder;
  DataSpec spec;

  Cache() {
    TestTokenizer().save(folder.path() / "");
    spec.template_name = "none";
    spec.cache = (folder.path() / "cache").string();
    spec.sets = {folder
                     .write("rows.jsonl", R"({"prompt": "q", "completion": "a"}
{"prompt": "q", "completion": "a"}
{"text": ""}
{"prompt": "r", "completion": "answer"}
)")
                     .string()};
  }
  Datasets load() {
    const Tokenizer tokenizer = Tokenizer::open(folder.path());
    return load_datasets(spec, tokenizer, tokenizer.vocab_size());
  }
  std::vector<fs::path> stores() const {
    std::vector<fs::path> out;
    for (const auto& entry : fs::directory_iterator(spec.cache))
      if (entry.path().filename() != "file_hashes") out.push_back(entry.path());
    return out;
  }
};

TEST_F(Cache, RowsAreTokenisedOnce) {
  const Datasets first = load();
  ASSERT_EQ(stores().size(), 1u);
  const auto written = fs::last_write_time(stores()[0] / "tokens");
  const Datasets second = load();
  ASSERT_EQ(stores().size(), 1u);
  EXPECT_EQ(fs::last_write_time(stores()[0] / "tokens"), written);
  ASSERT_EQ(second.train.size(), 3u);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(second.train[i].labels, first.train[i].labels);
  EXPECT_EQ(second.report.notes, first.report.notes);
  EXPECT_EQ(second.report.tokens_by_role, first.report.tokens_by_role);
  EXPECT_EQ(second.report.duplicates, 1);
  EXPECT_EQ(second.report.empty, 1);
  EXPECT_EQ(second.report.rows, 4);
}

TEST_F(Cache, DuplicatesAreLeftOutIfAsked) {
  const Datasets all = load();
  ASSERT_EQ(all.report.duplicates, 1);
  spec.remove_duplicates = true;
  const Datasets once = load();
  EXPECT_EQ(stores().size(), 1u) << "the stored rows are the same";
  ASSERT_EQ(once.train.size(), all.train.size() - 1);
  EXPECT_TRUE(once.report.duplicates_removed);
  for (size_t i = 0; i < once.train.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      EXPECT_NE(once.train.digest(static_cast<int64_t>(i)), once.train.digest(static_cast<int64_t>(j)));
  spec.sets.push_back(spec.sets[0]);
  EXPECT_EQ(load().train.size(), once.train.size()) << "also rows of another set";
}

TEST_F(Cache, TheKeyDependsOnContentsNotOnPaths) {
  load();
  fs::create_directory(folder.path() / "elsewhere");
  fs::rename(spec.sets[0], folder.path() / "elsewhere" / "renamed.jsonl");
  spec.sets = {(folder.path() / "elsewhere" / "renamed.jsonl").string()};
  spec.seed = 7;
  const Datasets data = load();
  EXPECT_EQ(stores().size(), 1u);
  EXPECT_EQ(data.train.source(0), spec.sets[0] + ":1");
  EXPECT_NE(data.report.notes[0].find("renamed.jsonl:3"), std::string::npos) << data.report.notes[0];
}

TEST_F(Cache, WhateverChangesTokensMakesAnotherStore) {
  const std::vector<std::function<void()>> changes = {
      [] {},
      [&] { spec.cutoff_len = 900; },
      [&] { spec.train_on_prompt = true; },
      [&] { spec.mask_history = true; },
      [&] { spec.default_system = "S"; },
      [&] { spec.overlength = Overlength::kDrop; },
      [&] { spec.max_samples = 2; },
      [&] { spec.template_name = "vicuna"; },
      [&] { folder.write("rows.jsonl", "{\"prompt\": \"q\", \"completion\": \"b\"}\n"); },
      [&] { TestTokenizer{.merges = {"a n"}}.save(folder.path()); },
      [&] { TestTokenizer{.chat_template = "{{ messages }}", .merges = {"a n"}}.save(folder.path()); },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    changes[i]();
    load();
    EXPECT_EQ(stores().size(), i + 1);
  }
}

// A run keeps its start date after midnight, so it finds its store again.
TEST_F(Cache, AStoreIsOfTheDayOnWhichTheRunStarted) {
  constexpr int64_t kNoon = 1721649600, kDay = 86400;
  const auto date_of = [&](const Datasets& data) {
    return Tokenizer::open(folder.path()).decode(data.train[0].input_ids, false);
  };
  spec.template_name = "";
  folder.write("rows.jsonl",
               R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]})");
  const auto use = [&](const std::string& format) {
    TestTokenizer{.chat_template = "{%- for m in messages %}{% generation %}{{ strftime_now('" + format +
                                   "') }}{{ m.content }}{% endgeneration %}{%- endfor %}"}
        .save(folder.path());
  };
  use("%d %b %Y");
  spec.started = {kNoon};
  EXPECT_THAT(date_of(load()), testing::HasSubstr("22 Jul 2024"));
  spec.started = {kNoon + 3600};
  load();
  EXPECT_EQ(stores().size(), 1u) << "the same day";
  spec.started = {kNoon + kDay};
  EXPECT_THAT(date_of(load()), testing::HasSubstr("23 Jul 2024"));
  EXPECT_EQ(stores().size(), 2u);
  spec.started = {kNoon};
  EXPECT_THAT(date_of(load()), testing::HasSubstr("22 Jul 2024"));
  EXPECT_EQ(stores().size(), 2u) << "a resumed run finds the store of its start";
  spec.started = {kNoon + 43199, 1, "X"};
  EXPECT_THAT(date_of(load()), testing::HasSubstr("23 Jul 2024")) << "the day in the zone of the start";

  TestTokenizer{.chat_template =
                    "{%- if strftime_now is defined %}{% set d = strftime_now(\"%Y-%m-%d\") %}{% endif %}"
                    "{%- for m in messages %}{% generation %}{% if loop.index0 % 2 == 1 %}{{ d }}"
                    "{% endif %}{{ m.content }}{% endgeneration %}{%- endfor %}"}
      .save(folder.path());
  spec.started = {kNoon};
  EXPECT_THAT(date_of(load()), testing::HasSubstr("2024-07-22"));
  const size_t before = stores().size();
  spec.started = {kNoon + 3600};
  load();
  EXPECT_EQ(stores().size(), before) << "the operator % is no part of a format";
  spec.started = {kNoon + kDay};
  EXPECT_THAT(date_of(load()), testing::HasSubstr("2024-07-23"));

  use("%Y' ~ ' %H:%M");
  spec.started = {kNoon};
  EXPECT_THAT(date_of(load()), testing::HasSubstr("12:00"));
  spec.started = {kNoon + 60};
  EXPECT_THAT(date_of(load()), testing::HasSubstr("12:01")) << "a format that is joined from several texts";

  use("%H:%M");
  spec.started = {kNoon};
  EXPECT_THAT(date_of(load()), testing::HasSubstr("12:00"));
  spec.started = {kNoon + 60};
  EXPECT_THAT(date_of(load()), testing::HasSubstr("12:01"));

  spec.template_name = "{% for m in messages %}{{ strftime_now('%H:%M') }}{{ m.content }}{% endfor %}";
  EXPECT_THAT(date_of(load()), testing::HasSubstr("12:01")) << "a template's text in the recipe";
  spec.started = {kNoon};
  EXPECT_THAT(date_of(load()), testing::HasSubstr("12:00"));
}

TEST_F(Cache, ADamagedStoreIsRebuilt) {
  const Datasets first = load();
  for (const char* name : {"tokens", "rows", "store.json"}) {
    SCOPED_TRACE(name);
    const fs::path file = stores()[0] / name;
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(4);
    stream.put('\x7f');
    stream.close();
    EXPECT_EQ(load().train[2].input_ids, first.train[2].input_ids);
    EXPECT_EQ(stores().size(), 1u);
    ASSERT_NE(TokenStore::open(stores()[0]), nullptr);
  }
}

TEST_F(Cache, AStoresHeaderIsChecked) {
  const Datasets first = load();
  const fs::path file = stores()[0] / "store.json";
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  std::string said = text.str();
  const size_t rows = said.find("\"rows\": 4");
  ASSERT_NE(rows, std::string::npos);
  said[rows + 8] = '5';
  std::ofstream(file) << said;
  EXPECT_EQ(load().report.rows, 4);
  EXPECT_NE(TokenStore::open(stores()[0]), nullptr);
}

// Other users may be able to read a store that this process cannot read, so it is not removed.
TEST_F(Cache, AStoreThatCannotBeReadStays) {
  load();
  const fs::path store = stores()[0];
  fs::remove(store / "tokens");
  fs::create_directory(store / "tokens");
  EXPECT_EQ(load().train.size(), 3u);
  EXPECT_EQ(stores(), std::vector{store});
  EXPECT_TRUE(fs::is_directory(store / "tokens"));
}

TEST_F(Cache, AStoreThatIsReplacedStaysMapped) {
  const Datasets first = load();
  const fs::path store = stores()[0];
  TokenWriter other(folder.path() / "cache" / "other.partial");
  other.add({{1}, {1}}, 0, 1);
  const auto second = other.finish({}, store, true);
  EXPECT_EQ(first.train[2].input_ids.size(), 8u);
  EXPECT_EQ(second->size(), 1);
  EXPECT_EQ(TokenStore::open(store)->size(), 1);
  TokenWriter third(folder.path() / "cache" / "third.partial");
  third.add({{1}, {1}}, 0, 1);
  third.add({{2}, {2}}, 0, 2);
  EXPECT_EQ(third.finish({}, store)->size(), 1) << "the store of the faster process is used";
  EXPECT_EQ(TokenStore::open(store)->size(), 1) << "when two are made at the same time, the first one stays";
}

// The run that makes the second store must not keep the disk space of its deleted files.
TEST_F(Cache, OfTwoStoresOnlyOneStaysMapped) {
  const auto mapped = [](const std::string& what) {
    std::ifstream maps("/proc/self/maps");
    std::stringstream text;
    text << maps.rdbuf();
    return text.str().find(what) != std::string::npos;
  };
  const fs::path place = folder.path() / "place";
  std::shared_ptr<const TokenStore> first, second;
  {
    TokenWriter one(folder.path() / "one.partial"), two(folder.path() / "two.partial");
    one.add({{1}, {1}}, 0, 1);
    two.add({{1}, {1}}, 0, 1);
    first = one.finish({}, place);
    second = two.finish({}, place);
  }
  EXPECT_EQ(second->size(), 1);
  EXPECT_TRUE(mapped(place.string()));
  EXPECT_FALSE(mapped("two.partial"));
  EXPECT_FALSE(fs::exists(folder.path() / "two.partial"));
}

TEST_F(Cache, DraftsOfStoppedRunsAreRemoved) {
  fs::create_directory(spec.cache);
  const auto draft = [&](const char* name, bool tokens, int age) {
    const fs::path path = fs::path(spec.cache) / (name + std::string(".partial"));
    const auto written = fs::file_time_type::clock::now() - std::chrono::hours(age);
    fs::create_directory(path);
    if (tokens) write_text(path / "tokens", "");
    if (tokens) fs::last_write_time(path / "tokens", written);
    fs::last_write_time(path, tokens ? fs::file_time_type::clock::now() - std::chrono::hours(100) : written);
    return path;
  };
  const fs::path old = draft("a", true, 25), empty = draft("b", false, 25);
  const fs::path written = draft("c", true, 23), begun = draft("d", false, 23);
  load();
  EXPECT_FALSE(fs::exists(old));
  EXPECT_FALSE(fs::exists(empty));
  EXPECT_TRUE(fs::exists(written));
  EXPECT_TRUE(fs::exists(begun));
}

struct Hashes : ::testing::Test {
  TempFolder folder;
  fs::path file = folder.write("rows.jsonl", "first");
  FileHashes hashes{folder.path() / "hashes", std::chrono::nanoseconds(0)};

  // The clock of a file system is coarse.
  static void wait() { std::this_thread::sleep_for(std::chrono::milliseconds(50)); }
  fs::path remembered() const { return fs::directory_iterator(folder.path() / "hashes")->path(); }
};

TEST_F(Hashes, AnUnchangedFileIsNotReadAgain) {
  wait();
  const std::string hash = hashes.of(file);
  EXPECT_EQ(hashes.of(file), hash);
  std::string text = read_text(remembered());
  ASSERT_TRUE(text.ends_with(hash));
  const std::string other(hash.size(), '0');
  write_text(remembered(), text.substr(0, text.size() - hash.size()) + other);
  EXPECT_EQ(hashes.of(file), other) << "the hash is the remembered one";
  write_text(remembered(), text.substr(0, text.size() - 1));
  EXPECT_EQ(hashes.of(file), hash) << "a hash without its end is not used";
}

TEST_F(Hashes, AChangeIsNoticedThatKeepsSizeAndTime) {
  wait();
  const std::string hash = hashes.of(file);
  const auto time = fs::last_write_time(file);
  wait();
  std::fstream(file, std::ios::in | std::ios::out) << "other";
  fs::last_write_time(file, time);
  ASSERT_EQ(fs::file_size(file), 5u);
  EXPECT_NE(hashes.of(file), hash);
}

TEST_F(Hashes, AFileThatWasJustChangedIsNotRemembered) {
  const FileHashes usual(folder.path() / "usual");
  const std::string hash = usual.of(file);
  EXPECT_FALSE(fs::exists(folder.path() / "usual"));
  EXPECT_EQ(hash, hashes.of(file));
}

TEST_F(Hashes, UnusedHashesAreRemoved) {
  wait();
  hashes.of(file);
  hashes.remove_unused(std::chrono::hours(1));
  const fs::path path = remembered();
  fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(2));
  hashes.remove_unused(std::chrono::hours(1));
  EXPECT_FALSE(fs::exists(path));
}

// The files of the rows are not read again when the next run starts.
TEST_F(Cache, TheHashesOfTheRowsAreRemembered) {
  std::this_thread::sleep_for(std::chrono::milliseconds(2100));
  load();
  EXPECT_FALSE(fs::is_empty(fs::path(spec.cache) / "file_hashes"));
  EXPECT_EQ(load().train.size(), 3u);
  EXPECT_EQ(stores().size(), 1u);
}

TEST_F(Cache, ProcessesMayFillItTogether) {
  constexpr int kProcesses = 4;
  int gate[2];
  ASSERT_EQ(pipe(gate), 0);
  std::vector<pid_t> children;
  for (int n = 0; n < kProcesses; ++n) {
    const pid_t child = fork();
    if (child == 0) {
      char go = 0;
      close(gate[1]);
      [[maybe_unused]] const auto opened = read(gate[0], &go, 1);  // returns when the parent closes the pipe
      int result = 1;
      try {
        const Datasets data = load();
        result = data.train.size() == 3 && data.train[2].input_ids.size() == 8 && data.report.rows == 4 ? 0 : 2;
      } catch (...) {
      }
      _exit(result);
    }
    children.push_back(child);
  }
  close(gate[0]);
  close(gate[1]);
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  ASSERT_EQ(stores().size(), 1u) << "one store, and no draft is left";
  EXPECT_EQ(load().train.size(), 3u);
}

TEST_F(Cache, WithoutACacheNothingStaysOnTheDisk) {
  const fs::path temporary = folder.path() / "tmp";
  fs::create_directory(temporary);
  const char* usual = getenv("TMPDIR");
  const std::string before = usual ? usual : "";
  setenv("TMPDIR", temporary.c_str(), 1);
  spec.cache = "off";
  const Datasets data = load();
  usual ? setenv("TMPDIR", before.c_str(), 1) : unsetenv("TMPDIR");
  EXPECT_EQ(data.train[2].input_ids.size(), 8u);
  EXPECT_TRUE(fs::is_empty(temporary));
}

TEST_F(Cache, StoresUnusedForAMonthAreRemoved) {
  load();
  const fs::path old = stores()[0];
  fs::last_write_time(old, fs::file_time_type::clock::now() - std::chrono::hours(24 * 31));
  load();  // uses the store again
  spec.cutoff_len = 10;
  load();
  EXPECT_TRUE(fs::exists(old));
  fs::last_write_time(old, fs::file_time_type::clock::now() - std::chrono::hours(24 * 31));
  spec.cutoff_len = 11;
  load();
  EXPECT_FALSE(fs::exists(old));
  EXPECT_EQ(stores().size(), 2u);
}

TEST_F(Cache, AFolderThatCannotBeWrittenKeepsNothing) {
  spec.cache = folder.write("file", "").string() + "/cache";
  EXPECT_EQ(load().train.size(), 3u);
  spec.cache = "off";
  EXPECT_EQ(load().train.size(), 3u);
}

TEST(Mix, SetsTakeTurns) {
  using Order = std::vector<int64_t>;
  EXPECT_EQ(mix_sets({3, 2}, Mix::kInterleaveUnder, {}, 1), (Order{0, 3, 1, 4}));
  EXPECT_EQ(mix_sets({3, 2}, Mix::kInterleaveOver, {}, 1), (Order{0, 3, 1, 4, 2, 3}));
  EXPECT_EQ(mix_sets({3, 1, 2}, Mix::kInterleaveOnce, {}, 1), (Order{0, 3, 4, 1, 5, 2}));
}

TEST(Mix, SharesEqualTheWeights) {
  const auto under = mix_sets({30'000, 10'000}, Mix::kInterleaveUnder, {3, 1}, 1);
  const auto second = std::count_if(under.begin(), under.end(), [](int64_t row) { return row >= 30'000; });
  EXPECT_NEAR(static_cast<double>(second) / static_cast<double>(under.size()), 0.25, 0.01);
  EXPECT_EQ(mix_sets({30'000, 10'000}, Mix::kInterleaveUnder, {3, 1}, 1), under);
  EXPECT_NE(mix_sets({30'000, 10'000}, Mix::kInterleaveUnder, {3, 1}, 2), under);
  // The mix ends when both sets are used up. It has each row of the larger set once, and repeats the smaller set.
  const auto over = mix_sets({50, 10}, Mix::kInterleaveOver, {0.5, 0.5}, 3);
  std::vector<int> seen(60);
  for (int64_t row : over) ++seen[static_cast<size_t>(row)];
  EXPECT_EQ(std::count(seen.begin(), seen.end(), 0), 0);
  EXPECT_EQ(seen[49], 1);
  EXPECT_GE(seen[50], 3);
}

// As in datasets' all_exhausted_without_replacement, the draws among the sets that have rows left keep their shares.
TEST(Mix, EachRowOnce) {
  auto once = mix_sets({3'000, 500, 1'000}, Mix::kInterleaveOnce, {1, 2, 1e-9}, 1);
  const auto second = std::count_if(once.begin(), once.begin() + 600, [](int64_t row) { return row >= 3'000; });
  EXPECT_NEAR(static_cast<double>(second) / 600, 2. / 3, 0.05);
  EXPECT_LT(*std::max_element(once.begin(), once.begin() + 3'400), 3'500) << "the third set's rows are the last";
  std::ranges::sort(once);
  ASSERT_EQ(once.size(), 4'500u);
  for (size_t i = 0; i < once.size(); ++i) EXPECT_EQ(once[i], i);
}

TEST_F(Cache, DataSetsAreMixed) {
  const std::string other = folder.write("other.jsonl", "{\"text\": \"x\"}\n{\"text\": \"y\"}\n").string();
  spec.sets.push_back(other);
  EXPECT_EQ(load().train.size(), 5u);
  spec.mix = Mix::kInterleaveUnder;
  const Datasets data = load();
  ASSERT_EQ(data.train.size(), 4u);
  EXPECT_EQ(data.train.source(1), other + ":1");
  EXPECT_EQ(data.train.source(3), other + ":2");
  EXPECT_EQ(data.report.rows, 6);
}

}  // namespace
}  // namespace fettle
