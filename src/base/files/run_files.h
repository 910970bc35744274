// Defines the names of the files in output_dir that tell what a run did. They are not part of its result.
#pragma once

namespace fettle {

inline constexpr const char* kProgressLog = "trainer_log.jsonl";  // a line for each progress line, as LLaMA-Factory's
inline constexpr const char* kRunFile = "fettle_run.json";        // what the run is, for people and for the board
inline constexpr const char* kReportFile = "report.html";
// Files of a run that `fettle board` started: what `fettle train` printed, and the recipe that the board gave it.
inline constexpr const char* kTrainOutput = "train.log";
inline constexpr const char* kTrainRecipe = "recipe.yaml";

}  // namespace fettle
