#include "sharding/picture.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/size_text.h"

namespace fettle {
namespace {

constexpr int64_t kShown = 8;  // boxes shown in one direction; if there are more, the middle ones are left out

std::string axes_text(const std::vector<std::string>& axes) {
  return axes.empty() ? "-" : fmt::format("{}", fmt::join(axes, "+"));
}

// `axes` split a dim into parts, the major axis first. Returns the number of the part that the device stores. Devices
// are numbered row-major over the mesh.
int64_t part_of(const std::vector<std::string>& axes, const MeshAxes& mesh, int64_t device) {
  int64_t part = 0;
  for (const std::string& axis : axes) {
    int64_t stride = mesh.size();
    for (const auto& [name, size] : mesh.axes) {
      stride /= size;
      if (name == axis) part = part * size + device / stride % size;
    }
  }
  return part;
}

int64_t parts(const std::vector<std::string>& axes, const MeshAxes& mesh) {
  int64_t count = 1;
  for (const std::string& axis : axes) count *= mesh.size_of(axis);
  return count;
}

// Formats device numbers as "0-3,6" or "0,2..14": several numbers with equal steps between them are shortened.
std::string devices_text(const std::vector<int64_t>& devices) {
  std::vector<std::string> words;
  for (size_t i = 0; i < devices.size();) {
    size_t end = i + 1;
    const int64_t step = end < devices.size() ? devices[end] - devices[i] : 0;
    while (end < devices.size() && devices[end] - devices[end - 1] == step) ++end;
    if (step == 1 && end - i > 2) {
      words.push_back(fmt::format("{}-{}", devices[i], devices[end - 1]));
    } else if (end - i > 3) {
      words.push_back(fmt::format("{},{}..{}", devices[i], devices[i + 1], devices[end - 1]));
    } else {
      end = i + 1;
      words.push_back(fmt::format("{}", devices[i]));
    }
    i = end;
  }
  return fmt::format("{}", fmt::join(words, ","));
}

std::string repeated(const std::string& text, size_t times) {
  std::string out;
  for (size_t i = 0; i < times; ++i) out += text;
  return out;
}

std::string centred(const std::string& text, size_t width) {
  const size_t before = (width - text.size()) / 2;
  return std::string(before, ' ') + text + std::string(width - text.size() - before, ' ');
}

std::string coloured(const std::string& text, int64_t part) {
  // Terminal colours (0 to 255) on which black text is readable.
  constexpr int kFills[] = {110, 150, 180, 139, 174, 109, 186, 146};
  return fmt::format("\x1b[30;48;5;{}m{}\x1b[0m", kFills[part % std::size(kFills)], text);
}

// Returns the numbers of the parts that are drawn; -1 stands for the omitted parts.
std::vector<int64_t> shown_parts(int64_t count) {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < count; ++i) {
    if (count <= kShown || i < kShown / 2 || i == count - 1) out.push_back(i);
    if (count > kShown && i == kShown / 2) out.push_back(-1);
  }
  return out;
}

// Describes how the array is split. Leaves out a leading layer dim that is not split. Returns "" when no dim is split.
std::string likeness(const PlacedArray& array) {
  Partition partition = array.partition;
  if (!partition.dims.empty() && array.axes[0] == "layers" && partition.dims[0].empty())
    partition.dims.erase(partition.dims.begin());
  const bool whole = std::all_of(partition.dims.begin(), partition.dims.end(), [](const auto& d) { return d.empty(); });
  return whole ? "" : to_string(partition);
}

// All arrays of one kind that are split in the same way.
struct Group {
  std::string likeness;
  Partition partition;
  std::vector<std::string> labels;
  bool operator==(const Group& other) const { return likeness == other.likeness && labels == other.labels; }
};
struct Kind {
  std::string name;
  std::vector<Group> groups;
};

std::vector<Kind> kinds_of(const std::vector<PlacedArray>& arrays) {
  std::vector<Kind> kinds;
  for (const PlacedArray& array : arrays) {
    if (kinds.empty() || kinds.back().name != array.kind) kinds.push_back({array.kind, {}});
    std::vector<Group>& groups = kinds.back().groups;
    const std::string like = likeness(array);
    auto group = std::find_if(groups.begin(), groups.end(), [&](const Group& g) { return g.likeness == like; });
    if (group == groups.end()) group = groups.insert(groups.end(), {like, array.partition, {}});
    group->labels.push_back(array.label);
  }
  return kinds;
}

// Formats "a, b, c" in lines of at most about 100 characters.
std::string wrapped(const std::vector<std::string>& words, const std::string& indent) {
  std::string text = indent;
  size_t line = indent.size();
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string word = words[i] + (i + 1 < words.size() ? "," : "");
    if (line > indent.size() && line + 1 + word.size() > 100) {
      text += "\n" + indent;
      line = indent.size();
    }
    text += (line > indent.size() ? " " : "") + word;
    line += word.size() + 1;
  }
  return text;
}

std::string format_table(const std::vector<PlacedArray>& arrays, const MeshAxes& mesh) {
  std::vector<std::vector<std::string>> rows{{"array", "shape", "dtype", "split over", "a device", "whole"}};
  for (const PlacedArray& a : arrays)
    rows.push_back({a.name, to_string(a.shape.dims), std::string(stablehlo_name(a.shape.dtype)), to_string(a.partition),
                    size_text(a.bytes_per_device(mesh)), size_text(a.bytes())});
  std::vector<size_t> widths(rows[0].size());
  for (const auto& row : rows)
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  std::string text;
  std::string kind;
  for (size_t r = 0; r < rows.size(); ++r) {
    if (r > 0 && arrays[r - 1].kind != kind) text += (kind = arrays[r - 1].kind) + "\n";
    const auto& row = rows[r];
    text += fmt::format("  {:<{}}  {:<{}}  {:<{}}  {:<{}}  {:>{}}  {:>{}}", row[0], widths[0], row[1], widths[1],
                        row[2], widths[2], row[3], widths[3], row[4], widths[4], row[5], widths[5]);
    text += (r > 0 && !arrays[r - 1].note.empty() ? "  " + arrays[r - 1].note : "") + "\n";
  }
  return text;
}

}  // namespace

int64_t PlacedArray::bytes_per_device(const MeshAxes& mesh) const {
  int64_t bytes = shape.bytes();
  for (const auto& axes : partition.dims) bytes /= parts(axes, mesh);
  return bytes;
}

std::string to_string(const Partition& partition) {
  std::vector<std::string> dims;
  for (const auto& axes : partition.dims) dims.push_back(axes_text(axes));
  return fmt::format("[{}]", fmt::join(dims, ", "));
}

std::string draw_partition(const Partition& partition, const MeshAxes& mesh, bool colour) {
  std::vector<std::vector<std::string>> split;
  for (const auto& axes : partition.dims)
    if (!axes.empty()) split.push_back(axes);
  std::vector<std::string> down, across;
  if (split.size() == 1) (partition.dims.back().empty() ? down : across) = split[0];
  if (split.size() > 1) down = split[0];
  for (size_t d = 1; d < split.size(); ++d)  // all later split dims are drawn like the second one
    across.insert(across.end(), split[d].begin(), split[d].end());
  const int64_t columns = parts(across, mesh);
  std::vector<std::vector<int64_t>> holders(static_cast<size_t>(parts(down, mesh) * columns));
  for (int64_t device = 0; device < mesh.size(); ++device)
    holders[static_cast<size_t>(part_of(down, mesh, device) * columns + part_of(across, mesh, device))].push_back(
        device);

  size_t width = 0;
  for (const auto& devices : holders) width = std::max(width, devices_text(devices).size() + 4);
  const std::vector<int64_t> shown_rows = shown_parts(parts(down, mesh)), shown_columns = shown_parts(columns);
  auto rule = [&](const char* left, const char* middle, const char* right) {
    std::string text = left;
    for (size_t c = 0; c < shown_columns.size(); ++c)
      text += (c > 0 ? middle : "") + repeated("─", shown_columns[c] < 0 ? 3 : width);
    return text + right + "\n";
  };
  std::string text = rule("┌", "┬", "┐");
  for (size_t r = 0; r < shown_rows.size(); ++r) {
    if (r > 0) text += rule("├", "┼", "┤");
    for (const int64_t column : shown_columns) {
      const int64_t part = shown_rows[r] * columns + column;
      const std::string cell = shown_rows[r] < 0 || column < 0
                                   ? centred("...", column < 0 ? 3 : width)
                                   : centred(devices_text(holders[static_cast<size_t>(part)]), width);
      text += "│" + (colour && shown_rows[r] >= 0 && column >= 0 ? coloured(cell, part) : cell);
    }
    text += "│\n";
  }
  return text + rule("└", "┴", "┘");
}

std::string format_placed(const std::vector<PlacedArray>& arrays, const MeshAxes& mesh, bool colour) {
  const std::vector<Kind> kinds = kinds_of(arrays);
  std::string text;
  for (size_t k = 0; k < kinds.size(); ++k) {
    text += kinds[k].name + "\n";
    const auto alike = std::find_if(kinds.begin(), kinds.begin() + static_cast<std::ptrdiff_t>(k),
                                    [&](const Kind& other) { return other.groups == kinds[k].groups; });
    if (alike != kinds.begin() + static_cast<std::ptrdiff_t>(k)) {
      text += "  each is split like " + alike->name + "\n\n";
      continue;
    }
    for (const Group& group : kinds[k].groups) {
      const char* each = group.labels.size() > 1 ? "each " : "";
      text += wrapped(group.labels, "  ") + "\n  " + each;
      text += group.likeness.empty() ? "not split: every device stores all of it\n"
                                     : fmt::format("split over {}\n", group.likeness);
      text += draw_partition(group.partition, mesh, colour);
    }
    text += "\n";
  }
  return text + format_table(arrays, mesh);
}

nlohmann::json placed_json(const std::vector<PlacedArray>& arrays, const MeshAxes& mesh) {
  nlohmann::json axes = nlohmann::json::array(), rows = nlohmann::json::array();
  for (const auto& [axis, size] : mesh.axes) axes.push_back({{"axis", axis}, {"size", size}});
  for (const PlacedArray& a : arrays) {
    rows.push_back({{"kind", a.kind},
                    {"name", a.name},
                    {"shape", a.shape.dims},
                    {"dtype", stablehlo_name(a.shape.dtype)},
                    {"axes", a.axes},
                    {"partition", a.partition.dims},
                    {"bytes_per_device", a.bytes_per_device(mesh)},
                    {"bytes", a.bytes()}});
    if (!a.note.empty()) rows.back()["note"] = a.note;
  }
  return {{"mesh", axes}, {"arrays", rows}};
}

}  // namespace fettle
