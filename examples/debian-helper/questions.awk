# Writes questions and answers about the held-out packages (want = "eval") or about the others ("train"): one
# {"messages": [...]} per line, with a number to sort by in front. Each package gives one row.

function row(question, answer) {
  print hash($1, "order") "\t{\"messages\": [{\"role\": \"user\", \"content\": " json(question) \
    "}, {\"role\": \"assistant\", \"content\": " json(answer) "}]}"
}

function record() {
  if (length($4) >= 80) return $4
  return "Package: " $1 "\nSection: " $2 ($6 != "" ? "\nDepends: " $6 : "") "\nDescription: " $3
}

(held_out($1) ? "eval" : "train") != want { next }
{
  kind = hash($1, "kind") % 4
  way = hash($1, "phrase") % 2
  if (kind == 0) {
    row(way ? "Which section does the package " $1 " (" $3 ") belong to?" \
            : "In which section is " $1 ", described as: " $3 "?", $1 " belongs to the section " $2 ".")
  } else if (kind == 1) {
    row(way ? "What does the package " $1 " do?" : "What is " $1 " for?", "It is this: " $3 ".")
  } else if (kind == 2) {
    row(way ? "Which package is this: " $3 "?" : "I look for this: " $3 ". What should I install?", "Install " $1 ".")
  } else {
    row((way ? "Summarise in one line:\n" : "In short, what is this?\n") record(), "In short: " $3 ".")
  }
}
