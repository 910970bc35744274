// Defines loose_as_json, which reads values in the syntax of Python and of Gemma 4.
#pragma once

#include <string>
#include <string_view>

namespace fettle {

// Rewrites a value as JSON. The following forms may be mixed; other text is kept, so the result is JSON only if `text`
// has no other forms:
// - strings in '...', "..." or <|"|>...<|"|>. A quote ends a string only before , : ) ] } or the end of the text.
// - keys without quotes, before : or =
// - True, False and None
// - f(x=1), which becomes {"name": "f", "arguments": {"x": 1}}
std::string loose_as_json(std::string_view text);

}  // namespace fettle
