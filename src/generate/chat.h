// Defines run_chat, the command `fettle chat`: a conversation with the model, line by line.
#pragma once

#include <iosfwd>

#include "run/request.h"

namespace fettle {

// Each line of `in` is a message of the user; replies stream to `out`, a newline after each; everything else
// (the prompt sign when `in_is_terminal`, remarks) goes to `remarks`. The conversation is kept until /clear; /system
// TEXT sets the system message, /exit or the end of `in` ends. SIGINT during a reply stops that reply, which stays in
// the conversation as far as it came. Returns the exit code: 0, or 128 + signal when SIGTERM came during a reply.
// Throws UserError when the model has no chat template and the request names none.
int run_chat(const Request& request, std::istream& in, bool in_is_terminal, std::ostream& out, std::ostream& remarks);

// With standard input, output and error.
int run_chat(const Request& request);

}  // namespace fettle
