#include "command_help.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/error.h"
#include "config/key_help.h"
#include "stages/stages.h"

namespace fettle {
namespace {

struct Help {
  std::string_view command;
  std::array<std::string_view, 3> examples;
  std::vector<std::string_view> keys;  // recipe keys; empty when the command reads no recipe
  std::string_view more = "";          // shown after the examples
};

constexpr std::string_view kSeveralHosts =
    "Several hosts: a launcher starts the same command on each (docs/hosts.md). Ready files in examples/launchers:\n"
    "  launch.sh         ssh: fettle launch --hosts gpu01,gpu02 tune.yaml\n"
    "  train.sbatch      SLURM: srun --mpi=pmix --kill-on-bad-exit=1 fettle train tune.yaml\n"
    "  mpirun.sh         Open MPI: mpirun -H gpu01,gpu02 -N 1 fettle train tune.yaml\n"
    "  torchrun.sh       torchrun --no-python --nnodes 2 --node-rank N ... fettle train tune.yaml\n"
    "  pytorchjob.yaml   Kubernetes: PyTorchJob\n"
    "  trainjob.yaml     Kubernetes: Kubeflow Trainer\n"
    "  mpijob.yaml       Kubernetes: MPIJob\n"
    "  jobset.yaml       Kubernetes: JobSet\n"
    "  tune.sky.yaml     SkyPilot\n"
    "  tune.dstack.yaml  dstack";

const std::vector<Help>& all_help() {
  static const std::vector<Help> rows = {
      {"train",
       {"fettle train tune.yaml", "fettle train tune.yaml learning_rate=5e-5 output_dir=out-2",
        "fettle train tune.yaml resume_from_checkpoint=true"},
       {"model_name_or_path", "dataset", "output_dir", "stage", "finetuning_type", "per_device_train_batch_size",
        "gradient_accumulation_steps", "cutoff_len", "learning_rate", "num_train_epochs", "bf16",
        "resume_from_checkpoint"},
       kSeveralHosts},
      {"launch",
       {"fettle launch --hosts gpu01,gpu02 tune.yaml", "fettle launch --hosts gpu01,gpu02 --per-host 8 tune.yaml",
        "fettle launch --hosts gpu01,gpu02 tune.yaml resume_from_checkpoint=true"},
       {"model_name_or_path", "dataset", "output_dir", "mesh", "per_device_train_batch_size",
        "resume_from_checkpoint"}},
      {"plan",
       {"fettle plan tune.yaml", "fettle plan tune.yaml --target rtx4090 --fit batch",
        "fettle plan tune.yaml --target mi300x:8 mesh=auto"},
       {"model_name_or_path", "per_device_train_batch_size", "cutoff_len", "bf16", "gradient_checkpointing",
        "quantization_bit", "mesh", "target"}},
      {"eval",
       {"fettle eval tune.yaml adapter_name_or_path=out eval_dataset=held_out.jsonl",
        "fettle eval tune.yaml adapter_name_or_path=out eval_dataset=a.jsonl,mmlu.csv eval_task=choice,letters",
        "fettle eval model_name_or_path=merged eval_base_model=models/base eval_dataset=held_out.jsonl"},
       {"model_name_or_path", "adapter_name_or_path", "eval_dataset", "eval_task", "eval_base_model", "max_samples",
        "output_dir"}},
      {"generate",
       {"fettle generate tune.yaml adapter_name_or_path=out prompt=\"What is a mesh?\"",
        "fettle generate tune.yaml adapter_name_or_path=out < questions.txt",
        "fettle generate model_name_or_path=merged do_sample=false prompt=\"What is a mesh?\""},
       {"model_name_or_path", "adapter_name_or_path", "prompt", "max_new_tokens", "do_sample", "temperature", "top_p",
        "default_system", "template"}},
      {"chat",
       {"fettle chat tune.yaml adapter_name_or_path=out", "fettle chat model_name_or_path=merged temperature=0.7",
        "fettle chat tune.yaml default_system=\"Answer in one sentence.\""},
       {"model_name_or_path", "adapter_name_or_path", "max_new_tokens", "do_sample", "temperature", "top_p",
        "default_system", "template"}},
      {"serve",
       {"fettle serve tune.yaml adapter_name_or_path=out",
        "fettle serve tune.yaml --lora-modules sql=out/sql mail=out/mail",
        "fettle serve tune.yaml adapter_name_or_path=out --host 0.0.0.0 --api-key SECRET"},
       {"model_name_or_path", "adapter_name_or_path", "max_new_tokens", "do_sample", "temperature", "top_p",
        "default_system", "template"}},
      {"board",
       {"fettle board runs", "fettle board runs --port 9000 --read-only", "fettle board /data/runs --host 0.0.0.0"},
       {}},
      {"export",
       {"fettle export tune.yaml adapter_name_or_path=out export_dir=merged",
        "fettle export model_name_or_path=models/old export_dir=models/new export_dtype=float16",
        "fettle export tune.yaml adapter_name_or_path=out export_dir=helper export_gguf=q8_0,q4_k_m"},
       {"model_name_or_path", "adapter_name_or_path", "export_dir", "export_dtype", "export_size", "export_gguf",
        "export_quantization", "quantization_bit", "template"}},
      {"convert",
       {"fettle convert axolotl.yaml > tune.yaml", "fettle convert llamafactory_v1.yaml output_dir=out > tune.yaml",
        "fettle convert --help-keys"},
       {"model_name_or_path", "dataset", "template", "finetuning_type"}},
      {"data",
       {"fettle data tune.yaml", "fettle data tune.yaml --rows 10",
        "fettle data model_name_or_path=models/base dataset=rows.jsonl --json"},
       {"model_name_or_path", "dataset", "template", "cutoff_len", "overlength", "on_bad_row", "packing", "val_size"}},
      {"download",
       {"fettle download Qwen/Qwen3-0.6B", "fettle download tune.yaml",
        "fettle download tatsu-lab/alpaca --dataset --split train"},
       {}},
      {"upload",
       {"fettle upload out my-name/my-adapter", "fettle upload merged my-name/my-model --public",
        "fettle upload out my-team/adapter@second-try --message 'more rows'"},
       {}},
      {"devices",
       {"fettle devices", "fettle devices plugin=cuda", "fettle devices device_count=8"},
       {"plugin", "device_count"}},
      {"doctor",
       {"fettle doctor", "fettle doctor plugin=cuda output_dir=out --json", "fettle doctor plugin=rocm device_count=8"},
       {"plugin", "device_count", "gpu_memory_utilization", "output_dir"}},
      {"tokenize",
       {"fettle tokenize models/base text.txt", "fettle tokenize models/base texts.jsonl --jsonl --no-special",
        "fettle tokenize models/base ids.jsonl --decode"},
       {}},
      {"render",
       {"fettle render models/base talk.json", "fettle render models/base talks.jsonl --jsonl",
        "fettle render chat_template.jinja talk.json"},
       {}},
  };
  return rows;
}

const Help& help_of(std::string_view command) {
  const auto help = std::ranges::find(all_help(), command, &Help::command);
  internal_check(help != all_help().end(), "command_help: unknown command '{}'", command);
  return *help;
}

}  // namespace

const std::vector<std::string_view>& important_keys(std::string_view command) {
  return help_of(command).keys;
}

std::string_view first_example(std::string_view command) {
  return help_of(command).examples[0];
}

std::string command_help(std::string_view command) {
  const Help& help = help_of(command);
  std::string text = "Examples:";
  for (const std::string_view example : help.examples) text += fmt::format("\n  {}", example);
  if (!help.more.empty()) text += fmt::format("\n\n{}", help.more);
  if (help.keys.empty()) return text;
  text += fmt::format("\n\nRecipe keys that matter most here:\n{}", key_help(help.keys, stage_key_text()));
  return text + fmt::format("\nfettle {} --help-keys lists all keys, as docs/recipe.md does.", command);
}

}  // namespace fettle
