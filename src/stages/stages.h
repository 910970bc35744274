// Defines the table of stages.
#pragma once

#include <string_view>
#include <vector>

#include "config/key_text.h"
#include "stages/stage.h"

namespace fettle {

// Returns all stages in the order of the documentation.
const std::vector<const Stage*>& stages();
// Throws UserError, starting with `where`, if there is no such stage. It lists the stages and names the nearest.
const Stage& stage_named(std::string_view name, const std::string& where);

// Returns the help of the key `stage` for the reference of recipe keys.
KeyTexts stage_key_text();

// Throws UserError when the recipe sets a key that belongs to other stages, one that the stage refuses, or values of
// the stage's keys that contradict each other.
void check_stage_keys(const Stage& stage, const KeyValues& keys);

// The table rows. Each stage is defined in the file that has its name.
const Stage& pt_stage();
const Stage& sft_stage();
const Stage& cls_stage();
const Stage& dpo_stage();
const Stage& kto_stage();
const Stage& rm_stage();

}  // namespace fettle
