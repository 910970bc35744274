# Writes descriptions with their sections: one {"text": ..., "label": ...} per line, with a number to sort by in front.
# Each source gives one package, so no description is both trained on and held out; want = "eval" selects the held-out
# sources. The records are read twice: the first pass counts, and the `most` sections with the most sources are kept.

function chosen(source, name) {
  if (!(source in least) || hash(name, "choice") < least[source]) {
    least[source] = hash(name, "choice")
    package_of[source] = name
  }
}

pass == 1 {
  chosen($5, $1)
  section_of[$1] = $2
  next
}
FNR == 1 {
  for (source in package_of) count[section_of[package_of[source]]]++
  for (i = 0; i < most; i++) {
    best = ""
    for (section in count)
      if (!(section in kept) && (best == "" || count[section] > count[best] ||
                                 (count[section] == count[best] && section < best))) best = section
    if (best != "") kept[best] = 1
  }
}
package_of[$5] != $1 || !($2 in kept) { next }
(hash($5, "sections") % 10 == 0 ? "eval" : "train") == want {
  text = capital($3) "." ($4 != "" ? " " $4 : "")
  print hash($1, "order") "\t{\"text\": " json(text) ", \"label\": " json($2) "}"
}
