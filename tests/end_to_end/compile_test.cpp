// Tests which programs a training run compiles, and when. Each compiled program is a file in the compile cache.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <map>

#include "environment.h"
#include "run_fettle.h"

namespace fettle {
namespace {

using testing::HasSubstr;

// Returns the names of the compiled programs with the numbers of their files. A program that is compiled again gets a
// new file.
std::map<std::string, ino_t> programs(const std::filesystem::path& cache) {
  std::map<std::string, ino_t> out;
  for (const auto& entry : std::filesystem::directory_iterator(cache)) {
    struct stat about {};
    if (stat(entry.path().c_str(), &about) == 0) out.emplace(entry.path().filename().string(), about.st_ino);
  }
  return out;
}

// Returns the part of the text from `start` to the end of its line.
std::string line_from(const std::string& text, const std::string& start) {
  const size_t at = text.find(start);
  return at == std::string::npos ? "" : text.substr(at, text.find('\n', at) - at);
}

// The compiler does not optimise the programs, which saves time.
struct Compile : testing::Test {
  const Environment flags{"XLA_FLAGS", "--xla_backend_optimization_level=0"};
};

// Returns words for a run on rows of these lengths, one row a step, so that each length has a shape of its own.
std::vector<std::string> words(const TempFolder& folder, const std::string& output,
                               const std::vector<size_t>& lengths = {8, 40, 24, 8}) {
  std::string rows;
  for (const size_t length : lengths)
    rows += nlohmann::json{{"input_ids", std::vector<size_t>(length, 3)}}.dump() + "\n";
  write_text(folder / "rows.jsonl", rows);
  return with(train_words(folder / output),
              {"dataset=" + (folder / "rows.jsonl").string(), "compile_cache=" + (folder / "cache").string(),
               "disable_shuffling=true", "per_device_train_batch_size=1"});
}

// Kernels on a CPU without products of bf16 read and write the same bf16 values. Only inside they compute in f32. So
// activations are rounded in the same places.
TEST_F(Compile, ABf16StepIsTheSameProgramOnACpuWithoutBf16) {
  TempFolder folder;
  const auto train = [&](const std::string& name, const std::optional<std::string>& isa) {
    std::filesystem::create_directory(folder / name);
    const Environment limit("FETTLE_MAX_CPU_ISA", isa), dump("FETTLE_DUMP", (folder / name).string());
    const Outcome run = run_fettle(folder, with(train_words(folder / (name + "-out")),
                                                {"packing=true", "cutoff_len=256", "bf16=true", "compile_cache=off",
                                                 "gradient_checkpointing=none", "max_steps=2"}));
    EXPECT_EQ(run.code, 0) << run.err;
    return read_text(folder / name / "program-0.mlir");
  };
  const std::string program = train("limited", "avx2");
  for (const char* kernel : {"fettle_cpu_lora_", "fettle_cpu_attention_", "fettle_cpu_gated_", "fettle_cpu_rms_norm_"})
    EXPECT_THAT(program, HasSubstr(kernel));
  EXPECT_EQ(train("best", {}), program);
}

// Weights, adapters and optimizer state get their values without a program of their own.
TEST_F(Compile, ARunCompilesItsStepAndItsEvaluationAndNothingElse) {
  for (const char* method : {"finetuning_type=lora", "finetuning_type=full", "quantization_bit=4"}) {
    SCOPED_TRACE(method);
    TempFolder folder;
    const Outcome run = run_fettle(folder, with(words(folder, "out", std::vector<size_t>(12, 24)),
                                                {method, "val_size=4", "eval_strategy=steps", "eval_steps=1",
                                                 "max_steps=2", "gradient_checkpointing=none"}));
    ASSERT_EQ(run.code, 0) << run.err;
    EXPECT_EQ(programs(folder / "cache").size(), 2u) << run.err;
  }
}

// Before the first step, a run compiles only the shape with the largest micro-batches, whose memory must be known. The
// first step compiles its own shape. The other shapes are compiled in the steps that first need them.
TEST_F(Compile, TheFirstStepDoesNotWaitForTheProgramsOfLaterShapes) {
  TempFolder folder;
  const auto train = [&](const std::string& steps) {
    return run_fettle(folder,
                      with(words(folder, "out" + steps), {"gradient_checkpointing=none", "max_steps=" + steps}));
  };
  const Outcome first = train("1");
  ASSERT_EQ(first.code, 0) << first.err;
  ASSERT_THAT(line_from(first.err, "laid into "), HasSubstr("1 x 8, 1 x 24, 1 x 40 positions"));
  EXPECT_EQ(programs(folder / "cache").size(), 2u) << "1 x 40 for its memory, 1 x 8 for the step";
  const Outcome all = train("3");
  ASSERT_EQ(all.code, 0) << all.err;
  EXPECT_EQ(programs(folder / "cache").size(), 3u);
}

// With `gradient_checkpointing: auto`, the first start compiles the step to know its memory. The second start reads the
// compiler's counts from the cache.
TEST_F(Compile, ASecondStartWithAutoCompilesNothing) {
  TempFolder folder;
  const auto train = [&](const std::string& output) {
    return run_fettle(folder, with(words(folder, output), {"gradient_checkpointing=auto", "max_steps=1"}));
  };
  const std::string start = "gradient_checkpointing: auto chooses ";
  const auto policy = [&](const Outcome& run) {
    const std::string line = line_from(run.err, start);
    return line.substr(0, line.find(';'));
  };
  const Outcome first = train("first");
  ASSERT_EQ(first.code, 0) << first.err;
  const auto compiled = programs(folder / "cache");
  EXPECT_FALSE(compiled.empty());
  const Outcome second = train("second");
  ASSERT_EQ(second.code, 0) << second.err;
  EXPECT_EQ(programs(folder / "cache"), compiled);
  EXPECT_THAT(policy(first), HasSubstr(start));
  EXPECT_EQ(policy(second), policy(first));
  EXPECT_EQ(logged_losses(folder / "second"), logged_losses(folder / "first"));
}

// Prompts of 17 to 32 tokens have one program, and the tokens after them another one.
TEST_F(Compile, PromptsOfARangeOfLengthsShareTheirPrograms) {
  TempFolder folder;
  const auto generate = [&](int64_t tokens) {
    std::vector<int64_t> labels(static_cast<size_t>(tokens), -100);
    write_text(folder / "prompt.jsonl",
               nlohmann::json{{"input_ids", std::vector<int64_t>(labels.size(), 3)}, {"labels", labels}}.dump() + "\n");
    const Outcome run = run_fettle(
        folder, {"generate", "model_name_or_path=" + reference_model("llama").string(), "plugin=cpu", "do_sample=false",
                 "dataset=" + (folder / "prompt.jsonl").string(), "compile_cache=" + (folder / "cache").string(),
                 "max_new_tokens=4", "per_device_eval_batch_size=1"});
    EXPECT_EQ(run.code, 0) << run.err;
    return programs(folder / "cache");
  };
  const auto compiled = generate(20);
  EXPECT_FALSE(compiled.empty());
  EXPECT_EQ(generate(30), compiled);
  EXPECT_NE(generate(40), compiled) << "longer than the range";
}

TEST_F(Compile, VerbosePrintsTheTimeOfEachPart) {
  TempFolder folder;
  const std::vector<std::string> model{"model_name_or_path=" + reference_model("llama").string(), "plugin=cpu",
                                       "compile_cache=" + (folder / "cache").string()};
  const std::vector<std::string> tuned = with(model, {"adapter_name_or_path=" + (folder / "out").string()});
  const auto run = [&](const std::string& command, const std::vector<std::string>& words,
                       const std::vector<std::string>& parts) {
    const Outcome done = run_fettle(folder, with({"--verbose", command}, words));
    EXPECT_EQ(done.code, 0) << done.err;
    for (const std::string& part : parts)
      EXPECT_THAT(done.err, testing::ContainsRegex(part + ": [0-9]+[.][0-9]+ s")) << command;
  };
  std::vector<std::string> train = words(folder, "out");
  train.erase(train.begin());
  run("train", with(train, {"max_steps=1"}),
      {"opened the devices", "read the rows", "compiled the step", "loaded the weights", "program compiled"});
  run("eval", with(tuned, {"eval_dataset=" + (folder / "rows.jsonl").string()}),
      {"read the rows", "opened the devices", "tuned: loaded the weights", "tuned: measured .*rows.jsonl",
       "base: measured .*rows.jsonl", "program compiled"});
  run("eval", with(tuned, {"eval_dataset=" + (folder / "rows.jsonl").string()}),
      {"program taken from the compile cache"});
  run("generate", with(tuned, {"prompt=a", "max_new_tokens=2"}),
      {"opened the devices", "loaded the weights", "program compiled"});
  run("export", with(tuned, {"export_dir=" + (folder / "merged").string()}),
      {"checked the model", "wrote the weights", "compared the logits"});
}

}  // namespace
}  // namespace fettle
