#include "config/keys.h"

namespace fettle {

std::vector<Key> hardware_keys() {
  return {
      {.name = "mesh",
       .group = Group::kHardware,
       .member = &Recipe::mesh,
       .help = "Number of devices along each axis, such as `{fsdp: 4, tp: 2}` or `fsdp=4,tp=2`. dp: data parallel; "
               "fsdp: fully sharded data parallel; tp: tensor parallel; sp: sequence parallel; ep: expert parallel; "
               "pp: pipeline parallel, see docs/devices.md. If empty, all devices are on fsdp. auto: compile the step "
               "for several meshes, and take the fastest mesh that fits into memory. mp is read as tp, and cp as sp.",
       .values = {"dp", "fsdp", "tp", "sp", "ep", "pp"},
       .spellings = {{"mp", "tp"}, {"cp", "sp"}},
       .min = 1,
       .may_be_auto = true},
      {.name = "sharding",
       .group = Group::kHardware,
       .member = &Recipe::sharding,
       .help = "Mesh axes for logical axes of the model; other logical axes keep their defaults. With `tp`, "
               "`{act_embed: tp}` splits the hidden state between layers, which saves memory for long rows. Other "
               "values are for experiments."},
      {.name = "offload_optimizer",
       .group = Group::kHardware,
       .member = &Recipe::offload_optimizer,
       .help = "Keep the optimizer state in host memory and stream it layer by layer. With bf16 or fp16, this includes "
               "the float32 weights of the layers, except in stages dpo and kto."},
      {.name = "offload_param",
       .group = Group::kHardware,
       .member = &Recipe::offload_param,
       .help = "Keep the layers' weights, and the gradients of the trained ones, in host memory and stream them layer "
               "by layer."},
      {.name = "offload_dir",
       .group = Group::kHardware,
       .member = &Recipe::offload_dir,
       .help = "Folder on a local disk. With full or freeze tuning, a file in this folder keeps the optimizer state. "
               "Each step reads and writes the file layer by layer. Replaces offload_optimizer."},
      {.name = "offload_dir_weights",
       .group = Group::kHardware,
       .member = &Recipe::offload_dir_weights,
       .help = "Keep the layers' float32 weights in the file of offload_dir, too. Memory then has only 16-bit copies "
               "of these weights. Steps in bf16 or fp16 compute with these copies."},
      {.name = "plugin",
       .group = Group::kHardware,
       .member = &Recipe::plugin,
       .help = "PJRT plugin: cpu, cuda, rocm, or a file. If empty: the GPU's plugin if a GPU and its plugin are found, "
               "else cpu."},
      {.name = "device_count",
       .group = Group::kHardware,
       .member = &Recipe::device_count,
       .help = "How many devices to use. The CPU plugin creates this many.",
       .min = 1},
      {.name = "gpu_memory_utilization",
       .group = Group::kHardware,
       .member = &Recipe::gpu_memory_utilization,
       .help = "Share of a GPU's memory that `train` takes and `plan` counts on. The program takes less if the driver, "
               "libraries and other programs leave less.",
       .aliases = {"memory_fraction"},
       .min = 0,
       .max = 1,
       .above_min = true},
      {.name = "target",
       .group = Group::kHardware,
       .member = &Recipe::target,
       .help = "Hardware that `plan` plans for: `mi300x:8`, `a100-80:2x8`, or a file that describes it "
               "(docs/targets.md). If empty, this machine."},
      {.name = "plan_only",
       .group = Group::kHardware,
       .member = &Recipe::plan_only,
       .help = "End `train` after it has printed the memory of a step."},
      {.name = "compile_cache",
       .group = Group::kHardware,
       .member = &Recipe::compile_cache,
       .help = "Folder for compiled programs. It holds at most 10 GB, or as many GB as the environment variable "
               "FETTLE_COMPILE_CACHE_GB says. If empty, the default folder; off: keep no programs.",
       .spellings = {{"false", "off"}, {"none", "off"}}},
      {.name = "kernels",
       .group = Group::kHardware,
       .member = &Recipe::kernels,
       .help =
           "Kernels that compute parts of the step faster. auto: the kernels that are on by default for these devices "
           "and give correct results on them; off: none; a list of names: these kernels (`cpu_attention`, "
           "`cpu_cached_attention`, `cpu_linear`, `cpu_lora`, `cpu_gated`, `cpu_rms_norm`, "
           "`cpu_cross_entropy`, `cpu_adamw`, `cpu_dequantise`, `cuda_attention`, `cudnn_attention`, "
           "`rocm_attention`).",
       .spellings = {{"true", "auto"}, {"false", "off"}, {"none", "off"}}},
  };
}

}  // namespace fettle
