// Tests invalid meshes and rules: the message has the sizes or the valid names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sharding/rules.h"
#include "temp_folder.h"

namespace fettle {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(Mesh, ProductsAndAxesAreChecked) {
  EXPECT_THAT(user_error([] {
                make_mesh({{"fsdp", 4}, {"tp", 2}}, 4);
              }),
              AllOf(HasSubstr("fsdp 4 x tp 2 = 8 devices"), HasSubstr("4 are in use"), HasSubstr("device_count")));
  EXPECT_THAT(user_error([] {
                make_mesh({{"tp", 2}}, 8);
              }),
              HasSubstr("tp 2 = 2 devices, but 8 are in use; set device_count or set mesh: {tp: 2, fsdp: 4}"));
  EXPECT_THAT(user_error([] {
                make_mesh({{"tensor", 2}}, 2);
              }),
              AllOf(HasSubstr("the axis 'tensor' is not known"), HasSubstr("dp, fsdp, ep, tp, sp")));
}

TEST(Rules, UnevenSplitsNameTheWeightAndTheFormula) {
  const ShardingRules rules(MeshAxes{{{"fsdp", 2}, {"tp", 4}}});
  EXPECT_THAT(user_error([&] {
                rules.partition({"mlp", "embed"}, {66, 32}, "up_proj.weight");
              }),
              AllOf(HasSubstr("up_proj.weight"), HasSubstr("mlp (66) is not divisible by tp x fsdp (8)")));
  EXPECT_THAT(user_error([&] { rules.partition({"heads"}, {68}, "q_proj"); }),
              HasSubstr("heads (68) is not divisible by tp x fsdp (8); heads is the size of all heads together; "
                        "choose a mesh whose axes divide it (mesh: {dp: 8} always works, "));
}

TEST(Rules, OverridesNameKnownAxes) {
  const MeshAxes mesh{{{"fsdp", 2}}};
  EXPECT_THAT(user_error([&] {
                ShardingRules(mesh, {{"emb", "fsdp"}});
              }),
              AllOf(HasSubstr("unknown logical axis 'emb'"), HasSubstr("embed")));
  EXPECT_THAT(user_error([&] {
                ShardingRules(mesh, {{"embed", "fsdp+xp"}});
              }),
              AllOf(HasSubstr("sharding.embed"), HasSubstr("unknown mesh axis 'xp'")));
}

}  // namespace
}  // namespace fettle
