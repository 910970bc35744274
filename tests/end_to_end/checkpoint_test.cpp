// Tests damaged checkpoints, leftovers and failed writes. The messages tell a user what is wrong, in which file, and
// from where to continue.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "run_fettle.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAreArray;
using testing::HasSubstr;
using testing::Not;

std::vector<std::string> words(const fs::path& output) {
  return with(train_words(output), {"save_strategy=steps", "save_steps=2", "lora_dropout=0.1", "plot_loss=false"});
}

// A finished run with checkpoints 2, 4 and 6. It is made once and copied for each test.
class Damaged : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    whole_ = new TempFolder;
    const Outcome run = run_fettle(*whole_, words(*whole_ / "out"));
    ASSERT_EQ(run.code, 0) << run.err;
    const Outcome other = run_fettle(*whole_, with(words(*whole_ / "other"), {"lora_rank=8"}));
    ASSERT_EQ(other.code, 0) << other.err;
  }
  static void TearDownTestSuite() { delete std::exchange(whole_, nullptr); }
  Damaged() { fs::copy(*whole_ / "out", out(), fs::copy_options::recursive); }

  fs::path out() const { return folder_ / "out"; }
  fs::path in(int step, const std::string& file) const { return out() / ("checkpoint-" + std::to_string(step)) / file; }
  Outcome resume(const std::string& value = "true") {
    return run_fettle(folder_, with(words(out()), {"resume_from_checkpoint=" + value}));
  }
  // Checks that checkpoint 6 is refused with the messages `said`: when it is named, and when it is the newest. Then
  // checks that the run continues from the checkpoint that the message suggests.
  void expect_refused(const std::vector<std::string>& said) {
    const std::string offered = "resume_from_checkpoint=" + in(4, "").parent_path().string();
    for (const std::string& value : {std::string("true"), in(6, "").string()}) {
      const Outcome run = resume(value);
      EXPECT_EQ(run.code, 2) << run.err;
      for (const std::string& text : said) EXPECT_THAT(run.err, HasSubstr(text));
      EXPECT_THAT(run.err, HasSubstr("checkpoint-4 has all its files: continue from it with " + offered));
    }
    const Outcome run = resume(in(4, "").parent_path().string());
    EXPECT_EQ(run.code, 0) << run.err;
    EXPECT_THAT(run.err, HasSubstr("is now called " + in(6, "").parent_path().string() + ".abandoned"));
    EXPECT_THAT(logged_losses(out()), ElementsAreArray(logged_losses(*whole_ / "out")));
    EXPECT_EQ(read_text(in(6, "state/shards-00001.bin")),
              read_text(*whole_ / "out/checkpoint-6/state/shards-00001.bin"));
  }
  static void flip(const fs::path& file) {
    std::string bytes = read_text(file);
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 16);
    write_text(file, bytes);
  }

  static inline TempFolder* whole_ = nullptr;
  TempFolder folder_;
};

TEST_F(Damaged, FlippedByte) {
  flip(in(6, "state/shards-00001.bin"));
  expect_refused({"checkpoint-6/state/shards-00001.bin", "do not match their checksum"});
}

TEST_F(Damaged, MissingShard) {
  fs::remove(in(6, "state/shards-00001.bin"));
  expect_refused({"checkpoint-6/state/shards-00001.bin", "No such file"});
}

TEST_F(Damaged, TruncatedShard) {
  fs::resize_file(in(6, "state/shards-00001.bin"), 1000);
  expect_refused({"checkpoint-6/state/shards-00001.bin", "has 1000 bytes, but the manifest says"});
}

TEST_F(Damaged, GarbageManifest) {
  write_text(in(6, "state/manifest.json"), "{\"format\": [\x01\xff");
  expect_refused({"checkpoint-6/state/manifest.json", "is not valid JSON: syntax error at"});
}

TEST_F(Damaged, MissingManifest) {
  fs::remove(in(6, "state/manifest.json"));
  expect_refused({"checkpoint-6/state/manifest.json", "No such file"});
}

TEST_F(Damaged, StateOfAnAdapterOfAnotherShape) {
  fs::remove_all(in(6, "state"));
  fs::copy(*whole_ / "other/checkpoint-6/state", in(6, "state"));
  expect_refused({"checkpoint-6 was written with lora_rank = 8, but this run has 4"});
}

TEST_F(Damaged, TrainerState) {
  flip(in(6, "trainer_state.json"));
  expect_refused({"checkpoint-6/trainer_state.json", "checksum"});
}

TEST_F(Damaged, ThePreviousOneIsDamagedToo) {
  flip(in(6, "state/shards-00001.bin"));
  flip(in(4, "state/shards-00001.bin"));
  EXPECT_THAT(resume().err, AllOf(HasSubstr("checkpoint-6/state"), HasSubstr("checkpoint-4 has all its files")));
  const std::string fourth = in(4, "").parent_path().string();
  EXPECT_THAT(resume(fourth).err, AllOf(HasSubstr("checkpoint-4/state"), HasSubstr("checkpoint-2 has all its files")))
      << "not checkpoint 6, from which the user comes";
  for (const int step : {2, 4}) fs::resize_file(in(step, "state/shards-00001.bin"), 1000);
  EXPECT_THAT(resume().err, AllOf(HasSubstr("checkpoint-6/state"), HasSubstr("no other complete checkpoint")));
}

// The user goes back to checkpoint 2 with another learning rate. From then on, the checkpoints of the first course are
// neither continued nor counted by save_total_limit.
TEST_F(Damaged, GoingBackLeavesTheLaterOnesBehind) {
  const auto back = with(words(out()), {"learning_rate=0.01", "save_total_limit=2", "max_steps=4"});
  const Outcome gone_back = run_fettle(folder_, with(back, {"resume_from_checkpoint=" + in(2, "").string()}));
  ASSERT_EQ(gone_back.code, 0) << gone_back.err;
  EXPECT_THAT(gone_back.err, AllOf(HasSubstr("this run goes back to step 2, so a later checkpoint is now called"),
                                   HasSubstr("if you start this run again, set resume_from_checkpoint: true")));
  for (const char* file : {"checkpoint-4.abandoned", "checkpoint-6.abandoned"})
    EXPECT_EQ(read_text(out() / file / "state/shards-00001.bin"),
              read_text(*whole_ / "out" / fs::path(file).stem() / "state/shards-00001.bin"));
  EXPECT_TRUE(fs::exists(in(2, "state")) && fs::exists(in(4, "state")));
  EXPECT_NE(read_text(in(4, "state/shards-00001.bin")), read_text(*whole_ / "out/checkpoint-4/state/shards-00001.bin"));
  const Outcome next = run_fettle(folder_, with(back, {"resume_from_checkpoint=true", "max_steps=6"}));
  ASSERT_EQ(next.code, 0) << next.err;
  EXPECT_THAT(next.err, Not(HasSubstr("goes back")));
  EXPECT_EQ(logged_losses(out()).size(), 6u);
  EXPECT_NE(logged_losses(out())[4], logged_losses(*whole_ / "out")[4]) << "the second course goes on";
  EXPECT_FALSE(fs::exists(in(2, "")));
  EXPECT_TRUE(fs::exists(in(4, "state")) && fs::exists(in(6, "state")));
}

TEST_F(Damaged, OverwritingDeletesTheOnesLeftBehind) {
  fs::rename(out() / "checkpoint-4", out() / "checkpoint-4.abandoned");
  fs::rename(out() / "checkpoint-6", out() / "checkpoint-4.abandoned-2");
  fs::create_directory(out() / "checkpoint-4.abandoned-mine");
  const auto keys = with(words(out()), {"overwrite_output_dir=true", "save_strategy=no", "max_steps=2"});
  const Outcome read =
      run_fettle(folder_, with(keys, {"adapter_name_or_path=" + out().string() + "/checkpoint-4.abandoned"}));
  EXPECT_EQ(read.code, 2);
  EXPECT_THAT(read.err, HasSubstr("would delete " + out().string() + "/checkpoint-4.abandoned"));
  const Outcome run = run_fettle(folder_, keys);
  ASSERT_EQ(run.code, 0) << run.err;
  for (const char* name : {"checkpoint-4.abandoned", "checkpoint-4.abandoned-2"})
    EXPECT_FALSE(fs::exists(out() / name)) << name;
  EXPECT_TRUE(fs::exists(out() / "checkpoint-4.abandoned-mine"));
}

// To the run in `out`, a run that continues from a checkpoint of another folder is a new one.
TEST_F(Damaged, IsNotMixedWithARunFromAnotherFolder) {
  const std::string from = (*whole_ / "out/checkpoint-4").string();
  const auto keys = with(words(out()), {"save_strategy=no", "resume_from_checkpoint=" + from});
  const Outcome refused = run_fettle(folder_, keys);
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("contains an earlier run; set overwrite_output_dir: true"));
  const Outcome run = run_fettle(folder_, with(keys, {"overwrite_output_dir=true"}));
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(logged_losses(out()).size(), 2u);
  EXPECT_FALSE(fs::exists(in(2, "")) || fs::exists(in(6, "")));
}

// Killed processes leave working folders, folders that were being deleted, and folders that were being replaced.
TEST_F(Damaged, LeftoversAreIgnoredAndRemoved) {
  const std::string id = "0123456789abcdef";
  const std::vector<std::string> left{"checkpoint-8.tmp-" + id, "checkpoint-2.tmp-" + id, "checkpoint-6.old-" + id,
                                      ".result.tmp-" + id};
  for (const std::string& name : left) write_text(out() / name / "state/manifest.json", "half");
  fs::rename(out() / "checkpoint-4", out() / ("checkpoint-4.old-" + id));
  const Outcome run = resume();
  EXPECT_EQ(run.code, 0) << run.err;
  for (const std::string& name : left) {
    EXPECT_FALSE(fs::exists(out() / name)) << name;
    EXPECT_THAT(run.err, HasSubstr("removed " + (out() / name).string()));
  }
  EXPECT_TRUE(fs::exists(in(4, "state/manifest.json"))) << "it was not replaced";
}

TEST(FailedSave, IsSaidAndTheRunGoesOn) {
  TempFolder folder;
  write_text(folder / "out/checkpoint-4", "not a folder");
  const Outcome run = run_fettle(folder, words(folder / "out"));
  EXPECT_EQ(run.code, 0);
  EXPECT_THAT(run.err, AllOf(HasSubstr("checkpoint-4 could not be saved"), HasSubstr("a file has that name"),
                             HasSubstr("training continues"), HasSubstr("checkpoint-6 saved")));
  EXPECT_EQ(logged_losses(folder / "out").size(), 6u);
}

TEST(SaveOnlyModel, WritesNoStateAndSaysThatItCannotBeResumed) {
  TempFolder folder;
  const auto only = with(words(folder / "out"), {"save_only_model=true", "max_steps=4"});
  const Outcome run = run_fettle(folder, only);
  ASSERT_EQ(run.code, 0) << run.err;
  for (const char* checkpoint : {"out/checkpoint-2", "out/checkpoint-4"}) {
    EXPECT_TRUE(fs::exists(folder / checkpoint / "adapter_model.safetensors"));
    EXPECT_TRUE(fs::exists(folder / checkpoint / "trainer_state.json"));
    EXPECT_FALSE(fs::exists(folder / checkpoint / "state"));
  }
  for (const std::string& from : {std::string("true"), (folder / "out/checkpoint-2").string()}) {
    const Outcome resumed = run_fettle(folder, with(words(folder / "out"), {"resume_from_checkpoint=" + from}));
    EXPECT_EQ(resumed.code, 2);
    EXPECT_THAT(resumed.err, AllOf(HasSubstr("no state/ folder (save_only_model leaves it out)"),
                                   HasSubstr("adapter_name_or_path")));
  }
}

// The model's config.json says bfloat16. Without a dtype key, one message says that training uses float32 and names the
// key. With a dtype key there is no message.
TEST(Dtype, OfA16BitModelWithoutAKeyIsSaid) {
  TempFolder folder;
  const fs::path model = folder / "model";
  fs::copy(reference_model("llama"), model);
  auto config = nlohmann::json::parse(read_text(model / "config.json"));
  config.erase("torch_dtype");
  config["dtype"] = "bfloat16";
  write_text(model / "config.json", config.dump());
  const auto said = [&](const std::vector<std::string>& more) {
    const Outcome run = run_fettle(
        folder, with(with(train_words(folder / "out"), {"model_name_or_path=" + model.string(), "max_steps=1",
                                                        "overwrite_output_dir=true", "plot_loss=false"}),
                     more));
    EXPECT_EQ(run.code, 0) << run.err;
    const size_t first = run.err.find("stored in 16 bits but trained in float32");
    return first == std::string::npos ? 0 : run.err.find("stored in 16 bits", first + 1) == std::string::npos ? 1 : 2;
  };
  EXPECT_EQ(said({}), 1);
  EXPECT_EQ(said({"bf16=false"}), 0);
  EXPECT_EQ(said({"bf16=auto"}), 0);
}

TEST(Stall, IsInALogLineAndInTheResults) {
  TempFolder folder;
  const Outcome run = run_fettle(folder, words(folder / "out"));
  ASSERT_EQ(run.code, 0) << run.err;
  for (const char* checkpoint : {"checkpoint-2", "checkpoint-4", "checkpoint-6"})
    EXPECT_THAT(run.err, testing::ContainsRegex(checkpoint + std::string(" saved: .* training waited .* ms")));
  const auto results = nlohmann::json::parse(read_text(folder / "out/all_results.json"));
  EXPECT_GT(results["save_stall_seconds"], 0);
}

// The disk space of a deleted file is free only when no process has the file open.
TEST(Resume, ADeletedCheckpointTakesNoSpace) {
  const TempFolder folder;
  const std::vector<std::string> all = with(words(folder / "out"), {"save_total_limit=1", "max_steps=2"});
  ASSERT_EQ(run_fettle(folder, all).code, 0);
  const Running running(folder.path(), with(all, {"resume_from_checkpoint=true", "max_steps=100000"}));
  ASSERT_TRUE(wait_until([&] { return !fs::exists(folder / "out/checkpoint-2"); }));
  const std::string maps = read_text("/proc/" + std::to_string(running.process()) + "/maps");
  running.send(SIGKILL);
  running.wait();
  EXPECT_THAT(maps, HasSubstr("fettle")) << "the run had ended";
  EXPECT_THAT(maps, Not(HasSubstr("checkpoint-2")));
}

TEST(OtherDevices, ContinueOnlyWithTheSameGlobalBatch) {
  TempFolder folder;
  ASSERT_EQ(run_fettle(folder, words(folder / "whole")).code, 0);
  ASSERT_EQ(run_fettle(folder, words(folder / "moved")).code, 0);
  for (const char* later : {"checkpoint-4", "checkpoint-6"}) fs::remove_all(folder / "moved" / later);
  const auto moved = with(words(folder / "moved"), {"resume_from_checkpoint=true", "device_count=2"});
  const Outcome refused = run_fettle(folder, moved);
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("set per_device_train_batch_size: 1"));
  const Outcome run = run_fettle(folder, with(moved, {"per_device_train_batch_size=1"}));
  EXPECT_EQ(run.code, 0) << run.err;
  const auto got = logged_losses(folder / "moved"), wanted = logged_losses(folder / "whole");
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(std::stod(got[i]), std::stod(wanted[i]), 1e-4) << i;
}

TEST(Overwrite, AnEarlierRunIsDeletedOnlyWhenTheNewOneStarts) {
  TempFolder folder;
  ASSERT_EQ(run_fettle(folder, words(folder / "out")).code, 0);
  const Outcome bad =
      run_fettle(folder, with(words(folder / "out"), {"overwrite_output_dir=true", "dataset=none.jsonl"}));
  EXPECT_EQ(bad.code, 2);
  EXPECT_TRUE(fs::exists(folder / "out/checkpoint-6/state/manifest.json"));
  const auto keys = with(words(folder / "out"), {"overwrite_output_dir=true", "max_steps=2"});
  const Outcome run = run_fettle(folder, keys);
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.err, HasSubstr("the 3 checkpoints there are deleted, because overwrite_output_dir is set"));
  EXPECT_FALSE(fs::exists(folder / "out/checkpoint-6"));
  write_text(folder / "out/checkpoint-500/optimizer.pt", "of another tool");
  const Outcome refused = run_fettle(folder, keys);
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("out/checkpoint-500 was not written by Fettle"));
  EXPECT_TRUE(fs::exists(folder / "out/checkpoint-500/optimizer.pt"));
}

// The run would delete its own base.
TEST(Overwrite, ACheckpointThatTheRunReadsIsNotDeleted) {
  const TempFolder folder;
  const std::vector<std::string> full = with(words(folder / "out"), {"finetuning_type=full", "lora_dropout=0"});
  ASSERT_EQ(run_fettle(folder, full).code, 0);
  const std::string base = (folder / "out/checkpoint-2").string();
  for (const std::string& path : {base, (folder / "." / "out/checkpoint-2").string()}) {
    const Outcome run = run_fettle(folder, with(full, {"model_name_or_path=" + path, "overwrite_output_dir=true"}));
    EXPECT_EQ(run.code, 2);
    EXPECT_THAT(run.err, HasSubstr("would delete " + base));
    EXPECT_TRUE(fs::exists(base + "/model.safetensors"));
  }
  const Outcome elsewhere =
      run_fettle(folder, with(full, {"model_name_or_path=" + base, "output_dir=" + (folder / "next").string()}));
  EXPECT_EQ(elsewhere.code, 0) << elsewhere.err;
}

TEST(Overwrite, TheEarlierResultIsReplacedCompletely) {
  TempFolder folder;
  const auto run = [&](const std::vector<std::string>& more) {
    const Outcome outcome =
        run_fettle(folder, with(words(folder / "out"), with({"overwrite_output_dir=true", "max_steps=2"}, more)));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
  };
  const auto there = [&](const char* file) { return fs::exists(folder / "out" / file); };
  write_text(folder / "rows.csv", "text,label\nred one,red\nblue two,blue\nred three,red\nblue four,blue\n");
  const std::string rows = (folder / "rows.csv").string();
  run({"stage=cls", "dataset=" + rows, "eval_dataset=" + rows, "eval_strategy=steps", "eval_steps=2"});
  ASSERT_TRUE(there("classifier.json") && there("confusion.svg") && there("eval_results.json"));
  write_text(folder / "out/notes.txt", "the user's");

  run({});  // an adapter of a language model
  EXPECT_TRUE(there("adapter_model.safetensors"));
  for (const char* file : {"classifier.json", "confusion.svg", "confusion.png", "classification_report.json",
                           "classification_report.txt", "eval_results.json"})
    EXPECT_FALSE(there(file)) << file;

  // A failed run keeps the old result, because Fettle deletes it only when the new one is complete.
  const Outcome failed =
      run_fettle(folder, with(words(folder / "out"), {"overwrite_output_dir=true", "finetuning_type=full",
                                                      "learning_rate=1e30", "max_grad_norm=0", "max_steps=50"}));
  EXPECT_NE(failed.code, 0);
  EXPECT_TRUE(there("adapter_model.safetensors") && there("adapter_config.json") && there("all_results.json"));

  run({"finetuning_type=full"});
  EXPECT_TRUE(there("model.safetensors") && there("config.json"));
  EXPECT_FALSE(there("adapter_model.safetensors") || there("adapter_config.json"));

  // These files have the names of the files of a larger model.
  for (const char* file :
       {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json"})
    write_text(folder / "out" / file, "{}");
  run({"finetuning_type=full"});
  for (const char* file :
       {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json"})
    EXPECT_FALSE(there(file)) << file;
  EXPECT_TRUE(there("model.safetensors"));

  run({});
  EXPECT_FALSE(there("model.safetensors") || there("config.json") || there("generation_config.json"));
  EXPECT_EQ(read_text(folder / "out/notes.txt"), "the user's");
}

TEST(Resume, WithAnAdapterOnOtherLayersIsRefused) {
  const TempFolder folder;
  ASSERT_EQ(run_fettle(folder, with(words(folder / "out"), {"layers_to_transform=0"})).code, 0);
  for (const char* layers : {"layers_to_transform=1", "layers_to_transform=null"}) {
    const Outcome run =
        run_fettle(folder, with(words(folder / "out"), {layers, "resume_from_checkpoint=true", "max_steps=8"}));
    EXPECT_EQ(run.code, 2) << layers;
    EXPECT_THAT(run.err, HasSubstr("layers_to_transform = [0]"));
  }
}

TEST(Resume, OverAnotherBaseOfTheSameShapeIsRefused) {
  TempFolder folder;
  ASSERT_EQ(run_fettle(folder, words(folder / "out")).code, 0);
  const fs::path model = folder / "model", out = folder / "out";
  fs::copy(reference_model("llama"), model);
  const auto resumed = with(words(out), {"model_name_or_path=" + model.string(),
                                         "resume_from_checkpoint=" + (out / "checkpoint-2").string()});
  const Outcome same = run_fettle(folder, resumed);
  EXPECT_EQ(same.code, 0) << same.err;
  std::string weights = read_text(model / "model.safetensors");
  for (size_t i = weights.size() / 2; i < weights.size(); ++i) weights[i] = 0;
  write_text(model / "model.safetensors", weights);
  const Outcome other = run_fettle(folder, resumed);
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, HasSubstr("trained with other weights of a base model than this run"));
  EXPECT_THAT(other.err, HasSubstr("model_name_or_path was " + reference_model("llama").string()));
}

}  // namespace
}  // namespace fettle
