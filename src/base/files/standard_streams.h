// Defines hold_standard_streams, which keeps files from being opened as standard input, output or error.
#pragma once

#include <fcntl.h>
#include <unistd.h>

namespace fettle {

// Opens /dev/null as each of standard input, output and error that is closed (`fettle train 2>&-`). Otherwise the next
// file would be opened with that number, and messages would be written into the file.
inline void hold_standard_streams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(fd, F_GETFD) < 0) open("/dev/null", O_RDWR);  // takes the lowest free number, which is fd
}

}  // namespace fettle
