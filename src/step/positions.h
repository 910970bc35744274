// Defines check_positions: whether the documents of a run are within the positions that the model knows.
#pragma once

#include "data/store/examples.h"
#include "step/job.h"

namespace fettle {

// Throws UserError when an example is longer than a table of learned positions (GPT-2, StarCoder), which has nothing
// for the rest; says so on stderr when it is longer than max_position_embeddings of a model whose positions are
// computed (rope, ALiBi), which runs but was not made for it.
void check_positions(const Job& job, const Examples& examples);

}  // namespace fettle
