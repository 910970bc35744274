// Defines run_chat, the command `fettle chat`: a conversation with the model, line by line.
#pragma once

#include <iosfwd>

#include "run/request.h"

namespace fettle {

// Each line of `in` is a message of the user. Replies stream to `out` in ShownReply's form, each followed by a newline.
// The prompt sign (when `in_is_terminal`) and remarks go to `remarks`. The conversation continues until /clear. /system
// TEXT sets the system message; /exit or the end of `in` ends the command. SIGINT during a reply stops that reply; the
// conversation keeps the part that was written. Returns the exit code: 0, or 128 + signal when SIGTERM arrived during a
// reply. Throws UserError when the model has no chat template and the request names none.
int run_chat(const Request& request, std::istream& in, bool in_is_terminal, std::ostream& out, std::ostream& remarks);

// Runs the command with standard input, output and error.
int run_chat(const Request& request);

}  // namespace fettle
