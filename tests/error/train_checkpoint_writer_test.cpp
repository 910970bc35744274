// Tests checkpoints that cannot be written, and checkpoints from which a run cannot continue.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/saved/checkpoint_list.h"
#include "model_copies.h"
#include "resolve_run.h"
#include "temp_folder.h"
#include "train/checkpoints/base_digest.h"
#include "train/checkpoints/checkpoint_meta.h"
#include "train/checkpoints/checkpoint_writer.h"
#include "train/output_folder.h"
#include "train/retry.h"
#include "training_run.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(Retry, AFailingFileIteratorIsTriedAgainAndNamesItsFolder) {
  const auto fail = [] { throw fs::filesystem_error("iterate", "/a", std::error_code(EIO, std::generic_category())); };
  int calls = 0;
  const auto once = [&] {
    if (++calls == 1) fail();
    return 7;
  };
  EXPECT_EQ(retry_files("the result", once, [] { return true; }), 7);
  EXPECT_THAT(user_error([&] { retry_files("the result", fail, [] { return true; }); }),
              HasSubstr("/a: Input/output error; check the disk"));
}

class FailedSave : public testing::Test {
 protected:
  FailedSave() : run_(run_recipe(folder_ / "out", "lora")) {
    // Puts a file at the path of the checkpoint of step 2.
    write_text(folder_ / "out/checkpoint-2", "");
  }
  TempFolder folder_;
  TrainingRun run_;
};

TEST_F(FailedSave, IsReportedOnceAndTheNextOneIsWritten) {
  CheckpointWriter writer(run_.run, run_.repository, run_.batches.identity(), run_.processes);
  run_.state.step = 1;
  writer.save(run_.state, {});
  run_.state.step = 2;
  writer.save(run_.state, {});
  run_.state.step = 3;
  testing::internal::CaptureStderr();
  writer.save(run_.state, {});
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, AllOf(HasSubstr("checkpoint-2 could not be saved"), HasSubstr("a file has that name"),
                          HasSubstr("training continues"), HasSubstr((folder_ / "out/checkpoint-1").string())));
  testing::internal::CaptureStderr();
  writer.settle();
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("checkpoint-3 saved"), Not(HasSubstr("checkpoint-2"))));
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder_ / "out")) names.push_back(entry.path().filename().string());
  EXPECT_THAT(names, testing::UnorderedElementsAre("checkpoint-1", "checkpoint-2", "checkpoint-3"));
}

TEST_F(FailedSave, IsThrownWhereTheRunNeedsIt) {
  CheckpointWriter writer(run_.run, run_.repository, run_.batches.identity(), run_.processes);
  run_.state.step = 1;
  writer.save(run_.state, {});
  writer.require();
  run_.state.step = 2;
  writer.save(run_.state, {});
  EXPECT_THAT(user_error([&] { writer.require(); }),
              AllOf(HasSubstr("checkpoint-2 could not be saved"), HasSubstr("a file has that name"),
                    HasSubstr((folder_ / "out/checkpoint-1").string()), HasSubstr("resume_from_checkpoint=true")));
}

TEST_F(FailedSave, IsReportedByTheDestructor) {
  testing::internal::CaptureStderr();
  {
    CheckpointWriter writer(run_.run, run_.repository, run_.batches.identity(), run_.processes);
    run_.state.step = 2;
    writer.save(run_.state, {});
  }
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("checkpoint-2 could not be saved"), HasSubstr("no checkpoint is complete yet")));
}

TEST(NewestCheckpoint, WithOnlyWeightsIsNamedInMessages) {
  TempFolder folder;
  EXPECT_EQ(newest_checkpoint_text(folder.path()), "no checkpoint is complete yet");
  write_text(folder / "checkpoint-1/trainer_state.json", R"({"stateful_callbacks": {}})");
  EXPECT_THAT(newest_checkpoint_text(folder.path()),
              HasSubstr("the newest checkpoint, " + (folder / "checkpoint-1").string() + ", has only weights"));
}

// Writes a checkpoint at step 1. The tests compare it with other runs.
class OtherRun : public testing::Test {
 protected:
  OtherRun() {
    Recipe recipe = this->recipe();
    TrainingRun run(recipe);
    run.state.step = 1;
    data_ = run.batches.identity();
    CheckpointWriter(run.run, run.repository, data_, run.processes).save(run.state, {});
    state_.emplace(state_folder(run.folder()));
  }
  Recipe recipe(const std::string& type = "lora") {
    Recipe recipe = run_recipe(folder_ / "out", type);
    recipe.per_device_train_batch_size = 8;
    return recipe;
  }
  std::string error(const Recipe& recipe) {
    int64_t devices = 1;
    for (const auto& [axis, size] : recipe.mesh) devices *= size;
    const ModelRepository repository = ModelRepository::open(recipe.model_name_or_path);
    const auto run = make_run(recipe, repository.config(), "config.json", devices);
    return user_error([&] {
      check_meta(*state_, run);
      check_base(*state_, base_identity(run, repository));
    });
  }
  TempFolder folder_;
  DataIdentity data_;
  std::optional<StateReader> state_;
};

TEST_F(OtherRun, TheSameRunIsAccepted) {
  EXPECT_EQ(error(recipe()), "no error");
}

TEST_F(OtherRun, AnotherMeshWithTheSameGlobalBatchIsAccepted) {
  Recipe other = recipe();
  other.mesh = {{"fsdp", 4}, {"dp", 2}};
  other.per_device_train_batch_size = 1;
  EXPECT_EQ(error(other), "no error");
  other.mesh = {{"fsdp", 2}, {"tp", 2}};
  other.per_device_train_batch_size = 2;
  other.gradient_accumulation_steps = 4;
  EXPECT_EQ(error(other), "no error");
}

TEST_F(OtherRun, AnotherGlobalBatchIsRefusedWithWhatToSet) {
  Recipe other = recipe();
  other.mesh = {{"fsdp", 4}};
  EXPECT_THAT(error(other),
              AllOf(HasSubstr("checkpoint-1 was written with 16 rows per step, but this run has 64"),
                    HasSubstr("per_device_train_batch_size 8 x 4 devices (dp x fsdp) x gradient_accumulation_steps 2"),
                    HasSubstr("set per_device_train_batch_size: 2,"), HasSubstr("adapter_name_or_path: ")));
  other.gradient_accumulation_steps = 3;
  EXPECT_THAT(error(other), HasSubstr("set per_device_train_batch_size: 4 and gradient_accumulation_steps: 1,"));
  other.per_device_train_batch_size = 2;
  EXPECT_THAT(error(other), HasSubstr("set gradient_accumulation_steps: 2,"));
  other.mesh = {{"dp", 3}};
  EXPECT_THAT(error(other),
              HasSubstr("change the mesh so that dp x fsdp (now 3) divides the checkpoint's 16 rows per step"));
}

TEST_F(OtherRun, AnotherAdapterShapeNamesTheKeyOrTheWeight) {
  Recipe other = recipe();
  other.lora_rank = 8;
  EXPECT_THAT(error(other), HasSubstr("with lora_rank = 4, but this run has 8"));
  other.lora_rank = 4;
  other.lora_target = {"q_proj"};
  EXPECT_THAT(error(other), AllOf(HasSubstr("has the array "), HasSubstr("down_proj"), HasSubstr("does not train")));
  EXPECT_THAT(error(recipe("full")), AllOf(HasSubstr("finetuning_type"), HasSubstr("lora"), HasSubstr("full")));
}

// Other kernels change only the rounding, so the run continues. A warning names the kernels.
TEST_F(OtherRun, OtherKernelsAreNamed) {
  const Recipe again = recipe();
  const ModelRepository repository = ModelRepository::open(again.model_name_or_path);
  auto run_with = [&](const KernelSet& kernels) {
    return make_run(again, repository.config(), "config.json", RunTarget{.count = 1, .kernels = kernels});
  };
  auto said = [&](const StateReader& state, const KernelSet& kernels) {
    const auto run = run_with(kernels);
    testing::internal::CaptureStderr();
    check_meta(state, run);
    report_kernels(state, run);
    return testing::internal::GetCapturedStderr();
  };
  const KernelSet all = select_kernels("cpu", {"auto"});
  const std::string ids = fmt::format("{}", fmt::join(kernel_ids(all), ", "));
  EXPECT_EQ(said(*state_, {}), "");
  EXPECT_THAT(said(*state_, all),
              HasSubstr("checkpoint-1 was written by a run with no kernels, this run has kernels " + ids + ": "));
  TrainingRun run(again);
  run.state.step = 2;
  const auto with_kernels = run_with(all);
  CheckpointWriter(with_kernels, repository, data_, run.processes).save(run.state, {});
  const StateReader with(state_folder(run.folder()));
  EXPECT_EQ(said(with, all), "");
  EXPECT_THAT(said(with, {}),
              HasSubstr("checkpoint-2 was written by a run with kernels " + ids + ", this run has no kernels: "));
}

// The losses of KTO and the loss that balances experts depend on the rows of a micro-batch.
TEST(OtherMicroBatches, AreReportedWhereTheLossDependsOnThem) {
  TempFolder folder;
  struct Case {
    const char *name, *model, *stage;
    double balance;
    const char* said;  // null: no warning
  };
  for (const auto& [name, model, stage, balance, words] :
       {Case{"balanced", "mixtral", "sft", 0.01, "the loss that balances the experts depends on"},
        Case{"plain", "mixtral", "sft", 0, nullptr}, Case{"kto", "llama", "kto", 0, "the loss of stage kto depends on"},
        Case{"dpo", "llama", "dpo", 0, nullptr}}) {
    Recipe recipe = reference_recipe(model);
    recipe.stage = stage;
    recipe.per_device_train_batch_size = 4;
    recipe.gradient_accumulation_steps = 2;
    if (model == std::string("mixtral")) recipe.moe_aux_loss_coef = balance;
    const ModelRepository repository = ModelRepository::open(recipe.model_name_or_path);
    auto resolved = [&](int64_t devices, int64_t rows, int64_t accumulation) {
      Recipe other = recipe;
      other.mesh = {{"dp", devices}};
      other.per_device_train_batch_size = rows;
      other.gradient_accumulation_steps = accumulation;
      return make_run(other, repository.config(), "config.json", devices);
    };
    StateWriter writer(folder / name / "state");
    for (const StateArray& array : trained_arrays(resolved(1, 4, 2))) writer.add(array.name, HostArray(array.shape));
    writer.finish(checkpoint_meta(resolved(1, 4, 2), 1, {}, {}, {}, ""));
    const StateReader state(folder / name / "state");
    auto said = [&](const auto& run) {
      testing::internal::CaptureStderr();
      report_micro_batches(state, run);
      return testing::internal::GetCapturedStderr();
    };
    EXPECT_EQ(said(resolved(1, 4, 2)), "") << name;
    EXPECT_EQ(said(resolved(2, 2, 2)), "") << name << ": the same rows are together";
    const std::string other = said(resolved(2, 4, 1));
    if (words == nullptr) {
      EXPECT_EQ(other, "") << name;
      continue;
    }
    EXPECT_THAT(other, AllOf(HasSubstr("with 4 rows per micro-batch, this run has 8: "), HasSubstr(words),
                             HasSubstr("set per_device_train_batch_size: 2 and gradient_accumulation_steps: 2")));
    const std::string refused = user_error([&] { check_meta(state, resolved(2, 4, 2)); });
    EXPECT_THAT(refused, HasSubstr("set per_device_train_batch_size: 2 and gradient_accumulation_steps: 2,"));
  }
}

TEST_F(OtherRun, AnotherOrderOrPrecisionIsNamed) {
  Recipe other = recipe();
  other.seed = 7;
  EXPECT_THAT(error(other), HasSubstr("seed = 42, but this run has 7"));
  other = recipe();
  other.packing = true;
  EXPECT_THAT(error(other), HasSubstr("packing"));
  other = recipe();
  other.lora_dtype = "bfloat16";
  EXPECT_THAT(error(other), AllOf(HasSubstr("f32["), HasSubstr("bf16[")));
  other = recipe();
  other.lora_alpha = 3;
  EXPECT_THAT(error(other), HasSubstr("lora_alpha"));
}

// Earlier versions called full tuning "freeze" if the model has parameters that no gradient trains.
TEST(OldCheckpoint, OfFullTuningMaySayFreezeIfTheModelHasBuffers) {
  TempFolder folder;
  for (const char* model : {"deepseek_v3", "llama"}) {
    Recipe recipe = reference_recipe(model);
    const ModelRepository repository = ModelRepository::open(recipe.model_name_or_path);
    auto run_of = [&](const char* type) {
      recipe.finetuning_type = type;
      return make_run(recipe, repository.config(), "config.json", 1);
    };
    const auto full = run_of("full");
    nlohmann::json meta = checkpoint_meta(full, 1, {}, {}, {}, "");
    EXPECT_EQ(meta["identity"]["finetuning_type"], "full") << model;
    meta["identity"]["finetuning_type"] = "freeze";
    StateWriter writer(folder / model);
    for (const StateArray& array : trained_arrays(full)) writer.add(array.name, HostArray(array.shape));
    writer.finish(meta);
    const StateReader state(folder / model);
    const char* said = model == std::string("deepseek_v3") ? "no error" : "= \"freeze\", but this run has \"full\"";
    EXPECT_THAT(user_error([&] { check_meta(state, full); }), HasSubstr(said)) << model;
    EXPECT_THAT(user_error([&] { check_meta(state, run_of("freeze")); }), HasSubstr(" the array ")) << model;
  }
}

// Writes the state that a run of this recipe has at its beginning.
StateReader written_state(const fs::path& folder, const Run& run, const nlohmann::json& meta) {
  StateWriter writer(folder);
  for (const StateArray& array : trained_arrays(run)) writer.add(array.name, HostArray(array.shape));
  writer.finish(meta);
  return StateReader(folder);
}

class OtherOptimArgs : public testing::Test {
 protected:
  fettle::Run run_with(const std::string& optim, const std::map<std::string, std::string>& args) {
    Recipe recipe = reference_recipe("llama");
    recipe.finetuning_type = "full";
    recipe.optim = optim;
    recipe.optim_args = args;
    return make_run(recipe, repository_.config(), "config.json", 1);
  }
  std::string said(const StateReader& state, const fettle::Run& run) {
    testing::internal::CaptureStderr();
    check_meta(state, run);
    report_optim_args(state, run);
    return testing::internal::GetCapturedStderr();
  }

  TempFolder folder_;
  ModelRepository repository_ = ModelRepository::open(reference_recipe("llama").model_name_or_path);
};

TEST_F(OtherOptimArgs, AreNamed) {
  const auto run = run_with("apollo_adamw", {{"rank", "2"}, {"scale", "128"}, {"scale_type", "tensor"}});
  nlohmann::json meta = checkpoint_meta(run, 1, {}, {}, {}, "");
  const StateReader state = written_state(folder_ / "new/state", run, meta);
  EXPECT_EQ(said(state, run), "");
  EXPECT_EQ(said(state, run_with("apollo_adamw", {{"rank", "2"}, {"scale", "128.0"}, {"scale_type", "tensor"}})), "");
  const auto other = run_with("apollo_adamw", {{"rank", "2"}});
  EXPECT_THAT(said(state, other), AllOf(HasSubstr("(apollo_adamw) has scale=128.0, scale_type=tensor, this run has "
                                                  "scale=1.0, scale_type=channel: losses differ")));
  meta.erase("optim_args");
  const StateReader old = written_state(folder_ / "old/state", run, meta);
  EXPECT_THAT(said(old, other), HasSubstr("other defaults: rank=1, scale=128, scale_type=tensor; this run has rank=2, "
                                          "scale=1, scale_type=channel;"));
}

TEST_F(OtherOptimArgs, AreNotMissedInOldCheckpointsOfOtherRules) {
  const auto run = run_with("sgd", {{"momentum", "0.9"}});
  nlohmann::json meta = checkpoint_meta(run, 1, {}, {}, {}, "");
  meta.erase("optim_args");
  EXPECT_EQ(said(written_state(folder_ / "state", run, meta), run), "");
}

TEST_F(OtherOptimArgs, OfFourBitStateAreTheSizeOfTheBlocks) {
  const auto run = run_with("adamw_torch_4bit", {{"block_size", "128"}});
  const StateReader state = written_state(folder_ / "state", run, checkpoint_meta(run, 1, {}, {}, {}, ""));
  EXPECT_EQ(said(state, run), "");
  EXPECT_THAT(user_error([&] { check_meta(state, run_with("adamw_torch_4bit", {})); }),
              HasSubstr("with blocks of 128 elements in the optimizer's state, but this run has 256; set optim_args: "
                        "block_size=128, or"));
}

TEST_F(OtherRun, AnotherStageIsNamed) {
  Recipe other = recipe();
  other.stage = "pt";
  EXPECT_THAT(error(other), HasSubstr("stage = \"sft\", but this run has \"pt\""));
}

// Whether 8-bit floats stay in 8 bits on the device does not matter, because the values are the same.
TEST(Identity, NamesTheQuantisationUnlessTheWeightsAreIn8BitFloats) {
  auto quantisation = [](const Recipe& recipe, Quantisation::Type type) {
    const ModelRepository repository = ModelRepository::open(recipe.model_name_or_path);
    const auto run = make_run(recipe, repository.config(), "config.json", 1);
    EXPECT_FALSE(run.quantised.empty());
    for (const QuantisedWeight& weight : run.quantised) EXPECT_EQ(weight.format.type, type);
    return checkpoint_meta(run, 1, {}, {}, {}, "")["identity"]["quantization"];
  };
  Recipe recipe = reference_recipe("qwen3_fp8");
  EXPECT_EQ(quantisation(recipe, Quantisation::Type::kFloat8), "none");
  recipe.quantization_bit = 4;
  EXPECT_EQ(quantisation(recipe, Quantisation::Type::kNf4), "nf4 with double quantization");
}

TEST_F(OtherRun, ABaseWithOtherWeightsIsRefusedWithBothPaths) {
  Recipe other = recipe();
  other.model_name_or_path = copy_model(folder_ / "other");
  EXPECT_EQ(error(other), "no error");
  change_tensor(folder_ / "other/model.safetensors", "model.layers.1.mlp.down_proj.weight");
  EXPECT_THAT(error(other),
              AllOf(HasSubstr("checkpoint-1 was trained with other weights of a base model than this run"),
                    HasSubstr("model_name_or_path was " + recipe().model_name_or_path),
                    HasSubstr("this run has " + other.model_name_or_path), HasSubstr("start a new run")));
  StateWriter(folder_ / "old/state").finish({{"step", 1}});  // as in checkpoints from before base digests existed
  const ModelRepository repository = ModelRepository::open(other.model_name_or_path);
  const auto run = make_run(other, repository.config(), "config.json", 1);
  EXPECT_EQ(user_error([&] { check_base(StateReader(folder_ / "old/state"), base_identity(run, repository)); }),
            "no error");
}

// The values of weights in 8-bit floats change with their factors. Earlier versions had no digest of the factors.
TEST(BaseInFewBits, WithOtherFactorsIsRefusedUnlessTheCheckpointHasNoDigestOfThem) {
  TempFolder folder;
  Recipe recipe = reference_recipe("qwen3_fp8");
  recipe.model_name_or_path = copy_model(folder / "model", "qwen3_fp8");
  auto identity = [&] {
    const ModelRepository repository = ModelRepository::open(recipe.model_name_or_path);
    return base_identity(make_run(recipe, repository.config(), "config.json", 1), repository);
  };
  nlohmann::json written = identity();
  StateWriter(folder / "new/state").finish({{"step", 1}, {"base", written}});
  for (const char* key : {"weights_parts", "ref_model_parts"}) written.erase(key);
  StateWriter(folder / "old/state").finish({{"step", 1}, {"base", written}});
  auto error = [&](const char* checkpoint) {
    return user_error([&] { check_base(StateReader(folder / checkpoint), identity()); });
  };
  EXPECT_EQ(error("new/state"), "no error");
  EXPECT_EQ(error("old/state"), "no error");
  change_byte(folder / "model/model.safetensors", "model.layers.0.mlp.down_proj.weight_scale_inv");
  EXPECT_THAT(error("new/state"), HasSubstr("other weights of a base model"));
  EXPECT_EQ(error("old/state"), "no error");
}

TEST_F(OtherRun, OtherDataIsRefused) {
  const Recipe same = recipe();
  const auto run = make_run(same, ModelRepository::open(same.model_name_or_path).config(), "config.json", 1);
  const auto said = [&](const DataIdentity& data) { return user_error([&] { check_data(*state_, run, data); }); };
  EXPECT_EQ(said(data_), "no error");
  const auto remedy = HasSubstr("in another output_dir from the checkpoint's weights (adapter_name_or_path: " +
                                state_->folder().parent_path().string() + ")");
  EXPECT_THAT(said({81, data_.digest}),
              AllOf(HasSubstr("80 rows per epoch"), HasSubstr("now has 81"), HasSubstr("lost or repeated"), remedy));
  EXPECT_THAT(said({80, "another"}), AllOf(HasSubstr("with other tokens"), remedy));
}

TEST(Output, AResultWithoutALogIsNotOverwrittenUnlessAsked) {
  TempFolder folder;
  Recipe recipe = run_recipe(folder / "out", "lora");
  const ModelRepository repository = ModelRepository::open(recipe.model_name_or_path);
  auto error = [&] {
    const auto run = make_run(recipe, repository.config(), "config.json", 1);
    return user_error([&] { const OutputFolder made = check_output(run); });
  };
  EXPECT_EQ(error(), "no error");
  write_text(folder / "out/all_results.json", "{}");
  EXPECT_THAT(error(), HasSubstr("contains an earlier run; set overwrite_output_dir: true"));
  recipe.resume_from_checkpoint = "true";
  EXPECT_THAT(error(), AllOf(HasSubstr("no checkpoint from which a run could continue"),
                             HasSubstr("set overwrite_output_dir: true")));
  // A later run that replaces the result was killed before its first checkpoint.
  write_text(folder / "out/fettle_run.json", R"({"state": "running"})");
  EXPECT_EQ(error(), "no error");
  write_text(folder / "out/fettle_run.json", R"({"state": "finished"})");
  EXPECT_THAT(error(), HasSubstr("no checkpoint from which a run could continue"));
  recipe.overwrite_output_dir = true;
  EXPECT_EQ(error(), "no error");
}

// Other tools use the same names. Fettle would replace or delete their files.
TEST(Output, OfAnotherToolIsRefusedEvenIfItMayBeOverwritten) {
  TempFolder folder;
  Recipe recipe = run_recipe(folder / "out", "lora");
  const ModelRepository repository = ModelRepository::open(recipe.model_name_or_path);
  const auto error = [&](bool overwrite, const char* resume) {
    recipe.overwrite_output_dir = overwrite;
    recipe.resume_from_checkpoint = resume;
    const auto run = make_run(recipe, repository.config(), "config.json", 1);
    return user_error([&] { const OutputFolder made = check_output(run); });
  };
  const auto expect_refused = [&](const fs::path& named) {
    for (const bool overwrite : {false, true})
      for (const char* resume : {"", "true"})
        EXPECT_THAT(error(overwrite, resume), AllOf(HasSubstr(named.string() + " was not written by Fettle"),
                                                    HasSubstr("choose another output_dir")));
  };
  const std::string log = R"({"stateful_callbacks": {"TrainerControl": {}}})";
  write_text(folder / "out/checkpoint-500/trainer_state.json", log);
  write_text(folder / "out/checkpoint-500/training_args.bin", "");
  expect_refused(folder / "out/checkpoint-500");
  fs::remove_all(folder / "out/checkpoint-500");
  write_text(folder / "out/all_results.json", "{}");
  write_text(folder / "out/trainer_state.json", log);
  expect_refused(folder / "out/trainer_state.json");
  write_text(folder / "out/trainer_state.json", R"({"stateful_callbacks": {}})");
  EXPECT_EQ(error(true, ""), "no error");
}

// A checkpoint of another folder belongs to another run than the one in output_dir.
TEST(Output, ACheckpointOfAnotherFolderDoesNotContinueTheRunThere) {
  TempFolder folder;
  for (const char* checkpoint : {"out/checkpoint-2", "other/checkpoint-2"})
    write_text(folder / checkpoint / "state/manifest.json", "{}");
  fs::create_directory_symlink(folder / "out", folder / "link");
  Recipe recipe = run_recipe(folder / "out", "lora");
  const ModelRepository repository = ModelRepository::open(recipe.model_name_or_path);
  auto error = [&](const char* checkpoint) {
    recipe.resume_from_checkpoint = (folder / checkpoint).string();
    const auto run = make_run(recipe, repository.config(), "config.json", 1);
    return user_error([&] { const OutputFolder made = check_output(run); });
  };
  for (const char* here : {"out/checkpoint-2", "out/checkpoint-2/", "link/checkpoint-2", "out/../link/checkpoint-2"})
    EXPECT_EQ(error(here), "no error") << here;
  EXPECT_THAT(error("other/checkpoint-2"), HasSubstr("contains an earlier run; set overwrite_output_dir: true"));
  // This run itself, killed before its first checkpoint here, left only a log.
  fs::rename(folder / "out/checkpoint-2", folder / "away");
  write_text(folder / "out/trainer_log.jsonl", "{}\n");
  EXPECT_EQ(error("other/checkpoint-2"), "no error");
  fs::rename(folder / "away", folder / "out/checkpoint-2");
  recipe.overwrite_output_dir = true;
  EXPECT_EQ(error("other/checkpoint-2"), "no error");
}

}  // namespace
}  // namespace fettle
