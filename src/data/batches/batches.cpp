#include "data/batches/batches.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/size_text.h"
#include "data/batches/packing.h"

namespace fettle {
namespace {

constexpr int64_t kSampledRows = 4096;  // rows whose lengths decide the shapes

std::vector<int64_t> default_lengths(int64_t max_length, int64_t multiple) {
  auto rounded_up = [multiple](int64_t length) { return (length + multiple - 1) / multiple * multiple; };
  std::vector<int64_t> lengths = {rounded_up(max_length)};
  while (lengths.back() / 2 >= 64 && rounded_up(lengths.back() / 2) < lengths.back())
    lengths.push_back(rounded_up(lengths.back() / 2));
  return lengths;
}

void check_examples(const Examples& examples, const BatchSpec& spec) {
  if (examples.empty()) throw UserError("the data set has no rows that can be trained; see `fettle data`");
  bool trained = false;
  for (int64_t i = 0; i < static_cast<int64_t>(examples.size()); ++i) {
    trained = trained || examples.trained_tokens(i) > 0;
    if (examples.length(i) > capacity_of(spec))
      throw UserError("{}: a row of {} tokens does not fit into the longest batch length {}; raise cutoff_len",
                      examples.source(i), examples.length(i), capacity_of(spec));
  }
  // For a classifier, all rows may lack a label, because such rows can still be classified.
  if (!trained && examples.classes_per_row() == 0)
    throw UserError("none of the {} rows has a trained token; see `fettle data`", examples.size());
}

void check_grouping(const Examples& examples, const BatchSpec& spec) {
  internal_check(spec.sequences % spec.shards == 0 && spec.sequences % sequences_per_group(spec.grouping) == 0 &&
                     examples.size() % (spec.grouping == RowGrouping::kPairs ? 2 : 1) == 0,
                 "Batches: {} sequences, {} examples; pairs need even numbers", spec.sequences, examples.size());
  if (spec.packing && spec.grouping != RowGrouping::kNone)
    throw UserError("packing: preference pairs and rated replies cannot be packed; leave `packing` out");
  if (spec.packing && examples.classes_per_row() > 0)
    throw UserError("packing: rows with a label cannot be packed; leave `packing` out");
  if (spec.grouping == RowGrouping::kWithMismatched && spec.groups_per_step() < 2)
    throw UserError(
        "{}: the loss pairs each prompt with the reply of another row of the step, so a step must have at least 2 "
        "rows; raise this key",
        spec.use == BatchUse::kTraining ? "per_device_train_batch_size" : "per_device_eval_batch_size");
}

// Returns `spec` with its lengths in order. Throws when the examples cannot be divided into batches.
BatchSpec checked(BatchSpec spec, const Examples& examples) {
  internal_check(spec.sequences > 0 && spec.micro_batches > 0 && spec.max_length > 0,
                 "Batches: found sequences {}, micro_batches {} and max_length {}, wanted numbers above 0",
                 spec.sequences, spec.micro_batches, spec.max_length);
  if (spec.lengths.empty()) spec.lengths = default_lengths(spec.max_length, spec.multiple);
  std::sort(spec.lengths.begin(), spec.lengths.end());
  check_examples(examples, spec);
  check_grouping(examples, spec);
  return spec;
}

int64_t length_of(const Sequence& sequence) {
  int64_t length = 0;
  for (const Document& document : sequence) length += document.length();
  return length;
}

// Returns the numbers of positions that the sequences take. Skipped documents take none.
std::vector<int64_t> lengths_of(const std::vector<Sequence>& sequences) {
  std::vector<int64_t> out;
  for (const Sequence& sequence : sequences) {
    int64_t length = 0;
    for (const Document& document : sequence) length += document.skipped ? 0 : document.length();
    out.push_back(length);
  }
  return out;
}

// Returns the number of tokens before the example's reply.
int64_t reply_at(const Examples& examples, int64_t example) {
  const std::span<const Token> tokens = examples.tokens(example);
  return std::find_if(tokens.begin(), tokens.end(), [](Token token) { return token.trained(); }) - tokens.begin();
}

// Returns the length of the longest prompt with the longest reply, cut as in Batches::mismatched. It may be longer than
// any row.
int64_t longest_mismatched(const Examples& examples, const BatchSpec& spec) {
  int64_t prompt = 0, reply = 0;
  for (int64_t i = 0; i < static_cast<int64_t>(examples.size()); ++i) {
    const int64_t begin = reply_at(examples, i);
    prompt = std::max(prompt, begin);
    reply = std::max(reply, examples.length(i) - begin);
  }
  return std::min(prompt + reply, capacity_of(spec));
}

}  // namespace

Batches::Batches(Examples examples, BatchSpec spec, int32_t pad_id)
    : spec_(checked(std::move(spec), examples)), groups_(std::move(examples), spec_), pad_id_(pad_id) {
  if (spec_.grouping == RowGrouping::kWithMismatched) number_rows();
  skip_rows();
  // Drops lengths that no row needs.
  const bool mismatches = spec_.grouping == RowGrouping::kWithMismatched;
  const int64_t longest = mismatches ? longest_mismatched(all(), spec_) : groups_.longest();
  while (!spec_.packing && spec_.lengths.size() > 1 && spec_.lengths[spec_.lengths.size() - 2] >= longest)
    spec_.lengths.pop_back();
  choose_shapes(longest);
}

void Batches::number_rows() {
  rows_ = all().row_numbers();
  if (groups() == 1 || (!rows_.empty() && std::ranges::max(rows_) == 0))
    throw UserError("{}: the loss pairs each prompt with the reply of another row, but {}", all().source(0),
                    spec_.use == BatchUse::kTraining
                        ? "this data set has only one row; add rows"
                        : "this is the only row to evaluate on; raise val_size, or add rows to eval_dataset");
}

void Batches::skip_rows() {
  if (spec_.skip_rows.empty()) return;
  std::set<std::string> wanted(spec_.skip_rows.begin(), spec_.skip_rows.end()), found;
  bool left = false;
  for (int64_t i = 0; i < examples(); ++i) {
    const std::string source = all().source(i);
    if (wanted.contains(source)) {
      skipped_.insert(i);
      found.insert(source);
    } else {
      left = left || all().trained_tokens(i) > 0 || !all().classes(i).empty();
    }
  }
  for (const std::string& name : wanted)
    if (!found.contains(name))
      throw UserError("skip_rows: '{}' is not a row to train; name a row by its file and line, for example {}", name,
                      all().source(0));
  if (!left) throw UserError("skip_rows names every row that can be trained; name fewer rows");
}

int64_t Batches::steps_per_epoch() const {
  return fettle::steps_per_epoch(groups_, spec_);
}

int64_t Batches::examples() const {
  return static_cast<int64_t>(all().size());
}

DataIdentity Batches::identity() const {
  return {groups(), all().digest()};
}

const BatchShape& Batches::fullest() const {
  // A pipeline keeps the values of all micro-batches until the backward pass. So the micro-batches of a step are
  // counted together.
  return *std::ranges::max_element(shapes_, {}, [this](const BatchShape& shape) {
    return (spec_.stages > 1 ? shape.micro_batches : 1) * positions_per_device(shape, spec_);
  });
}

// Chooses the shapes. With Lines::kOwn, there is one shape for each of spec_.lengths. Otherwise, the shapes depend on
// the lengths of the rows in sample steps, which are spread evenly over the first epoch. No sequence has more than
// `longest` tokens.
void Batches::choose_shapes(int64_t longest) {
  if (spec_.lines == Lines::kOwn) {
    for (const int64_t length : spec_.lengths) shapes_.push_back(padded_shape(spec_, length));
  } else {
    const int64_t wanted = std::clamp<int64_t>(kSampledRows / spec_.groups_per_step(), 1, 128);
    const int64_t count = std::min(wanted, steps_per_epoch());
    std::vector<std::vector<int64_t>> samples;
    StepGroups steps(groups_, spec_);
    for (int64_t i = 0; i < count; ++i)
      samples.push_back(lengths_of(sequences_of(steps.of(i * steps_per_epoch() / count))));
    shapes_ = fettle::choose_shapes(samples, spec_, longest, spec_.lengths.back());
  }
  for (BatchShape& one : shapes_) {
    one.weighted = all().weighted();
    one.branched = spec_.grouping == RowGrouping::kBranches;
    one.sequences = std::max(one.sequences, groups_.most_documents());
  }
}

// Returns the first group after groups[g] that is of another row and not skipped. Looks first among the groups of the
// step, then among all groups of the data set. Both searches wrap around from the last group to the first.
int64_t Batches::other_row(const std::vector<int64_t>& groups, size_t g) const {
  const auto unfit = [&](int64_t other) {
    return skips(other) ||
           (!rows_.empty() && rows_[static_cast<size_t>(other)] == rows_[static_cast<size_t>(groups[g])]);
  };
  for (size_t n = 1; n < groups.size(); ++n)
    if (const int64_t other = groups[(g + n) % groups.size()]; !unfit(other)) return other;
  int64_t other = (groups[g] + 1) % this->groups();
  while (unfit(other) && other != groups[g]) other = (other + 1) % this->groups();
  return other;
}

// Returns the prompt of `example` with the reply of `other`, cut to the largest length of a row.
Document Batches::mismatched(int64_t example, int64_t other) const {
  const std::span<const Token> prompt = all().tokens(example).first(static_cast<size_t>(reply_at(all(), example)));
  const std::span<const Token> reply = all().tokens(other).subspan(static_cast<size_t>(reply_at(all(), other)));
  const size_t room = static_cast<size_t>(capacity_of(spec_)) - prompt.size();
  return {.example = example,
          .tokens = prompt,
          .reply = reply.first(std::min(reply.size(), room)),
          .skipped = skips(example),
          .other_reply = true};
}

// Returns the sequences of a step with these groups.
std::vector<Sequence> Batches::sequences_of(const std::vector<int64_t>& groups) const {
  std::vector<Sequence> out;
  for (size_t g = 0; g < groups.size(); ++g) {
    Sequence documents;
    for (int64_t example : groups_.examples_of(groups[g]))
      documents.push_back({.example = example,
                           .tokens = all().tokens(example),
                           .weights = all().weights(example),
                           .skipped = skips(example)});
    if (spec_.grouping == RowGrouping::kPairs) {
      for (const Document& document : documents) out.push_back({document});
      continue;
    }
    out.push_back(std::move(documents));
    if (spec_.grouping == RowGrouping::kWithMismatched) out.push_back({mismatched(groups[g], other_row(groups, g))});
  }
  return out;
}

// Lays the sequences into the shape with the lowest cost; if several shapes have this cost, into the first of them.
// With Lines::kOwn, takes the smallest length into which every sequence fits.
LaidStep Batches::lay(const std::vector<Sequence>& sequences) const {
  if (spec_.lines == Lines::kOwn) {
    int64_t longest = 0;  // skipped rows count, too
    for (const Sequence& sequence : sequences) longest = std::max(longest, length_of(sequence));
    LaidStep out{padded_shape(spec_, *std::ranges::lower_bound(spec_.lengths, longest)), {.used = spec_.micro_batches}};
    out.shape.weighted = all().weighted();
    for (int64_t s = 0; s < std::ssize(sequences); ++s)
      out.layout.places.push_back({s / spec_.sequences, s % spec_.sequences, 0});
    return out;
  }
  const std::vector<int64_t> lengths = lengths_of(sequences);
  std::optional<LaidStep> best;
  for (const BatchShape& shape : shapes_) {
    std::optional<LineLayout> layout = lay_out(lengths, shape, spec_);
    if (!layout || (best && layout_cost(best->layout, best->shape, spec_) <= layout_cost(*layout, shape, spec_)))
      continue;
    best = LaidStep{shape, std::move(*layout)};
  }
  internal_check(best.has_value(), "Batches: no shape holds a step of {} sequences", sequences.size());
  return std::move(*best);
}

Batch Batches::at(int64_t step, const OwnLines& own) const {
  internal_check(step >= 0, "Batches::at: step {} is negative", step);
  const std::vector<Sequence> sequences = sequences_of(StepGroups(groups_, spec_).of(step));
  const LaidStep laid = lay(sequences);
  const std::vector<bool> lines =
      own ? own(laid.shape) : std::vector<bool>(static_cast<size_t>(laid.shape.lines), true);
  Batch batch = fill_batch(all(), sequences, laid, lines, pad_id_);
  all().check();
  return batch;
}

std::string format_batches(const Batches& batches, std::string_view per) {
  const BatchSpec& spec = batches.spec();
  std::vector<std::string> shapes;
  for (const BatchShape& shape : batches.shapes())
    shapes.push_back(spec.lines == Lines::kOwn ? fmt::format("{}", shape.length)
                                               : fmt::format("{} x {}", shape.lines, shape.length));
  const std::string text =
      fmt::format("{} steps{}, {} rows a step, ", with_commas(batches.steps_per_epoch()), per, spec.groups_per_step());
  if (spec.lines == Lines::kOwn)
    return text + fmt::format("{} {}", spec.packing ? "packed up to" : "padded to", fmt::join(shapes, " "));
  return text + fmt::format("{}laid into {} positions", spec.packing ? "packed and " : "", fmt::join(shapes, ", "));
}

double Batches::use() const {
  int64_t real = 0, positions = 0;
  StepGroups steps(groups_, spec_);
  for (int64_t step = 0; step < steps_per_epoch(); ++step) {
    const std::vector<Sequence> sequences = sequences_of(steps.of(step));
    const std::vector<int64_t> lengths = lengths_of(sequences);
    real = std::accumulate(lengths.begin(), lengths.end(), real);
    const LaidStep laid = lay(sequences);
    const int64_t lines = spec_.lines == Lines::kOwn ? std::ssize(sequences) : laid.layout.used * laid.shape.lines;
    positions += lines * laid.shape.length;
  }
  return static_cast<double>(real) / static_cast<double>(std::max<int64_t>(positions, 1));
}

}  // namespace fettle
