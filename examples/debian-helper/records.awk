# Turns apt's package lists into one line per package with fields separated by tabs: name, section, summary, long
# description (may be empty), source, dependencies, traits. Reads the translation files first, if there are any, then the
# lists.

function clean(text) {
  gsub(/[\t\r]/, " ", text)
  gsub(/  +/, " ", text)
  sub(/^ /, "", text)
  sub(/ $/, "", text)
  return text
}

# The first sentences, up to about 250 letters.
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

function trait(tag) {
  if (tag == "role::shared-lib") return "It is a shared library."
  if (tag == "role::devel-lib") return "It holds development files."
  if (tag == "role::documentation") return "It holds documentation."
  if (tag == "role::app-data") return "It holds data files."
  if (tag == "role::plugin") return "It is a plugin."
  if (tag == "role::metapackage") return "It only pulls in other packages."
  if (tag == "interface::commandline") return "It is used on the command line."
  if (tag == "interface::graphical") return "It has a graphical interface."
  if (tag == "interface::daemon") return "It runs as a daemon."
  if (tag == "interface::text-mode") return "It has a text interface."
  if (tag ~ /^implemented-in::/) return "It is written in " substr(tag, 17) "."
  if (tag ~ /^works-with::[a-z]+$/) return "It works with " substr(tag, 13) "."
  return ""
}

function traits_of(list,    n, i, parts, text, one) {
  n = split(list, parts, /, */)
  text = ""
  for (i = 1; i <= n; i++) {
    one = trait(clean(parts[i]))
    if (one != "") text = text (text == "" ? "" : " ") one
  }
  return text
}

# Names of the first three dependencies that are not the C library.
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

function finish(    summary, text, section) {
  if ("Description-en" in field) {
    summary = field["Description-en"]
    text = long["Description-en"]
  } else {
    summary = field["Description"]
    text = long["Description"]
  }
  if (text == "" && ("Description-md5" in field)) text = translated[field["Description-md5"]]
  if (translating) {
    if (("Description-md5" in field) && text != "") translated[field["Description-md5"]] = text
  } else if (("Package" in field) && ("Section" in field) && summary != "" && !(field["Package"] in seen) &&
             summary !~ /transitional|dummy package|debug symbols/) {
    seen[field["Package"]] = 1
    section = field["Section"]
    sub(/^.*\//, "", section)
    summary = clean(summary)
    sub(/\.$/, "", summary)
    source = ("Source" in field) ? field["Source"] : field["Package"]
    sub(/ .*/, "", source)
    print field["Package"] "\t" section "\t" summary "\t" shorten(text) "\t" source "\t" \
      needs(field["Depends"]) "\t" traits_of(field["Tag"])
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
name == "Tag" { field["Tag"] = field["Tag"] $0; next }
name ~ /^Description(-en)?$/ {
  # Once there is some text, lists and further paragraphs are left out.
  if ($0 ~ /^ \.$/ || $0 ~ /^  / || $0 ~ /^ [-*o] /) stopped = length(long[name]) >= 60
  else if (!stopped || long[name] == "") {
    stopped = 0
    long[name] = long[name] $0
  }
}
END { finish() }
