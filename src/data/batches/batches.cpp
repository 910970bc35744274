#include "data/batches/batches.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/files/cache.h"
#include "base/random.h"
#include "base/size_text.h"
#include "data/batches/order.h"
#include "data/batches/packing.h"

namespace fettle {
namespace {

// Numbers of random streams. The order of an epoch uses the epoch's number as its stream; the streams below have larger
// numbers than any epoch.
constexpr uint64_t kPackStream = uint64_t{1} << 60;
constexpr uint64_t kWindowStream = uint64_t{1} << 61;
constexpr int64_t kLargestWindow = 32;
constexpr int64_t kSampledRows = 4096;  // rows whose lengths decide the shapes

std::vector<int64_t> default_lengths(int64_t max_length, int64_t multiple) {
  auto rounded_up = [multiple](int64_t length) { return (length + multiple - 1) / multiple * multiple; };
  std::vector<int64_t> lengths = {rounded_up(max_length)};
  while (lengths.back() / 2 >= 64 && rounded_up(lengths.back() / 2) < lengths.back())
    lengths.push_back(rounded_up(lengths.back() / 2));
  return lengths;
}

}  // namespace

Batches::Batches(Examples examples, BatchSpec spec, int32_t pad_id)
    : examples_(std::move(examples)), spec_(std::move(spec)), pad_id_(pad_id) {
  internal_check(spec_.sequences > 0 && spec_.micro_batches > 0 && spec_.max_length > 0,
                 "Batches: found sequences {}, micro_batches {} and max_length {}, wanted numbers above 0",
                 spec_.sequences, spec_.micro_batches, spec_.max_length);
  if (examples_.empty()) throw UserError("the data set has no rows that can be trained; see `fettle data`");
  if (spec_.lengths.empty()) spec_.lengths = default_lengths(spec_.max_length, spec_.multiple);
  std::sort(spec_.lengths.begin(), spec_.lengths.end());
  int64_t longest = 0;
  bool trained = false;
  for (int64_t i = 0; i < this->examples(); ++i) {
    const int64_t length = examples_.length(i);
    trained = trained || examples_.trained_tokens(i) > 0;
    if (length > spec_.lengths.back())
      throw UserError("{}: a row of {} tokens does not fit into the longest batch length {}; raise cutoff_len",
                      examples_.source(i), length, spec_.lengths.back());
    longest = std::max(longest, length);
  }
  // For a classifier, all rows may lack a label, because such rows can still be classified.
  if (!trained && examples_.classes_per_row() == 0)
    throw UserError("none of the {} rows has a trained token; see `fettle data`", examples_.size());
  const bool grouped = spec_.grouping != RowGrouping::kNone;
  const bool mismatched = spec_.grouping == RowGrouping::kWithMismatched;
  internal_check(spec_.sequences % spec_.shards == 0 && spec_.sequences % sequences_per_group(spec_.grouping) == 0 &&
                     this->examples() % (spec_.grouping == RowGrouping::kPairs ? 2 : 1) == 0,
                 "Batches: {} sequences, {} examples; pairs need even numbers", spec_.sequences, this->examples());
  if (spec_.packing && grouped)
    throw UserError("packing: preference pairs and rated replies cannot be packed; leave `packing` out");
  if (spec_.packing && examples_.classes_per_row() > 0)
    throw UserError("packing: rows with a label cannot be packed; leave `packing` out");
  if (mismatched && spec_.groups_per_step() < 2)
    throw UserError(
        "{}: the loss pairs each prompt with the reply of another row of the step, so a step must have at least 2 "
        "rows; raise this key",
        spec_.use == BatchUse::kTraining ? "per_device_train_batch_size" : "per_device_eval_batch_size");
  if (mismatched) rows_ = examples_.row_numbers();
  if (mismatched && (groups() == 1 || (!rows_.empty() && std::ranges::max(rows_) == 0)))
    throw UserError("{}: the loss pairs each prompt with the reply of another row, but {}", examples_.source(0),
                    spec_.use == BatchUse::kTraining
                        ? "this data set has only one row; add rows"
                        : "this is the only row to evaluate on; raise val_size, or add rows to eval_dataset");
  if (spec_.packing) pack();
  if (spec_.grouping == RowGrouping::kBranches) group_branches();
  skip_rows();
  // Drops lengths that no row needs.
  if (spec_.grouping == RowGrouping::kBranches)
    for (int64_t group = 0; group < groups(); ++group) longest = std::max(longest, group_length(group));
  while (!spec_.packing && spec_.lengths.size() > 1 && spec_.lengths[spec_.lengths.size() - 2] >= longest)
    spec_.lengths.pop_back();
  choose_shapes();
  for (BatchShape& one : shapes_) {
    one.weighted = examples_.weighted();
    one.branched = spec_.grouping == RowGrouping::kBranches;
    one.sequences = std::max(one.sequences, most_documents_);
  }
}

// Packs the examples once, so every epoch has the same groups. With spec_.shuffle, the order of the groups differs
// between epochs.
void Batches::pack() {
  const int64_t count = examples();
  std::vector<int64_t> order(examples_.size()), lengths(examples_.size());
  for (int64_t i = 0; i < count; ++i) {
    order[i] = spec_.shuffle ? permuted_index(i, count, spec_.seed, kPackStream) : i;
    lengths[i] = examples_.length(order[i]);
  }
  std::vector<std::vector<int64_t>> groups = pack_lengths(lengths, spec_.lengths.back());
  for (auto& group : groups) {
    for (int64_t& index : group) index = order[index];
    std::sort(group.begin(), group.end());
  }
  std::sort(groups.begin(), groups.end());
  packed_starts_.push_back(0);
  for (const auto& group : groups) {
    packed_.insert(packed_.end(), group.begin(), group.end());
    packed_starts_.push_back(static_cast<int64_t>(packed_.size()));
  }
}

void Batches::group_branches() {
  internal_check(!spec_.shuffle && spec_.lines == Lines::kRegrouped && examples_.trained_tokens(0) == 0,
                 "Batches: branches need a prompt, shared lines and a fixed order");
  for (int64_t i = 0; i < examples(); ++i) {
    if (examples_.trained_tokens(i) == 0) packed_starts_.push_back(i);
    packed_.push_back(i);
  }
  packed_starts_.push_back(examples());
  const int64_t each = spec_.groups_per_step();
  for (int64_t group = 0; group < groups(); ++group) {
    if (group_length(group) > spec_.lengths.back())
      throw UserError("{}: a question and its answers have {} tokens, more than the longest batch length {}",
                      examples_.source(packed_starts_[group]), group_length(group), spec_.lengths.back());
    if (group % each == 0)
      most_documents_ =
          std::max(most_documents_, packed_starts_[std::min(groups(), group + each)] - packed_starts_[group]);
  }
}

void Batches::skip_rows() {
  if (spec_.skip_rows.empty()) return;
  std::set<std::string> wanted(spec_.skip_rows.begin(), spec_.skip_rows.end()), found;
  bool left = false;
  for (int64_t i = 0; i < examples(); ++i) {
    const std::string source = examples_.source(i);
    if (wanted.contains(source)) {
      skipped_.insert(i);
      found.insert(source);
    } else {
      left = left || examples_.trained_tokens(i) > 0 || !examples_.classes(i).empty();
    }
  }
  for (const std::string& name : wanted)
    if (!found.contains(name))
      throw UserError("skip_rows: '{}' is not a row to train; name a row by its file and line, for example {}", name,
                      examples_.source(0));
  if (!left) throw UserError("skip_rows names every row that can be trained; name fewer rows");
}

int64_t Batches::groups() const {
  if (packs()) return static_cast<int64_t>(packed_starts_.size()) - 1;
  return spec_.grouping == RowGrouping::kPairs ? examples() / 2 : examples();
}

int64_t Batches::steps_per_epoch() const {
  return (groups() + spec_.groups_per_step() - 1) / spec_.groups_per_step();
}

int64_t Batches::examples() const {
  return static_cast<int64_t>(examples_.size());
}

DataIdentity Batches::identity() const {
  return {groups(), examples_.digest()};
}

const BatchShape& Batches::fullest() const {
  // A pipeline keeps the values of all micro-batches until the backward pass. So the micro-batches of a step are
  // counted together.
  return *std::ranges::max_element(shapes_, {}, [this](const BatchShape& shape) {
    return (spec_.stages > 1 ? shape.micro_batches : 1) * positions_per_device(shape, spec_);
  });
}

// Chooses the shapes. With Lines::kOwn, there is one shape for each of spec_.lengths. Otherwise, the shapes depend on
// the lengths of the rows in sample steps, which are spread evenly over the first epoch.
void Batches::choose_shapes() {
  if (spec_.lines == Lines::kOwn) {
    for (const int64_t length : spec_.lengths) shapes_.push_back(padded_shape(spec_, length));
    return;
  }
  int64_t longest = 0;
  for (int64_t group = 0; group < groups(); ++group) longest = std::max(longest, group_length(group));
  // The prompt of one row with the reply of another row may be longer than any row.
  if (spec_.grouping == RowGrouping::kWithMismatched) longest = spec_.lengths.back();
  const int64_t wanted = std::clamp<int64_t>(kSampledRows / spec_.groups_per_step(), 1, 128);
  const int64_t count = std::min(wanted, steps_per_epoch());
  std::vector<std::vector<int64_t>> samples;
  std::optional<Window> window;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t step = i * steps_per_epoch() / count;
    if (!window || step >= window->first + window->steps) window = window_of(step);
    samples.push_back(lengths_of(laid_out(groups_of_step(step, window))));
  }
  shapes_ = fettle::choose_shapes(samples, spec_, longest, spec_.lengths.back());
}

std::vector<int64_t> Batches::examples_of(int64_t group) const {
  if (spec_.grouping == RowGrouping::kPairs) return {2 * group, 2 * group + 1};
  if (!packs()) return {group};
  return {packed_.begin() + packed_starts_[group], packed_.begin() + packed_starts_[group + 1]};
}

int64_t Batches::group_length(int64_t group) const {
  if (spec_.grouping == RowGrouping::kPairs)
    return std::max(examples_.length(2 * group), examples_.length(2 * group + 1));
  if (!packs()) return examples_.length(group);
  int64_t length = 0;
  for (int64_t i = packed_starts_[group]; i < packed_starts_[group + 1]; ++i) length += examples_.length(packed_[i]);
  return length;
}

// Returns the prompt of `example` with the reply of `other`, cut to the longest length.
Batches::Document Batches::mismatched(int64_t example, int64_t other) const {
  auto reply_at = [&](int64_t i) {
    const std::span<const Token> tokens = examples_.tokens(i);
    return std::find_if(tokens.begin(), tokens.end(), [](Token token) { return token.trained(); }) - tokens.begin();
  };
  const std::span<const Token> prompt = examples_.tokens(example).first(static_cast<size_t>(reply_at(example)));
  const std::span<const Token> reply = examples_.tokens(other).subspan(static_cast<size_t>(reply_at(other)));
  const size_t room = static_cast<size_t>(spec_.lengths.back()) - prompt.size();
  return {example, prompt, reply.first(std::min(reply.size(), room))};
}

std::vector<Batches::Sequence> Batches::laid_out(const std::vector<int64_t>& groups) const {
  const auto of_one_row = [&](int64_t a, int64_t b) {
    return !rows_.empty() && rows_[static_cast<size_t>(a)] == rows_[static_cast<size_t>(b)];
  };
  // Returns the first group after groups[g] that is of another row and not skipped. Looks first among the groups of the
  // step, then among all groups of the data set. Both searches wrap around from the last group to the first.
  auto next = [&](size_t g) {
    const auto unfit = [&](int64_t other) { return skips(other) || of_one_row(other, groups[g]); };
    for (size_t n = 1; n < groups.size(); ++n)
      if (const int64_t other = groups[(g + n) % groups.size()]; !unfit(other)) return other;
    int64_t other = (groups[g] + 1) % this->groups();
    while (unfit(other) && other != groups[g]) other = (other + 1) % this->groups();
    return other;
  };
  std::vector<Sequence> out;
  for (size_t g = 0; g < groups.size(); ++g) {
    Sequence documents;
    for (int64_t example : examples_of(groups[g]))
      documents.push_back({example, examples_.tokens(example), {}, examples_.weights(example)});
    if (spec_.grouping == RowGrouping::kPairs) {
      for (const Document& document : documents) out.push_back({document});
      continue;
    }
    out.push_back(std::move(documents));
    if (spec_.grouping == RowGrouping::kWithMismatched) out.push_back({mismatched(groups[g], next(g))});
  }
  return out;
}

std::vector<int64_t> Batches::lengths_of(const std::vector<Sequence>& sequences) const {
  std::vector<int64_t> out;
  for (const Sequence& sequence : sequences) {
    int64_t length = 0;
    for (const Document& document : sequence) length += skips(document.example) ? 0 : document.length();
    out.push_back(length);
  }
  return out;
}

// Lays the sequences into the shape with the lowest cost; if several shapes have this cost, into the first of them.
// With Lines::kOwn, takes the smallest length into which every sequence fits.
Batches::Laid Batches::lay(const std::vector<Sequence>& sequences) const {
  const std::vector<int64_t> lengths = lengths_of(sequences);
  if (spec_.lines == Lines::kOwn) {
    int64_t longest = 0;  // length of the longest sequence; skipped rows count, too
    for (const Sequence& sequence : sequences) {
      int64_t length = 0;
      for (const Document& document : sequence) length += document.length();
      longest = std::max(longest, length);
    }
    Laid out{padded_shape(spec_, *std::ranges::lower_bound(spec_.lengths, longest)), {.used = spec_.micro_batches}};
    out.shape.weighted = examples_.weighted();
    for (int64_t s = 0; s < static_cast<int64_t>(lengths.size()); ++s)
      out.layout.places.push_back({s / spec_.sequences, s % spec_.sequences, 0});
    return out;
  }
  std::optional<Laid> best;
  for (const BatchShape& shape : shapes_) {
    std::optional<LineLayout> layout = lay_out(lengths, shape, spec_);
    if (!layout || (best && layout_cost(best->layout, best->shape, spec_) <= layout_cost(*layout, shape, spec_)))
      continue;
    best = Laid{shape, std::move(*layout)};
  }
  internal_check(best.has_value(), "Batches: no shape holds a step of {} sequences", sequences.size());
  return std::move(*best);
}

int64_t Batches::group_at(int64_t epoch, int64_t i) const {
  return spec_.shuffle ? permuted_index(i, groups(), spec_.seed, static_cast<uint64_t>(epoch)) : i;
}

// Returns the window of `step`, or nullopt when the step's rows are not chosen by length. A window takes the groups of
// a few steps, sorts them by length, cuts the sorted list into the same number of steps, and shuffles these steps. An
// epoch has at least four windows, so that small data sets do not give the same steps in every epoch.
std::optional<Batches::Window> Batches::window_of(int64_t step) const {
  const int64_t each = spec_.groups_per_step();
  const int64_t epoch = step / steps_per_epoch(), in_epoch = step % steps_per_epoch();
  const int64_t full_steps = groups() / each;
  const int64_t size = std::clamp<int64_t>(full_steps / 4, 1, kLargestWindow);
  const bool by_length = spec_.shuffle && spec_.like_length && !packs() && size > 1;
  if (!by_length || in_epoch >= full_steps) return std::nullopt;
  const int64_t first = in_epoch / size * size;
  Window window{.first = epoch * steps_per_epoch() + first, .steps = std::min(size, full_steps - first)};
  for (int64_t i = first * each; i < (first + window.steps) * each; ++i) window.groups.push_back(group_at(epoch, i));
  std::stable_sort(window.groups.begin(), window.groups.end(),
                   [&](int64_t a, int64_t b) { return group_length(a) < group_length(b); });
  window.stream = mix_bits(kWindowStream + static_cast<uint64_t>(epoch), static_cast<uint64_t>(first));
  return window;
}

std::vector<int64_t> Batches::groups_of_step(int64_t step, const std::optional<Window>& window) const {
  const int64_t each = spec_.groups_per_step();
  if (window) {
    const int64_t place = permuted_index(step - window->first, window->steps, spec_.seed, window->stream);
    return {window->groups.begin() + place * each, window->groups.begin() + (place + 1) * each};
  }
  const int64_t epoch = step / steps_per_epoch(), in_epoch = step % steps_per_epoch();
  std::vector<int64_t> chosen;
  for (int64_t i = in_epoch * each; i < std::min(groups(), (in_epoch + 1) * each); ++i)
    chosen.push_back(group_at(epoch, i));
  return chosen;
}

namespace {

// Returns the arrays of a step without any document: all positions are padding. `documents` is the number of documents
// that they can have, `classes` the number of classes of a labelled row (0: rows have no labels).
Batch empty_batch(const BatchShape& laid, int64_t documents, int64_t classes, int32_t pad_id) {
  const Shape shape{DType::kI32, {laid.micro_batches, laid.lines, laid.length}};
  Batch batch{.shape = laid,
              .tokens = HostArray(shape),
              .targets = HostArray(shape),
              .positions = HostArray::zeros(shape),
              .segments = HostArray::zeros(shape),
              .sequence_numbers = HostArray::zeros(shape),
              .preferences = HostArray::zeros({DType::kI32, {documents}}),
              .sources = std::vector<std::string>(static_cast<size_t>(documents))};
  batch.shape.sequences = documents;
  if (laid.branched) batch.prompts = HostArray::zeros(shape);
  if (laid.weighted) batch.weights = HostArray::zeros(shape.with_dtype(DType::kF32));
  if (classes > 0) {
    batch.token_types = HostArray::zeros(shape);
    batch.classes = HostArray::zeros({DType::kF32, {documents, classes}});
  }
  std::ranges::fill(batch.tokens.as<int32_t>(), pad_id);
  std::ranges::fill(batch.targets.as<int32_t>(), kIgnore);
  return batch;
}

// Sets Batch::segments, which numbers the documents of each line in their order, and Batch::prompts, if there is one.
// `prompt_of` has the number of each document's prompt, by the document's number.
void number_segments(Batch& batch, const std::vector<int32_t>& prompt_of) {
  const std::span<const int32_t> rows = batch.sequence_numbers.as<int32_t>();
  const std::span<int32_t> segments = batch.segments.as<int32_t>();
  const std::span<int32_t> prompts = batch.shape.branched ? batch.prompts.as<int32_t>() : std::span<int32_t>();
  const auto length = static_cast<size_t>(batch.shape.length);
  std::vector<int32_t> segment_of(prompt_of.size());
  for (size_t line = 0; line < rows.size(); line += length) {
    int32_t segment = 0;
    for (size_t t = line; t < line + length; ++t) {
      if (rows[t] == 0) continue;
      if (t == line || rows[t] != rows[t - 1]) ++segment;
      segments[t] = segment;
      segment_of[static_cast<size_t>(rows[t])] = segment;
      if (!prompts.empty()) prompts[t] = segment_of[static_cast<size_t>(prompt_of[static_cast<size_t>(rows[t])])];
    }
  }
}

}  // namespace

Batch Batches::at(int64_t step, const OwnLines& own) const {
  internal_check(step >= 0, "Batches::at: step {} is negative", step);
  const std::vector<Sequence> sequences = laid_out(groups_of_step(step, window_of(step)));
  auto [layout_shape, layout] = lay(sequences);
  int64_t documents = 0;
  for (const Sequence& sequence : sequences) documents += static_cast<int64_t>(sequence.size());
  const int64_t B = layout_shape.lines, T = layout_shape.length, S = std::max(layout_shape.sequences, documents);
  const int64_t K = examples_.classes_per_row();
  Batch batch = empty_batch(layout_shape, S, K, pad_id_);
  batch.used = layout.used;
  const auto tokens = batch.tokens.as<int32_t>(), targets = batch.targets.as<int32_t>();
  const auto positions = batch.positions.as<int32_t>(), rows = batch.sequence_numbers.as<int32_t>();
  const auto preferences = batch.preferences.as<int32_t>();
  const auto token_types = K > 0 ? batch.token_types.as<int32_t>() : std::span<int32_t>();
  const auto classes = K > 0 ? batch.classes.as<float>() : std::span<float>();
  const auto weights = layout_shape.weighted ? batch.weights.as<float>() : std::span<float>();
  const std::vector<bool> filled = own ? own(layout_shape) : std::vector<bool>(static_cast<size_t>(B), true);
  int64_t row = 0;
  std::vector<int32_t> prompt_of(static_cast<size_t>(S) + 1);  // by the document's number: its prompt's number
  for (size_t s = 0; s < sequences.size(); ++s) {
    const Place& place = layout.places[s];
    const auto prompt = static_cast<int32_t>(row + 1);
    const int64_t after_prompt = batch.shape.branched ? sequences[s][0].length() : 0;
    int64_t at = (place.micro_batch * B + place.line) * T + place.start;
    for (const Document& document : sequences[s]) {
      const int64_t number = row++, before = number + 1 == prompt ? 0 : after_prompt;
      prompt_of[static_cast<size_t>(number) + 1] = prompt;
      if (skips(document.example)) continue;
      const auto length = static_cast<size_t>(document.length());
      for (size_t i = 0; i < length; ++i, ++at) {
        batch.trained_tokens += i + 1 < length && document[i + 1].label() != kIgnore;
        if (!filled[static_cast<size_t>(place.line)]) continue;
        tokens[at] = document[i].id();
        positions[at] = static_cast<int32_t>(before + static_cast<int64_t>(i));
        rows[at] = static_cast<int32_t>(number + 1);
        if (K > 0) token_types[at] = document[i].second() ? 1 : 0;
        if (i + 1 < length) targets[at] = document[i + 1].label();
        if (!weights.empty() && targets[at] != kIgnore)
          weights[at] = document.weights.empty() ? 1 : document.weights[i + 1];
      }
      batch.real_tokens += document.length();
      const std::span<const float> taught = examples_.classes(document.example);
      std::copy(taught.begin(), taught.end(), classes.begin() + static_cast<std::ptrdiff_t>(number) * K);
      batch.trained_tokens += !taught.empty();
      preferences[number] = static_cast<int32_t>(examples_.preference(document.example));
      batch.sources[number] = examples_.source(document.example);
      if (spec_.grouping == RowGrouping::kWithMismatched && s % 2 == 1) batch.sources[number] += kOtherReply;
    }
  }
  number_segments(batch, prompt_of);
  examples_.check();
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

Batch BatchPrefetcher::at(int64_t step) {
  Batch batch = coming_step_ == step && coming_.valid() ? coming_.get() : batches_.at(step, own_);
  coming_step_ = step + 1;
  coming_ = std::async(std::launch::async, [this, next = step + 1] { return batches_.at(next, own_); });
  return batch;
}

double Batches::use() const {
  int64_t real = 0, positions = 0;
  std::optional<Window> window;
  for (int64_t step = 0; step < steps_per_epoch(); ++step) {
    if (!window || step == window->first + window->steps) window = window_of(step);
    const std::vector<Sequence> sequences = laid_out(groups_of_step(step, window));
    const std::vector<int64_t> lengths = lengths_of(sequences);
    real = std::accumulate(lengths.begin(), lengths.end(), real);
    const Laid laid = lay(sequences);
    const int64_t lines =
        spec_.lines == Lines::kOwn ? static_cast<int64_t>(sequences.size()) : laid.layout.used * laid.shape.lines;
    positions += lines * laid.shape.length;
  }
  return static_cast<double>(real) / static_cast<double>(std::max<int64_t>(positions, 1));
}

}  // namespace fettle
