# Functions that the awk scripts of debian-helper and debian-sections share: hashes of names, JSON strings and others.
# All text is bytes (LC_ALL=C).

BEGIN {
  FS = "\t"
  for (code_ = 1; code_ < 256; code_++) code_of[sprintf("%c", code_)] = code_
}

# Returns a number below 2147483647 that depends only on the text and the salt. Each salt has its own factor, because
# with one factor for all, the numbers of different salts would be correlated.
function hash(text, salt,    i, value) {
  if (!(salt in factor_of)) {
    factor_of[salt] = 70001
    for (i = 1; i <= length(salt); i++) factor_of[salt] += 62 * i * code_of[substr(salt, i, 1)]
  }
  value = 5381
  for (i = 1; i <= length(text); i++) value = (value * factor_of[salt] + code_of[substr(text, i, 1)]) % 2147483647
  return (value * 16807 + 12345) % 2147483647
}

# Returns whether the package is held out: one in fifty is, and is never trained on.
function held_out(name) { return hash(name, "split") % 50 == 0 }

# Returns `text` with `to` in place of each `from`. Does not use gsub, because versions of awk treat a backslash in its
# replacement differently.
function replaced(text, from, to,    at, done) {
  done = ""
  while ((at = index(text, from)) > 0) {
    done = done substr(text, 1, at - 1) to
    text = substr(text, at + length(from))
  }
  return done text
}

function json(text) {
  text = replaced(replaced(replaced(text, "\\", "\\\\"), "\"", "\\\""), "\n", "\\n")
  gsub(/[\001-\037]/, " ", text)
  return "\"" text "\""
}

function capital(text) { return toupper(substr(text, 1, 1)) substr(text, 2) }

# Turns words separated by spaces into "a", "a and b", "a, b and c".
function listed(words,    n, i, parts, text) {
  n = split(words, parts, " ")
  text = parts[1]
  for (i = 2; i <= n; i++) text = text (i == n ? " and " : ", ") parts[i]
  return text
}
