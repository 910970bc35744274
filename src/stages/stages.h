// Defines the table of stages.
#pragma once

#include <string_view>
#include <vector>

#include "config/key_help.h"
#include "stages/stage.h"

namespace fettle {

// Returns all stages in the order of the documentation.
const std::vector<const Stage*>& stages();
// Returns the stage. If there is no such stage, throws UserError that starts with `where`, lists the stages and names
// the most similar one.
const Stage& stage_named(std::string_view name, const std::string& where);

// Returns the help of the key `stage` for the reference of recipe keys.
KeyTexts stage_key_text();

// Throws UserError when the recipe sets a key that belongs to other stages, when it sets a key that the stage refuses,
// or when values of the stage's keys contradict each other.
void check_stage_keys(const Stage& stage, const KeyValues& keys);

// The entries of the table. Each stage is defined in the file that has its name (pt.cpp, ...).
const Stage& pt_stage();
const Stage& sft_stage();
const Stage& cls_stage();
const Stage& dpo_stage();
const Stage& kto_stage();
const Stage& rm_stage();

}  // namespace fettle
