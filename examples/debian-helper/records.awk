# Turns apt's package lists into one line per package with fields separated by tabs: name, section, summary, long
# description (often empty: apt keeps it in other files), source, dependencies.

function clean(text) {
  gsub(/[\t\r]/, " ", text)
  gsub(/  +/, " ", text)
  sub(/^ /, "", text)
  sub(/ $/, "", text)
  return text
}

# Returns the text if it has at most 250 letters. Otherwise, returns its first sentences, up to 250 letters, or "" if
# these have fewer than 60 letters.
function shorten(text,    cut, at, rest) {
  text = clean(text)
  if (length(text) <= 250) return text
  cut = ""
  rest = substr(text, 1, 250)
  while ((at = index(rest, ". ")) > 0) {
    cut = cut substr(rest, 1, at + 1)
    rest = substr(rest, at + 2)
  }
  return length(cut) >= 60 ? clean(cut) : ""
}

# Returns the names of the first three dependencies that are not the C library.
function needs(list,    n, i, parts, text, kept) {
  n = split(list, parts, /, */)
  text = ""
  kept = 0
  for (i = 1; i <= n && kept < 3; i++) {
    sub(/[ (|].*/, "", parts[i])
    sub(/:any$/, "", parts[i])
    if (index(" " text " ", " " parts[i] " ")) continue
    if (parts[i] == "" || parts[i] ~ /^(libc6|libgcc-s1|libstdc\+\+6)$/) continue
    text = text (kept++ ? " " : "") parts[i]
  }
  return text
}

function finish(    language, summary, text, section) {
  language = ("Description-en" in field) ? "Description-en" : "Description"
  summary = field[language]
  text = long[language]
  if (("Package" in field) && ("Section" in field) && summary != "" && !(field["Package"] in seen) &&
      summary !~ /transitional|dummy package|debug symbols/) {
    seen[field["Package"]] = 1
    section = field["Section"]
    sub(/^.*\//, "", section)
    summary = clean(summary)
    sub(/\.$/, "", summary)
    source = ("Source" in field) ? field["Source"] : field["Package"]
    sub(/ .*/, "", source)
    print field["Package"] "\t" section "\t" summary "\t" shorten(text) "\t" source "\t" needs(field["Depends"])
  }
  split("", field)
  split("", long)
  name = ""
}

/^$/ { finish(); next }
/^[A-Z]/ {
  at = index($0, ":")
  name = substr($0, 1, at - 1)
  field[name] = clean(substr($0, at + 1))
  next
}
name ~ /^Description(-en)?$/ {
  # A list is left out. When there are 60 letters or more, a list or a new paragraph ends the text.
  if ($0 ~ /^ \.$/ || $0 ~ /^  / || $0 ~ /^ [-*o] /) stopped = length(long[name]) >= 60
  else if (!stopped || long[name] == "") {
    stopped = 0
    long[name] = long[name] $0
  }
}
END { finish() }
