// Defines the command `eval` of a reward model: how often, and by how much, it scores the chosen reply above the
// rejected one.
#pragma once

#include <ostream>

#include "run/request.h"

namespace fettle {

// Of pairs as stage rm trains them, in the sets of read_row_sets: loss, accuracy (percent), margin and mean_reward.
// Prints the table, or JSON; with output_dir it also goes to evaluation.json there. Throws UserError when neither the
// model nor an adapter was taught to score.
int run_reward_eval(const Request& request, bool json, std::ostream& out);

}  // namespace fettle
