#include "step/state/batch_arrays.h"

#include "base/error.h"

namespace fettle {
namespace {

struct PartOfBatch {
  BatchPart part;
  const char* name;
  HostArray Batch::*from;
};
constexpr PartOfBatch kParts[] = {{BatchPart::kTokens, "tokens", &Batch::tokens},
                                  {BatchPart::kTargets, "targets", &Batch::targets},
                                  {BatchPart::kPositions, "positions", &Batch::positions},
                                  {BatchPart::kSegments, "segments", &Batch::segments},
                                  {BatchPart::kTokenTypes, "token_types", &Batch::token_types},
                                  {BatchPart::kClasses, "classes", &Batch::classes},
                                  {BatchPart::kPreferences, "preferences", &Batch::preferences}};

const PartOfBatch& find(BatchPart part) {
  for (const PartOfBatch& one : kParts)
    if (one.part == part) return one;
  throw InternalError("a stage reads a part of the batch that does not exist");
}

}  // namespace

std::vector<BatchArray> batch_arrays(const Run& run, const Dims& sequences, int64_t length) {
  LogicalAxes axes(sequences.size(), "");
  axes.back() = "batch";
  std::vector<BatchArray> out;
  for (const BatchPart part : run.stage->batch) {
    const PartOfBatch& found = find(part);
    BatchArray array{part, found.name, {DType::kI32, sequences}, axes, found.from};
    if (part == BatchPart::kClasses) {
      array.shape.dtype = DType::kF32;
      array.shape.dims.push_back(run.labels()->classes_per_row());
      array.axes.push_back("");
    } else if (part != BatchPart::kPreferences) {
      array.shape.dims.push_back(length);
      array.axes.push_back("length");
    }
    out.push_back(std::move(array));
  }
  return out;
}

}  // namespace fettle
