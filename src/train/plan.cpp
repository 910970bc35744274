#include "train/plan.h"

#include <chrono>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "checkpoint/repository.h"
#include "train/step_programs.h"

namespace fettle {

int run_plan(const Recipe& recipe, const PlanOptions& options, std::ostream& out) {
  require_keys(recipe, {"model_name_or_path"}, "plan");
  const ModelRepository repository =
      ModelRepository::open(recipe.model_name_or_path, ModelRepository::Weights::kIgnored);
  Devices devices(recipe);
  const Job job =
      make_job(recipe, repository.config(), (repository.folder() / "config.json").string(), devices.count());
  StepPrograms programs(devices, job);
  const int64_t length = (recipe.cutoff_len + 7) / 8 * 8;
  const auto start = std::chrono::steady_clock::now();
  const MemoryTable memory = programs.memory(length);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const int64_t flops = programs.at(length).flops;
  if (options.json) {
    out << nlohmann::json{{"per_device", to_json(memory)},
                          {"fits", memory.fits()},
                          {"step", {{"flops", flops}}},
                          {"compile_seconds", seconds}}
               .dump(2)
        << "\n";
  } else {
    const int64_t tokens = job.rows_per_micro_batch() * recipe.gradient_accumulation_steps * length;
    out << fmt::format(
        "{} parameters, {} trained; a step: {} rows of {} tokens\n{}\n{:.3g} FLOPs a step ({:.3g} a token), "
        "matrix products only, recomputation included; compiled in {:.1f} s\n",
        job.count(job.frozen) + job.count(job.trained), job.count(job.trained), tokens / length, length,
        format_memory_table(memory), static_cast<double>(flops),
        static_cast<double>(flops) / static_cast<double>(tokens), seconds);
  }
  require_fit(job, memory);
  return 0;
}

}  // namespace fettle
