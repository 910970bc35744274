# Writes plain text about the packages that are not held out: one {"text": ...} per line, with a number to sort by in
# front. Each package has one description of its own and is named in lists of its source and section.
# With want = "held_out" it writes only the descriptions of the held-out packages.

function write(text, key) { print hash(key, "order") "\t{\"text\": " json(text) "}" }

function facts(    text) {
  text = ""
  if ($7 != "") text = text " " $7
  if ($6 != "") text = text " It depends on " listed($6) "."
  if ($5 != $1) text = text " It is built from the source " $5 "."
  return text
}

function body() { return $4 != "" ? " " $4 : "" }

function describe(    way) {
  way = hash($1, "way") % 4
  if (way == 0) return $1 " is in the section " $2 ". " capital($3) "." body() facts()
  if (way == 1) return capital($3) ": that is " $1 ", a package of the section " $2 "." body() facts()
  if (way == 2) {
    return "Package: " $1 "\nSection: " $2 ($6 != "" ? "\nDepends: " $6 : "") "\nDescription: " $3 \
      ($4 != "" ? "\n " $4 : "")
  }
  return "In the section " $2 " there is " $1 " (" $3 ")." body() facts()
}

function add(group, size, line,    full) {
  if (++members[group] > size) {
    write(lists[group], group parts_of[group]++)
    members[group] = 1
    lists[group] = ""
  }
  lists[group] = lists[group] (lists[group] == "" ? titles[group] : "\n") line
}

held_out($1) != (want == "held_out") { next }
{ write(describe(), $1) }
want != "held_out" {
  if ($5 != $1) {
    titles["source " $5] = "The source " $5 " gives these packages.\n"
    add("source " $5, 6, $1 " - " $3)
  }
  titles["section " $2] = "Some packages of the section " $2 ".\n"
  add("section " $2, 6, $1 " - " $3)
}
END { for (group in lists) if (members[group] > 1) write(lists[group], group parts_of[group]) }
