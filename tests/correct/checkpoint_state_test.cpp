#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <memory>
#include <numeric>

#include "base/arrays/box_copy.h"
#include "checkpoint/peft/adapter_files.h"
#include "checkpoint/repository.h"
#include "checkpoint/saved/checkpoint_list.h"
#include "checkpoint/saved/own_log.h"
#include "checkpoint/saved/result_folder.h"
#include "checkpoint/saved/state.h"
#include "temp_folder.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;

HostArray counting(const Dims& dims) {
  std::vector<float> values(static_cast<size_t>(product(dims)));
  std::iota(values.begin(), values.end(), 0.0f);
  return HostArray::from({DType::kF32, dims}, values);
}

HostArray part_of(const HostArray& whole, const Box& box) {
  HostArray part({whole.shape().dtype, box.size});
  copy_common(Box::whole(whole.shape().dims), whole.data(), box, part.data(), 4);
  return part;
}

// Splits an array of shape `dims` evenly into a grid of `rows` x `columns` boxes.
std::vector<Box> grid(const Dims& dims, int64_t rows, int64_t columns) {
  std::vector<Box> boxes;
  const Dims size{dims[0] / rows, dims[1] / columns};
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) boxes.push_back({{r * size[0], c * size[1]}, size});
  return boxes;
}

bool same(const HostArray& a, const HostArray& b) {
  return a.shape() == b.shape() && std::memcmp(a.data(), b.data(), static_cast<size_t>(a.bytes())) == 0;
}

TEST(State, AnyMeshReadsWhatAnyMeshWrote) {
  const HostArray whole = counting({8, 12});
  for (const auto& [rows, columns] : {std::pair{1, 1}, {4, 1}, {2, 3}, {8, 12}}) {
    TempFolder folder;
    StateWriter writer(folder / "state");
    for (const Box& box : grid({8, 12}, rows, columns)) {
      const HostArray part = part_of(whole, box);
      writer.add("w", whole.shape(), box, {part.data(), static_cast<size_t>(part.bytes())});
    }
    writer.finish({});
    StateReader reader(folder / "state");
    for (const auto& [to_rows, to_columns] : {std::pair{1, 1}, {8, 1}, {1, 4}, {4, 6}}) {
      for (const Box& box : grid({8, 12}, to_rows, to_columns)) {
        HostArray part({DType::kF32, box.size});
        reader.read_slice("w", box, part.data());
        EXPECT_TRUE(same(part, part_of(whole, box))) << box.to_string() << " of " << rows << "x" << columns;
      }
    }
    EXPECT_TRUE(same(reader.read("w"), whole));
    reader.verify();
  }
}

// Each process writes the boxes that it owns. Together, the boxes are one complete state.
TEST(State, PartsOfSeveralProcessesAreOneState) {
  const HostArray whole = counting({8, 12}), small = counting({3});
  const std::vector<Box> boxes = grid({8, 12}, 4, 1);
  TempFolder folder;
  std::vector<std::unique_ptr<StateWriter>> writers;
  for (int part = 0; part < 4; ++part) {
    writers.push_back(std::make_unique<StateWriter>(folder / "state", part));
    const HostArray values = part_of(whole, boxes[static_cast<size_t>(part)]);
    if (part != 2)  // a process may own nothing
      writers.back()->add("w", whole.shape(), boxes[static_cast<size_t>(part)],
                          {values.data(), static_cast<size_t>(values.bytes())});
    if (part == 3) writers.back()->add("w", whole.shape(), boxes[2], {part_of(whole, boxes[2]).data(), 96});
    if (part == 1) writers.back()->add("small", small);
    if (part > 0) writers.back()->finish_part();
  }
  writers[0]->add_parts(4);
  writers[0]->finish({{"step", 4}});
  StateReader reader(folder / "state");
  reader.verify();
  EXPECT_TRUE(same(reader.read("w"), whole));
  EXPECT_TRUE(same(reader.read("small"), small));
  EXPECT_EQ(reader.meta()["step"], 4);
  EXPECT_FALSE(fs::exists(folder / "state/part-00001.json"));

  StateWriter alone(folder / "missing");
  EXPECT_THROW(alone.add_parts(2), UserError);
}

TEST(State, BitsOfEveryDtypeAreKept) {
  TempFolder folder;
  std::vector<uint32_t> bits{0x7fc00001, 0x80000000, 0x00000001, 0xff800000};  // NaN with payload, -0, denormal, -inf
  HostArray floats({DType::kF32, {4}});
  std::memcpy(floats.data(), bits.data(), 16);
  StateWriter writer(folder / "state");
  writer.add("floats", floats);
  writer.add("count", HostArray::from<int64_t>({DType::kI64, {}}, {std::numeric_limits<int64_t>::min()}));
  writer.add("bytes", HostArray::from<uint8_t>({DType::kU8, {3}}, {1, 2, 255}));
  writer.add("half", HostArray::from<uint16_t>({DType::kBF16, {1, 1}}, {0x3f81}));
  writer.add("empty", HostArray({DType::kF32, {0, 5}}));
  writer.finish({});
  StateReader reader(folder / "state");
  EXPECT_THAT(reader.names(), testing::ElementsAre("bytes", "count", "empty", "floats", "half"));
  EXPECT_TRUE(same(reader.read("floats"), floats));
  EXPECT_EQ(reader.read("count").as<int64_t>()[0], std::numeric_limits<int64_t>::min());
  EXPECT_EQ(reader.read("bytes").as<uint8_t>()[2], 255);
  EXPECT_EQ(reader.shape("half"), (Shape{DType::kBF16, {1, 1}}));
  EXPECT_EQ(reader.read("empty").bytes(), 0);
  EXPECT_TRUE(reader.contains("half"));
  EXPECT_FALSE(reader.contains("other"));
}

TEST(State, MetaComesBackExactly) {
  TempFolder folder;
  const nlohmann::json meta{
      {"step", 7},    {"seed", 18446744073709551615u},   {"position", {{"epoch", 1}, {"row", 123456789012}}},
      {"scale", 0.1}, {"tiny", 4.9406564584124654e-324}, {"text", "\u00e9\n"}};
  StateWriter(folder / "state").finish(meta);
  EXPECT_EQ(StateReader(folder / "state").meta(), meta);
}

TEST(State, IncompleteTensorsAreInternalErrors) {
  TempFolder folder;
  const HostArray half = counting({2, 4});
  const std::span<const std::byte> bytes{half.data(), 32};
  const Shape whole{DType::kF32, {4, 4}};
  {
    StateWriter writer(folder / "hole");
    writer.add("w", whole, {{0, 0}, {2, 4}}, bytes);
    EXPECT_THROW(writer.finish({}), InternalError);
  }
  {
    StateWriter writer(folder / "overlap");
    writer.add("w", whole, {{0, 0}, {2, 4}}, bytes);
    writer.add("w", whole, {{1, 0}, {2, 4}}, bytes);
    EXPECT_THROW(writer.finish({}), InternalError);
  }
  StateWriter writer(folder / "other");
  EXPECT_THROW(writer.add("w", whole, {{3, 0}, {2, 4}}, bytes), InternalError);
  EXPECT_THROW(writer.add("w", whole, {{0, 0}, {1, 4}}, bytes), InternalError);
  writer.add("w", whole, {{0, 0}, {2, 4}}, bytes);
  EXPECT_THROW(writer.add("w", whole.with_dtype(DType::kI32), {{2, 0}, {2, 4}}, bytes), InternalError);
}

// An output folder with checkpoints. An incomplete checkpoint has no manifest.
class Checkpoints : public testing::Test {
 protected:
  void add(int64_t step, bool complete = true) {
    const fs::path state = state_folder(checkpoint_path(folder_.path(), step));
    StateWriter writer(state);
    writer.add("w", counting({2}));
    writer.finish({{"step", step}});
    if (!complete) fs::remove(state / "manifest.json");
  }
  // Adds a checkpoint without a state. `callbacks` is a field of its log: "{}" in Fettle's logs.
  void add_weights(const std::string& name, const std::string& callbacks) {
    write_text(folder_ / name / "model.safetensors", "");
    write_text(folder_ / name / "trainer_state.json", R"({"stateful_callbacks": )" + callbacks + "}");
  }
  std::vector<int64_t> steps() {
    std::vector<int64_t> all;
    for (const CheckpointFolder& one : list_checkpoints(folder_.path())) all.push_back(one.step);
    return all;
  }
  TempFolder folder_;
};

TEST_F(Checkpoints, AreListedByNumber) {
  for (int64_t step : {100, 20, 3}) add(step);
  write_text(folder_ / "checkpoint-7x/a", "");
  write_text(folder_ / "checkpoint-/a", "");
  write_text(folder_ / "checkpoint-8", "");
  write_text(folder_ / "checkpoint-9.tmp-1/a", "");
  EXPECT_THAT(steps(), testing::ElementsAre(3, 20, 100));
  EXPECT_THAT(list_checkpoints(folder_ / "none"), testing::IsEmpty());
}

TEST_F(Checkpoints, NewestCompleteOneIsFound) {
  EXPECT_FALSE(newest_checkpoint(folder_.path()).has_value());
  add(10);
  add(20);
  add(30, false);
  fs::resize_file(folder_ / "checkpoint-20/state/shards-00001.bin", 7);
  ASSERT_TRUE(newest_checkpoint(folder_.path()).has_value());
  EXPECT_EQ(newest_checkpoint(folder_.path())->step, 10);
}

TEST_F(Checkpoints, OfARunThatHasNotEndedAreNamed) {
  const auto said = [&] {
    return user_error([&] { require_ended_run(folder_.path(), "adapter_config.json", "adapter_name_or_path"); });
  };
  require_ended_run(folder_.path(), "config.json", "model_name_or_path");
  for (int64_t step : {10, 20, 30}) {
    add(step, step < 30);
    write_text(checkpoint_path(folder_.path(), step) / "adapter_config.json", "{}");
  }
  const std::string out = folder_.path().string();
  EXPECT_EQ(said(), out + " has no adapter_config.json: its run has not ended; set adapter_name_or_path to " + out +
                        "/checkpoint-20, or resume the run with resume_from_checkpoint");
  add_weights("checkpoint-40", "{}");
  write_text(folder_ / "checkpoint-40/adapter_config.json", "{}");
  EXPECT_THAT(said(), testing::HasSubstr("set adapter_name_or_path to " + out + "/checkpoint-40,"));
  EXPECT_THAT(user_error([&] { read_adapter_config(folder_.path()); }), testing::HasSubstr("its run has not ended"));
  require_ended_run(folder_.path(), "config.json", "model_name_or_path");  // the checkpoints are adapters
  write_text(folder_ / "checkpoint-40/config.json", "{}");
  EXPECT_THAT(user_error([&] { ModelRepository::open(folder_.path()); }),
              testing::HasSubstr("set model_name_or_path to " + out + "/checkpoint-40,"));
}

// "true" means the newest checkpoint that has a state/ folder, even if that state is damaged. The user decides whether
// to use an older one.
TEST_F(Checkpoints, TrueMeansTheNewestWithAState) {
  EXPECT_FALSE(find_checkpoint(folder_.path(), "true").has_value());
  add(10);
  add(20, false);
  write_text(folder_ / "checkpoint-30/adapter_model.safetensors", "");
  EXPECT_EQ(find_checkpoint(folder_.path(), "true"), folder_ / "checkpoint-20");
  EXPECT_EQ(find_checkpoint(folder_.path(), (folder_ / "checkpoint-10/").string()), folder_ / "checkpoint-10");
  fs::rename(folder_ / "checkpoint-10", folder_ / "renamed");
  EXPECT_EQ(find_checkpoint(folder_.path(), (folder_ / "renamed").string()), folder_ / "renamed");
}

TEST_F(Checkpoints, OldOnesAreDeleted) {
  for (int64_t step : {10, 20, 30, 40}) add(step);
  const fs::path last = folder_ / "checkpoint-40";
  EXPECT_THAT(delete_old_checkpoints(folder_.path(), 0, last), testing::IsEmpty());
  EXPECT_THAT(delete_old_checkpoints(folder_.path(), 4, last), testing::IsEmpty());
  EXPECT_THAT(delete_old_checkpoints(folder_.path(), 2, last),
              testing::ElementsAre(folder_ / "checkpoint-10", folder_ / "checkpoint-20"));
  EXPECT_THAT(steps(), testing::ElementsAre(30, 40));
}

TEST_F(Checkpoints, TheLatestAndTheNewestCompleteOneStay) {
  add(10);
  add(20);
  add(30, false);
  add(40, false);
  delete_old_checkpoints(folder_.path(), 1, folder_ / "checkpoint-10");
  EXPECT_THAT(steps(), testing::ElementsAre(10, 20));
}

// Transformers' Trainer gives its checkpoints the same names.
TEST_F(Checkpoints, ThoseOfOtherToolsAreNeitherListedNorDeleted) {
  add_weights("checkpoint-10", "{}");
  std::filesystem::create_directories(folder_ / "checkpoint-15/state");
  EXPECT_FALSE(foreign_checkpoint(folder_.path())) << "a folder without files is nobody's";
  write_text(folder_ / "cut.json", "{\"stateful_callbacks\": ");
  EXPECT_FALSE(is_own_log(folder_ / "cut.json") || is_foreign_log(folder_ / "cut.json"));
  add_weights("checkpoint-5", R"({"TrainerControl": {}})");
  add_weights("checkpoint-6", "{}");
  write_text(folder_ / "checkpoint-6/training_args.bin", "");
  write_text(folder_ / "checkpoint-7/notes.txt", "");
  add_weights("checkpoint-8.abandoned", R"({"TrainerControl": {}})");
  add_weights("checkpoint-9.abandoned", "{}");
  add(20);
  add(30);
  EXPECT_THAT(steps(), testing::ElementsAre(10, 20, 30));
  EXPECT_EQ(foreign_checkpoint(folder_.path()), folder_ / "checkpoint-7");
  EXPECT_THAT(delete_old_checkpoints(folder_.path(), 1, folder_ / "checkpoint-30"),
              testing::ElementsAre(folder_ / "checkpoint-10", folder_ / "checkpoint-20"));
  EXPECT_THAT(abandoned_checkpoints(folder_.path()), testing::ElementsAre(folder_ / "checkpoint-9.abandoned"));
  EXPECT_THAT(set_aside_after(folder_.path(), 0), testing::ElementsAre(folder_ / "checkpoint-30.abandoned"));
}

TEST_F(Checkpoints, LaterOnesAreSetAside) {
  for (int64_t step : {10, 20, 30}) add(step);
  EXPECT_THAT(set_aside_after(folder_.path(), 30), testing::IsEmpty());
  EXPECT_THAT(set_aside_after(folder_.path(), 10),
              testing::ElementsAre(folder_ / "checkpoint-20.abandoned", folder_ / "checkpoint-30.abandoned"));
  EXPECT_THAT(steps(), testing::ElementsAre(10));
  EXPECT_EQ(find_checkpoint(folder_.path(), "true"), folder_ / "checkpoint-10");
  const std::string aside = (folder_ / "checkpoint-30.abandoned").string();
  EXPECT_EQ(find_checkpoint(folder_.path(), aside), aside) << "it can still be named";
  for (const char* name : {"checkpoint-30.abandoned-2", "checkpoint-30.abandoned-3"}) {
    add(30);
    EXPECT_THAT(set_aside_after(folder_.path(), 10), testing::ElementsAre(folder_ / name));
  }
}

}  // namespace
}  // namespace fettle
