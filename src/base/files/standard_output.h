// Defines check_written, which finds results that were lost because standard output takes no more data.
#pragma once

#include <ostream>

#include "base/error.h"

namespace fettle {

// Flushes the stream. Throws UserError if something that was written to it is lost.
inline void check_written(std::ostream& out) {
  if (!out.flush()) throw UserError("cannot write to standard output; is the disk full?");
}

}  // namespace fettle
