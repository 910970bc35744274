#include "run/resolve/dtypes.h"

#include "base/error.h"
#include "config/recipe.h"
#include "runtime/vendors/vendor.h"

namespace fettle {

void set_dtypes(Run& run, const Recipe& recipe, Purpose purpose, const Variant& variant) {
  const bool low = recipe.bf16 || recipe.pure_bf16 || recipe.fp16;
  run.precision.by_default =
      !recipe.places.has("bf16") && !recipe.places.has("fp16") && !recipe.places.has("pure_bf16");
  run.precision.compute = recipe.fp16 ? DType::kF16 : low ? DType::kBF16 : DType::kF32;
  run.precision.frozen = low ? run.precision.compute : run.model.config.dtype;
  run.precision.trained = recipe.pure_bf16 ? DType::kBF16 : DType::kF32;
  if ((run.adapter.lora || purpose != Purpose::kTraining) && recipe.lora_dtype != "float32")
    run.precision.trained = dtype_from_hf(recipe.lora_dtype);
  if ((variant.frozen_in_f32 || (variant.merges_in_f32 && !run.adapter.merged.empty())) && run.quantised.empty())
    run.precision.frozen = DType::kF32;
}

void set_float8(Run& run, const Recipe& recipe) {
  if (!recipe.fp8) return;
  const std::string where = recipe.where("fp8");
  if (run.precision.compute != DType::kBF16)
    throw UserError("{}: fp8 needs compute in bfloat16, found {}; set bf16: true, or remove fp8", where,
                    hf_name(run.precision.compute));
  if (!run.quantised.empty())
    throw UserError(
        "{}: fp8 would round weights that are stored as {} a second time; remove fp8, or use the original weights",
        where, run.quantised[0].format.name());
  run.precision.float8 = float8_of(run.target.capability);
  if (!run.precision.float8 && run.target.capability.empty())
    throw UserError(
        "{}: fp8: the plugin does not report the capability of {}, so Fettle does not know whether it multiplies "
        "8-bit floats; remove the key",
        where, run.target.title);
  if (!run.precision.float8)
    throw UserError("{}: fp8: {} ({}) does not multiply 8-bit floats; remove the key", where, run.target.title,
                    run.target.capability);
}

}  // namespace fettle
