// Tests exports to GGUF that are refused: the message is right, and no files are left.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <limits>

#include "base/files/json_file.h"
#include "base/files/mapped_file.h"
#include "base/files/output_file.h"
#include "checkpoint/gguf/families.h"
#include "checkpoint/safetensors.h"
#include "config/recipe.h"
#include "export/export.h"
#include "gguf_reference.h"

namespace fettle {
namespace {

using testing::AllOf;
using testing::HasSubstr;
namespace fs = std::filesystem;

class GgufExportError : public testing::Test {
 protected:
  Recipe recipe(const fs::path& model, const std::string& type = "q8_0") {
    Recipe out;
    out.model_name_or_path = model.string();
    out.export_dir = (folder_ / "out").string();
    out.export_gguf = {type};
    out.plugin = "cpu";
    return out;
  }

  fs::path copy_of(const std::string& family) {
    const fs::path to = folder_ / family;
    fs::create_directories(to);
    for (const auto& entry : fs::directory_iterator(reference_model(family)))
      if (entry.is_regular_file()) fs::copy_file(entry.path(), to / entry.path().filename());
    return to;
  }

  template <typename Change>
  void change(const fs::path& file, Change by) {
    nlohmann::json value = read_json_file(file);
    by(value);
    write_json_file(file, value);
  }

  // Returns the message of the refused export. Checks that neither the output folder nor a temporary folder is left.
  std::string refused(const Recipe& from) {
    const std::string message = user_error([&] { run_export(Request(from, Command::kExport)); });
    for (const auto& entry : fs::directory_iterator(folder_.path()))
      EXPECT_THAT(entry.path().filename().string(), testing::Not(testing::StartsWith("out")));
    return message;
  }

  TempFolder folder_;
};

TEST_F(GgufExportError, AFamilyThatIsNotWritten) {
  EXPECT_THAT(
      user_error([] { gguf_family_for("new_family", {}, "models/new"); }),
      AllOf(HasSubstr("models/new"), HasSubstr("new_family"), HasSubstr("qwen3_moe"), HasSubstr("safetensors")));
}

TEST_F(GgufExportError, ASettingThatGgufCannotExpress) {
  EXPECT_THAT(refused(recipe(reference_model("qwen2_moe"))), HasSubstr("model.layers.1.mlp"));  // a dense MLP
  EXPECT_THAT(refused(recipe(reference_model("deepseek_v3"))), HasSubstr("mscale"));
  EXPECT_THAT(refused(recipe(reference_model("deepseek_v2"))), HasSubstr("q_lora_rank"));
  EXPECT_THAT(refused(recipe(reference_model("qwen3_5_text"))), HasSubstr("linear_value_head_dim is 8"));
  EXPECT_THAT(refused(recipe(reference_model("gemma2"))), HasSubstr("query_pre_attn_scalar"));
  EXPECT_THAT(refused(recipe(reference_model("llama4"))), HasSubstr("floor_scale is 8"));
  EXPECT_THAT(refused(recipe(reference_model("llama4_dense"))), HasSubstr("Llama 4 without experts"));
  const fs::path oss = copy_of("gpt_oss");
  change(oss / "config.json", [](nlohmann::json& config) { config["rope_parameters"]["truncate"] = true; });
  EXPECT_THAT(refused(recipe(oss)), HasSubstr("truncate: true"));
  const fs::path moe = copy_of("qwen3_moe");
  change(moe / "config.json", [](nlohmann::json& config) { config["norm_topk_prob"] = false; });
  EXPECT_THAT(refused(recipe(moe)), AllOf(HasSubstr("norm_topk_prob"), HasSubstr("false")));
  const fs::path llama = copy_of("llama");
  change(llama / "config.json", [](nlohmann::json& config) { config["hidden_act"] = "gelu"; });
  EXPECT_THAT(refused(recipe(llama)), AllOf(HasSubstr("hidden_act"), HasSubstr("gelu"), HasSubstr("silu")));
  change(llama / "config.json", [](nlohmann::json& config) {
    config["hidden_act"] = "silu";
    config["rope_parameters"] = {{"rope_type", "yarn"},
                                 {"rope_theta", 10000.0},
                                 {"factor", 4.0},
                                 {"original_max_position_embeddings", 8192},
                                 {"truncate", false}};
  });
  EXPECT_THAT(refused(recipe(llama)), HasSubstr("truncate of rope_parameters is false, and llama.cpp would compute "));
  EXPECT_THAT(refused(recipe(reference_model("smollm3"))),
              HasSubstr("layers without rope (no_rope_layers) are 1, and"));
}

TEST_F(GgufExportError, ATokenizerThatGgufCannotExpress) {
  const fs::path model = copy_of("qwen3");
  change(model / "tokenizer.json", [](nlohmann::json& tokenizer) {
    tokenizer["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"use_regex", true}};
  });
  EXPECT_THAT(refused(recipe(model)), AllOf(HasSubstr("tokenizer.json"), HasSubstr("pre_tokenizer")));
  // GGUF has no lstrip. With lstrip, an added token takes the space before it, so the ids of a text differ.
  const fs::path strips = copy_of("llama2");
  change(strips / "tokenizer.json", [](nlohmann::json& tokenizer) {
    for (nlohmann::json& token : tokenizer["added_tokens"]) token["lstrip"] = true;
  });
  EXPECT_THAT(refused(recipe(strips)), AllOf(HasSubstr("cannot express this tokenizer"), HasSubstr("has the ids")));
  const fs::path words = copy_of("mistral");
  change(words / "tokenizer.json", [](nlohmann::json& tokenizer) {
    tokenizer["model"] = {{"type", "WordLevel"}, {"vocab", {{"a", 0}}}, {"unk_token", "a"}};
  });
  EXPECT_THAT(refused(recipe(words)), HasSubstr("no tokenizer of the kind BPE"));
}

TEST_F(GgufExportError, KeysThatDoNotGoTogether) {
  Recipe both = recipe(reference_model("llama"));
  both.export_dtype = "float16";
  EXPECT_THAT(refused(both), AllOf(HasSubstr("export_gguf"), HasSubstr("export_dtype")));
  EXPECT_THAT(refused(recipe(reference_model("bert"))), HasSubstr("classifier"));
}

TEST_F(GgufExportError, WeightsThatAreNotFiniteOrTooLarge) {
  const fs::path model = copy_of("qwen3");
  const auto spoil = [&](float value) {
    std::string bytes = read_file(model / "model.safetensors");
    const int64_t at =
        SafetensorsFile::open(model / "model.safetensors").find("model.layers.0.mlp.up_proj.weight")->offset;
    std::memcpy(bytes.data() + at, &value, sizeof value);
    write_file(model / "model.safetensors", bytes);
  };
  spoil(std::numeric_limits<float>::infinity());
  EXPECT_THAT(refused(recipe(model)), HasSubstr("inf"));
  spoil(1e30f);
  EXPECT_THAT(refused(recipe(model, "f16")), AllOf(HasSubstr("1e+30"), HasSubstr("bf16")));
  EXPECT_THAT(refused(recipe(model, "q8_0")), AllOf(HasSubstr("Q8_0"), HasSubstr("another type")));
}

TEST_F(GgufExportError, AFullDisk) {
  // A limit on the size of files simulates a full disk.
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const Recipe from = recipe(reference_model("llama"), "f32");
  rlimit small = before;
  small.rlim_cur = 100'000;
  setrlimit(RLIMIT_FSIZE, &small);
  const std::string message = refused(from);
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_THAT(message, AllOf(HasSubstr("out-F32.gguf"), HasSubstr("write")));
}

TEST_F(GgufExportError, AFolderWithFiles) {
  fs::create_directories(folder_ / "taken");
  write_file(folder_ / "taken/a", "x");
  Recipe from = recipe(reference_model("llama"));
  from.export_dir = (folder_ / "taken").string();
  EXPECT_THAT(refused(from), HasSubstr("taken"));
  EXPECT_EQ(read_file(folder_ / "taken/a"), "x");
}

}  // namespace
}  // namespace fettle
