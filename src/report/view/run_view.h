// Defines the parts of a run's files that `fettle board` and report.html show.
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

// Returns a row of the list of runs: {name, state, step, total_steps, loss, eval_loss, ...}. `log` may have been
// read with RunLog::Keep::kLast. `alive` says whether a process still works on the run.
nlohmann::ordered_json run_summary(const FolderFiles& files, const std::string& name, const RunLog& log, bool alive);

// Returns {name, run: the content of fettle_run.json, results: the content of all_results.json, answers: [files of
// predictions], checkpoints: [folders]}. The content of a missing or broken file is null.
nlohmann::ordered_json run_details(const FolderFiles& files, const std::string& name);

// curve_names returns the names of the metrics that can be drawn. curves_json returns {name: {x, steps, mean, values,
// low, high, counts}} for the metrics in `keys`. Empty `keys` means all metrics. `low`, `high` and `counts` are left
// out if every point stands for one value (decimate.h).
nlohmann::ordered_json curve_names(const RunLog& log);
nlohmann::ordered_json curves_json(const RunLog& log, const std::vector<std::string>& keys, LogAxis axis,
                                   int64_t points, CurveRange range = {});

// Returns JSON text that is safe inside a script element and in an HTTP reply: invalid UTF-8 is replaced, and `<` is
// written as \u003c.
std::string page_json(const nlohmann::ordered_json& value);

}  // namespace fettle
