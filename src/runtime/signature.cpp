#include "runtime/signature.h"

#include <algorithm>
#include <set>

#include "base/error.h"

namespace fettle {

std::vector<Box> Layout::parts() const {
  std::vector<Box> distinct;
  for (const Box& box : boxes) {
    if (std::find(distinct.begin(), distinct.end(), box) == distinct.end()) distinct.push_back(box);
  }
  return distinct;
}

std::vector<int> Layout::part_of() const {
  const std::vector<Box> distinct = parts();
  std::vector<int> result;
  for (const Box& box : boxes) {
    result.push_back(static_cast<int>(std::find(distinct.begin(), distinct.end(), box) - distinct.begin()));
  }
  return result;
}

bool Layout::operator==(const Layout& other) const {
  if (boxes != other.boxes) return false;
  for (int i = 0; i < count(); ++i) {
    if (ordinal(i) != other.ordinal(i)) return false;
  }
  return true;
}

Layout Layout::replicated(const Dims& dims, int count) {
  return {std::vector<Box>(count, Box{Dims(dims.size(), 0), dims}), {}};
}

Layout Layout::sharded(const Dims& dims, const Dims& mesh, const std::vector<std::vector<int>>& axes_of_dim) {
  internal_check(axes_of_dim.size() == dims.size(), "layout: {} shardings do not fit the dims {}", axes_of_dim.size(),
                 fettle::to_string(dims));
  std::vector<bool> used(mesh.size(), false);
  Dims size = dims;
  for (size_t d = 0; d < dims.size(); ++d) {
    for (int axis : axes_of_dim[d]) {
      internal_check(axis >= 0 && axis < static_cast<int>(mesh.size()) && !used[axis],
                     "layout: mesh axis {} is unknown or used twice", axis);
      used[axis] = true;
      internal_check(size[d] % mesh[axis] == 0, "layout: dim {} of {} is not divisible by the sizes of its mesh axes",
                     d, fettle::to_string(dims));
      size[d] /= mesh[axis];
    }
  }
  Layout layout;
  const int64_t count = product(mesh);
  for (int64_t device = 0; device < count; ++device) {
    Dims coordinate(mesh.size());
    for (int64_t a = static_cast<int64_t>(mesh.size()) - 1, rest = device; a >= 0; --a) {
      coordinate[a] = rest % mesh[a];
      rest /= mesh[a];
    }
    Box box{Dims(dims.size()), size};
    for (size_t d = 0; d < dims.size(); ++d) {
      int64_t tile = 0;
      for (int axis : axes_of_dim[d]) tile = tile * mesh[axis] + coordinate[axis];
      box.start[d] = tile * size[d];
    }
    layout.boxes.push_back(std::move(box));
  }
  return layout;
}

void check_layout(const Shape& shape, const Layout& layout, const std::string& what) {
  internal_check(layout.count() > 0, "{}: its layout has no devices", what);
  internal_check(layout.devices.empty() || layout.devices.size() == layout.boxes.size(),
                 "{}: its layout has {} devices, but {} boxes", what, layout.devices.size(), layout.boxes.size());
  internal_check(std::set<int>(layout.devices.begin(), layout.devices.end()).size() == layout.devices.size(),
                 "{}: a device appears twice in its layout", what);
  for (const Box& box : layout.boxes) {
    internal_check(box.start.size() == shape.dims.size() && box.size.size() == shape.dims.size(),
                   "{}: box {} has another rank than {}", what, box.to_string(), shape.to_string());
    internal_check(box.size == layout.boxes[0].size, "{}: boxes {} and {} differ in size", what, box.to_string(),
                   layout.boxes[0].to_string());
    for (size_t d = 0; d < shape.dims.size(); ++d) {
      internal_check(box.start[d] >= 0 && box.size[d] >= 0 && box.start[d] + box.size[d] <= shape.dims[d],
                     "{}: box {} is outside {}", what, box.to_string(), shape.to_string());
    }
  }
}

}  // namespace fettle
