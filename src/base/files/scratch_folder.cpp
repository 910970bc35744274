#include "base/files/scratch_folder.h"

#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "base/error.h"

namespace fettle {

ScratchFolder::ScratchFolder(const std::string& name) {
  std::error_code missing;
  const std::filesystem::path parent = std::filesystem::temp_directory_path(missing);
  if (missing) throw UserError("TMPDIR does not name a folder; set it to a folder in which you can write");
  std::string made = (parent / (name + "-XXXXXX")).string();
  if (mkdtemp(made.data()) == nullptr)
    throw UserError("{} cannot be created: {}; set TMPDIR to a folder in which you can write", made,
                    std::strerror(errno));
  path_ = made;
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace fettle
