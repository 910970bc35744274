// Defines settle_labels: the labels of a classification run, from the recipe, the model, or the rows.
#pragma once

#include "data/classes/label_set.h"
#include "data/classes/taught_labels.h"
#include "data/data_spec.h"

namespace fettle {

// Completes `asked`. The recipe comes first, then what the model or adapter was taught, then the label column of all
// rows of data.sets:
// - names are sorted; whole numbers from 0 on are label numbers; other whole numbers are names in numerical order;
// - lists are several labels a row; numbers with a fraction make a regression;
// - labels that nobody names are LABEL_0, LABEL_1, ...
// Reads data.sets only when something is still open after the model (never when there are none), and data.eval_sets
// only to tell how lists of one or two labels are read. Throws UserError for labels of several kinds, for requests that
// contradict each other, the model or the rows, and when nothing tells the labels.
LabelSet settle_labels(const LabelRequest& asked, const TaughtLabels& taught, const DataSpec& data);

}  // namespace fettle
