// Defines what a page shows of the files of a run: in `fettle board` and in report.html.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "report/view/decimate.h"
#include "report/view/folder_files.h"
#include "report/view/run_log.h"

namespace fettle {

// Returns the path of `file` in the folder of the run `name`, relative to the root of FolderFiles. The run "" is the
// root itself.
std::string run_path(const std::string& name, std::string_view file);

// Returns a row of the list of runs: {name, state, step, total_steps, loss, eval_loss, ...}. `log` may have only the
// log's end. `alive` says whether the process of the run still works.
nlohmann::ordered_json run_summary(const FolderFiles& files, const std::string& name, const RunLog& log, bool alive);

// Returns {name, run: what fettle_run.json has, results: all_results.json, answers: [files of predictions],
// checkpoints: [folders]}. A file that is missing or broken is null.
nlohmann::ordered_json run_details(const FolderFiles& files, const std::string& name);

// Returns the names of the figures that are drawn, and {name: {x, steps, mean, low, high, counts, values}} of those
// that are asked for; all of them when `keys` is empty.
nlohmann::ordered_json curve_names(const RunLog& log);
nlohmann::ordered_json curves_json(const RunLog& log, const std::vector<std::string>& keys, LogAxis axis,
                                   int64_t points, CurveRange range = {});

// JSON text that may stand in a script element or in an answer: invalid UTF-8 is replaced, and `<` is written as
// \u003c.
std::string page_json(const nlohmann::ordered_json& value);

}  // namespace fettle
