// Tests adapters that cannot be served: the error comes at the start, and names the adapter and the remedy.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "correct/generate_models.h"
#include "serve/served_models.h"
#include "temp_folder.h"

namespace fettle {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const std::string kModel = (kReferenceModels / "llama").string();

// Returns the message with which a server of these adapters refuses to start.
std::string refusal(const std::vector<std::string>& own, const std::vector<std::string>& modules) {
  return user_error([&] {
    Recipe recipe = reference_recipe("llama");
    recipe.adapter_name_or_path = own;
    const ServedModels models = served_models(Request(recipe, Command::kServe), modules, "");
    const Session session(models.request, Session::Template::kIfThere, Session::SystemMessage::kDefault,
                          models.adapters);
  });
}

TEST(ServeAdapters, AdaptersThatCannotBeServedTogetherAreNamed) {
  EXPECT_THAT(refusal({}, {"a=" + kModel + "/variants/qv", "b=" + kModel + "/variants/dora"}),
              AllOf(HasSubstr("variants/dora"), HasSubstr("use_dora"), HasSubstr("serve it alone")));
  EXPECT_THAT(refusal({}, {"a=" + kModel + "/variants/saved"}),
              AllOf(HasSubstr("variants/saved"), HasSubstr("modules_to_save"), HasSubstr("export a merged model")));
  EXPECT_THAT(refusal({kModel + "/variants/qv", kModel + "/adapter_final"}, {"a=" + kModel + "/variants/qv"}),
              AllOf(HasSubstr("names 2 adapters, which are merged"), HasSubstr("--lora-modules")));
}

TEST(ServeAdapters, NamesAndPathsAreChecked) {
  EXPECT_THAT(refusal({}, {kModel + "/variants/qv"}), HasSubstr("is not NAME=PATH"));
  EXPECT_THAT(refusal({}, {"=x"}), HasSubstr("is not NAME=PATH"));
  EXPECT_THAT(refusal({}, {"a="}), HasSubstr("is not NAME=PATH"));
  EXPECT_THAT(refusal({}, {R"({"name": "a", "path": "x=y"})"}), HasSubstr("is not NAME=PATH"));
  EXPECT_THAT(refusal({}, {"a=" + kModel + "/variants/qv", "a=" + kModel + "/adapter_final"}),
              HasSubstr("two models would have the name 'a'"));
  EXPECT_THAT(refusal({}, {"llama=" + kModel + "/variants/qv"}), HasSubstr("two models would have the name 'llama'"));
  EXPECT_THAT(refusal({}, {"a=/no/such/folder"}), HasSubstr("/no/such/folder"));
}

TEST(ServeAdapters, AnAdapterOfAnotherModelIsRefused) {
  EXPECT_THAT(refusal({}, {"a=" + (kReferenceModels / "gpt2/adapter_final").string()}),
              HasSubstr("another model's adapter"));
}

}  // namespace
}  // namespace fettle
