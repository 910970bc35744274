// Tests adapters that are served over one base at the same time: each reply is the same as when only its adapter is
// served.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "checkpoint/peft/adapter_options.h"
#include "correct/generate_models.h"
#include "made_adapter.h"
#include "serve/scheduler.h"
#include "serve/served_models.h"
#include "temp_folder.h"

namespace fettle {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;

const std::filesystem::path kModel = kReferenceModels / "llama";

struct Got {
  std::string text;
  std::vector<double> logprobs;  // log-probabilities of the written tokens
};

Got read_all(PendingReply& reply) {
  Got got;
  for (bool ended = false; !ended;) {
    const PendingReply::News news = reply.wait(milliseconds(60000));
    got.text += news.text;
    for (const TokenChance& chance : news.chances) got.logprobs.push_back(chance.logprob);
    EXPECT_EQ(news.error, "");
    ended = news.ended;
  }
  return got;
}

std::string greedy_text(int number, const char* model) {
  return reference_of("llama")["greedy"][number][model]["text"];
}

ReplyJob job_of(const Session& session, int number, int64_t adapter) {
  ReplyJob job{.prompt = reference_of("llama")["greedy"][number]["prompt"], .options = session.options(0)};
  job.options.max_new_tokens = 24;
  job.top_logprobs = 0;
  job.adapter = adapter;
  return job;
}

Session open(const std::vector<std::string>& adapters, Session::Adapters how) {
  Recipe recipe = reference_recipe("llama");
  recipe.adapter_name_or_path = adapters;
  return Session(Request(recipe, Command::kServe), Session::Template::kIfThere, Session::SystemMessage::kDefault, how);
}

// Copies PEFT's adapter in `from` with other values, because its own B is zero.
std::string with_values(const std::filesystem::path& from, const std::filesystem::path& to) {
  const AdapterFolder adapter = open_adapter(from);
  std::filesystem::create_directories(to);
  NamedShapes shapes;
  for (const AdapterTensor& tensor : adapter.tensors)
    shapes.emplace_back(tensor.entry->name, Shape{DType::kF32, tensor.entry->shape.dims});
  SafetensorsWriter writer = begin_adapter(to, adapter.config, shapes);
  uint32_t seed = 5;
  for (const auto& [name, shape] : shapes) {
    const HostArray values = to_array(random_value(shape, ++seed * 7919, -0.2, 0.2));
    writer.write(name, {values.data(), static_cast<size_t>(values.bytes())});
  }
  writer.finish();
  return to.string();
}

// Makes adapters with different ranks, alphas, modules and layers.
std::vector<std::string> different_adapters(const TempFolder& folder) {
  const Model model = make_model(ModelRepository::open(kModel).config(), "config.json");
  make_adapter(folder / "small", model, {.rank = 2, .alpha = 6, .modules = {"mlp.down_proj", "self_attn.k_proj"}}, 3);
  make_adapter(folder / "wide", model, {.rank = 5, .alpha = 3, .rslora = true, .modules = {"mlp.gate_proj"}}, 4);
  return {(kModel / "adapter_final").string(), with_values(kModel / "variants/layers", folder / "layers"),
          (folder / "small").string(), (folder / "wide").string()};
}

double largest(const std::vector<double>& a, const std::vector<double>& b) {
  double out = a.size() == b.size() ? 0 : 1e9;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) out = std::max(out, std::abs(a[i] - b[i]));
  return out;
}

TEST(ServeAdapters, RowsOfDifferentAdaptersEqualEachAdapterAlone) {
  const TempFolder folder;
  const std::vector<std::string> adapters = different_adapters(folder);
  Session session = open(adapters, Session::Adapters::kSideBySide);
  std::vector<Got> got;
  {
    Scheduler scheduler(session, {.rows = 6});
    std::vector<std::shared_ptr<PendingReply>> replies;
    for (int64_t adapter = kNoAdapter; adapter < std::ssize(adapters); ++adapter)
      replies.push_back(scheduler.submit(job_of(session, 0, adapter)));
    for (const auto& reply : replies) got.push_back(read_all(*reply));
  }
  EXPECT_EQ(got[0].text, greedy_text(0, "base"));
  EXPECT_EQ(got[1].text, greedy_text(0, "tuned"));
  for (size_t i = 1; i < adapters.size(); ++i) {
    Session alone = open({adapters[i]}, Session::Adapters::kTogether);
    Scheduler scheduler(alone, {.rows = 1});
    const Got own = read_all(*scheduler.submit(job_of(alone, 0, kNoAdapter)));
    EXPECT_EQ(got[i + 1].text, own.text) << adapters[i];
    EXPECT_LT(largest(got[i + 1].logprobs, own.logprobs), 1e-4) << adapters[i];
    EXPECT_GT(largest(got[i + 1].logprobs, got[0].logprobs), 1e-3) << adapters[i] << " changes nothing";
  }
}

TEST(ServeAdapters, APromptIsReusedOnlyByItsOwnAdapter) {
  Session session = open({(kModel / "adapter_final").string()}, Session::Adapters::kSideBySide);
  for (const int64_t rows : {1, 3}) {
    Scheduler scheduler(session, {.rows = rows});
    for (const int64_t adapter : {kNoAdapter, int64_t{0}, int64_t{0}, kNoAdapter})
      EXPECT_EQ(read_all(*scheduler.submit(job_of(session, 1, adapter))).text,
                greedy_text(1, adapter == kNoAdapter ? "base" : "tuned"))
          << rows;
  }
}

TEST(ServeAdapters, WeightsOfTheBaseAreInMemoryOnce) {
  const std::string one = (kModel / "adapter_final").string(), two = (kModel / "variants/qv").string();
  Session both = open({one, two}, Session::Adapters::kSideBySide), base = open({}, Session::Adapters::kSideBySide);
  both.load();
  base.load();
  size_t more = 0;
  for (const auto& [name, buffer] : both.model().state.buffers)
    more += base.model().state.buffers.contains(name) ? 0 : 1;
  EXPECT_EQ(both.model().state.buffers.size() - more, base.model().state.buffers.size());
  EXPECT_EQ(more, both.model().run.trained.size());
  EXPECT_EQ(both.model().run.adapter.lora->rank, 8);
}

ServedModels served(const std::vector<std::string>& own, const std::vector<std::string>& modules,
                    const std::string& name = "") {
  Recipe recipe = reference_recipe("llama");
  recipe.adapter_name_or_path = own;
  return served_models(Request(recipe, Command::kServe), modules, name);
}

std::vector<std::string> names(const ServedModels& models) {
  std::vector<std::string> out;
  for (const ServedModel& model : models.models) out.push_back(model.name);
  return out;
}

TEST(ServedModelsTest, AreTheBaseAndItsAdapters) {
  const std::string one = (kModel / "adapter_final").string(), two = (kModel / "variants/qv").string();
  EXPECT_THAT(names(served({}, {})), ElementsAre("llama"));
  EXPECT_THAT(names(served({one}, {})), ElementsAre("adapter_final", "llama"));
  EXPECT_THAT(names(served({one}, {}, "mine")), ElementsAre("mine", "llama"));
  EXPECT_THAT(names(served({}, {"a=" + one, "b=" + two})), ElementsAre("llama", "a", "b"));
  const ServedModels all = served({one}, {"b=" + two});
  EXPECT_THAT(names(all), ElementsAre("adapter_final", "llama", "b"));
  EXPECT_EQ(all.base(), "llama");
  EXPECT_EQ(all.find("")->adapter, 0);
  EXPECT_EQ(all.find("llama")->adapter, kNoAdapter);
  EXPECT_EQ(all.find("b")->adapter, 1);
  EXPECT_EQ(all.find("c"), nullptr);
}

// Programs that read the tokenizer by the name of the model send this name.
TEST(ServedModelsTest, AreAlsoFoundByTheNamesThatTheRecipeGives) {
  const std::string adapter = (kModel / "adapter_final").string();
  const ServedModels models = served({adapter}, {}, "mine");
  ASSERT_NE(models.find(kModel.string()), nullptr);
  EXPECT_EQ(models.find(kModel.string())->name, "llama");
  ASSERT_NE(models.find(adapter), nullptr);
  EXPECT_EQ(models.find(adapter)->name, "mine");
}

TEST(ServedModelsTest, SeveralAdaptersOfTheRecipeAreStillMerged) {
  const ServedModels merged = served({(kModel / "adapter_final").string(), (kModel / "variants/qv").string()}, {});
  EXPECT_THAT(names(merged), ElementsAre("qv"));
  EXPECT_EQ(merged.adapters, Session::Adapters::kTogether);
  EXPECT_EQ(merged.base(), "");
}

TEST(ServedModelsTest, AnAdapterThatCannotBeBesideTheBaseIsServedAlone) {
  EXPECT_THAT(names(served({(kModel / "variants/dora").string()}, {})), ElementsAre("dora"));
}

}  // namespace
}  // namespace fettle
