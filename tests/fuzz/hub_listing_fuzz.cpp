// Reads any text as a cached listing of a repository. The listing is read or rejected. If it is read, it names only
// files inside the repository.
#include "fuzz/fuzzed.h"
#include "hub/listing.h"
#include "hub/repo_name.h"
#include "temp_folder.h"

using namespace fettle;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const TempFolder folder;
  return take_input(data, size, folder / "tree.json", [&] {
    const auto listing = read_listing(folder / "tree.json");
    for (const HubFile& file : listing.value_or(Listing()))
      if (!is_path_inside(file.path) || file.size < 0) abort();
  });
}
