#include "stages/stages.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "config/nearest.h"

namespace fettle {

const std::vector<const Stage*>& stages() {
  static const std::vector<const Stage*> all{&pt_stage(),  &sft_stage(), &cls_stage(),
                                             &dpo_stage(), &kto_stage(), &rm_stage()};
  return all;
}

namespace {

bool has_key(const Stage& stage, std::string_view key) {
  return std::ranges::find(stage.keys, key) != stage.keys.end();
}

// Returns the stages that the key belongs to: "stage: dpo or kto".
std::string owners(std::string_view key) {
  std::vector<std::string_view> names;
  for (const Stage* stage : stages())
    if (has_key(*stage, key)) names.push_back(stage->name);
  return fmt::format("stage: {}", fmt::join(names, " or "));
}

}  // namespace

const Stage& stage_named(std::string_view name, const std::string& where) {
  std::vector<std::string_view> names;
  for (const Stage* stage : stages()) {
    if (stage->name == name) return *stage;
    names.push_back(stage->name);
  }
  const auto near = nearest(name, names);
  if (name == "ppo" || name == "grpo")
    throw UserError("{}: stage: {} is not available in this version; use one of {}", where, name,
                    fmt::join(names, ", "));
  throw UserError("{}: stage: found '{}', wanted one of {}{}", where, name, fmt::join(names, ", "),
                  near ? fmt::format("; did you mean '{}'?", *near) : "");
}

KeyTexts stage_key_text() {
  KeyText text{.help = "What the model learns: ", .values = {}};
  for (const Stage* stage : stages()) {
    if (!text.values.empty()) text.help += stage == stages().back() ? ", or " : ", ";
    text.help += fmt::format("{} ({})", stage->learned, stage->name);
    text.values.push_back(stage->name);
  }
  text.help += '.';
  return {{"stage", text}};
}

void check_stage_keys(const Stage& stage, const KeyValues& keys) {
  for (const Stage* other : stages())
    for (const std::string_view key : other->keys)
      if (!has_key(stage, key) && keys.changed(key))
        throw UserError("{}: {} belongs to {}, found stage: {}; remove the key, or change the stage", keys.where(key),
                        key, owners(key), stage.name);
  for (const RefusedKey& refused : stage.refused)
    if (keys.changed(refused.key))
      throw UserError("{}: {} cannot be used with stage: {}: {}", keys.where(refused.key), refused.key, stage.name,
                      refused.reason);
  if (stage.check) stage.check(keys);
}

}  // namespace fettle
