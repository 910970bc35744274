// Defines settle_labels, which finds the labels of a classification run in the recipe, the model, or the rows.
#pragma once

#include "data/classes/label_set.h"
#include "data/classes/taught_labels.h"
#include "data/data_spec.h"

namespace fettle {

// Returns the labels of the run. The recipe (`asked`) takes precedence, then the labels of the model or adapter, then
// the label column of all rows of data.sets. Labels from the rows follow these rules:
// - names are sorted;
// - whole numbers are label numbers if the smallest one is 0; otherwise they are names in numerical order;
// - -1 beside 0 to n means "no label" if num_labels is not n + 2; without num_labels, it is an error if n is 2 or more;
// - a list means several labels per row;
// - numbers with a point, such as 2.0, mean a regression (in lists, 0.0 and 1.0 do not);
// - labels without names are LABEL_0, LABEL_1, ...
// Reads data.sets if the recipe and the model give no names or no problem type. If a row may have several labels and
// the classifier has only one or two labels, also reads data.sets and data.eval_sets to decide what lists mean
// (LabelSet::lists_are_yes_or_no). Throws UserError when the rows have labels of several kinds, when `asked`
// contradicts itself, the model or the rows, and when none of the three sources names the labels.
LabelSet settle_labels(const LabelRequest& asked, const TaughtLabels& taught, const DataSpec& data);

}  // namespace fettle
